//! A bounded number of permits, and a bounded queue of waiters. Pure: no clock, no wake-ups.
//!
//! Permits and queue positions are shared, so that no peer takes all of them. Waiting peers with room take turns, and each peer's waiters
//! are served in order of arrival. So no waiter waits for everything that another peer, or many peers at one address, queued before it.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::{Peer, Share, Shortage};

/// A queue for permits. `T` is the handle through which a waiter gets its permit.
#[derive(Debug)]
pub struct FairQueue<T> {
    running: Share,
    waiting: Share,
    /// Waiters by group. None of them could run now.
    groups: HashMap<Peer, PeerGroup<T>, foldhash::fast::RandomState>,
    /// Groups in the order of their turns. While a permit is free, only few groups are without room, because each of these holds several
    /// permits: so finding the next waiter takes few steps, however long the queue is.
    turns: BTreeMap<u64, Peer>,
    next_number: u64,
}

/// The waiters of a group of peers: the users of an address. An address that has used up its share is skipped in one step, however many of
/// its users wait.
#[derive(Debug)]
struct PeerGroup<T> {
    turn: u64,
    queues: HashMap<Peer, PeerQueue<T>, foldhash::fast::RandomState>,
    /// Peers in the order of their turns; few of them are without room, as above.
    turns: BTreeMap<u64, Peer>,
}

/// The waiters of a peer, in order of arrival. Never empty.
#[derive(Debug)]
struct PeerQueue<T> {
    turn: u64,
    waiters: VecDeque<QueueWaiter<T>>,
}

impl<T> PeerGroup<T> {
    fn new(turn: u64) -> Self {
        Self {
            turn,
            queues: HashMap::default(),
            turns: BTreeMap::new(),
        }
    }

    fn push(&mut self, peer: Peer, waiter: QueueWaiter<T>) {
        let queue = self.queues.entry(peer).or_insert_with(|| {
            self.turns.insert(waiter.id, peer);
            PeerQueue {
                turn: waiter.id,
                waiters: VecDeque::new(),
            }
        });
        queue.waiters.push_back(waiter);
    }

    fn remove(&mut self, peer: Peer, at: usize) -> Option<QueueWaiter<T>> {
        let queue = self.queues.get_mut(&peer)?;
        let waiter = queue.waiters.remove(at)?;
        if queue.waiters.is_empty() {
            self.turns.remove(&queue.turn);
            self.queues.remove(&peer);
        }
        Some(waiter)
    }

    /// Moves the peer's next turn to `turn`, if the peer still has waiters.
    fn move_to_end(&mut self, peer: Peer, turn: u64) {
        if let Some(queue) = self.queues.get_mut(&peer) {
            self.turns.remove(&queue.turn);
            queue.turn = turn;
            self.turns.insert(turn, peer);
        }
    }
}

#[derive(Debug)]
struct QueueWaiter<T> {
    id: u64,
    handle: T,
}

/// What happens to a new arrival.
#[derive(Debug)]
pub enum QueueDecision<'a, T> {
    /// It has a permit.
    Runs,
    /// It has no permit, and may join the queue.
    MayWait(QueueTicket<'a, T>),
    /// The queue is full as well, for this peer or for all.
    Full(Shortage),
}

/// Permission to join the end of the queue.
#[derive(Debug)]
pub struct QueueTicket<'a, T> {
    queue: &'a mut FairQueue<T>,
    peer: Peer,
}

impl<T> QueueTicket<'_, T> {
    /// Joins the queue; the returned id is for [`FairQueue::give_up`].
    pub fn wait(self, handle: T) -> u64 {
        let Self { queue, peer } = self;
        let id = queue.number();
        queue.waiting.take(peer);
        let key = peer.group();
        let group = queue.groups.entry(key).or_insert_with(|| {
            queue.turns.insert(id, key);
            PeerGroup::new(id)
        });
        group.push(peer, QueueWaiter { id, handle });
        id
    }
}

impl<T> FairQueue<T> {
    /// With these numbers of permits and of waiters.
    #[must_use]
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running: Share::new(running_max),
            waiting: Share::new(waiting_max),
            groups: HashMap::default(),
            turns: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Changes the numbers of permits and of waiters; what is beyond them stays. Call [`admit_next`](Self::admit_next) afterwards.
    pub const fn resize(&mut self, running_max: usize, waiting_max: usize) {
        self.running.resize(running_max);
        self.waiting.resize(waiting_max);
    }

    /// Permits in use.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.taken()
    }

    /// The number of waiters.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.taken()
    }

    /// Which limit keeps the peer from running at once, if one does.
    #[must_use]
    pub fn shortage(&self, peer: Peer) -> Option<Shortage> {
        self.running.shortage(peer)
    }

    /// Whether the peer would run at once.
    #[must_use]
    pub fn has_room_for(&self, peer: Peer) -> bool {
        self.running.has_room_for(peer)
    }

    /// Admits a peer, or lets it wait. It overtakes no waiter that could have used the permit: none of the waiters has room.
    pub fn enter(&mut self, peer: Peer) -> QueueDecision<'_, T> {
        if self.running.has_room_for(peer) {
            self.running.take(peer);
            return QueueDecision::Runs;
        }
        if let Some(shortage) = self.waiting.shortage(peer) {
            return QueueDecision::Full(shortage);
        }
        QueueDecision::MayWait(QueueTicket { queue: self, peer })
    }

    /// Releases a permit. Call [`admit_next`](Self::admit_next) afterwards.
    pub fn leave(&mut self, peer: Peer) {
        self.running.give_back(peer);
    }

    /// Admits the next waiter that has room, and takes the permit for it. Call it until it returns `None`.
    pub fn admit_next(&mut self) -> Option<(Peer, T)> {
        if self.running.is_full() {
            return None;
        }
        let peer = self.next()?;
        let waiter = self.remove(peer, 0)?;
        self.move_to_end(peer);
        self.running.take(peer);
        Some((peer, waiter.handle))
    }

    /// The next peer in turn among those with room.
    fn next(&self) -> Option<Peer> {
        self.turns
            .values()
            .filter(|group| !self.running.is_closed_to(**group))
            .find_map(|group| {
                self.groups
                    .get(group)?
                    .turns
                    .values()
                    .find(|peer| self.running.has_room_for(**peer))
                    .copied()
            })
    }

    /// Moves the peer, and its group, to the end of the order.
    fn move_to_end(&mut self, peer: Peer) {
        let turn = self.number();
        if let Some(group) = self.groups.get_mut(&peer.group()) {
            group.move_to_end(peer, turn);
            self.turns.remove(&group.turn);
            group.turn = turn;
            self.turns.insert(turn, peer.group());
        }
    }

    /// The next turn or id; both grow with each arrival.
    const fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Removes a waiter; false if it was admitted in the meantime.
    pub fn give_up(&mut self, peer: Peer, id: u64) -> bool {
        let group = self.groups.get(&peer.group());
        let Some(queue) = group.and_then(|group| group.queues.get(&peer)) else {
            return false;
        };
        let at = queue.waiters.binary_search_by_key(&id, |waiter| waiter.id);
        let Ok(at) = at else {
            return false;
        };
        self.remove(peer, at).is_some()
    }

    fn remove(&mut self, peer: Peer, at: usize) -> Option<QueueWaiter<T>> {
        let key = peer.group();
        let group = self.groups.get_mut(&key)?;
        let waiter = group.remove(peer, at)?;
        self.waiting.give_back(peer);
        if group.queues.is_empty() {
            self.turns.remove(&group.turn);
            self.groups.remove(&key);
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests;
