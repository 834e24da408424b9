//! The live phase: follows changes, and resumes from the last version as long as that brings anything.

use std::time::{Duration, Instant};

use super::fruitless::{FRUITLESS_MAX, FRUITLESS_TIME_MAX, FruitlessWatches};
use super::report::Remedy;
use super::{
    Comparison, Effect, Failure, GonePolicy, InitialRead, ListVersion, Pause, REFUSED_STREAMS_MAX,
    ReflectorMachine, ReflectorPhase, RelistReason, SHORT_WATCH,
};
use crate::resource::ResourceVersion;

/// An open watch lags if upstream has another state this many times in a row, and nothing arrived in between.
const DIFFERENCES_MAX: u32 = 2;
/// The longest wait that upstream can ask for before a list that follows a comparison: it has waited as long before.
const LIST_WAIT_MAX: Duration = Duration::from_secs(30);
/// A watch that was opened so short a time ago has brought, or has shown not to be there, what the one before it may have missed.
const RECENT_WATCH: Duration = Duration::from_secs(45);

impl ReflectorMachine {
    /// A bookmark may repeat a version (docs/PROTOCOL.md §4.5), but must not go back.
    pub(super) fn bookmark(&mut self, bookmark: ResourceVersion) -> Effect {
        let ReflectorPhase::Live { version } = &mut self.phase else {
            return Effect::Ignored;
        };
        if bookmark < *version {
            self.counters.ignored += 1;
            return Effect::Ignored;
        }
        if bookmark == *version {
            return Effect::None;
        }
        *version = bookmark;
        self.progressed();
        Effect::Progress {
            resource_version: bookmark,
        }
    }

    /// A clean end is upstream's time limit. It is followed by a pause only if the watch was short and delivered nothing.
    pub(super) fn live_ended(&mut self, now: Instant) -> Effect {
        if self.attempt.is_fruitful {
            return Effect::None;
        }
        if self.attempt_time(now) < SHORT_WATCH {
            self.pause(0);
        }
        self.fruitless(RelistReason::WatchFailed, 1, now)
    }

    /// The watch was refused, cut, or ended with an error.
    pub(super) fn live_failed(&mut self, failure: &Failure, now: Instant) -> Effect {
        // A watch that lived longer than the pause before it needs no longer pause after it.
        self.backoff.outlived(self.attempt_time(now));
        self.pause(failure.retry_after_seconds());
        let was_opened = self.attempt.opened_at.is_some();
        let (reason, count) = match failure.remedy() {
            Remedy::Relist => return self.relist(RelistReason::Expired),
            Remedy::RelistAhead => return self.relist(RelistReason::VersionAhead),
            Remedy::Unordered => return self.relist(RelistReason::Unordered),
            Remedy::NotFound if self.gone_policy == GonePolicy::Stop && !was_opened => {
                self.count_not_found();
                return Effect::None;
            }
            // The resource was removed. Once it is back it may be another one, so it must be listed, not watched from the last version.
            Remedy::NotFound | Remedy::Refused => (RelistReason::WatchRefused, 1),
            Remedy::Unreadable => (RelistReason::Unparsable, 1),
            // A server that does not even accept the watch is overloaded or starting; the version is not the cause.
            Remedy::Again | Remedy::InternalError | Remedy::Reconnect => {
                (RelistReason::WatchFailed, u32::from(was_opened))
            }
        };
        // What cannot be read, or is refused, may follow what has been read.
        if self.attempt.is_fruitful && reason == RelistReason::WatchFailed {
            return Effect::None;
        }
        self.fruitless(reason, count, now)
    }

    /// The state was compared with upstream's, while no watch was open or while one was silent.
    pub(super) fn compared(&mut self, comparison: Comparison, now: Instant) -> Effect {
        match self.attempt.opened_at {
            Some(at) => self.open_compared(comparison, now.saturating_duration_since(at), now),
            None => self.closed_compared(comparison, now),
        }
    }

    /// A comparison of some objects proves nothing. The next watch brings what this one may have missed.
    fn open_compared(
        &mut self,
        comparison: Comparison,
        open_for: Duration,
        now: Instant,
    ) -> Effect {
        match comparison {
            Comparison::Equal => self.proven(),
            Comparison::Unrefuted if open_for < RECENT_WATCH => Effect::None,
            Comparison::Unrefuted => self.open_again(open_for),
            Comparison::Unknown(_) if open_for >= FRUITLESS_TIME_MAX => self.open_again(open_for),
            Comparison::Unknown(_) => Effect::None,
            Comparison::Different => {
                self.attempt.differences += 1;
                if self.attempt.differences >= DIFFERENCES_MAX {
                    // The next one that lacks something is one too many.
                    return self.end_watch(FRUITLESS_MAX - 1, now);
                }
                Effect::None
            }
        }
    }

