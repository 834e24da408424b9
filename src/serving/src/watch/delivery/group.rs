//! The streams of one worker that share a view. They are written to one after the other, from the same chunks.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::Sequence;
use crate::view::{View, WatchWaiter};
use crate::watch::WatchRecorder;

use super::chunk::SharedChunk;
use super::limits::TurnLimits;
use super::pace::PassPace;

/// The streams of one worker that share a view, and the progress of a pass over them.
#[derive(Debug)]
pub(super) struct DeliveryGroup {
    pub(super) view: Arc<View>,
    pub(super) recorder: Arc<dyn WatchRecorder>,
    waiter: WatchWaiter,
    waker: Waker,
    members: Vec<usize>,
    pass: Option<GroupPass>,
    pace: PassPace,
}

/// What becomes of a pass that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassStart {
    /// It has begun.
    Now,
    /// It must be begun at this time.
    At(Instant),
    /// It follows the one that is running, or begins at the time that was said before.
    Later,
}

#[derive(Clone, Copy, Debug)]
struct GroupPass {
    /// Index of the next member; those before it have been visited.
    next: usize,
    /// The view has batches that this pass does not bring to all members, so another pass must follow.
    is_stale: bool,
    /// A member has more to get already, so the next pass needs no pause.
    is_behind: bool,
    /// All members have been visited.
    is_over: bool,
}

impl DeliveryGroup {
    pub(super) fn new(
        view: Arc<View>,
        recorder: Arc<dyn WatchRecorder>,
        waiter: WatchWaiter,
        waker: Waker,
    ) -> Self {
        let group = Self {
            view,
            recorder,
            waiter,
            waker,
            members: Vec::new(),
            pass: None,
            pace: PassPace::default(),
        };
        group.arm(1);
        group
    }

    fn arm(&self, watchers: usize) {
        let watchers = u32::try_from(watchers).unwrap_or(u32::MAX);
        self.waiter.arm_for(&self.waker, watchers);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a stream; returns its index in the group.
    pub(super) fn push(&mut self, stream: usize) -> usize {
        self.members.push(stream);
        self.members.len() - 1
    }

    /// Removes the stream at `index`. Calls `moved` for each stream whose index changes. A running pass skips no stream because of
    /// that and visits none twice.
    pub(super) fn remove(&mut self, index: usize, mut moved: impl FnMut(usize, usize)) {
        let last = self.members.len() - 1;
        let mut hole = index;
        if let Some(pass) = &mut self.pass
            && hole < pass.next
        {
            pass.next -= 1;
            if hole != pass.next {
                self.members.swap(hole, pass.next);
                moved(self.members[hole], hole);
                hole = pass.next;
            }
        }
        self.members.swap_remove(hole);
        if hole < last {
            moved(self.members[hole], hole);
        }
    }

    /// Starts a pass because the view has new batches, if none is running and the pause after the last one is over.
    pub(super) fn begin(&mut self, now: Instant) -> PassStart {
        if let Some(pass) = &mut self.pass {
            pass.is_stale = true;
            return PassStart::Later;
        }
        if let Some((at, is_first)) = self.pace.pause(now) {
            // Later batches of the pause are noticed, too.
            self.arm(self.members.len());
            return match is_first {
                true => PassStart::At(at),
                false => PassStart::Later,
            };
        }
        self.pace.begin();
        // Arm before reading: a batch published before arming is found, a later one wakes the worker.
        self.arm(self.members.len());
        self.pass = Some(GroupPass {
            next: 0,
            is_stale: false,
            is_behind: false,
            is_over: false,
        });
        PassStart::Now
    }

    /// Requests another pass, because a member will not have everything after this one.
    pub(super) fn repeat(&mut self) {
        if let Some(pass) = &mut self.pass {
            pass.is_stale = true;
            pass.is_behind = true;
        }
    }

    /// Adds to the time that the pass takes.
    pub(super) fn add_time(&mut self, time: Duration) {
        self.pace.add(time);
    }

    /// The next member of the pass; `None` at its end.
    pub(super) fn next(&mut self) -> Option<usize> {
        let pass = self.pass.as_mut()?;
        let member = self.members.get(pass.next).copied();
        pass.next += usize::from(member.is_some());
        pass.is_over = member.is_none();
        member
    }

    /// Ends the pass if it has visited all members; returns whether another must follow.
    pub(super) fn finish(&mut self, now: Instant, pass_min: Duration) -> bool {
        let Some(pass) = self.pass.take_if(|pass| pass.is_over) else {
            return false;
        };
        if !pass.is_behind {
            self.pace.finish(now, pass_min);
        }
        pass.is_stale
    }
}

/// The shared chunks of a part of a pass, each made when the first member needs it, with the number of clients that got it.
#[derive(Debug)]
pub(super) struct SharedChunks {
    limits: TurnLimits,
    made: Vec<(SharedChunk, u64)>,
}

impl SharedChunks {
    pub(super) fn new(limits: TurnLimits) -> Self {
        Self {
            limits,
            made: Vec::new(),
        }
    }

    /// The chunk at `from` and its number of clients; `None` if the view has no such batches or there are too many chunks already.
    pub(super) fn at(&mut self, view: &View, from: Sequence) -> Option<&mut (SharedChunk, u64)> {
        let found = self.made.iter().position(|(chunk, _)| chunk.from == from);
        let at = match found {
            Some(at) => at,
            None if self.made.len() >= self.limits.chunks => return None,
            None => {
                let chunk = SharedChunk::read(view, from, self.limits.chunk_len)
                    .ok()
                    .flatten()?;
                self.made.push((chunk, 0));
                self.made.len() - 1
            }
        };
        Some(&mut self.made[at])
    }

