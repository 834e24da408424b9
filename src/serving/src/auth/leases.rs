//! All leases, the requirements that they depend on, and when each requirement has to be checked again. Many leases may share a
//! requirement, which is checked once for all of them. Time is an argument; `rechecks` runs the checks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::caller::{BearerToken, Credential};
use super::changes::ScopeSet;
use super::digest::Digest;
use super::lease::{Lease, WeakLease};
use super::question::{AccessQuestion, QuestionKey};
use super::user::User;
use crate::fairness::Peer;

/// Streams with equal keys have the same lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    /// Digest of the token or the certificate, because the credentials of one user are revoked separately.
    pub credential: Option<Digest>,
    /// The authenticated user, if the streams impersonate another one.
    pub impersonator: Option<Arc<User>>,
    /// The access, and the user who performs it.
    pub question: QuestionKey,
}

/// A condition that must stay true, or the leases that depend on it are revoked.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most of them are accesses")]
pub enum Requirement {
    /// An access is allowed.
    Access(AccessQuestion),
    /// A token is valid and belongs to a user.
    Token {
        /// The token.
        token: BearerToken,
        /// The keyed hash of the token.
        digest: Digest,
        /// The user.
        user: Arc<User>,
        /// The client whose share of permits pays for the checks.
        payer: Peer,
    },
    /// The certificate of a client or a front proxy is valid.
    Certificate {
        /// The credential with the certificate chain.
        credential: Credential,
        /// The keyed hash of the chain.
        digest: Digest,
        /// The client whose share of permits pays for the checks.
        payer: Peer,
    },
}

/// Requirements with equal keys are the same requirement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "most of them are accesses")]
pub enum RequirementKey {
    /// An access of a user.
    Access(QuestionKey),
    /// A token and its user. The user is part of the key because it may change.
    Token(Digest, Arc<User>),
    /// A certificate. Its user cannot change.
    Certificate(Digest),
}

impl Requirement {
    /// The keyed hash of the credential, if the requirement concerns one.
    #[must_use]
    pub const fn credential(&self) -> Option<Digest> {
        match self {
            Self::Access(_) => None,
            Self::Token { digest, .. } | Self::Certificate { digest, .. } => Some(*digest),
        }
    }

    /// The client whose share of permits pays for the checks.
    #[must_use]
    pub const fn payer(&self) -> Peer {
        match self {
            Self::Access(question) => question.payer,
            Self::Token { payer, .. } | Self::Certificate { payer, .. } => *payer,
        }
    }

    fn set_payer(&mut self, new_payer: Peer) {
        match self {
            Self::Access(question) => question.payer = new_payer,
            Self::Token { payer, .. } | Self::Certificate { payer, .. } => *payer = new_payer,
        }
    }

    /// The key of the requirement.
    #[must_use]
    pub fn key(&self) -> RequirementKey {
        match self {
            Self::Access(question) => RequirementKey::Access(question.key.clone()),
            Self::Token { digest, user, .. } => RequirementKey::Token(*digest, Arc::clone(user)),
            Self::Certificate { digest, .. } => RequirementKey::Certificate(*digest),
        }
    }
}

/// The last confirmation that a requirement is met.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation {
    /// The time as of which the requirement was met: for a review, when it was sent.
    pub at: Instant,
    /// Roles have changed since. The requirement has to be checked as soon as a stream depends on it.
    pub is_doubtful: bool,
}

/// How often requirements are checked, and how long leases outlive the last confirmation.
#[derive(Clone, Copy, Debug)]
pub struct RecheckTimes {
    /// Each requirement is checked once within this interval.
    pub interval: Duration,
    /// A lease is revoked when checks have been failing for this time.
    pub grace: Duration,
}

/// All leases and their requirements.
#[derive(Debug)]
pub struct Leases {
    times: RecheckTimes,
    leases: HashMap<LeaseKey, WeakLease, RandomState>,
    requirements: HashMap<RequirementKey, LeaseRecord, RandomState>,
    /// Number of entries at which dropped and revoked leases are swept out before another one is added.
    sweep_len: usize,
}

/// A requirement, the state of its checks, and the leases that depend on it.
#[derive(Debug)]
struct LeaseRecord {
    requirement: Requirement,
    confirmed_at: Instant,
    due_at: Instant,
    /// Set while checks end without a result.
    failing: Option<FailingCheck>,
    /// A check is running, or waits for a permit.
    is_in_flight: bool,
    /// Roles changed while a check was in flight, so its result may be outdated.
    is_doubtful: bool,
    leases: Vec<WeakLease>,
}

