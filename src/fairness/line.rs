//! A bounded number of places, and a bounded line of those who wait for one. Pure: no clock, no waking.
//!
//! First come, first served, but that no peer takes all: both the places and the line are shared.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use super::{Peer, Share, Shortage};

/// See the module. `T` is what somebody who waits is told by.
#[derive(Debug)]
pub struct Line<T> {
    running: Share,
    waiting: Share,
    /// Who waits, by group. Of nobody there would be room.
    groups: HashMap<Peer, Group<T>, foldhash::fast::RandomState>,
    /// The first of each group. Few of these are without room while a place is free, because then each holds several places: so
    /// finding the next one takes few steps, however long the line is.
    firsts: BTreeMap<u64, Peer>,
    next_id: u64,
}

/// Who waits of a group of peers: the users of an address. An address that has its share is passed over as one, however many users
/// wait there.
#[derive(Debug)]
struct Group<T> {
    /// In the order of their coming.
    queues: HashMap<Peer, VecDeque<Waiter<T>>, foldhash::fast::RandomState>,
    /// The first of each queue; few are without room, as above.
    firsts: BTreeMap<u64, Peer>,
}

impl<T> Group<T> {
    fn new() -> Self {
        Self {
            queues: HashMap::default(),
            firsts: BTreeMap::new(),
        }
    }

    /// The number of the one who waits longest.
    fn first(&self) -> Option<u64> {
        self.firsts.keys().next().copied()
    }

    fn push(&mut self, peer: Peer, waiter: Waiter<T>) {
        let queue = self.queues.entry(peer).or_default();
        if queue.is_empty() {
            self.firsts.insert(waiter.id, peer);
        }
        queue.push_back(waiter);
    }

    fn remove(&mut self, peer: Peer, at: usize) -> Option<Waiter<T>> {
        let queue = self.queues.get_mut(&peer)?;
        let waiter = queue.remove(at)?;
        if at == 0 {
            self.firsts.remove(&waiter.id);
            match queue.front() {
                Some(next) => {
                    self.firsts.insert(next.id, peer);
                }
                None => {
                    self.queues.remove(&peer);
                }
            }
        }
        Some(waiter)
    }
}

#[derive(Debug)]
struct Waiter<T> {
    id: u64,
    tell: T,
}

/// What becomes of somebody who comes.
#[derive(Debug)]
pub enum Entry<'a, T> {
    /// Has a place.
    Runs,
    /// Gets none now.
    MayWait(Ticket<'a, T>),
    /// The line is full, too: for this one, or for all.
    Full(Shortage),
}

/// The right to stand at the end of the line.
#[derive(Debug)]
pub struct Ticket<'a, T> {
    line: &'a mut Line<T>,
    peer: Peer,
}

impl<T> Ticket<'_, T> {
    /// Stands there; the number is for giving up.
    pub fn wait(self, tell: T) -> u64 {
        let Self { line, peer } = self;
        let id = line.next_id;
        line.next_id += 1;
        line.waiting.take(peer);
        let group = line.groups.entry(peer.group()).or_insert_with(Group::new);
        if group.first().is_none() {
            line.firsts.insert(id, peer.group());
        }
        group.push(peer, Waiter { id, tell });
        id
    }
}

impl<T> Line<T> {
    /// So many places, and so many who may wait for one.
    #[must_use]
    pub fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running: Share::new(running_max),
            waiting: Share::new(waiting_max),
            groups: HashMap::default(),
            firsts: BTreeMap::new(),
            next_id: 0,
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
    pub fn enter(&mut self, peer: Peer) -> Entry<'_, T> {
        if self.running.has_room_for(peer) {
            self.running.take(peer);
            return Entry::Runs;
        }
        if let Some(shortage) = self.waiting.shortage(peer) {
            return Entry::Full(shortage);
        }
        Entry::MayWait(Ticket { line: self, peer })
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
        self.running.take(peer);
        Some((peer, waiter.tell))
    }

    /// Of whom there is room for, the one who waits longest.
    fn next(&self) -> Option<Peer> {
        let mut found: Option<(u64, Peer)> = None;
        for (first, group) in &self.firsts {
            if found.is_some_and(|(id, _)| id < *first) {
                break;
            }
            if self.running.is_closed_to(*group) {
                continue;
            }
            let mut firsts = self.groups.get(group)?.firsts.iter();
            let next = firsts.find(|(_, peer)| self.running.has_room_for(**peer));
            if let Some((id, peer)) = next
                && found.is_none_or(|(earlier, _)| *id < earlier)
            {
                found = Some((*id, *peer));
            }
        }
        found.map(|(_, peer)| peer)
    }

    /// Somebody who waits does so no longer; false if their turn has come meanwhile.
    pub fn give_up(&mut self, peer: Peer, id: u64) -> bool {
        let group = self.groups.get(&peer.group());
        let Some(queue) = group.and_then(|group| group.queues.get(&peer)) else {
            return false;
        };
        // Numbers grow along the line.
        let Ok(at) = queue.binary_search_by_key(&id, |waiter| waiter.id) else {
            return false;
        };
        self.remove(peer, at).is_some()
    }

    fn remove(&mut self, peer: Peer, at: usize) -> Option<Waiter<T>> {
        let key = peer.group();
        let group = self.groups.get_mut(&key)?;
        let first = group.first()?;
        let waiter = group.remove(peer, at)?;
        self.waiting.give_back(peer);
        match group.first() {
            Some(next) if next == first => {}
            Some(next) => {
                self.firsts.remove(&first);
                self.firsts.insert(next, key);
            }
            None => {
                self.firsts.remove(&first);
                self.groups.remove(&key);
            }
        }
        Some(waiter)
    }
}

#[cfg(test)]
mod tests;
