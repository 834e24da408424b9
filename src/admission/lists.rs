//! Who sends a list, who waits for a place, and whose list goes on without one because its client takes it too slowly. Pure but for
//! the lock around each list's last word.
//!
//! A client that takes nothing for a while keeps no place from others: whoever needs one takes it back
//! ([`Lists::take_back`]). The slow list goes on, and is counted among a bounded number of slow ones, shared by peers as the
//! places are. While these are all taken, slow lists keep their places. A slow list whose client takes it again gets a place
//! if one is free ([`Lists::regain`]); until then it is sent frame by frame with pauses between.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::fairness::fair_queue::{FairQueue, QueueDecision};
use crate::fairness::{Peer, Share};

/// Slow lists for each place. They cost memory, and at most what a client's window and the kernel hold of it; hardly any work.
pub(super) const SLOW_LISTS_PER_PLACE: usize = 4;

/// What a list and those who want its place tell each other.
#[derive(Debug, Default)]
pub(super) struct Stall(Mutex<StallState>);

#[derive(Clone, Copy, Debug, Default)]
struct StallState {
    /// Since when the list waits for its client; nothing while it is being made.
    since: Option<Instant>,
    /// It has lost its place.
    is_slow: bool,
}

impl Stall {
    /// The list waits for its client since then, or no longer.
    pub(super) fn set(&self, since: Option<Instant>) {
        self.stalled().since = since;
    }

    /// Since when the list waits for its client, if it does.
    pub(super) fn since(&self) -> Option<Instant> {
        self.stalled().since
    }

    /// Whether the list has lost its place.
    pub(super) fn is_slow(&self) -> bool {
        self.stalled().is_slow
    }

    fn set_slow(&self, is_slow: bool) {
        self.stalled().is_slow = is_slow;
    }

    fn lasts(&self, now: Instant) -> Duration {
        let since = self.since();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn stalled(&self) -> MutexGuard<'_, StallState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module. `T` is what somebody who waits is told by.
#[derive(Debug)]
pub(super) struct Lists<T> {
    pub(super) line: FairQueue<T>,
    /// Lists that have a place, by number.
    placed: HashMap<u64, ListHolder, foldhash::fast::RandomState>,
    slow: Share,
    next_id: u64,
    /// When slow ones were looked for last.
    looked_at: Option<Instant>,
}

#[derive(Debug)]
struct ListHolder {
    peer: Peer,
    stall: Arc<Stall>,
}

impl<T> Lists<T> {
    /// So many places, and so many who may wait for one.
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            line: FairQueue::new(running_max, waiting_max),
            placed: HashMap::default(),
            slow: Share::new(running_max.saturating_mul(SLOW_LISTS_PER_PLACE)),
            next_id: 0,
            looked_at: None,
        }
    }

    /// Lists that go on without a place.
    pub(super) fn slow(&self) -> usize {
        self.slow.taken()
    }

    /// Notes that a list of the peer has the place which the line has just given it; the number is for leaving.
    pub(super) fn begin(&mut self, peer: Peer, stall: Arc<Stall>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.placed.insert(id, ListHolder { peer, stall });
        id
    }

    /// A list is over.
    pub(super) fn end(&mut self, id: u64, peer: Peer) {
        match self.placed.remove(&id) {
            Some(_) => self.line.leave(peer),
            None => self.slow.give_back(peer),
        }
    }

    /// Gives a slow list a place again, if there is one for its peer. Nobody who waits is passed: there would be none for them.
    pub(super) fn regain(&mut self, id: u64, peer: Peer, stall: &Arc<Stall>) -> bool {
        if !matches!(self.line.enter(peer), QueueDecision::Runs) {
            return false;
        }
        self.slow.give_back(peer);
        stall.set_slow(false);
        let stall = Arc::clone(stall);
        self.placed.insert(id, ListHolder { peer, stall });
        true
    }

    /// Takes back the places of lists whose clients have taken nothing for `limit`; whether there were any. Looks at most once in
    /// an eighth of that time, however often it is asked.
    pub(super) fn take_back(&mut self, now: Instant, limit: Duration) -> bool {
        let pause = limit / 8;
        if let Some(at) = self.looked_at
            && now.saturating_duration_since(at) < pause
        {
            return false;
        }
        self.looked_at = Some(now);
        let Self {
            line, placed, slow, ..
        } = self;
        let before = placed.len();
        placed.retain(|_, list| {
            let keeps = list.stall.lasts(now) < limit || !slow.has_room_for(list.peer);
            if !keeps {
                line.leave(list.peer);
                slow.take(list.peer);
                list.stall.set_slow(true);
            }
            keeps
        });
        placed.len() < before
    }
}
