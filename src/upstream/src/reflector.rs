//! Decides when to list, watch, relist and wait; performs nothing. Pure: it has no connection, no clock and no objects.
//!
//! ```text
//!            ┌── 410 · version ahead · out of order · watches refused, unreadable or fruitless ┐
//!            ▼                                                                                 │
//! start ─▶ Initial ── streamed list: marker bookmark ──────────────────────────────────▶     Live ──▶ (404 too often) Stopped
//!            │  ▲                                                                           │  ▲
//!            │  └ cut: initial data is read again    paged list: last page ──▶              └──┘ end, cut, 429, 5xx: watch
//!            └──────────────────────────────────────────────────────────────────────────▶       again from the last version
//! ```
//!
//! The driver's loop: call [`ReflectorMachine::next_action`] and perform the action; report each result to
//! [`ReflectorMachine::observe`] and carry out the [`Effect`] that it returns; when the attempt is over, start again.
//!
//! The reflector follows client-go's (docs/PROTOCOL.md §7.1) with three exceptions. A watch that breaks off or ends early is
//! resumed from the last version; only if watches bring nothing for long is the state compared with upstream's, and listed if the
//! two differ and one more watch brings nothing. A page that failed is requested again, not the whole list. After 410 the reflector waits for one step of
//! back-off, so that many gateways do not list at the same moment.

use std::time::{Duration, Instant};

use strum::VariantArray;

use crate::resource::ResourceVersion;

use super::backoff::Backoff;

mod decision;
mod fruitless;
mod give_up;
mod initial;
mod live;
mod report;

pub use decision::{Action, Effect, ListVersion, RelistReason, StopReason};
use fruitless::FruitlessWatches;
pub use give_up::{Failures, GiveUp};
pub use report::{Comparison, Failure, Input};

/// A watch that ends sooner and delivered nothing is followed by a pause (client-go's "very short watch").
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// This many 404 in a row mean that the resource was removed. With back-off this takes some twenty seconds, longer than an
/// API server needs to publish a new custom resource.
const NOT_FOUND_MAX: u32 = 5;
/// After this many streamed lists broke off before their end, the objects are requested in pages, which make progress one
/// by one.
const CUT_STREAMS_MAX: u32 = 2;
/// After this many attempts at a streamed list, none of which was even accepted, pages are requested until a watch is accepted again: only
/// watches may be in trouble.
const REFUSED_STREAMS_MAX: u32 = 5;
/// A `Retry-After` of a watch defers a comparison that is due no longer than the API server ever asks for.
const COMPARISON_FLOOR_MAX: Duration = Duration::from_secs(30);
/// The longest step between two lists, or comparisons, if the watches in between bring nothing. With full jitter, a wait is at most twice as
/// long.
const LIST_STEP_MAX: Duration = Duration::from_secs(20);
/// A version that follows the last one is at most this far ahead. No server writes as much between two events; a damaged number, once
/// believed, would make the reflector ignore everything for months.
const VERSION_AHEAD_MAX: u64 = 1 << 32;
/// A list has at most this many pages: ten million objects of 500 each are more than etcd holds. A list that never ends is then requested
/// in one piece, which is bounded, and given up.
const PAGES_MAX: u32 = 20_000;

/// Whether initial data is requested as a stream (KEP-3157).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingLists {
    /// As a stream; in pages if upstream cannot stream.
    Preferred,
    /// Always in pages.
    Never,
}

/// How fresh the first data must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitialVersion {
    /// Any version: whatever upstream's cache holds.
    Any,
    /// The latest version: consistent.
    Latest,
}

/// Options of a reflector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorOptions {
    /// Whether initial data is streamed or read in pages.
    pub streaming: StreamingLists,
    /// Items per page (client-go and kube-rs: 500).
    pub page_len: u32,
    /// The version of the state that is held already, if any: the reflector watches from there and lists nothing.
    pub start_from: Option<ResourceVersion>,
    /// Freshness of the first data if nothing is held.
    pub initial: InitialVersion,
}

