//! All leases, the requirements that they depend on, and when each requirement has to be checked again. Many leases may share a
//! requirement, which is checked once for all of them. Time is an argument; `rechecks` runs the checks.

mod confirmation;
mod gone_objects;
mod record;
mod rejected_tokens;
mod requirement;
mod times;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::access_review::AccessVerdict;
use super::caller::BearerToken;
use super::changes::{ScopeSet, UserHash};
use super::digest::Digest;
use super::explanation::{Coverage, Explanation};
use super::followed::AuthorizerState;
use super::lease::{Lease, WeakLease};
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use super::user::User;
use crate::fairness::Peer;

pub use confirmation::Confirmation;
use gone_objects::GoneObjects;
pub use gone_objects::LivenessCheck;
pub use record::CheckCause;
use record::{DependentLease, LeaseRecord};
use rejected_tokens::RejectedTokens;
pub use requirement::{OwnedToken, Requirement, RequirementKey};
pub use times::RecheckTimes;

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

/// All leases and their requirements.
#[derive(Debug)]
pub struct Leases {
    times: RecheckTimes,
    leases: HashMap<LeaseKey, LeaseEntry, RandomState>,
    requirements: HashMap<RequirementKey, LeaseRecord, RandomState>,
    gone: GoneObjects,
    tokens: RejectedTokens,
    /// Number of entries at which dropped and revoked leases are swept out before another one is added.
    sweep_len: usize,
    /// The number of the last check.
    check_number: u64,
}

/// A lease, with what a stream needs that resumes with it.
#[derive(Debug)]
struct LeaseEntry {
    lease: WeakLease,
    verdict: Arc<AccessVerdict>,
    /// The lease, and when a stream was last seen to hold it.
    recent: Option<(Lease, Instant)>,
}

/// A requirement that is to be checked.
#[derive(Debug)]
pub struct DueCheck<'a> {
    /// Why it is checked.
    pub cause: CheckCause,
    /// The client whose share of permits pays.
    pub payer: Peer,
    /// Later numbers take the place of earlier ones.
    pub number: u64,
    record: &'a LeaseRecord,
    asker: &'a DependentLease,
}

impl DueCheck<'_> {
    /// The requirement, asked about in the name of a caller whose streams depend on it.
    #[must_use]
    pub fn requirement(&self) -> Requirement {
        match &self.asker.question {
            Some(question) => Requirement::Access(question.clone()),
            None => self.record.requirement.clone(),
        }
    }
}

/// The result of [`Leases::scan`].
#[derive(Debug, Default)]
pub struct LeaseScan {
    /// Number of leases with streams that were revoked because checks failed or were not made for too long.
    pub revoked: usize,
    /// Number of leases that streams hold.
    pub held: usize,
    /// When the requirement was confirmed whose confirmation is the oldest; `None` if no stream depends on any.
    pub oldest: Option<Instant>,
}

/// A decision that a change of roles may concern.
#[derive(Clone, Debug)]
pub struct ChangedAccess {
    /// The question.
    pub key: QuestionKey,
    /// Whether roles have changed that may affect it.
    pub has_changed: bool,
    /// What made it allowed before.
    pub explanation: Explanation,
    /// When it was asked.
    pub asked_at: Instant,
    /// Whether the answer also says that the caller may impersonate the user, which roles about the access do not show.
    pub is_impersonated: bool,
}

impl Leases {
    /// An empty collection.
    #[must_use]
    pub fn new(times: RecheckTimes) -> Self {
        Self {
            times,
            leases: HashMap::default(),
            requirements: HashMap::default(),
            gone: GoneObjects::default(),
            tokens: RejectedTokens::default(),
            sweep_len: SWEEP_LEN_MIN,
            check_number: 0,
        }
    }

