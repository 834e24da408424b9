//! Which lists hold a permit, which wait for one, and which continue without one because their clients read too slowly. Pure except for the
//! lock around each list's [`Stall`].
//!
//! A client that reads nothing for a while keeps no permit from others: a list that needs one reclaims it ([`Lists::reclaim`]). The slow
//! list continues, and counts against a bounded number of slow lists, which peers share as they share permits that can be taken back. A slow
//! list whose client reads again gets a permit if one is free ([`Lists::regain`]); until then its frames are sent with pauses between them.
//! One that does not count, because its peer has more slow lists than others, is lost: it ends when it would send its next frame.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::fairness::fair_queue::{FairQueue, QueueDecision};
use crate::fairness::{Peer, Permit, Permits, Reclaim};

/// Slow lists per permit. A slow list costs memory, at most what its client's window and the kernel hold of it, and hardly any CPU.
pub(super) const SLOW_LISTS_PER_PERMIT: usize = 4;

/// State that a list shares with those that want its permit.
#[derive(Debug, Default)]
pub(super) struct Stall(Mutex<StallState>);

#[derive(Debug, Default)]
struct StallState {
    /// Since when the list waits for its client; `None` while its next frame is being made.
    since: Option<Instant>,
    /// Set once the list has lost its permit.
    slow: Option<SlowList>,
}

/// A list without a permit.
#[derive(Debug)]
enum SlowList {
    Counted { reclaim: Reclaim, _permit: Permit },
    Lost,
}

impl Stall {
    /// Records since when the list waits for its client; `None` if it does not.
    pub(super) fn set(&self, since: Option<Instant>) {
        self.state().since = since;
    }

    /// Since when the list waits for its client, if it does.
    pub(super) fn since(&self) -> Option<Instant> {
        self.state().since
    }

    /// Whether the list has lost its permit.
    pub(super) fn is_slow(&self) -> bool {
        self.state().slow.is_some()
    }

    /// Whether the list is not even among those that continue without a permit.
    pub(super) fn is_lost(&self) -> bool {
        match &mut self.state().slow {
            None => false,
            Some(SlowList::Counted { reclaim, .. }) => reclaim.is_taken_back(),
            Some(SlowList::Lost) => true,
        }
    }

    fn set_slow(&self, permit: Option<Permit>) {
        self.state().slow = Some(match permit {
            None => SlowList::Lost,
            Some(mut permit) => SlowList::Counted {
                reclaim: permit.reclaimable(),
                _permit: permit,
            },
        });
    }

    fn end_slow(&self) {
        self.state().slow = None;
    }

    fn elapsed(&self, now: Instant) -> Duration {
        let since = self.since();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn state(&self) -> MutexGuard<'_, StallState> {
        self.0.lock()
    }
}

/// All lists. `T` is the handle through which a waiting list gets its permit.
#[derive(Debug)]
pub(super) struct Lists<T> {
    pub(super) queue: FairQueue<T>,
    /// Lists that hold a permit, by id.
    holders: HashMap<u64, ListHolder, foldhash::fast::RandomState>,
    slow: Permits,
    next_id: u64,
    /// When [`reclaim`](Self::reclaim) last checked all lists.
    checked_at: Option<Instant>,
}

#[derive(Debug)]
struct ListHolder {
    peer: Peer,
    stall: Arc<Stall>,
}

impl<T> Lists<T> {
    /// With these numbers of permits and of waiting lists.
    pub(super) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            queue: FairQueue::new(running_max, waiting_max),
            holders: HashMap::default(),
            slow: Permits::new(running_max.saturating_mul(SLOW_LISTS_PER_PERMIT)),
            next_id: 0,
            checked_at: None,
        }
    }

    /// Changes the numbers of permits and of waiting lists. Those beyond them stay.
    pub(super) fn resize(&mut self, running_max: usize, waiting_max: usize) {
        self.queue.resize(running_max, waiting_max);
        self.slow
            .resize(running_max.saturating_mul(SLOW_LISTS_PER_PERMIT));
    }

    /// The number of lists that continue without a permit, without those that are lost.
    pub(super) fn slow(&self) -> usize {
        self.slow.taken()
    }

    /// Records a list that holds the permit which the queue has just granted; returns the list's id.
    pub(super) fn begin(&mut self, peer: Peer, stall: Arc<Stall>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.holders.insert(id, ListHolder { peer, stall });
        id
    }

    /// Removes a list that has ended.
    pub(super) fn end(&mut self, id: u64, peer: Peer, stall: &Stall) {
        match self.holders.remove(&id) {
            Some(_) => self.queue.leave(peer),
            None => stall.end_slow(),
        }
    }

    /// Gives a slow list a permit again, if there is one for its peer. This is fair: no waiting list could use that permit.
    pub(super) fn regain(&mut self, id: u64, peer: Peer, stall: &Arc<Stall>) -> bool {
        if !matches!(self.queue.enter(peer), QueueDecision::Runs) {
            return false;
        }
        stall.end_slow();
        let stall = Arc::clone(stall);
        self.holders.insert(id, ListHolder { peer, stall });
        true
    }

    /// Reclaims the permits of lists whose clients have read nothing for `limit`; returns whether there were any. Checks at most once in an
    /// eighth of that time, and loses at most one list each time: until its client reads or is cut, it needs memory beyond the slow ones'.
    pub(super) fn reclaim(&mut self, now: Instant, limit: Duration) -> bool {
        let pause = limit / 8;
        if let Some(at) = self.checked_at
            && now.saturating_duration_since(at) < pause
        {
            return false;
        }
        self.checked_at = Some(now);
        let Self {
            queue,
            holders,
            slow,
            ..
        } = self;
        let before = holders.len();
        let mut may_lose = true;
        holders.retain(|_, list| {
            if list.stall.elapsed(now) < limit {
                return true;
            }
            let permit = slow.try_acquire(list.peer);
            if permit.is_none() && !std::mem::take(&mut may_lose) {
                return true;
            }
            queue.leave(list.peer);
            list.stall.set_slow(permit);
            false
        });
        holders.len() < before
    }
}