/// What a reflector has counted since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorCounters {
    /// Events and bookmarks that were dropped because their version was lower than the held state's.
    pub ignored: u64,
    /// Initial data that was accepted although it was older than the held state.
    pub went_back: u64,
    relists: [u64; RelistReason::VARIANTS.len()],
}

impl ReflectorCounters {
    /// How often all objects were requested, by reason. Retries of one page or of a refused request do not count.
    #[must_use]
    pub const fn relists(&self, reason: RelistReason) -> u64 {
        self.relists[reason as usize]
    }
}

/// The state machine of one resource. The page of this module says how to drive it.
///
/// Invariants: while live, `version` is that of the last event, bookmark or initial data that was to be applied, and it
/// only rises. A failed attempt is followed by a pause, unless upstream merely refused the form of the request, so that
/// another form can be tried at once.
#[derive(Debug)]
pub struct ReflectorMachine {
    options: ReflectorOptions,
    phase: ReflectorPhase,
    backoff: Backoff,
    /// Paces the lists, and the comparisons, between which no watch brings anything.
    list_backoff: Backoff,
    pause: Pause,
    attempt: WatchAttempt,
    fruitless: FruitlessWatches,
    /// The newest version that readers of the state were given, as far as it was noted.
    given: ResourceVersion,
    /// Attempts at streamed lists that were refused since a watch was last accepted.
    refused_stream_count: u32,
    not_found_count: u32,
    counters: ReflectorCounters,
    gone_policy: GonePolicy,
    /// Counts failures if the resource may be given up.
    failures: Option<Failures>,
}

/// What to do about a resource that stays unknown (404).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GonePolicy {
    Stop,
    KeepTrying,
}

#[derive(Debug)]
enum ReflectorPhase {
    Initial(InitialRead),
    Live { version: ResourceVersion },
    Stopped(StopReason),
}

/// Progress of reading initial data. `held` is the version of the state that is served meanwhile, if any.
#[derive(Clone, Debug)]
struct InitialRead {
    reason: RelistReason,
    list_version: ListVersion,
    method: InitialMethod,
    page: Option<LastPage>,
    held: Option<ResourceVersion>,
    /// The newest version that readers had been given when the first of the data was requested.
    given_before: ResourceVersion,
    /// Whether a watch from `held` may still succeed, so that nothing has to wait for a list that cannot be had.
    may_resume: bool,
    cut_stream_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialMethod {
    Stream,
    Pages,
    /// One list with everything, for lists whose tokens expire before the last page.
    Whole,
}

/// Version and continue token of the last page, and how many pages there were.
#[derive(Clone, Debug)]
struct LastPage {
    version: ResourceVersion,
    token: String,
    count: u32,
}

#[derive(Clone, Copy, Debug)]
enum Pause {
    No,
    Wanted {
        floor: Duration,
    },
    /// Before a list that replaces the held state.
    BeforeList {
        floor: Duration,
    },
    Until(Instant),
}

#[derive(Clone, Copy, Debug, Default)]
struct WatchAttempt {
    opened_at: Option<Instant>,
    /// Whether it has shown that the held state is upstream's.
    is_fruitful: bool,
    /// Comparisons in a row that found another state upstream.
    differences: u32,
}

impl ReflectorMachine {
    /// Creates a reflector that has requested nothing yet.
    #[must_use]
    pub fn new(options: ReflectorOptions) -> Self {
        let mut counters = ReflectorCounters::default();
        let phase = match options.start_from {
            Some(version) => ReflectorPhase::Live { version },
            None => {
                counters.relists[RelistReason::Start as usize] = 1;
                let list_version = match options.initial {
                    InitialVersion::Any => ListVersion::Any,
                    InitialVersion::Latest => ListVersion::Latest,
                };
                ReflectorPhase::Initial(InitialRead::new(
                    options,
                    RelistReason::Start,
                    list_version,
                ))
            }
        };
        Self {
            options,
            phase,
            backoff: Backoff::new(),
            list_backoff: Backoff::new().at_most(LIST_STEP_MAX),
            pause: Pause::No,
            attempt: WatchAttempt::default(),
            fruitless: FruitlessWatches::none(),
            given: ResourceVersion::default(),
            refused_stream_count: 0,
            not_found_count: 0,
            counters,
            gone_policy: GonePolicy::Stop,
            failures: None,
        }
    }

