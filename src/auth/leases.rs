//! Leases by what they stand on, and when that is to be checked again.

use std::collections::HashMap;
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
    /// Of the token or the certificate, as two of one user are revoked one by one.
    pub credential: Option<Digest>,
    /// The authenticated user, if the streams are another one's.
    pub impersonator: Option<Arc<User>>,
    /// What is done, and who does it.
    pub question: QuestionKey,
}

/// What must stay true for a lease to last.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "most of them are accesses")]
pub enum Requirement {
    /// An access is allowed.
    Access(AccessQuestion),
    /// A token is a user's.
    Token {
        /// The token.
        token: BearerToken,
        /// Its keyed hash.
        digest: Digest,
        /// The user.
        user: Arc<User>,
        /// Whose places its checks take.
        payer: Peer,
    },
    /// The certificate of a client or a front proxy counts.
    Certificate {
        /// With its chain.
        credential: Credential,
        /// Its keyed hash.
        digest: Digest,
        /// Whose places its checks take.
        payer: Peer,
    },
}

/// What makes two requirements the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "most of them are accesses")]
pub enum RequirementKey {
    /// An access.
    Access(QuestionKey),
    /// A token and its user.
    Token(Digest, Arc<User>),
    /// A certificate, whose user does not change.
    Certificate(Digest),
}

impl Requirement {
    /// The keyed hash of the credential, if it is about one.
    #[must_use]
    pub const fn credential(&self) -> Option<Digest> {
        match self {
            Self::Access(_) => None,
            Self::Token { digest, .. } | Self::Certificate { digest, .. } => Some(*digest),
        }
    }

    /// Whose places its checks take.
    #[must_use]
    pub const fn payer(&self) -> Peer {
        match self {
            Self::Access(question) => question.payer,
            Self::Token { payer, .. } | Self::Certificate { payer, .. } => *payer,
        }
    }

    fn set_payer(&mut self, to: Peer) {
        match self {
            Self::Access(question) => question.payer = to,
            Self::Token { payer, .. } | Self::Certificate { payer, .. } => *payer = to,
        }
    }

    /// What makes it the same as another one.
    #[must_use]
    pub fn key(&self) -> RequirementKey {
        match self {
            Self::Access(question) => RequirementKey::Access(question.key.clone()),
            Self::Token { digest, user, .. } => RequirementKey::Token(*digest, Arc::clone(user)),
            Self::Certificate { digest, .. } => RequirementKey::Certificate(*digest),
        }
    }
}

/// When a requirement was last known to be met, and when it is to be checked.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation {
    /// It was met then.
    pub at: Instant,
    /// It is to be checked as soon as a stream depends on it.
    pub is_doubtful: bool,
}

/// How often requirements are checked, and how long leases outlive the last confirmation.
#[derive(Clone, Copy, Debug)]
pub struct RecheckTimes {
    /// Each requirement is checked once within it.
    pub interval: Duration,
    /// Without confirmation for so long, a lease is revoked.
    pub grace: Duration,
}

/// All leases.
#[derive(Debug)]
pub struct Leases {
    times: RecheckTimes,
    leases: HashMap<LeaseKey, WeakLease, RandomState>,
    requirements: HashMap<RequirementKey, LeaseRecord, RandomState>,
    /// Leases that nobody has are let go when there are so many entries.
    sweep_len: usize,
}

#[derive(Debug)]
struct LeaseRecord {
    requirement: Requirement,
    confirmed_at: Instant,
    due_at: Instant,
    /// The last check failed.
    is_failing: bool,
    /// It is being checked, or waits for that.
    is_in_flight: bool,
    /// A change was seen while it was being checked.
    is_doubtful: bool,
    leases: Vec<WeakLease>,
}

/// What a scan has found.
#[derive(Debug, Default)]
pub struct LeaseScan {
    /// Leases that were revoked because their grace is over.
    pub revoked: usize,
    /// Leases that streams have.
    pub held: usize,
}

impl Leases {
    /// None.
    #[must_use]
    pub fn new(times: RecheckTimes) -> Self {
        Self {
            times,
            leases: HashMap::default(),
            requirements: HashMap::default(),
            sweep_len: SWEEP_LEN_MIN,
        }
    }

    /// The lease of these streams, or a new one that stands on these requirements, each with its last confirmation.
    pub fn lease(
        &mut self,
        key: LeaseKey,
        requirements: impl FnOnce() -> Vec<(Requirement, Confirmation)>,
        now: Instant,
    ) -> Lease {
        let known = self.leases.get(&key).and_then(WeakLease::upgrade);
        if let Some(lease) = known.filter(|lease| !lease.is_revoked()) {
            return lease;
        }
        if self.leases.len() + self.requirements.len() >= self.sweep_len {
            self.sweep();
        }
        let lease = Lease::new();
        let is_own = key.impersonator.is_none();
        for (requirement, confirmation) in requirements() {
            let payer = requirement.payer();
            let standing = self.standing(requirement, confirmation, now);
            if is_own {
                // Nobody waits for somebody who impersonates it, or did.
                standing.requirement.set_payer(payer);
            }
            if standing.leases.len() == standing.leases.capacity() {
                standing.leases.retain(is_valid);
            }
            standing.leases.push(lease.downgrade());
        }
        self.leases.insert(key, lease.downgrade());
        lease
    }