#[derive(Clone, Copy, Debug)]
struct FailingCheck {
    /// When the first failed check began.
    since: Instant,
    /// From the next failure to the check after it.
    retry_delay: Duration,
}

/// The result of [`Leases::scan`].
#[derive(Debug, Default)]
pub struct LeaseScan {
    /// Number of leases with streams that were revoked because checks failed or were not made for too long.
    pub revoked: usize,
    /// Number of leases that streams hold.
    pub held: usize,
}

impl Leases {
    /// An empty collection.
    #[must_use]
    pub fn new(times: RecheckTimes) -> Self {
        Self {
            times,
            leases: HashMap::default(),
            requirements: HashMap::default(),
            sweep_len: SWEEP_LEN_MIN,
        }
    }

    /// The lease with this key, or a new one that depends on these requirements, each with its last confirmation.
    pub fn lease(
        &mut self,
        key: LeaseKey,
        requirements: impl FnOnce() -> Vec<(Requirement, Confirmation)>,
        now: Instant,
    ) -> Lease {
        let existing = self.leases.get(&key).and_then(WeakLease::upgrade);
        if let Some(lease) = existing.filter(|lease| !lease.is_revoked()) {
            return lease;
        }
        if self.leases.len() + self.requirements.len() >= self.sweep_len {
            self.sweep();
        }
        let lease = Lease::new();
        let is_own = key.impersonator.is_none();
        for (requirement, confirmation) in requirements() {
            let payer = requirement.payer();
            let record = self.record(requirement, confirmation, now);
            if is_own {
                // The user pays for its own streams, so that their checks do not wait behind those of an impersonator.
                record.requirement.set_payer(payer);
            }
            if record.leases.len() == record.leases.capacity() {
                record.leases.retain(is_valid);
            }
            record.leases.push(lease.downgrade());
        }
        self.leases.insert(key, lease.downgrade());
        lease
    }

    /// The record of a requirement, which is added if it is new. A doubtful confirmation makes it due now.
    fn record(
        &mut self,
        requirement: Requirement,
        confirmation: Confirmation,
        now: Instant,
    ) -> &mut LeaseRecord {
        let next = confirmation.at + self.delay();
        match self.requirements.entry(requirement.key()) {
            Entry::Occupied(known) => {
                let record = known.into_mut();
                record.reconfirm(confirmation, next, now);
                record
            }
            Entry::Vacant(new) => new.insert(LeaseRecord {
                requirement,
                confirmed_at: confirmation.at,
                due_at: match confirmation.is_doubtful {
                    true => now,
                    // Never in the past: an old confirmation is checked before its age can count.
                    false => now.max(next),
                },
                failing: None,
                is_in_flight: false,
                is_doubtful: false,
                leases: Vec::new(),
            }),
        }
    }

    /// The time from a confirmation to the next check: random, 50 to 85 % of the interval. Requirements that were confirmed together are
    /// then not checked together, and the check still ends within the interval.
    fn delay(&self) -> Duration {
        self.times
            .interval
            .mul_f64(0.5 + 0.35 * crate::resource::fraction())
    }

    /// Revokes leases whose requirements could not be checked for the grace, or were not confirmed for `UNCONFIRMED_MAX` and the grace
    /// whatever happened. Drops entries without leases. A check that is late has not failed: with many streams, or a slow upstream, it
    /// may have to wait.
    pub fn scan(&mut self, now: Instant) -> LeaseScan {
        let mut scan = LeaseScan::default();
        let grace = self.times.grace;
        self.requirements.retain(|_, record| {
            record.leases.retain(is_valid);
            if record.leases.is_empty() {
                return record.is_in_flight;
            }
            let has_streams = record.leases.iter().any(is_held);
            let elapsed = |since: Instant| now.saturating_duration_since(since);
            let is_failing = record
                .failing
                .is_some_and(|failing| elapsed(failing.since) >= grace);
            // A remembered answer may be as old when a stream begins; then its check has the grace, too.
            let is_unconfirmed = elapsed(record.confirmed_at) >= UNCONFIRMED_MAX + grace
                && elapsed(record.due_at) >= grace;
            if (is_failing || is_unconfirmed) && has_streams {
                scan.revoked += record.revoke();
                return false;
            }
            true
        });
        scan.held = self.leases.values().filter(|lease| is_held(lease)).count();
        self.sweep();
        scan
    }

