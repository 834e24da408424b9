//! The initial phase: requests all objects, streamed, in pages, or in one list.

use std::time::Instant;

use super::report::Remedy;
use super::{
    Action, CUT_STREAMS_MAX, Effect, Failure, InitialMethod, InitialRead, LastPage, ListVersion,
    PAGES_MAX, REFUSED_STREAMS_MAX, ReflectorMachine, ReflectorOptions, ReflectorPhase,
    RelistReason, StreamingLists,
};
use crate::resource::ResourceVersion;

impl InitialRead {
    pub(super) const fn new(
        options: ReflectorOptions,
        reason: RelistReason,
        list_version: ListVersion,
    ) -> Self {
        Self {
            reason,
            list_version,
            method: match options.streaming {
                StreamingLists::Preferred => InitialMethod::Stream,
                StreamingLists::Never => InitialMethod::Pages,
            },
            page: None,
            held: None,
            given_before: ResourceVersion(0),
            may_resume: false,
            cut_stream_count: 0,
        }
    }

    pub(super) fn action(&self, page_len: u32) -> Action {
        if self.method == InitialMethod::Stream {
            return Action::WatchList {
                resource_version: self.list_version,
                reason: self.reason,
            };
        }
        Action::List {
            resource_version: self.list_version,
            continue_token: self.page.as_ref().map(|page| page.token.clone()),
            limit: (self.method == InitialMethod::Pages).then_some(page_len),
            reason: self.reason,
        }
    }

    /// Whether a page continues the pages before it. Pages of different versions do not form one state, and following a token
    /// that repeats would never end.
    fn goes_on(&self, version: ResourceVersion, token: &str) -> bool {
        let before = self.page.as_ref();
        before.is_none_or(|before| before.version == version && before.token != token)
    }

    /// Starts over: the pages received so far are discarded.
    fn reset(&mut self, reason: RelistReason) {
        self.reason = reason;
        self.page = None;
    }

    /// Requests pages, whatever the options prefer.
    pub(super) fn avoid_streams(&mut self) {
        if self.method == InitialMethod::Stream {
            self.method = InitialMethod::Pages;
        }
    }

    /// How many pages have arrived.
    fn page_count(&self) -> u32 {
        self.page.as_ref().map_or(0, |page| page.count)
    }

    /// The page that has just arrived.
    fn last_page(&self, version: ResourceVersion, token: String) -> LastPage {
        LastPage {
            version,
            token,
            count: self.page_count() + 1,
        }
    }

    /// Notes what readers were given before the next request. Only the first request of a list counts: later pages belong to its version.
    pub(super) fn note_given(&mut self, given: ResourceVersion) {
        if self.page.is_some() {
            return;
        }
        self.given_before = given;
        if let ListVersion::AtLeast(version) = &mut self.list_version {
            *version = given.max(*version);
        }
    }

    /// Whether data of this version is too old: older than the held state, or than what readers were given. If the latest version was
    /// requested, it is too old only from `given_before` to `given`: then a proof has overtaken the list, which is not needed. Below
    /// `given_before`, upstream itself went back.
    fn is_behind(&self, version: ResourceVersion, given: ResourceVersion) -> bool {
        match self.list_version {
            ListVersion::Latest => (self.given_before..given).contains(&version),
            ListVersion::Any | ListVersion::AtLeast(_) => {
                version < self.held.unwrap_or_default().max(given)
            }
        }
    }
}

impl ReflectorMachine {
    /// The action that will follow a page of this version and token, if the page turns out to be valid: the driver can
    /// fetch the next page while it reads this one. Decides nothing. The page still has to be observed, and only
    /// [`ReflectorMachine::next_action`] says what is done.
    #[must_use]
    pub fn next_page(&self, version: ResourceVersion, token: &str) -> Option<Action> {
        let ReflectorPhase::Initial(initial) = &self.phase else {
            return None;
        };
        let is_last = token.is_empty() || initial.page_count() >= PAGES_MAX;
        if is_last || !initial.goes_on(version, token) {
            return None;
        }
        let page = Some(initial.last_page(version, token.to_owned()));
        let next = InitialRead {
            page,
            ..initial.clone()
        };
        Some(next.action(self.options.page_len))
    }

    pub(super) fn page(&mut self, version: ResourceVersion, token: String, now: Instant) -> Effect {
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        let is_endless = initial.page_count() >= PAGES_MAX;
        if is_endless || !initial.goes_on(version, &token) {
            initial.method = InitialMethod::Whole;
            return self.restart(RelistReason::PagesExpired, 0);
        }
        if token.is_empty() {
            return self.initial_done(version, now);
        }
        initial.page = Some(initial.last_page(version, token));
        Effect::InitialItem
    }