    fn standing(
        &mut self,
        requirement: Requirement,
        confirmation: Confirmation,
        now: Instant,
    ) -> &mut LeaseRecord {
        let due_at = match confirmation.is_doubtful {
            true => now,
            // Not in the past: the grace does not run before there was a chance to check.
            false => now.max(confirmation.at + self.delay()),
        };
        let known = self.requirements.entry(requirement.key());
        let standing = known.or_insert_with(|| LeaseRecord {
            requirement,
            confirmed_at: confirmation.at,
            due_at,
            is_failing: false,
            is_in_flight: false,
            is_doubtful: false,
            leases: Vec::new(),
        });
        if confirmation.is_doubtful {
            standing.due_at = standing.due_at.min(now);
        }
        standing
    }

    /// Part of the interval, so that what was confirmed together is not checked together, and in time.
    fn delay(&self) -> Duration {
        self.times
            .interval
            .mul_f64(0.5 + 0.35 * crate::resource::fraction())
    }

    /// Revokes what could not be checked for too long, and lets go of what nobody needs.
    pub fn scan(&mut self, now: Instant) -> LeaseScan {
        let mut scan = LeaseScan::default();
        let grace = self.times.grace;
        self.requirements.retain(|_, standing| {
            standing.leases.retain(is_valid);
            if standing.leases.is_empty() {
                return standing.is_in_flight;
            }
            let has_streams = standing.leases.iter().any(is_held);
            let is_over = |since: Instant| now.saturating_duration_since(since) >= grace;
            // Either checks fail, or there are too many of them to come to this one.
            let is_stuck = standing.is_failing || is_over(standing.due_at);
            if is_over(standing.confirmed_at) && is_stuck && has_streams {
                scan.revoked += standing.revoke();
                return false;
            }
            true
        });
        scan.held = self.leases.values().filter(|lease| is_held(lease)).count();
        self.sweep();
        scan
    }

    /// Offers what is to be checked now, the longest unconfirmed first. What is accepted is in flight until it is known what came of
    /// it; the rest stays due.
    pub fn offer_due(&mut self, now: Instant, mut accept: impl FnMut(&Requirement) -> bool) {
        let is_due = |standing: &LeaseRecord| {
            let is_free = standing.due_at <= now && !standing.is_in_flight;
            is_free && standing.leases.iter().any(is_held)
        };
        let all = self.requirements.values_mut();
        let mut due: Vec<_> = all.filter(|standing| is_due(standing)).collect();
        due.sort_by_key(|standing| standing.confirmed_at);
        for standing in due {
            standing.is_in_flight = accept(&standing.requirement);
        }
    }

    /// A requirement was met when it was checked.
    pub fn confirm(&mut self, key: &RequirementKey, at: Instant, now: Instant) {
        let delay = self.delay();
        if let Some(standing) = self.requirements.get_mut(key) {
            let was_doubtful = std::mem::take(&mut standing.is_doubtful);
            standing.confirmed_at = standing.confirmed_at.max(at);
            standing.is_failing = false;
            standing.is_in_flight = false;
            standing.due_at = if was_doubtful { now } else { at + delay };
        }
    }

    /// A requirement could not be checked.
    pub fn fail(&mut self, key: &RequirementKey, now: Instant) {
        let delay = self.delay() / 4;
        if let Some(standing) = self.requirements.get_mut(key) {
            standing.is_failing = true;
            standing.is_in_flight = false;
            standing.due_at = now + delay;
        }
    }

    /// A requirement is not met: revokes the leases that stand on it. Returns their number.
    pub fn refuse(&mut self, key: &RequirementKey) -> usize {
        let standing = self.requirements.remove(key);
        standing.map_or(0, |mut standing| standing.revoke())
    }

    /// A change of roles: what it may matter to is to be checked at once.
    pub fn doubt(&mut self, scopes: &ScopeSet, now: Instant) {
        for (key, standing) in &mut self.requirements {
            if let RequirementKey::Access(question) = key
                && scopes.covers(&question.user, &question.access)
            {
                standing.due_at = standing.due_at.min(now);
                standing.is_doubtful |= standing.is_in_flight;
            }
        }
    }

    /// Leases and requirements that take memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len() + self.requirements.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sweep(&mut self) {
        self.leases.retain(|_, lease| is_valid(lease));
        let is_needed = |standing: &mut LeaseRecord| {
            standing.is_in_flight || standing.leases.iter().any(is_valid)
        };
        self.requirements.retain(|_, standing| is_needed(standing));
        self.sweep_len = (2 * self.len()).max(SWEEP_LEN_MIN);
    }
}

impl LeaseRecord {
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

/// Whether somebody has it, and may.
fn is_valid(lease: &WeakLease) -> bool {
    lease.upgrade().is_some_and(|lease| !lease.is_revoked())
}

/// Whether streams have it, and may.
fn is_held(lease: &WeakLease) -> bool {
    let lease = lease.upgrade();
    lease.is_some_and(|lease| !lease.is_revoked() && lease.stream_count() > 0)
}

const SWEEP_LEN_MIN: usize = 1024;

#[cfg(test)]
mod tests;