    /// The lease with this key, or a new one that depends on these requirements, each with its last confirmation.
    pub fn lease(
        &mut self,
        key: LeaseKey,
        verdict: &Arc<AccessVerdict>,
        requirements: Vec<(Requirement, Confirmation)>,
        now: Instant,
    ) -> Lease {
        let existing = self.leases.get(&key).and_then(|one| one.lease.upgrade());
        if let Some(lease) = existing.filter(|lease| !lease.is_revoked()) {
            for (requirement, confirmation) in requirements {
                if let Some(record) = self.requirements.get_mut(&requirement.key()) {
                    record.reconfirm(confirmation, self.times, now);
                }
            }
            return lease;
        }
        if self.len() >= self.sweep_len {
            self.sweep();
        }
        let lease = Lease::new();
        let is_own = key.impersonator.is_none();
        for (requirement, confirmation) in requirements {
            let dependent = DependentLease {
                lease: lease.downgrade(),
                question: match &requirement {
                    Requirement::Access(question) => Some(question.clone()),
                    Requirement::Token { .. } | Requirement::Certificate { .. } => None,
                },
                payer: requirement.payer(),
                is_own,
            };
            let record = self.record(requirement, confirmation, now);
            if record.leases.len() == record.leases.capacity() {
                record.leases.retain(DependentLease::is_valid);
            }
            record.leases.push(dependent);
        }
        let entry = LeaseEntry {
            lease: lease.downgrade(),
            verdict: Arc::clone(verdict),
            recent: None,
        };
        self.leases.insert(key, entry);
        lease
    }

    /// The record of a requirement, which is added if it is new. A doubtful confirmation makes it due now.
    fn record(
        &mut self,
        requirement: Requirement,
        confirmation: Confirmation,
        now: Instant,
    ) -> &mut LeaseRecord {
        match self.requirements.entry(requirement.key()) {
            Entry::Occupied(known) => {
                let record = known.into_mut();
                record.reconfirm(confirmation, self.times, now);
                record
            }
            Entry::Vacant(new) => {
                self.tokens.know(&requirement);
                new.insert(LeaseRecord::new(requirement, confirmation, self.times, now))
            }
        }
    }

    /// The lease of a stream that resumes, with its verdict: a stream held it within the last 30 s, and everything that it depends on was
    /// confirmed within the hour and is not in doubt. `credential` is what authenticates the caller, if that is a requirement of its own.
    #[must_use]
    pub fn resumed(
        &self,
        key: &LeaseKey,
        credential: Option<RequirementKey>,
        now: Instant,
    ) -> Option<(Lease, Arc<AccessVerdict>)> {
        let entry = self
            .leases
            .get(key)
            .filter(|_| key.impersonator.is_none())?;
        let (lease, held_at) = entry.recent.as_ref()?;
        let is_recent = now.saturating_duration_since(*held_at) <= RESUMED_MAX;
        let access = RequirementKey::Access(key.question.clone());
        let mut requirements = credential.into_iter().chain([access]);
        let is_reliable = requirements.all(|one| {
            let record = self.requirements.get(&one);
            record.is_some_and(|record| record.is_reliable(now))
        });
        (is_recent && is_reliable && !lease.is_revoked())
            .then(|| (lease.clone(), Arc::clone(&entry.verdict)))
    }