    /// Records what was delivered, and drops the chunks.
    pub(super) fn record_lines(&mut self, recorder: &dyn WatchRecorder) {
        let now = Instant::now().into_std();
        for (chunk, client_count) in self.made.drain(..) {
            if client_count == 0 {
                continue;
            }
            recorder.delivered(client_count * chunk.events, client_count * chunk.len);
            if let Some((before, after)) = chunk.compression() {
                recorder.compressed(before, after);
            }
            for arrival in chunk.arrivals {
                recorder.late(arrival, now, client_count);
            }
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod models;
#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::samples::kind;
    use crate::cache::{Arrival, WriteAge};
    use crate::resource::Layout;
    use crate::selector::Selector;
    use crate::view::Hub;

    /// What was recorded.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct DeliveryTotals {
        events: u64,
        bytes: u64,
        /// The number of clients of each delay.
        delayed: Vec<u64>,
        /// The seconds of each age, and its number of clients.
        aged: Vec<(u64, u64)>,
    }

    #[derive(Debug, Default)]
    struct TotalsRecorder(std::sync::Mutex<DeliveryTotals>);

    impl WatchRecorder for TotalsRecorder {
        fn delivered(&self, events: u64, bytes: u64) {
            let mut totals = self.0.lock().unwrap();
            totals.events += events;
            totals.bytes += bytes;
        }

        fn delayed(&self, _: Duration, clients: u64) {
            self.0.lock().unwrap().delayed.push(clients);
        }

        fn aged(&self, by: Duration, clients: u64) {
            let mut totals = self.0.lock().unwrap();
            totals.aged.push((by.as_secs(), clients));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn delivered_events_are_counted_for_each_client() {
        let arrival = |age: Option<u64>| Arrival {
            at: Instant::now().into_std(),
            age: age.map(|age| WriteAge::from(Duration::from_secs(age))),
        };
        let chunk = |events, len| {
            let mut chunk = SharedChunk::empty(0, 0);
            (chunk.events, chunk.len) = (events, len);
            chunk.arrivals = smallvec::smallvec![arrival(None), arrival(Some(len))];
            chunk
        };
        let limits = super::super::limits::LIMITS;
        let made = vec![(chunk(2, 100), 3), (chunk(5, 7), 0), (chunk(1, 10), 1)];
        let mut chunks = SharedChunks { limits, made };
        let recorder = TotalsRecorder::default();
        chunks.record_lines(&recorder);
        // The chunks are dropped, so nothing is recorded twice.
        chunks.record_lines(&recorder);
        let totals = recorder.0.into_inner().unwrap();
        let expected = DeliveryTotals {
            events: 3 * 2 + 1,
            bytes: 3 * 100 + 10,
            delayed: vec![3, 3, 1, 1],
            aged: vec![(100, 3), (10, 1)],
        };
        assert_eq!(totals, expected);
    }

    #[test]
    fn a_pass_that_is_wanted_during_a_pause_begins_once_at_its_end() {
        const PASS_MIN: Duration = Duration::from_millis(2);
        let entry = Hub::new(&kind(Layout::Typed)).join(&Selector::default());
        let waker = Waker::noop().clone();
        let mut group = DeliveryGroup::new(entry.view, Arc::new(()), entry.waiter, waker);
        let end = Instant::now();
        let resume = end + Duration::from_millis(5);
        assert_eq!(group.begin(end), PassStart::Now);
        assert_eq!(group.begin(end), PassStart::Later, "one is running");
        group.add_time(resume - end);
        assert!(!group.finish(end, PASS_MIN), "it is not over");
        assert_eq!(group.next(), None);
        assert!(group.finish(end, PASS_MIN), "a batch came meanwhile");
        assert_eq!(group.begin(end), PassStart::At(resume));
        assert_eq!(group.begin(end), PassStart::Later);
        assert_eq!(group.begin(resume), PassStart::Now);
        assert_eq!(group.next(), None);
        assert!(!group.finish(resume, PASS_MIN));
        assert_eq!(group.begin(resume), PassStart::Now, "it took no time");
        group.add_time(PASS_MIN);
        group.repeat();
        assert_eq!(group.next(), None);
        assert!(group.finish(resume, PASS_MIN));
        assert_eq!(group.begin(resume), PassStart::Now, "a member is behind");
    }

    proptest! {
        #[test]
        fn a_pass_looks_at_each_member_once_whoever_leaves_meanwhile(
            count in 1_usize..20,
            steps in proptest::collection::vec((any::<bool>(), 0_usize..20), 0..60),
        ) {
            let entry = Hub::new(&kind(Layout::Typed)).join(&Selector::default());
            let waker = Waker::noop().clone();
            let mut group = DeliveryGroup::new(entry.view, Arc::new(()), entry.waiter, waker);
            let mut places: Vec<_> = (0..count).map(|member| Some(group.push(member))).collect();
            let (mut seen, mut removed) = (BTreeSet::new(), BTreeSet::new());
            prop_assert_eq!(group.begin(Instant::now()), PassStart::Now);
            for (leaves, member) in steps {
                if leaves {
                    let Some(index) = places.get_mut(member).and_then(Option::take) else {
                        continue;
                    };
                    removed.insert(member);
                    group.remove(index, |moved, index| places[moved] = Some(index));
                } else if let Some(member) = group.next() {
                    prop_assert!(!removed.contains(&member) && seen.insert(member));
                }
            }
            while let Some(member) = group.next() {
                prop_assert!(!removed.contains(&member) && seen.insert(member));
            }
            let missed: Vec<_> = (0..count)
                .filter(|member| !seen.contains(member) && !removed.contains(member))
                .collect();
            prop_assert!(missed.is_empty(), "{missed:?}");
        }
    }
}
