//! Decides list, watch, relist and back-off; performs nothing. Owns no connection, no clock and no objects.
//!
//! ```text
//!            ┌─────────── 410 · version ahead · watch refused · frames unreadable ───────────┐
//!            ▼                                                                               │
//! start ─▶ Initial ── streamed list: marker bookmark ──────────────────────────────────▶   Live ──▶ (404 too often) Stopped
//!            │  ▲                                                                         │  ▲
//!            │  └ cut: side buffer dropped, again    paged list: last page ──▶            └──┘ end, cut, 429, 5xx: watch
//!            └──────────────────────────────────────────────────────────────────────────▶     again from the last version
//! ```
//!
//! The driver's loop: ask [`ReflectorMachine::next_action`], perform it, tell each thing that comes of it to
//! [`ReflectorMachine::observe`], do what the [`Effect`] says; when the attempt is over, ask again.
//!
//! It follows client-go's reflector (docs/PROTOCOL.md §7.1) but for three things: a watch that breaks off or ends early is
//! resumed from the last version and never leads to a relist; a page that failed is asked for again, not the whole list;
//! and after 410 it waits one step of back-off, so that a herd of gateways does not list at one moment.

use std::time::{Duration, Instant};

use crate::resource::ResourceVersion;

use super::backoff::Backoff;

mod decision;
mod give_up;
mod initial;
mod live;
mod report;

pub use decision::{Action, Effect, ListVersion, RelistReason, StopReason};
pub use give_up::{Failures, GiveUp};
pub use report::{Failure, Input};

/// A watch that ends sooner and brought nothing is not asked for again at once (client-go's "very short watch").
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// So many 404 in a row mean that the resource was removed. With back-off this takes some twenty seconds, longer than
/// an API server needs to publish a new custom resource.
const NOT_FOUND_MAX: u32 = 5;
/// So many opened streams may break off before the end of initial data; then pages are tried, which make progress one by one.
const CUT_STREAMS_MAX: u32 = 2;
/// So many watches from one version may be refused or unreadable; then the objects are listed, because the version may be at fault.
const BAD_WATCHES_MAX: u32 = 3;

/// Whether initial data is asked for as a stream (KEP-3157).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingLists {
    /// First as a stream; in pages where upstream cannot.
    Preferred,
    /// In pages.
    Never,
}

/// How fresh the very first data must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialVersion {
    /// Whatever upstream's cache holds.
    Any,
    /// Consistent.
    Latest,
}

/// How a reflector goes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorOptions {
    /// Stream or pages.
    pub streaming: StreamingLists,
    /// Items per page (client-go and kube-rs: 500).
    pub page_len: u32,
    /// The version of state that is held already: watch from there, list nothing.
    pub start_from: Option<ResourceVersion>,
    /// Freshness of the first data where nothing is held.
    pub initial: InitialVersion,
}

/// What a reflector has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounters {
    /// Events and bookmarks dropped because their version was not beyond the held state's.
    pub ignored: u64,
    /// Initial data that was older than the held state and had to be believed.
    pub went_back: u64,
    relists: [u64; RelistReason::ALL.len()],
}

impl ReflectorCounters {
    /// How often all objects were asked for, by reason. Retries of one page or of a refused request do not count.
    #[must_use]
    pub const fn relists(&self, reason: RelistReason) -> u64 {
        self.relists[reason as usize]
    }
}

/// The state machine of one resource. See the module's words for how to drive it.
///
/// Invariants: while `Live`, `version` is that of the last event, bookmark or initial data whose effect was to apply it, and it only
/// rises; an attempt that failed leaves a pause wanted unless the failure was upstream's way of saying "ask differently".
#[derive(Debug)]
pub struct ReflectorMachine {
    options: ReflectorOptions,
    phase: ReflectorPhase,
    backoff: Backoff,
    pause: Pause,
    attempt: WatchAttempt,
    not_found_count: u32,
    bad_watch_count: u32,
    counters: ReflectorCounters,
    when_gone: GonePolicy,
    /// Counted where a resource may be given up.
    failures: Option<Failures>,
}

/// What is done about a resource that stays unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GonePolicy {
    Stop,
    KeepAsking,
}

#[derive(Debug)]
enum ReflectorPhase {
    Initial(InitialRead),
    Live { version: ResourceVersion },
    Stopped(StopReason),
}

