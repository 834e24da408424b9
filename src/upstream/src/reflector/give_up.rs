//! Decides when failures are enough to give up a resource. This is the one rule, whatever the failures are.
//!
//! | reason | nothing held yet | state held |
//! |---|---|---|
//! | forbidden | at once | 3 refusals in a row |
//! | unauthorized | 2 in a row: credentials are read again after the first | 10 in a row |
//! | undecodable, too long | 3 attempts in a row | 3 attempts of the relist in a row, or 3 relists within 10 minutes |
//! | saturated | 2 in a row | 5 in a row |
//! | refused | 3 in a row | 5 in a row, or 3 relists within 10 minutes |
//! | unordered | – | 2 relists within 10 minutes |
//! | unavailable | 5 in a row | never: stale state is better than none |
//!
//! "Refused" means that upstream does not support the request: 400, 405, 422 and the like. A 403 to a watch may be a
//! temporary failure of the authorizer, so a few of them do not end a cache that holds state.

use std::time::{Duration, Instant};

use super::report::{Failure, Remedy};

/// Why a resource was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum GiveUp {
    /// Upstream does not accept the credentials (401).
    Unauthorized,
    /// Upstream does not let this identity list or watch the resource (403).
    Forbidden,
    /// What upstream sends cannot be read.
    Undecodable,
    /// An event or a page is longer than allowed.
    TooLong,
    /// All permits for watches upstream are taken.
    Saturated,
    /// Upstream refuses these requests as such (400, 405 and the like).
    Refused,
    /// Upstream's events are not in the order of their versions.
    Unordered,
    /// Upstream does not respond, or responds with other errors.
    Unavailable,
}

const REASONS: usize = 8;
/// This many relists within [`STRIKES_WITHIN`] because watches cannot be read or are refused are enough: the next one would
/// follow soon.
const STRIKES_MAX: u32 = 3;
/// One relist heals a watch that was out of order once. The order of a server that does it twice means nothing.
const UNORDERED_MAX: u32 = 2;
const STRIKES_WITHIN: Duration = Duration::from_secs(600);

/// Whether upstream refuses the request itself, so that it will refuse it again.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    failure.remedy() == Remedy::Refused
}

impl GiveUp {
    /// The reason that this failure counts for. `None` if it has another remedy: 404 is counted separately, and the other
    /// cases lead to a relist.
    fn of(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::Status(status) => match status.code {
                401 => Some(Self::Unauthorized),
                403 => Some(Self::Forbidden),
                404 | 410 => None,
                _ if status.version_too_large => None,
                _ if is_refusal(failure) => Some(Self::Refused),
                _ => Some(Self::Unavailable),
            },
            Failure::Transport => Some(Self::Unavailable),
            Failure::Protocol => Some(Self::Undecodable),
            Failure::TooLong => Some(Self::TooLong),
            Failure::Unordered => Some(Self::Unordered),
            Failure::Saturated => Some(Self::Saturated),
        }
    }

    /// How many failures in a row are enough; `None` if no number is.
    const fn limit(self, is_state_held: bool) -> Option<u32> {
        match (self, is_state_held) {
            (Self::Forbidden, false) => Some(1),
            (Self::Unauthorized | Self::Saturated, false) => Some(2),
            (Self::Undecodable | Self::TooLong, _)
            | (Self::Forbidden, true)
            | (Self::Refused, false) => Some(3),
            (Self::Unavailable, false) | (Self::Saturated | Self::Refused, true) => Some(5),
            (Self::Unauthorized, true) => Some(10),
            (Self::Unavailable, true) | (Self::Unordered, _) => None,
        }
    }
}

/// Counts failures in a row, by reason, and relists caused by bad watches.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    counts: [u32; REASONS],
    /// Relists because of watches that were refused or unreadable.
    strikes: Strikes,
    /// Relists because of watches that were out of order.
    disorder: Strikes,
}

/// Relists within [`STRIKES_WITHIN`] of the first.
#[derive(Clone, Copy, Debug, Default)]
struct Strikes {
    count: u32,
    first_at: Option<Instant>,
}

impl Strikes {
    fn add(&mut self, now: Instant) -> u32 {
        if self
            .first_at
            .is_none_or(|at| now.saturating_duration_since(at) > STRIKES_WITHIN)
        {
            self.count = 0;
            self.first_at = Some(now);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

impl Failures {
    /// Counts a failure. Returns the reason to give up if this failure is one too many.
    pub fn add(&mut self, failure: &Failure, is_state_held: bool) -> Option<GiveUp> {
        let reason = GiveUp::of(failure)?;
        let count = &mut self.counts[reason as usize];
        *count = count.saturating_add(1);
        (*count >= reason.limit(is_state_held)?).then_some(reason)
    }

    /// Counts a relist that became necessary because a watch was refused or could not be read. Returns the reason to give
    /// up if it is one too many. Each such list may succeed and the next watch fail again, so successes in between do not
    /// reset this count.
    pub(super) fn strike(&mut self, failure: &Failure, now: Instant) -> Option<GiveUp> {
        let reason = GiveUp::of(failure)?;
        let (strikes, max) = match reason == GiveUp::Unordered {
            true => (&mut self.disorder, UNORDERED_MAX),
            false => (&mut self.strikes, STRIKES_MAX),
        };
        (strikes.add(now) >= max).then_some(reason)
    }

    /// Upstream responded: resets the counts of all reasons except those that mean unreadable data.
    pub(super) fn answered(&mut self) {
        let kept = [GiveUp::Undecodable, GiveUp::TooLong].map(|reason| reason as usize);
        for (reason, count) in self.counts.iter_mut().enumerate() {
            if !kept.contains(&reason) {
                *count = 0;
            }
        }
    }

    /// Upstream's data could be used: resets the counts of all reasons.
    pub(super) const fn progressed(&mut self) {
        self.counts = [0; REASONS];
    }
}