    /// Passes the requirements that are due now to `accept`, those with the oldest confirmation first. An accepted requirement is in
    /// flight until [`confirm`](Self::confirm), [`fail`](Self::fail) or [`refuse`](Self::refuse) is called. The others stay due.
    pub fn offer_due(&mut self, now: Instant, mut accept: impl FnMut(&Requirement) -> bool) {
        let mut due: Vec<_> = self
            .requirements
            .values_mut()
            .filter(|record| record.due_at <= now && !record.is_in_flight)
            .filter(|record| record.leases.iter().any(is_held))
            .collect();
        due.sort_by_key(|record| record.confirmed_at);
        for record in due {
            record.is_in_flight = accept(&record.requirement);
        }
    }

    /// Records that a check found the requirement met as of `at`.
    pub fn confirm(&mut self, key: &RequirementKey, at: Instant, now: Instant) {
        let delay = self.delay();
        if let Some(record) = self.requirements.get_mut(key) {
            let was_doubtful = std::mem::take(&mut record.is_doubtful);
            record.confirmed_at = record.confirmed_at.max(at);
            record.failing = None;
            record.is_in_flight = false;
            record.due_at = if was_doubtful { now } else { at + delay };
        }
    }

    /// Records that a check that began at `began_at` failed without a result. The next one follows after 5 s, then 10 s and so on up to
    /// 60 s, but never after more than a quarter of the interval.
    pub fn fail(&mut self, key: &RequirementKey, began_at: Instant, now: Instant) {
        let delay_max = RETRY_DELAY_MAX.min(self.times.interval / 4);
        if let Some(record) = self.requirements.get_mut(key) {
            let failing = record.failing.get_or_insert(FailingCheck {
                since: began_at,
                retry_delay: RETRY_DELAY_MIN,
            });
            record.due_at = now + failing.retry_delay.min(delay_max);
            failing.retry_delay = (failing.retry_delay * 2).min(RETRY_DELAY_MAX);
            record.is_in_flight = false;
        }
    }

    /// Records that a requirement is not met: revokes the leases that depend on it. Returns the number of those with streams.
    pub fn refuse(&mut self, key: &RequirementKey) -> usize {
        let record = self.requirements.remove(key);
        record.map_or(0, |mut record| record.revoke())
    }

    /// Makes the accesses due that changes of roles may affect.
    pub fn mark_doubtful(&mut self, scopes: &ScopeSet, now: Instant) {
        for (key, record) in &mut self.requirements {
            if let RequirementKey::Access(question) = key
                && scopes.covers(&question.user, &question.access)
            {
                record.due_at = record.due_at.min(now);
                record.is_doubtful |= record.is_in_flight;
            }
        }
    }

    /// Number of entries for leases and requirements, including those that the next sweep drops.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len() + self.requirements.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops leases that are revoked or no longer referenced, and requirements without leases.
    fn sweep(&mut self) {
        self.leases.retain(|_, lease| is_valid(lease));
        self.requirements
            .retain(|_, record| record.is_in_flight || record.leases.iter().any(is_valid));
        self.sweep_len = (2 * self.len()).max(SWEEP_LEN_MIN);
    }
}

impl LeaseRecord {
    /// Takes over the answer to a new request, after which the check would be due at `next`.
    fn reconfirm(&mut self, confirmation: Confirmation, next: Instant, now: Instant) {
        if confirmation.is_doubtful {
            self.due_at = self.due_at.min(now);
            return;
        }
        // What is remembered of a token is older than its confirmation says.
        let is_access = matches!(self.requirement, Requirement::Access(_));
        if is_access && confirmation.at > self.confirmed_at && self.failing.is_none() {
            self.confirmed_at = confirmation.at;
            // What is due stays due: roles may have changed since the question.
            if self.due_at > now {
                self.due_at = self.due_at.max(next);
            }
        }
    }

    /// Revokes all leases. Returns the number of those that streams held.
    fn revoke(&mut self) -> usize {
        let mut revoked = 0;
        for lease in self.leases.drain(..).filter_map(|lease| lease.upgrade()) {
            if !lease.is_revoked() {
                revoked += usize::from(lease.stream_count() > 0);
                lease.revoke();
            }
        }
        revoked
    }
}

/// Whether the lease is still referenced and not revoked.
fn is_valid(lease: &WeakLease) -> bool {
    lease.upgrade().is_some_and(|lease| !lease.is_revoked())
}

/// Whether streams hold the lease and it is not revoked.
fn is_held(lease: &WeakLease) -> bool {
    let lease = lease.upgrade();
    lease.is_some_and(|lease| !lease.is_revoked() && lease.stream_count() > 0)
}

/// No stream continues for longer than this and the grace without a confirmation: an hour, less what a remembered token may be older than
/// the request that opened the stream.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(57 * 60);

/// From a failed check to the next one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(5);

const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// Minimum number of entries before a sweep.
const SWEEP_LEN_MIN: usize = 1024;

#[cfg(test)]
mod tests;
