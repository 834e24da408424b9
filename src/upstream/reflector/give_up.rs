//! When failures are enough to stop asking for a resource: the one rule for every reason to have no cache of it.
//!
//! | reason | nothing held yet | state held |
//! |---|---|---|
//! | forbidden | at once | 3 refusals in a row |
//! | unauthorized | 2 in a row: credentials are read again after the first | 10 in a row |
//! | undecodable, too long | 3 attempts in a row | those of the relist, or 3 relists within 10 minutes |
//! | saturated | 2 in a row | 5 in a row |
//! | refused | 3 in a row | 5 in a row, or 3 relists within 10 minutes |
//! | unavailable | 5 in a row | never: stale state is better than none |
//!
//! Refused is what asks for something upstream does not have: 400, 405, 422 and the like. A 403 that a watch meets may be
//! a hiccup of the authorizer, so state that is held outlasts a few of them.

use std::time::{Duration, Instant};

use super::report::{Failure, Remedy};

/// Why a resource is no longer asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum GiveUp {
    /// Upstream does not accept the credentials (401).
    Unauthorized,
    /// Upstream does not let this identity list or watch the resource (403).
    Forbidden,
    /// What came cannot be read.
    Undecodable,
    /// An event or a page is longer than allowed.
    TooLong,
    /// All places for watches upstream are taken.
    Saturated,
    /// Upstream refuses these requests as such (400, 405 and the like).
    Refused,
    /// Upstream does not answer, or answers with other errors.
    Unavailable,
}

const REASONS: usize = 7;
/// So many relists because watches cannot be read or are refused, and the next one will come soon.
const STRIKES_MAX: u32 = 3;
const STRIKES_WITHIN: Duration = Duration::from_secs(600);

/// Whether upstream refuses what was asked for, whenever it is asked.
pub(super) fn is_refusal(failure: &Failure) -> bool {
    failure.remedy() == Remedy::Refused
}

impl GiveUp {
    /// The reason that a failure may become; none where it asks for something else than patience.
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
            (Self::Unavailable, true) => None,
        }
    }
}

/// Failures in a row, by reason.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    counts: [u32; REASONS],
    strikes: u32,
    struck_at: Option<Instant>,
}

impl Failures {
    /// Counts a failure; the reason to give up, if this one is one too many.
    pub fn add(&mut self, failure: &Failure, is_state_held: bool) -> Option<GiveUp> {
        let reason = GiveUp::of(failure)?;
        let count = &mut self.counts[reason as usize];
        *count = count.saturating_add(1);
        let limit = reason.limit(is_state_held)?;
        (*count >= limit).then_some(reason)
    }

    /// A watch could not be read any further, or was refused, and all objects are listed instead. Each such list may succeed and the next
    /// watch fail again, so they are counted whatever happens in between.
    pub(super) fn strike(&mut self, failure: &Failure, now: Instant) -> Option<GiveUp> {
        let is_old = |at| now.saturating_duration_since(at) > STRIKES_WITHIN;
        if self.struck_at.is_none_or(is_old) {
            self.strikes = 0;
            self.struck_at = Some(now);
        }
        self.strikes += 1;
        let reason = GiveUp::of(failure)?;
        (self.strikes >= STRIKES_MAX).then_some(reason)
    }

    /// Upstream answered: only what it sends can still be wrong.
    pub(super) fn answered(&mut self) {
        let unread = [GiveUp::Undecodable, GiveUp::TooLong].map(|reason| reason as usize);
        for (reason, count) in self.counts.iter_mut().enumerate() {
            if !unread.contains(&reason) {
                *count = 0;
            }
        }
    }

    /// What it sent could be used.
    pub(super) const fn progressed(&mut self) {
        self.counts = [0; REASONS];
    }
}