    /// All objects have arrived. Data older than the held state is accepted only if the latest version was requested: then
    /// upstream itself went back, as after a restored backup.
    pub(super) fn initial_done(&mut self, version: ResourceVersion, now: Instant) -> Effect {
        let given = self.given;
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        if initial.is_behind(version, given) {
            if initial.list_version == ListVersion::Latest {
                // Meanwhile a reader has proven that the held state is upstream's at this version, so the list is not needed.
                self.phase = ReflectorPhase::Live { version: given };
                self.pause(0);
                return Effect::Restarted;
            }
            initial.list_version = ListVersion::Latest;
            return self.restart(RelistReason::VersionAhead, 0);
        }
        if initial.held.is_some_and(|held| version < held) {
            self.counters.went_back += 1;
        }
        self.phase = ReflectorPhase::Live { version };
        self.listed(now);
        Effect::InitialDone {
            resource_version: version,
        }
    }

    /// An attempt to read initial data failed, or ended before the end of the data.
    pub(super) fn initial_failed(&mut self, failure: &Failure) -> Effect {
        let wait = failure.retry_after_seconds();
        let was_opened = self.attempt.opened_at.is_some();
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        let is_stream = initial.method == InitialMethod::Stream;
        match failure.remedy() {
            Remedy::Relist if initial.page.is_some() => {
                initial.method = InitialMethod::Whole;
                self.restart(RelistReason::PagesExpired, wait)
            }
            Remedy::Relist | Remedy::Unordered => {
                self.restart_from_latest(RelistReason::Expired, wait)
            }
            Remedy::RelistAhead => self.restart_from_latest(RelistReason::VersionAhead, wait),
            Remedy::NotFound => {
                if is_stream {
                    initial.method = InitialMethod::Pages;
                }
                initial.page = None;
                self.pause(wait);
                self.count_not_found();
                Effect::Restarted
            }
            // Upstream refuses to stream, so pages can be tried without a pause.
            Remedy::Refused if is_stream => {
                initial.method = InitialMethod::Pages;
                self.restart_at_once(RelistReason::StreamRefused)
            }
            // A stream that cannot be read to its end once is not tried again later: each attempt takes long to fail.
            Remedy::InternalError | Remedy::Unreadable if is_stream => {
                initial.method = InitialMethod::Pages;
                if was_opened {
                    self.options.streaming = StreamingLists::Never;
                }
                self.restart(RelistReason::StreamRefused, wait)
            }
            Remedy::Reconnect if is_stream && was_opened => {
                initial.cut_stream_count += 1;
                if initial.cut_stream_count >= CUT_STREAMS_MAX {
                    initial.method = InitialMethod::Pages;
                }
                self.restart(RelistReason::Interrupted, wait)
            }
            // The token may be the reason for the refusal, and an unreadable page may be readable in another list.
            Remedy::Refused | Remedy::Unreadable if initial.page.is_some() => {
                initial.method = InitialMethod::Whole;
                self.restart(RelistReason::PagesExpired, wait)
            }
            // Upstream is away or overloaded. If it comes back, watching costs it less than a list.
            Remedy::Again | Remedy::InternalError | Remedy::Reconnect
                if initial.may_resume
                    && let Some(version) = initial.held =>
            {
                self.phase = ReflectorPhase::Live { version };
                self.pause(wait);
                Effect::Restarted
            }
            // The same request is sent later. The pages that have arrived stay.
            Remedy::Again
            | Remedy::InternalError
            | Remedy::Refused
            | Remedy::Reconnect
            | Remedy::Unreadable => {
                self.pause(wait);
                if is_stream {
                    return self.stream_refused();
                }
                Effect::None
            }
        }
    }

    /// A streamed list was not accepted.
    fn stream_refused(&mut self) -> Effect {
        self.refused_stream_count += 1;
        if let ReflectorPhase::Initial(initial) = &mut self.phase
            && self.refused_stream_count >= REFUSED_STREAMS_MAX
        {
            initial.avoid_streams();
        }
        Effect::Restarted
    }

    fn restart(&mut self, reason: RelistReason, wait_seconds: u32) -> Effect {
        self.pause(wait_seconds);
        self.restart_at_once(reason)
    }

    /// Upstream cannot send data of the version that was requested. The latest version can be tried without a pause, as client-go does: the
    /// API server's `Retry-After` is for the version that it does not have yet. If the latest is what failed, only time can help.
    fn restart_from_latest(&mut self, reason: RelistReason, wait_seconds: u32) -> Effect {
        let ReflectorPhase::Initial(initial) = &mut self.phase else {
            return Effect::Ignored;
        };
        let was_latest = initial.list_version == ListVersion::Latest;
        initial.list_version = ListVersion::Latest;
        if was_latest {
            // Upstream cannot lack the latest version, so it is the stream that is refused.
            initial.avoid_streams();
            return self.restart(reason, wait_seconds);
        }
        self.restart_at_once(reason)
    }

    fn restart_at_once(&mut self, reason: RelistReason) -> Effect {
        if let ReflectorPhase::Initial(initial) = &mut self.phase {
            initial.reset(reason);
            self.counters.relists[reason as usize] += 1;
        }
        Effect::Restarted
    }
}