    /// Replaces the pauses between attempts.
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self {
            list_backoff: backoff.clone().at_most(LIST_STEP_MAX),
            backoff,
            ..self
        }
    }

    /// Makes the reflector keep trying if the resource stays unknown, eventually with the longest back-off, because the
    /// resource may come back.
    #[must_use]
    pub fn never_giving_up(self) -> Self {
        Self {
            gone_policy: GonePolicy::KeepTrying,
            ..self
        }
    }

    /// Makes the reflector stop after too many failures: see [`GiveUp`].
    #[must_use]
    pub fn giving_up(self) -> Self {
        Self {
            failures: Some(Failures::default()),
            ..self
        }
    }

    /// Notes the newest version that readers of the state were given; it may be above that of the last event. Data that is older is not what
    /// was asked for.
    pub fn note_given(&mut self, given: Option<ResourceVersion>) {
        self.given = self.given.max(given.unwrap_or_default());
    }

    /// Returns what to do next. Call it only when no action is under way. Until something is observed, the answer stays the
    /// same.
    pub fn next_action(&mut self, now: Instant, random: u64) -> Action {
        if let ReflectorPhase::Stopped(reason) = self.phase {
            return Action::Stop(reason);
        }
        if self.fruitless.is_to_be_paced() {
            let wait = self.list_backoff.next(now, random);
            self.fruitless.pace(now + wait);
        }
        match self.pause {
            Pause::Wanted { floor } => {
                let wait = self.backoff.next_at_least(now, random, floor);
                // No later than a failure of the next watch would be enough for a comparison.
                let due_at = self.fruitless.due_at().filter(|_| self.is_live());
                let due_in = due_at.map(|at| at.saturating_duration_since(now));
                let wait = wait
                    .min(due_in.map_or(wait, |due_in| due_in.max(floor.min(COMPARISON_FLOOR_MAX))));
                self.pause = Pause::Until(now + wait);
            }
            Pause::BeforeList { floor } => {
                let wait = self.list_backoff.next_at_least(now, random, floor);
                self.fruitless.pace(now + wait);
                self.pause = Pause::Until(now + wait);
            }
            Pause::No | Pause::Until(_) => {}
        }
        if let Pause::Until(at) = self.pause
            && now < at
        {
            return Action::WaitUntil(at);
        }
        self.pause = Pause::No;
        self.attempt = WatchAttempt::default();
        if let ReflectorPhase::Initial(initial) = &mut self.phase {
            initial.note_given(self.given);
        }
        match &self.phase {
            ReflectorPhase::Stopped(reason) => Action::Stop(*reason),
            ReflectorPhase::Live { .. } if self.fruitless.is_check_due() => Action::Compare,
            ReflectorPhase::Live { version } => Action::Watch { after: *version },
            ReflectorPhase::Initial(initial) => initial.action(self.options.page_len),
        }
    }

