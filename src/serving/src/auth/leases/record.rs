//! One requirement with the state of its checks: when the next one is due, and why.

use std::time::Duration;

use tokio::time::Instant;

use super::confirmation::Confirmation;
use super::requirement::Requirement;
use super::times::RecheckTimes;
use crate::auth::explanation::{Coverage, Explanation};
use crate::auth::lease::WeakLease;
use crate::auth::question::AccessQuestion;
use crate::fairness::Peer;

/// Why a requirement is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckCause {
    /// Something has happened that may have ended it: roles changed, a pod or a service account was deleted, the user was denied something.
    Event,
    /// It was confirmed about an hour ago.
    Expired,
    /// The last check failed.
    Retry,
    /// The check costs upstream nothing.
    Local,
    /// No event covers it, and the interval is over.
    Sweep,
}

/// A requirement, the state of its checks, and the leases that depend on it.
#[derive(Debug)]
pub(super) struct LeaseRecord {
    pub(super) requirement: Requirement,
    pub(super) confirmed_at: Instant,
    pub(super) explanation: Explanation,
    /// When the interval is over.
    due_at: Instant,
    /// When it is checked whatever covers it.
    pub(super) expires_at: Instant,
    /// When it is checked because of an event.
    pub(super) event_at: Option<Instant>,
    /// After an event it is checked twice, because another API server behind the same address may not know of the event yet.
    is_repeated: bool,
    /// Set while checks end without a result.
    pub(super) failing: Option<FailingCheck>,
    pub(super) in_flight: Option<CheckInFlight>,
    pub(super) leases: Vec<DependentLease>,
}

/// A lease, and how to ask about its access.
#[derive(Clone, Debug)]
pub(super) struct DependentLease {
    pub(super) lease: WeakLease,
    /// The question as the caller of this lease asks it; `None` for other requirements.
    pub(super) question: Option<AccessQuestion>,
    /// The client whose share of permits pays for checks.
    pub(super) payer: Peer,
    /// Whether the user's own streams hold it, and not those of an impersonator.
    pub(super) is_own: bool,
}

/// A check that is running, or waits for a permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckInFlight {
    pub(super) number: u64,
    cause: CheckCause,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FailingCheck {
    /// When the first failed check began.
    pub(super) since: Instant,
    /// When the next check is due.
    next_at: Instant,
    /// From the next failure to the check after it.
    retry_delay: Duration,
}

impl LeaseRecord {
    /// The record of a new requirement, which was met at the time of the confirmation.
    pub(super) fn new(
        requirement: Requirement,
        confirmation: Confirmation,
        times: RecheckTimes,
        now: Instant,
    ) -> Self {
        let mut record = Self {
            confirmed_at: confirmation.at,
            explanation: confirmation.explanation,
            due_at: now,
            expires_at: now,
            event_at: confirmation.is_doubtful.then_some(now),
            is_repeated: false,
            failing: None,
            in_flight: None,
            leases: Vec::new(),
            requirement,
        };
        record.schedule(times);
        // Never in the past: what was confirmed long ago is checked before its age can count.
        record.due_at = record.due_at.max(now);
        record.expires_at = record.expires_at.max(now);
        record
    }

    /// Plans the next checks after the last confirmation.
    fn schedule(&mut self, times: RecheckTimes) {
        self.due_at = self.confirmed_at + times.interval(&self.requirement, self.explanation);
        self.expires_at = self.confirmed_at + RecheckTimes::lifetime(&self.requirement);
    }

    /// Takes over the answer to a new request.
    pub(super) fn reconfirm(
        &mut self,
        confirmation: Confirmation,
        times: RecheckTimes,
        now: Instant,
    ) {
        if confirmation.is_doubtful {
            self.expect(now);
        } else if confirmation.at > self.confirmed_at {
            self.take(confirmation, times);
        }
    }

    fn take(&mut self, confirmation: Confirmation, times: RecheckTimes) {
        if confirmation.at >= self.confirmed_at {
            self.confirmed_at = confirmation.at;
            self.explanation = confirmation.explanation;
            self.schedule(times);
        }
        if self
            .failing
            .is_some_and(|failing| failing.since <= confirmation.at)
        {
            self.failing = None;
        }
    }

    /// Makes a check due at this time because of an event, and not later.
    pub(super) fn expect(&mut self, at: Instant) {
        if let Some(pending) = self.event_at {
            // What was to be checked later is still checked later, too.
            self.is_repeated |= pending > at;
        }
        self.event_at = Some(self.event_at.map_or(at, |event_at| event_at.min(at)));
    }

    /// Whether a check because of an event is running, or waits for a permit.
    pub(super) fn is_event_checked(&self) -> bool {
        self.in_flight
            .is_some_and(|check| check.cause == CheckCause::Event)
    }

    /// As [`expect`](Self::expect), and once more a while later.
    pub(super) fn expect_twice(&mut self, at: Instant) {
        self.expect(at);
        self.is_repeated = true;
    }

    /// Why a check is due now; `None` if it is not.
    pub(super) fn cause(
        &self,
        coverage: Coverage,
        times: RecheckTimes,
        now: Instant,
    ) -> Option<CheckCause> {
        let is_event = self.event_at.is_some_and(|at| at <= now);
        // An event does not wait for another check, which may itself wait.
        let is_checked = self
            .in_flight
            .is_some_and(|check| !is_event || check.cause == CheckCause::Event);
        if is_checked {
            return None;
        }
        if is_event {
            return Some(CheckCause::Event);
        }
        if let Some(failing) = self.failing {
            return (failing.next_at <= now).then_some(CheckCause::Retry);
        }
        if self.due_at <= now && times.is_local(&self.requirement, self.explanation) {
            return Some(CheckCause::Local);
        }
        if self.expires_at <= now {
            return Some(CheckCause::Expired);
        }
        let is_due = self.due_at <= now && !self.is_covered(coverage);
        is_due.then_some(CheckCause::Sweep)
    }

