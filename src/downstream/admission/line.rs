//! A bounded number of places, and a bounded line of those who wait for one. Pure: no clock, no waking.
//!
//! First come, first served, but that no peer takes all: both the places and the line are shared (`fairness`).

use std::collections::VecDeque;

use crate::fairness::{Peer, Share};

/// See the module. `T` is what somebody who waits is told by.
#[derive(Debug)]
pub(super) struct Line<T> {
    running: Share,
    waiting: Share,
    /// In the order of their coming. Of nobody in it there would be room.
    queue: VecDeque<Waiter<T>>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter<T> {
    id: u64,
    peer: Peer,
    tell: T,
}

/// What becomes of somebody who comes.
#[derive(Debug)]
pub(super) enum Entry<'a, T> {
    /// Has a place.
    Runs,
    /// Gets none now.
    MayWait(Ticket<'a, T>),
    /// The line is full, too.
    Full,
}

/// The right to stand at the end of the line.
#[derive(Debug)]
pub(super) struct Ticket<'a, T> {
    line: &'a mut Line<T>,
    peer: Peer,
}

impl<T> Ticket<'_, T> {
    /// Stands there; the number is for giving up.
    pub(super) fn wait(self, tell: T) -> u64 {
        let Self { line, peer } = self;
        let id = line.next_id;
        line.next_id += 1;
        line.waiting.take(peer);
        line.queue.push_back(Waiter { id, peer, tell });
        id
    }
}

impl<T> Line<T> {
    /// So many places, and so many who may wait for one.
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running: Share::new(running_max),
            waiting: Share::new(waiting_max),
            queue: VecDeque::new(),
            next_id: 0,
        }
    }

    /// Places taken.
    pub(super) fn running(&self) -> usize {
        self.running.taken()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.taken()
    }

    /// Whether the peer would run at once.
    pub(super) fn has_room_for(&self, peer: Peer) -> bool {
        self.running.has_room_for(peer)
    }

    /// Somebody comes. Nobody is passed who could have had the place: those who wait could not.
    pub(super) fn enter(&mut self, peer: Peer) -> Entry<'_, T> {
        if self.running.has_room_for(peer) {
            self.running.take(peer);
            return Entry::Runs;
        }
        if !self.waiting.has_room_for(peer) {
            return Entry::Full;
        }
        Entry::MayWait(Ticket { line: self, peer })
    }

    /// Somebody who had a place leaves. Ask for [`admit_next`](Self::admit_next) afterwards.
    pub(super) fn leave(&mut self, peer: Peer) {
        self.running.give_back(peer);
    }

    /// The next one in the line for whom there is room, who has the place now. To be asked until there is none.
    pub(super) fn admit_next(&mut self) -> Option<(Peer, T)> {
        let mut waiters = self.queue.iter();
        let at = waiters.position(|waiter| self.running.has_room_for(waiter.peer))?;
        let waiter = self.queue.remove(at)?;
        self.waiting.give_back(waiter.peer);
        self.running.take(waiter.peer);
        Some((waiter.peer, waiter.tell))
    }

    /// Somebody who waits does so no longer; false if their turn has come meanwhile.
    pub(super) fn give_up(&mut self, id: u64) -> bool {
        // Numbers grow along the line.
        let Ok(at) = self.queue.binary_search_by_key(&id, |waiter| waiter.id) else {
            return false;
        };
        if let Some(waiter) = self.queue.remove(at) {
            self.waiting.give_back(waiter.peer);
        }
        true
    }
}

#[cfg(test)]
mod tests;
