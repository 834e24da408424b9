//! The phase that follows changes: resumes from the last version whenever that is possible.

use std::time::Instant;

use super::report::Remedy;
use super::{
    BAD_WATCHES_MAX, Effect, Failure, InitialRead, ListVersion, ReflectorMachine, ReflectorPhase,
    RelistReason, SHORT_WATCH,
};
use crate::resource::ResourceVersion;

impl ReflectorMachine {
    /// A bookmark may repeat a version (docs/PROTOCOL.md §4.5), but not go back.
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

    /// A clean end is upstream's time limit, and no failure unless it came at once.
    pub(super) fn live_ended(&mut self, now: Instant) -> Effect {
        let is_short = self
            .attempt
            .opened_at
            .is_none_or(|at| now.saturating_duration_since(at) < SHORT_WATCH);
        if is_short && !self.attempt.progressed {
            self.pause(0);
        }
        Effect::None
    }

    /// The watch was refused, cut, or ended with an error.
    pub(super) fn live_failed(&mut self, failure: &Failure) -> Effect {
        self.pause(failure.retry_after_seconds());
        match failure.remedy() {
            Remedy::Relist => self.relist(RelistReason::Expired),
            Remedy::RelistAhead => self.relist(RelistReason::VersionAhead),
            Remedy::NotFound => {
                // The resource was removed: what is watched from the last version once it is back may be another one.
                if self.is_not_found_for_long() {
                    return self.relist(RelistReason::WatchRefused);
                }
                Effect::None
            }
            Remedy::Refused => self.bad_watch(RelistReason::WatchRefused),
            Remedy::Unreadable => self.bad_watch(RelistReason::Unparsable),
            Remedy::Again | Remedy::Inside | Remedy::Reconnect => Effect::None,
        }
    }

    fn bad_watch(&mut self, reason: RelistReason) -> Effect {
        self.bad_watch_count += 1;
        if self.bad_watch_count < BAD_WATCHES_MAX {
            return Effect::None;
        }
        self.relist(reason)
    }

    fn relist(&mut self, reason: RelistReason) -> Effect {
        let ReflectorPhase::Live { version } = self.phase else {
            return Effect::Ignored;
        };
        // In the first two cases upstream says that this version is of no use to it.
        let ask = match reason {
            RelistReason::Expired | RelistReason::VersionAhead => ListVersion::Latest,
            RelistReason::Start
            | RelistReason::PagesExpired
            | RelistReason::Interrupted
            | RelistReason::StreamRefused
            | RelistReason::WatchRefused
            | RelistReason::Unparsable => ListVersion::AtLeast(version),
        };
        self.bad_watch_count = 0;
        self.counters.relists[reason as usize] += 1;
        self.phase = ReflectorPhase::Initial(InitialRead {
            held: Some(version),
            ..InitialRead::new(self.options, reason, ask)
        });
        Effect::Relisting { reason }
    }
}
