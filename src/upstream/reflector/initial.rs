//! The phase that asks for all objects: streamed, in pages, or whole.

use super::report::Remedy;
use super::{
    Action, CUT_STREAMS_MAX, Effect, Failure, InitialMethod, InitialRead, LastPage, ListVersion,
    ReflectorMachine, ReflectorOptions, ReflectorPhase, RelistReason, StreamingLists,
};
use crate::resource::ResourceVersion;

impl InitialRead {
    pub(super) const fn new(
        options: ReflectorOptions,
        reason: RelistReason,
        ask: ListVersion,
    ) -> Self {
        Self {
            reason,
            ask,
            means: match options.streaming {
                StreamingLists::Preferred => InitialMethod::Stream,
                StreamingLists::Never => InitialMethod::Pages,
            },
            page: None,
            held: None,
            cut_stream_count: 0,
        }
    }

    pub(super) fn action(&self, page_len: u32) -> Action {
        if self.means == InitialMethod::Stream {
            return Action::WatchList {
                resource_version: self.ask,
                reason: self.reason,
            };
        }
        Action::List {
            resource_version: self.ask,
            continue_token: self.page.as_ref().map(|page| page.token.clone()),
            limit: (self.means == InitialMethod::Pages).then_some(page_len),
            reason: self.reason,
        }
    }

    /// Whether a page goes on where the ones before it ended. Pages of different versions do not add up to a state, and a token
    /// that repeats leads nowhere.
    fn goes_on(&self, version: ResourceVersion, token: &str) -> bool {
        let before = self.page.as_ref();
        before.is_none_or(|before| before.version == version && before.token != token)
    }

    /// The same search from its beginning; whatever came so far is void.
    fn again(&mut self, reason: RelistReason) {
        self.reason = reason;
        self.page = None;
    }

    /// Whether data of this version would take the held state back although something newer was asked for.
    fn is_behind(&self, version: ResourceVersion) -> bool {
        self.ask != ListVersion::Latest && self.held.is_some_and(|held| version < held)
    }
}

impl ReflectorMachine {
    /// What will be asked for next if nothing is wrong with a page that has come but has not been read whole. Decides
    /// nothing: the page still has to be observed, and only [`ReflectorMachine::next_action`] says what is done.
    #[must_use]
    pub fn ahead(&self, version: ResourceVersion, token: &str) -> Option<Action> {
        let ReflectorPhase::Initial(initial) = &self.phase else {
            return None;
        };
        if token.is_empty() || !initial.goes_on(version, token) {
            return None;
        }
        let page = Some(LastPage {
            version,
            token: token.to_owned(),
        });
        let next = InitialRead {
            page,
            ..initial.clone()
        };
        Some(next.action(self.options.page_len))
    }

    /// A page came.
    pub(super) fn page(&mut self, version: ResourceVersion, token: String) -> Effect {
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        if !initial.goes_on(version, &token) {
            initial.means = InitialMethod::Whole;
            return self.restart(RelistReason::PagesExpired, 0);
        }
        if token.is_empty() {
            return self.initial_done(version);
        }
        initial.page = Some(LastPage { version, token });
        Effect::InitialItem
    }

    /// All objects are there. Data older than the held state is believed only where the latest was asked for: then upstream
    /// itself went back, as after a restored backup.
    pub(super) fn initial_done(&mut self, version: ResourceVersion) -> Effect {
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        if initial.is_behind(version) {
            initial.ask = ListVersion::Latest;
            return self.restart(RelistReason::VersionAhead, 0);
        }
        if initial.held.is_some_and(|held| version < held) {
            self.counters.went_back += 1;
        }
        self.phase = ReflectorPhase::Live { version };
        self.progressed();
        Effect::InitialDone {
            resource_version: version,
        }
    }

    /// An attempt to get initial data failed, or ended before the end of the data.
    pub(super) fn initial_failed(&mut self, failure: &Failure) -> Effect {
        let wait = failure.retry_after_seconds();
        let was_opened = self.attempt.opened_at.is_some();
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        let is_stream = initial.means == InitialMethod::Stream;
        match failure.remedy() {
            Remedy::Relist if initial.page.is_some() => {
                initial.means = InitialMethod::Whole;
                self.restart(RelistReason::PagesExpired, wait)
            }
            Remedy::Relist => {
                initial.ask = ListVersion::Latest;
                self.restart(RelistReason::Expired, wait)
            }
            Remedy::RelistAhead => {
                initial.ask = ListVersion::Latest;
                self.restart(RelistReason::VersionAhead, wait)
            }
            Remedy::NotFound => {
                if is_stream {
                    initial.means = InitialMethod::Pages;
                }
                initial.page = None;
                self.pause(wait);
                self.is_not_found_for_long();
                Effect::Restarted
            }
            // Refused for what it asks: the next way of asking may be tried at once.
            Remedy::Refused if is_stream => {
                initial.means = InitialMethod::Pages;
                self.counted_again(RelistReason::StreamRefused)
            }
            Remedy::Inside | Remedy::Unreadable if is_stream => {
                initial.means = InitialMethod::Pages;
                self.restart(RelistReason::StreamRefused, wait)
            }
            Remedy::Reconnect if is_stream && was_opened => {
                initial.cut_stream_count += 1;
                if initial.cut_stream_count >= CUT_STREAMS_MAX {
                    initial.means = InitialMethod::Pages;
                }
                self.restart(RelistReason::Interrupted, wait)
            }
            // A token may be what is refused; what cannot be read once may be read another time.
            Remedy::Refused | Remedy::Unreadable if initial.page.is_some() => {
                initial.means = InitialMethod::Whole;
                self.restart(RelistReason::PagesExpired, wait)
            }
            // The same request later; pages that came stay.
            Remedy::Again
            | Remedy::Inside
            | Remedy::Refused
            | Remedy::Reconnect
            | Remedy::Unreadable => {
                self.pause(wait);
                if is_stream {
                    Effect::Restarted
                } else {
                    Effect::None
                }
            }
        }
    }

    fn restart(&mut self, reason: RelistReason, wait_seconds: u32) -> Effect {
        self.pause(wait_seconds);
        self.counted_again(reason)
    }

    fn counted_again(&mut self, reason: RelistReason) -> Effect {
        if let ReflectorPhase::Initial(initial) = &mut self.phase {
            initial.again(reason);
            self.counters.relists[reason as usize] += 1;
        }
        Effect::Restarted
    }
}
