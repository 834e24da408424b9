//! A bounded number of places, and a bounded line of those who wait for one. Pure: no clock, no waking.
//!
//! No peer takes all: places and line are shared, and peers with room take turns, each in the order of its coming. So nobody
//! waits for all that another one, or many at one address, have put into the line before.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::{Peer, Share, Shortage};

/// See the module. `T` is what somebody who waits is told by.
#[derive(Debug)]
pub struct FairQueue<T> {
    running: Share,
    waiting: Share,
    /// Who waits, by group. Of nobody there would be room.
    groups: HashMap<Peer, PeerGroup<T>, foldhash::fast::RandomState>,
    /// Groups in the order of their turns. Few of these are without room while a place is free, because then each holds several
    /// places: so finding the next one takes few steps, however long the line is.
    turns: BTreeMap<u64, Peer>,
    next_number: u64,
}

/// Who waits of a group of peers: the users of an address. An address that has its share is passed over as one, however many users
/// wait there.
#[derive(Debug)]
struct PeerGroup<T> {
    turn: u64,
    queues: HashMap<Peer, PeerQueue<T>, foldhash::fast::RandomState>,
    /// Peers in the order of their turns; few are without room, as above.
    turns: BTreeMap<u64, Peer>,
}

/// Who waits of a peer, in the order of their coming. Never empty.
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

    /// The peer's next turn is this one, if it still waits.
    fn put_off(&mut self, peer: Peer, turn: u64) {
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
    tell: T,
}

/// What becomes of somebody who comes.
#[derive(Debug)]
pub enum QueueDecision<'a, T> {
    /// Has a place.
    Runs,
    /// Gets none now.
    MayWait(QueueTicket<'a, T>),
    /// The line is full, too: for this one, or for all.
    Full(Shortage),
}

/// The right to stand at the end of the line.
#[derive(Debug)]
pub struct QueueTicket<'a, T> {
    line: &'a mut FairQueue<T>,
    peer: Peer,
}

impl<T> QueueTicket<'_, T> {
    /// Stands there; the number is for giving up.
    pub fn wait(self, tell: T) -> u64 {
        let Self { line, peer } = self;
        let id = line.number();
        line.waiting.take(peer);
        let key = peer.group();
        let group = line.groups.entry(key).or_insert_with(|| {
            line.turns.insert(id, key);
            PeerGroup::new(id)
        });
        group.push(peer, QueueWaiter { id, tell });
        id
    }
}

impl<T> FairQueue<T> {
    /// So many places, and so many who may wait for one.
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

    /// Places taken.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.taken()
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.taken()
    }

    /// Why the peer would not run at once, if it would not.
    #[must_use]
    pub fn shortage(&self, peer: Peer) -> Option<Shortage> {
        self.running.shortage(peer)
    }

    /// Whether the peer would run at once.
    #[must_use]
    pub fn has_room_for(&self, peer: Peer) -> bool {
        self.running.has_room_for(peer)
    }

    /// Somebody comes. Nobody is passed who could have had the place: those who wait could not.
    pub fn enter(&mut self, peer: Peer) -> QueueDecision<'_, T> {
        if self.running.has_room_for(peer) {
            self.running.take(peer);
            return QueueDecision::Runs;
        }
        if let Some(shortage) = self.waiting.shortage(peer) {
            return QueueDecision::Full(shortage);
        }
        QueueDecision::MayWait(QueueTicket { line: self, peer })
    }

    /// Somebody who had a place leaves. Ask for [`admit_next`](Self::admit_next) afterwards.
    pub fn leave(&mut self, peer: Peer) {
        self.running.give_back(peer);
    }

    /// The next one in the line for whom there is room, who has the place now. To be asked until there is none.
    pub fn admit_next(&mut self) -> Option<(Peer, T)> {
        if self.running.is_full() {
            return None;
        }
        let peer = self.next()?;
        let waiter = self.remove(peer, 0)?;
        self.put_off(peer);
        self.running.take(peer);
        Some((peer, waiter.tell))
    }

    /// Of those for whom there is room, the one whose turn it is.
    fn next(&self) -> Option<Peer> {
        let open = |group: &&Peer| !self.running.is_closed_to(**group);
        self.turns.values().filter(open).find_map(|group| {
            let mut peers = self.groups.get(group)?.turns.values();
            peers
                .find(|peer| self.running.has_room_for(**peer))
                .copied()
        })
    }

    /// The peer has had its turn, and its group, too.
    fn put_off(&mut self, peer: Peer) {
        let turn = self.number();
        if let Some(group) = self.groups.get_mut(&peer.group()) {
            group.put_off(peer, turn);
            self.turns.remove(&group.turn);
            group.turn = turn;
            self.turns.insert(turn, peer.group());
        }
    }

    /// Numbers grow along the line.
    const fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Somebody who waits does so no longer; false if their turn has come meanwhile.
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
