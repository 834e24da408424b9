//! The live phase: follows changes, and resumes from the last version whenever that is possible.

use std::time::Instant;

use super::report::Remedy;
use super::{
    BAD_WATCHES_MAX, Effect, Failure, InitialRead, ListVersion, ReflectorMachine, ReflectorPhase,
    RelistReason, SHORT_WATCH,
};
use crate::resource::ResourceVersion;

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
                // The resource was removed. Once it is back it may be another one, so it must be listed, not watched from
                // the last version.
                if self.count_not_found() {
                    return self.relist(RelistReason::WatchRefused);
                }
                Effect::None
            }
            Remedy::Refused => self.bad_watch(RelistReason::WatchRefused),
            Remedy::Unreadable => self.bad_watch(RelistReason::Unparsable),
            Remedy::Again | Remedy::InternalError | Remedy::Reconnect => Effect::None,
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
        // In the first two cases upstream has just rejected this version.
        let list_version = match reason {
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
            ..InitialRead::new(self.options, reason, list_version)
        });
        Effect::Relisting { reason }
    }
}