    /// Takes in what happened, and returns what to do with it.
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
                self.refused_stream_count = 0;
                Effect::None
            }
            (
                ReflectorPhase::Initial(_),
                Input::ListPage {
                    resource_version,
                    continue_token,
                },
            ) => self.page(resource_version, continue_token, now),
            (ReflectorPhase::Initial(_), Input::Event { .. }) => Effect::InitialItem,
            (
                ReflectorPhase::Initial(_),
                Input::Bookmark {
                    resource_version,
                    initial_events_end: true,
                },
            ) => self.initial_done(resource_version, now),
            // The API server sends no bookmark before the one that ends the initial data. One that does will not mark that end.
            (ReflectorPhase::Initial(_), Input::Bookmark { .. }) => Effect::EndWatch,
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
                    return Effect::Late;
                }
                // At the held version, an event is a repetition, which is no progress, or another part of a transaction of
                // a writer other than kube-apiserver. Only the sink has the objects that tell which.
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
                self.live_failed(&Failure::Status(status), now)
            }
            (ReflectorPhase::Live { .. }, Input::WatchFailed(failure)) => {
                self.live_failed(&failure, now)
            }
            (ReflectorPhase::Live { .. }, Input::Compared(comparison)) => {
                self.compared(comparison, now)
            }
            (ReflectorPhase::Live { .. }, Input::Lagging) => self.end_watch(1, now),
            (ReflectorPhase::Live { .. }, Input::ListPage { .. } | Input::ListFailed(_))
            | (ReflectorPhase::Initial(_), Input::Compared(_) | Input::Lagging) => Effect::Ignored,
        }
    }

    /// The version of the held state; `None` if there is none yet, or if the reflector has stopped.
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

    /// Whether a version may be the next one: it is not absurdly far ahead of the held state's.
    #[must_use]
    pub fn may_follow(&self, version: ResourceVersion) -> bool {
        self.version()
            .is_none_or(|held| version.0.saturating_sub(held.0) <= VERSION_AHEAD_MAX)
    }

    /// Whether watches bring nothing, so that the one that is open is to be doubted soon.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.fruitless.is_in_doubt() || self.attempt.differences > 0
    }

    /// What the reflector has counted.
    #[must_use]
    pub const fn counters(&self) -> &ReflectorCounters {
        &self.counters
    }

    /// Decides whether a failure, which had this effect, is one too many.
    fn gives_up(&mut self, failure: &Failure, effect: Effect, now: Instant) -> Option<GiveUp> {
        let failures = self.failures.as_mut()?;
        let is_unreadable = matches!(
            failure,
            Failure::Protocol | Failure::TooLong | Failure::Unordered
        );
        let may_a_list_help = is_unreadable || give_up::is_refusal(failure);
        match (&self.phase, effect) {
            (ReflectorPhase::Stopped(_), _) => None,
            (_, Effect::Relisting { .. }) if may_a_list_help => failures.strike(failure, now),
            // The list that follows will show whether the objects can be read at all.
            (ReflectorPhase::Live { .. }, _) if may_a_list_help => None,
            (ReflectorPhase::Live { .. }, _) => failures.add(failure, true),
            (ReflectorPhase::Initial(initial), _) => failures.add(failure, initial.held.is_some()),
        }
    }

    /// The watch has brought something new.
    fn progressed(&mut self) {
        if let Some(failures) = &mut self.failures {
            failures.progressed();
        }
        self.backoff.succeeded();
        self.succeeded();
    }

    /// The state was listed. That says nothing about watches.
    fn listed(&mut self, now: Instant) {
        if let Some(failures) = &mut self.failures {
            failures.progressed();
        }
        if !self.fruitless.is_checked() {
            self.backoff.succeeded();
        }
        self.fruitless.restart(now);
        self.attempt.is_fruitful = true;
    }

    const fn pause(&mut self, floor_seconds: u32) {
        self.pause = Pause::Wanted {
            floor: Duration::from_secs(floor_seconds as u64),
        };
    }

    /// The wait that upstream has asked for.
    const fn asked_wait(&self) -> Duration {
        match self.pause {
            Pause::Wanted { floor } => floor,
            Pause::No | Pause::BeforeList { .. } | Pause::Until(_) => Duration::ZERO,
        }
    }

    /// Counts one more 404. If it is one too many, stops the reflector, unless it has to keep trying.
    fn count_not_found(&mut self) {
        self.not_found_count = self.not_found_count.saturating_add(1);
        if self.not_found_count >= NOT_FOUND_MAX && self.gone_policy == GonePolicy::Stop {
            self.phase = ReflectorPhase::Stopped(StopReason::Gone);
        }
    }
}

#[cfg(test)]
mod tests;