    /// Whether an event would tell if the requirement were no longer met.
    fn is_covered(&self, coverage: Coverage) -> bool {
        match &self.requirement {
            Requirement::Access(question) => coverage.stands(&question.key, self.explanation),
            Requirement::Token { user, .. } => {
                coverage.has_bound_objects && user.pod_uid().is_some()
            }
            Requirement::Certificate { .. } => false,
        }
    }

    /// Whether a stream that resumes may rely on the last confirmation.
    pub(super) fn is_reliable(&self, now: Instant) -> bool {
        self.event_at.is_none() && self.failing.is_none() && now < self.expires_at
    }

    pub(super) fn begin(&mut self, number: u64, cause: CheckCause) {
        if cause == CheckCause::Event {
            self.event_at = None;
        }
        self.in_flight = Some(CheckInFlight { number, cause });
    }

    /// Ends the check with this number; `None` if another one has taken its place.
    fn end(&mut self, number: u64) -> Option<CheckCause> {
        let check = self.in_flight.filter(|check| check.number == number)?;
        self.in_flight = None;
        Some(check.cause)
    }

    /// A check found the requirement met.
    pub(super) fn confirm(
        &mut self,
        number: u64,
        confirmation: Confirmation,
        times: RecheckTimes,
        now: Instant,
    ) {
        self.take(confirmation, times);
        if confirmation.is_doubtful {
            self.expect(now);
        }
        let is_event = self.end(number) == Some(CheckCause::Event);
        // Another event is followed by a repetition of its own.
        if is_event && self.event_at.is_none() && std::mem::take(&mut self.is_repeated) {
            self.expect(now + REPEAT_DELAY);
        }
    }

    /// A check that began at `began_at` had no result.
    pub(super) fn fail(
        &mut self,
        number: u64,
        began_at: Instant,
        times: RecheckTimes,
        now: Instant,
    ) {
        let Some(cause) = self.end(number) else {
            return;
        };
        let failing = self.failing.get_or_insert(FailingCheck {
            since: began_at,
            next_at: now,
            retry_delay: RETRY_DELAY_MIN,
        });
        let delay_max = RETRY_DELAY_MAX.min(times.interval / 4);
        failing.next_at = now + failing.retry_delay.min(delay_max);
        failing.retry_delay = (failing.retry_delay * 2).min(RETRY_DELAY_MAX);
        if cause == CheckCause::Event {
            self.event_at = Some(failing.next_at);
        }
    }

    /// The check's number is given back: nothing was asked, and the check stays due.
    pub(super) fn ask_another(&mut self, number: u64, now: Instant) {
        if self.end(number).is_some() {
            self.expect(now);
        }
    }

    /// Whether the leases have to be revoked, although nobody has refused the requirement.
    pub(super) fn is_over(&self, grace: Duration, now: Instant) -> bool {
        let elapsed = |since: Instant| now.saturating_duration_since(since);
        let is_failing = self
            .failing
            .is_some_and(|failing| elapsed(failing.since) >= grace);
        // A remembered answer may be as old when a stream begins; then its check has the grace, too.
        let is_unconfirmed = elapsed(self.confirmed_at) >= UNCONFIRMED_MAX + grace
            && elapsed(self.expires_at) >= grace;
        is_failing || is_unconfirmed
    }

    /// The lease in whose name the requirement is checked: one that streams hold; of the user's own, if there is one.
    pub(super) fn asker(&self) -> Option<&DependentLease> {
        let mut held = self.leases.iter().rev().filter(|one| one.is_held());
        let first = held.next()?;
        match first.is_own {
            true => Some(first),
            false => held.find(|one| one.is_own).or(Some(first)),
        }
    }

    /// The question as two callers ask it who differ and count as one user.
    pub(super) fn two_askers(&self) -> Option<[&AccessQuestion; 2]> {
        let mut questions = self
            .leases
            .iter()
            .filter(|one| one.is_held())
            .filter_map(|one| one.question.as_ref());
        let first = questions.next().filter(|one| one.key.is_shared())?;
        let other = questions.find(|one| one.subject != first.subject)?;
        Some([first, other])
    }

    /// Revokes the leases that `is_ended` chooses. Returns the number of those that streams held.
    pub(super) fn revoke(&mut self, is_ended: impl Fn(&DependentLease) -> bool) -> usize {
        let mut revoked = 0;
        self.leases.retain(|one| {
            if !is_ended(one) {
                return true;
            }
            if let Some(lease) = one.lease.upgrade().filter(|lease| !lease.is_revoked()) {
                revoked += usize::from(lease.stream_count() > 0);
                lease.revoke();
            }
            false
        });
        revoked
    }
}

impl DependentLease {
    /// Whether the lease is still referenced and not revoked.
    pub(super) fn is_valid(&self) -> bool {
        self.lease
            .upgrade()
            .is_some_and(|lease| !lease.is_revoked())
    }

    /// Whether streams hold the lease and it is not revoked.
    pub(super) fn is_held(&self) -> bool {
        let lease = self.lease.upgrade();
        lease.is_some_and(|lease| !lease.is_revoked() && lease.stream_count() > 0)
    }
}

/// No stream continues for longer than this and the grace without a confirmation.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(60 * 60);

/// From a failed check to the next one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(5);

const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// From a check after an event to its repetition.
const REPEAT_DELAY: Duration = Duration::from_secs(10);