    /// Revokes leases whose requirements could not be checked for the grace, or were not confirmed for an hour and the grace whatever
    /// happened. Drops entries without leases. A check that is late has not failed: with many streams, or a slow upstream, it may have
    /// to wait.
    ///
    /// With `Opaque`, the answer to one token no longer counts for another: each token is asked about by itself from now on.
    pub fn scan(&mut self, authorizers: AuthorizerState, now: Instant) -> LeaseScan {
        let mut scan = LeaseScan::default();
        let grace = self.times.grace;
        if authorizers == AuthorizerState::Opaque {
            self.part_shared(now);
        }
        self.expect_gone(now);
        self.expect_rejected(now);
        self.leases.retain(|key, entry| {
            let lease = entry.lease.upgrade().filter(|lease| !lease.is_revoked());
            let Some(lease) = lease else {
                return false;
            };
            if lease.stream_count() > 0 {
                scan.held += 1;
                if key.question.text_len() <= RESUMED_TEXT_LEN_MAX {
                    entry.recent = Some((lease, now));
                }
            } else {
                drop(lease);
                entry
                    .recent
                    .take_if(|(_, held_at)| now.saturating_duration_since(*held_at) > RESUMED_MAX);
                return entry.lease.upgrade().is_some();
            }
            true
        });
        self.requirements.retain(|_, record| {
            record.leases.retain(DependentLease::is_valid);
            if record.leases.is_empty() {
                return record.in_flight.is_some();
            }
            if !record.leases.iter().any(DependentLease::is_held) {
                return true;
            }
            if record.is_over(grace, now) {
                scan.revoked += record.revoke(|_| true);
                return false;
            }
            let oldest = scan.oldest.get_or_insert(record.confirmed_at);
            *oldest = (*oldest).min(record.confirmed_at);
            true
        });
        self.sweep_len = (2 * self.len()).max(SWEEP_LEN_MIN);
        let requirements = self.requirements.values().map(|record| &record.requirement);
        self.tokens.prune(self.requirements.len(), requirements);
        scan
    }