/// A search for initial data; `held` is the version of the state that is meanwhile served.
#[derive(Clone, Debug)]
struct InitialRead {
    reason: RelistReason,
    ask: ListVersion,
    means: InitialMethod,
    page: Option<LastPage>,
    held: Option<ResourceVersion>,
    cut_stream_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialMethod {
    Stream,
    Pages,
    /// One page with everything: for lists that outlive their tokens.
    Whole,
}

/// The page that came last.
#[derive(Clone, Debug)]
struct LastPage {
    version: ResourceVersion,
    token: String,
}

#[derive(Clone, Copy, Debug)]
enum Pause {
    No,
    Wanted { floor: Duration },
    Until(Instant),
}

#[derive(Clone, Copy, Debug, Default)]
struct WatchAttempt {
    opened_at: Option<Instant>,
    progressed: bool,
}

impl ReflectorMachine {
    /// Nothing asked for yet.
    #[must_use]
    pub fn new(options: ReflectorOptions) -> Self {
        let mut counters = ReflectorCounters::default();
        let phase = match options.start_from {
            Some(version) => ReflectorPhase::Live { version },
            None => {
                counters.relists[RelistReason::Start as usize] = 1;
                let ask = match options.initial {
                    InitialVersion::Any => ListVersion::Any,
                    InitialVersion::Latest => ListVersion::Latest,
                };
                ReflectorPhase::Initial(InitialRead::new(options, RelistReason::Start, ask))
            }
        };
        Self {
            options,
            phase,
            backoff: Backoff::new(),
            pause: Pause::No,
            attempt: WatchAttempt::default(),
            not_found_count: 0,
            bad_watch_count: 0,
            counters,
            when_gone: GonePolicy::Stop,
            failures: None,
        }
    }

    /// The same with other pauses between attempts.
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// The same, but for a resource that stays unknown it asks on, with the longest back-off in the end: it may come back.
    #[must_use]
    pub fn never_giving_up(self) -> Self {
        Self {
            when_gone: GonePolicy::KeepAsking,
            ..self
        }
    }

    /// The same, but after too many failures it stops with the reason: see [`GiveUp`].
    #[must_use]
    pub fn giving_up(self) -> Self {
        Self {
            failures: Some(Failures::default()),
            ..self
        }
    }

    /// What to do next. To be asked only when nothing is under way; until something is observed the answer stays the same.
    pub fn next_action(&mut self, now: Instant, random: u64) -> Action {
        if let ReflectorPhase::Stopped(reason) = self.phase {
            return Action::Stop(reason);
        }
        if let Pause::Wanted { floor } = self.pause {
            self.pause = Pause::Until(now + self.backoff.next_at_least(now, random, floor));
        }
        if let Pause::Until(at) = self.pause
            && now < at
        {
            return Action::WaitUntil(at);
        }
        self.pause = Pause::No;
        self.attempt = WatchAttempt::default();
        match &self.phase {
            ReflectorPhase::Stopped(reason) => Action::Stop(*reason),
            ReflectorPhase::Live { version } => Action::Watch { after: *version },
            ReflectorPhase::Initial(initial) => initial.action(self.options.page_len),
        }
    }

    /// Takes in what happened, and says what to do with it.
    pub fn observe(&mut self, input: Input, now: Instant) -> Effect {
        if matches!(input, Input::WatchOpened | Input::ListPage { .. }) {
            self.not_found_count = 0;
            if let Some(failures) = &mut self.failures {
                failures.answered();
            }
        }
        let failure = input.failure();
        let effect = self.decide(input, now);
        if let Some(failure) = failure
            && let Some(reason) = self.gives_up(&failure, effect, now)
        {
            self.phase = ReflectorPhase::Stopped(StopReason::GivenUp(reason));
        }
        effect
    }