    fn closed_compared(&mut self, comparison: Comparison, now: Instant) -> Effect {
        self.fruitless.is_check_due = false;
        self.fruitless.is_paced = false;
        self.fruitless.check_count = self.fruitless.check_count.max(1);
        match comparison {
            Comparison::Equal => {
                self.fruitless.restart(now);
                self.pause(0);
                Effect::Proven
            }
            // Too many objects to list them for a suspicion.
            Comparison::Unrefuted => {
                self.fruitless.restart(now);
                self.pause(0);
                Effect::None
            }
            // A watch that succeeds now costs upstream less than a list.
            Comparison::Different => {
                self.fruitless.is_last = true;
                self.pause = Pause::No;
                Effect::None
            }
            Comparison::Unknown(seconds) => {
                self.fruitless.is_last = true;
                self.pause(seconds);
                Effect::None
            }
        }
    }

    /// Ends an open watch of which nothing bad is known: the next one costs upstream no list, and shows what this one may have missed.
    fn open_again(&mut self, open_for: Duration) -> Effect {
        self.backoff.outlived(open_for);
        self.pause(0);
        Effect::EndWatch
    }

    fn proven(&mut self) -> Effect {
        self.succeeded();
        Effect::Proven
    }

    /// Ends an open watch, which counts as this many that brought nothing.
    pub(super) fn end_watch(&mut self, count: u32, now: Instant) -> Effect {
        self.pause(0);
        self.fruitless(RelistReason::WatchFailed, count, now);
        Effect::EndWatch
    }

    /// Something has shown that the state is upstream's, or was a moment ago.
    pub(super) fn succeeded(&mut self) {
        self.attempt.is_fruitful = true;
        self.attempt.differences = 0;
        self.fruitless = FruitlessWatches::none();
        self.list_backoff.succeeded();
    }

    fn attempt_time(&self, now: Instant) -> Duration {
        self.attempt
            .opened_at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// Counts watches that brought nothing. If they are too many, decides what follows.
    fn fruitless(&mut self, reason: RelistReason, count: u32, now: Instant) -> Effect {
        let watches = &mut self.fruitless;
        watches.count = watches.count.saturating_add(count);
        watches.since.get_or_insert(now);
        if watches.is_last {
            return self.relist(RelistReason::WatchFailed);
        }
        if watches.due_at().is_none_or(|at| now < at) {
            return Effect::None;
        }
        if reason != RelistReason::WatchFailed {
            return self.relist(reason);
        }
        watches.is_check_due = true;
        // The server may ask for time. Otherwise nothing is gained by waiting.
        if let Pause::Wanted { floor } = self.pause
            && floor.is_zero()
        {
            self.pause = Pause::No;
        }
        Effect::None
    }

    fn relist(&mut self, reason: RelistReason) -> Effect {
        let ReflectorPhase::Live { version } = self.phase else {
            return Effect::Ignored;
        };
        // Upstream has rejected this version, or what it sent from there is in doubt.
        let list_version = match reason {
            RelistReason::Expired
            | RelistReason::VersionAhead
            | RelistReason::WatchFailed
            | RelistReason::Unordered => ListVersion::Latest,
            RelistReason::Start
            | RelistReason::PagesExpired
            | RelistReason::Interrupted
            | RelistReason::StreamRefused
            | RelistReason::WatchRefused
            | RelistReason::Unparsable => ListVersion::AtLeast(version),
        };
        self.counters.relists[reason as usize] += 1;
        self.fruitless.is_last = false;
        let mut initial = InitialRead {
            held: Some(version),
            may_resume: matches!(
                reason,
                RelistReason::WatchFailed | RelistReason::WatchRefused | RelistReason::Unparsable
            ),
            ..InitialRead::new(self.options, reason, list_version)
        };
        // A streamed list is a watch, too.
        if reason == RelistReason::WatchFailed || self.refused_stream_count >= REFUSED_STREAMS_MAX {
            initial.avoid_streams();
        }
        let asked = self.asked_wait();
        self.pause = match reason == RelistReason::WatchFailed {
            false => Pause::BeforeList { floor: asked },
            // The comparison was paced, so the list follows at once.
            true if asked.is_zero() => Pause::No,
            true => Pause::BeforeList {
                floor: asked.min(LIST_WAIT_MAX),
            },
        };
        self.phase = ReflectorPhase::Initial(initial);
        Effect::Relisting { reason }
    }
}