    /// Passes the requirements that are due now to `accept`: those of events first, those without an event or a budget next, the rest by the
    /// age of their confirmation, and not more of these than `sweep_max`. An accepted requirement is in flight until
    /// [`confirm`](Self::confirm), [`fail`](Self::fail) or [`refuse`](Self::refuse) is called. The others stay due. Returns how many of
    /// the last kind were accepted.
    pub fn offer_due(
        &mut self,
        coverage: Coverage,
        sweep_max: usize,
        now: Instant,
        mut accept: impl FnMut(&DueCheck<'_>) -> bool,
    ) -> usize {
        let times = self.times;
        let (mut due, mut sweep) = (Vec::new(), Vec::new());
        for record in self.requirements.values_mut() {
            match record.cause(coverage, times, now) {
                Some(CheckCause::Sweep) => sweep.push((CheckCause::Sweep, record)),
                Some(cause) => due.push((cause, record)),
                None => {}
            }
        }
        due.sort_unstable_by_key(|(cause, record)| {
            (*cause != CheckCause::Event, record.confirmed_at)
        });
        let age = |(_, record): &(CheckCause, &mut LeaseRecord)| record.confirmed_at;
        // A few more, because some may find no permit; sorting all of them each second would take long.
        let swept_at_most = sweep_max.saturating_mul(4);
        if sweep.len() > swept_at_most {
            sweep.select_nth_unstable_by_key(swept_at_most, age);
            sweep.truncate(swept_at_most);
        }
        sweep.sort_unstable_by_key(age);
        due.append(&mut sweep);
        let mut swept = 0;
        for (cause, record) in due {
            if cause == CheckCause::Sweep && swept >= sweep_max {
                break;
            }
            let Some(asker) = record.asker() else {
                continue;
            };
            let number = self.check_number + 1;
            let is_accepted = accept(&DueCheck {
                cause,
                payer: asker.payer,
                number,
                record,
                asker,
            });
            if is_accepted {
                self.check_number = number;
                swept += usize::from(cause == CheckCause::Sweep);
                record.begin(number, cause);
            }
        }
        swept
    }

    /// Whether this check has not been replaced by another one.
    #[must_use]
    pub fn is_wanted(&self, key: &RequirementKey, number: u64) -> bool {
        let record = self.requirements.get(key);
        let in_flight = record.and_then(|record| record.in_flight);
        in_flight.is_some_and(|check| check.number == number)
    }

    /// Records that a check found the requirement met.
    pub fn confirm(
        &mut self,
        key: &RequirementKey,
        number: u64,
        confirmation: Confirmation,
        now: Instant,
    ) {
        if let Some(record) = self.requirements.get_mut(key) {
            record.confirm(number, confirmation, self.times, now);
        }
    }

    /// Records that a check that began at `began_at` failed without a result. The next one follows after 5 s, then 10 s and so on up to
    /// 60 s, but never after more than a quarter of the interval.
    pub fn fail(&mut self, key: &RequirementKey, number: u64, began_at: Instant, now: Instant) {
        if let Some(record) = self.requirements.get_mut(key) {
            record.fail(number, began_at, self.times, now);
        }
    }

    /// Records that a requirement is not met: revokes the leases that depend on it. Returns the number of those with streams.
    pub fn refuse(&mut self, key: &RequirementKey) -> usize {
        let record = self.requirements.remove(key);
        record.map_or(0, |mut record| record.revoke(|_| true))
    }

    /// Records that upstream rejected the token in whose name a shared access was asked about: the leases of that token are revoked, its
    /// other leases are checked soon, and the access is asked about in another name. Returns the number of revoked leases with streams.
    pub fn reject_asker(
        &mut self,
        key: &RequirementKey,
        number: u64,
        rejected: &BearerToken,
        now: Instant,
    ) -> usize {
        let mut revoked = 0;
        if let Some(record) = self.requirements.get_mut(key) {
            revoked = record.revoke(|one| match &one.question {
                Some(question) => match &question.identity {
                    QuestionIdentity::Caller { token, .. } => token == rejected,
                    QuestionIdentity::Gateway | QuestionIdentity::Impersonated => false,
                },
                None => false,
            });
            record.ask_another(number, now);
        }
        self.tokens.reject(rejected);
        revoked
    }

    /// Whether leases may depend on this token.
    #[must_use]
    pub fn may_depend_on(&self, token: &BearerToken) -> bool {
        self.tokens.is_known(token)
    }

    /// Records that upstream rejected a token: what depends on it is checked at the next scan.
    pub fn reject_token(&mut self, token: &BearerToken) {
        self.tokens.reject(token);
    }

    /// Makes due what depends on rejected tokens. One pass for all of them.
    fn expect_rejected(&mut self, now: Instant) {
        let Some(rejected) = self.tokens.take() else {
            return;
        };
        for record in self.requirements.values_mut() {
            let token = record.requirement.token();
            if token.is_some_and(|one| rejected.contains(one.token)) {
                record.expect(now);
            }
        }
    }

    /// Has each lease depend on an answer to its own token, instead of one that counts for all tokens of the user. The old answers stand
    /// until the new questions are due.
    fn part_shared(&mut self, now: Instant) {
        let shared: Vec<_> = self
            .requirements
            .extract_if(|key, _| match key {
                RequirementKey::Access(key) => key.authorizers == AuthorizerState::Transparent,
                RequirementKey::Token(..) | RequirementKey::Certificate(_) => false,
            })
            .collect();
        for (_, record) in shared {
            let confirmation = Confirmation {
                at: record.confirmed_at,
                is_doubtful: record.event_at.is_some(),
                explanation: record.explanation,
            };
            for dependent in record.leases {
                let Some(question) = &dependent.question else {
                    continue;
                };
                let question = question.of_one_token();
                let requirement = Requirement::Access(question.clone());
                let own = self.record(requirement, confirmation, now);
                own.failing = own.failing.or(record.failing);
                own.leases.push(DependentLease {
                    question: Some(question),
                    ..dependent
                });
            }
        }
    }

    /// Makes due what these users may do.
    pub fn expect_users(&mut self, users: &HashSet<UserHash>, now: Instant) {
        for (key, record) in &mut self.requirements {
            if let RequirementKey::Access(question) = key
                && users.contains(&UserHash::of(&question.user))
            {
                record.expect(now);
            }
        }
    }

    /// The accesses that a change of roles in these scopes may concern.
    #[must_use]
    pub fn changed_accesses(&self, scopes: &ScopeSet) -> Vec<ChangedAccess> {
        let records = self.requirements.iter().filter_map(|(key, record)| {
            let RequirementKey::Access(question) = key else {
                return None;
            };
            let has_changed = scopes.covers(&question.access);
            scopes.may_explain(&question.access).then(|| ChangedAccess {
                has_changed,
                key: question.clone(),
                explanation: record.explanation,
                asked_at: record.confirmed_at,
                is_impersonated: record.leases.iter().any(|one| !one.is_own),
            })
        });
        records.collect()
    }

    /// Makes an access due that roles no longer explain.
    pub fn expect_access(&mut self, key: QuestionKey, at: Instant) {
        if let Some(record) = self.requirements.get_mut(&RequirementKey::Access(key)) {
            record.explanation = Explanation::None;
            record.expect_twice(at);
        }
    }

    /// Makes an access due that was denied to a new request.
    pub fn expect_denied(&mut self, key: &QuestionKey, now: Instant) {
        let key = RequirementKey::Access(key.clone());
        if let Some(record) = self.requirements.get_mut(&key) {
            record.expect(now);
        }
    }

    /// Records that roles explain an access that was allowed before.
    pub fn explain_access(&mut self, key: QuestionKey) {
        if let Some(record) = self.requirements.get_mut(&RequirementKey::Access(key)) {
            record.explanation = Explanation::Roles;
        }
    }

    /// Records that pods or service accounts are gone. Upstream believes their tokens for some seconds more, so these are reviewed after that.
    pub fn delete_bound_objects(&mut self, uids: Vec<Box<str>>, now: Instant) {
        self.gone.delete(uids, now);
    }

    /// Records that pods or service accounts were listed. Tokens that were reviewed before, and are bound to what upstream does not have, are
    /// reviewed again: nobody may have noticed that it came and went.
    pub fn list_bound_objects(&mut self, is_live: LivenessCheck, now: Instant) {
        self.gone.list(is_live, now);
    }

    /// Makes the tokens due that are bound to what is gone, also those that were reviewed shortly after the deletion.
    fn expect_gone(&mut self, now: Instant) {
        if !self.gone.expire(now) {
            return;
        }
        for record in self.requirements.values_mut() {
            let Some(OwnedToken { owner, .. }) = record.requirement.token() else {
                continue;
            };
            let at = self.gone.review_at(owner, record.confirmed_at, now);
            if let Some(at) = at.filter(|_| !record.is_event_checked()) {
                record.expect(at);
            }
        }
    }

    /// The same access as two callers ask about it who count as one user; `None` if there are no such callers. `fraction`, from 0 to 1,
    /// chooses among all.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "any of them will do"
    )]
    pub fn shared_question(&self, fraction: f64) -> Option<[AccessQuestion; 2]> {
        let records = self.requirements.values();
        let mut shared: Vec<_> = records.filter_map(LeaseRecord::two_askers).collect();
        let at = (fraction * shared.len() as f64) as usize;
        (at < shared.len()).then(|| shared.swap_remove(at).map(AccessQuestion::clone))
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
        self.leases.retain(|_, entry| {
            let lease = entry.lease.upgrade();
            lease.is_some_and(|lease| !lease.is_revoked())
        });
        self.requirements.retain(|_, record| {
            record.in_flight.is_some() || record.leases.iter().any(DependentLease::is_valid)
        });
        self.sweep_len = (2 * self.len()).max(SWEEP_LEN_MIN);
    }
}

/// A stream that begins within this time after one that held its lease continues it.
const RESUMED_MAX: Duration = Duration::from_secs(30);
/// Leases of longer questions, in bytes, are not kept for streams that resume.
const RESUMED_TEXT_LEN_MAX: usize = 2048;

/// Minimum number of entries before a sweep.
const SWEEP_LEN_MIN: usize = 1024;

#[cfg(test)]
mod tests;