    fn decide(&mut self, input: Input, now: Instant) -> Effect {
        match (&mut self.phase, input) {
            (ReflectorPhase::Stopped(_), _) => Effect::Ignored,
            (_, Input::WatchOpened) => {
                self.attempt.opened_at = Some(now);
                Effect::None
            }
            (
                ReflectorPhase::Initial(_),
                Input::ListPage {
                    resource_version,
                    continue_token,
                },
            ) => self.page(resource_version, continue_token),
            (ReflectorPhase::Initial(_), Input::Event { .. }) => Effect::InitialItem,
            (
                ReflectorPhase::Initial(_),
                Input::Bookmark {
                    resource_version,
                    initial_events_end: true,
                },
            ) => self.initial_done(resource_version),
            // A plain bookmark before the marker promises nothing about the side buffer.
            (ReflectorPhase::Initial(_), Input::Bookmark { .. }) => Effect::None,
            (ReflectorPhase::Initial(_), Input::WatchEnded) => {
                self.initial_failed(&Failure::Transport)
            }
            (ReflectorPhase::Initial(_), Input::WatchError(status)) => {
                self.initial_failed(&Failure::Status(status))
            }
            (
                ReflectorPhase::Initial(_),
                Input::WatchFailed(failure) | Input::ListFailed(failure),
            ) => self.initial_failed(&failure),
            (
                ReflectorPhase::Live { version },
                Input::Event {
                    resource_version, ..
                },
            ) => {
                if resource_version < *version {
                    self.counters.ignored += 1;
                    return Effect::Ignored;
                }
                // At the held version it is a repetition, which is no sign of life, or another part of one transaction,
                // as foreign writers make them. Only who holds the objects can tell.
                if resource_version > *version {
                    *version = resource_version;
                    self.progressed();
                }
                Effect::Live
            }
            (
                ReflectorPhase::Live { .. },
                Input::Bookmark {
                    resource_version, ..
                },
            ) => self.bookmark(resource_version),
            (ReflectorPhase::Live { .. }, Input::WatchEnded) => self.live_ended(now),
            (ReflectorPhase::Live { .. }, Input::WatchError(status)) => {
                self.live_failed(&Failure::Status(status))
            }
            (ReflectorPhase::Live { .. }, Input::WatchFailed(failure)) => {
                self.live_failed(&failure)
            }
            (ReflectorPhase::Live { .. }, Input::ListPage { .. } | Input::ListFailed(_)) => {
                Effect::Ignored
            }
        }
    }

    /// The version of the held state; `None` before there is any.
    #[must_use]
    pub const fn version(&self) -> Option<ResourceVersion> {
        match &self.phase {
            ReflectorPhase::Live { version } => Some(*version),
            ReflectorPhase::Initial(initial) => initial.held,
            ReflectorPhase::Stopped(_) => None,
        }
    }

    /// Whether the held state follows upstream, as opposed to waiting for initial data.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        matches!(self.phase, ReflectorPhase::Live { .. })
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> &ReflectorCounters {
        &self.counters
    }

    /// Whether a failure that has just been answered by `effect` is one too many.
    fn gives_up(&mut self, failure: &Failure, effect: Effect, now: Instant) -> Option<GiveUp> {
        let failures = self.failures.as_mut()?;
        let is_unread = matches!(failure, Failure::Protocol | Failure::TooLong);
        let is_listed_around = is_unread || give_up::is_refusal(failure);
        match (&self.phase, effect) {
            (ReflectorPhase::Stopped(_), _) => None,
            (_, Effect::Relisting { .. }) if is_listed_around => failures.strike(failure, now),
            // The list that follows tells whether the objects can be had at all.
            (ReflectorPhase::Live { .. }, _) if is_listed_around => None,
            (ReflectorPhase::Live { .. }, _) => failures.add(failure, true),
            (ReflectorPhase::Initial(initial), _) => failures.add(failure, initial.held.is_some()),
        }
    }

    fn progressed(&mut self) {
        if let Some(failures) = &mut self.failures {
            failures.progressed();
        }
        self.attempt.progressed = true;
        self.backoff.succeeded();
        self.bad_watch_count = 0;
    }

    const fn pause(&mut self, floor_seconds: u32) {
        self.pause = Pause::Wanted {
            floor: Duration::from_secs(floor_seconds as u64),
        };
    }

    /// Counts one more 404, and gives up when it is one too many. Says whether it was, but the reflector goes on.
    fn is_not_found_for_long(&mut self) -> bool {
        self.not_found_count = self.not_found_count.saturating_add(1);
        if self.not_found_count < NOT_FOUND_MAX {
            return false;
        }
        if self.when_gone == GonePolicy::Stop {
            self.phase = ReflectorPhase::Stopped(StopReason::Gone);
        }
        self.when_gone == GonePolicy::KeepAsking
    }
}

#[cfg(test)]
mod tests;
