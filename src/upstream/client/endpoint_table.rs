//! Which of several API servers requests go to. Pure: time and random numbers are arguments.
//!
//! One endpoint is *active*: it gets every request while it is ready, so that reads which the API server answers from its own
//! watch cache do not alternate between caches of different age. If it is not ready any more, another one becomes active at
//! once. The endpoint that was preferred at the start becomes active again after it has been ready for some minutes.

use std::time::{Duration, Instant};

pub use super::endpoint_mask::ENDPOINTS_MAX;
pub(super) use super::endpoint_mask::EndpointMask;
pub use super::endpoint_state::{EndpointFailure, EndpointState};
use crate::upstream::backoff::Backoff;

/// Time between two checks of a ready endpoint; a random part of [`PROBE_JITTER`] is added.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_JITTER: Duration = Duration::from_secs(1);
/// Least time between two checks of an endpoint whose requests fail.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(1);
/// This many failed checks in a row make a ready endpoint unready. A refused connection needs only one.
const FAILURES_MAX: u32 = 2;
/// The cluster of a ready endpoint is read again after this many checks, about once a minute.
const CHECKS_PER_IDENTITY: u32 = 12;
/// The preferred endpoint becomes active again after it has been ready for this long and up to twice as long, so that it is
/// warm, and many gateways do not return at the same moment.
const RETURN_AFTER: Duration = Duration::from_secs(300);
/// Watches that lag move requests at most this often.
const LAGGING_APART: Duration = Duration::from_secs(30);

/// A ready API server's watch caches are not further behind than this. In practice it is seconds.
const LAG_MAX: Duration = Duration::from_secs(600);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// It is ready; its cluster was not read, because the endpoint was ready when the check began.
    Ready,
    /// It is ready and belongs to the cluster with this uid; `None` if the gateway is not allowed to read the uid.
    Identified(Option<String>),
    /// It is ready; its cluster was asked for and not told, for a reason that says nothing about the cluster, such as 429.
    Unidentified,
    /// It does not accept the gateway's credentials. This may be the fault of either side.
    Unauthorized,
    /// It answers that it is not ready.
    Unready {
        reason: String,
        /// The uid of its cluster, if it was asked for and told.
        uid: Option<String>,
    },
    /// It cannot be reached.
    Failed {
        failure: EndpointFailure,
        reason: String,
    },
    /// This process could not check it, such as for lack of open files.
    Undecided,
}

/// What requests need to know of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointChoice {
    /// The endpoint that requests go to if it is ready.
    pub(super) active: usize,
    ready: EndpointMask,
    /// Members of the cluster that answer and are not ready, for when none is.
    unready: EndpointMask,
    foreign: EndpointMask,
    /// When another endpoint became active.
    moved_at: Option<Instant>,
}

impl EndpointChoice {
    /// The endpoint for the next attempt of a request that these endpoints have failed.
    pub(super) fn next(self, failed: EndpointMask) -> Option<usize> {
        let usable = match self.ready.is_empty() {
            false => self.ready,
            true => self.unready,
        };
        let can_take = |index: &usize| usable.contains(*index) && !failed.contains(*index);
        let around = (self.active..ENDPOINTS_MAX).chain(0..self.active);
        around.into_iter().find(can_take)
    }

    /// Whether another endpoint became active so recently that its caches may be behind what the last one has answered.
    pub(super) fn has_moved(self, now: Instant) -> bool {
        self.moved_at.is_some_and(|at| now < at + LAG_MAX)
    }

    /// Whether the endpoint belongs to another cluster.
    pub(super) const fn is_foreign(self, index: usize) -> bool {
        self.foreign.contains(index)
    }

    /// Whether requests that wait for this endpoint should go to another one. If there is none, they wait for this one to come back:
    /// sending them again could not help. Only what another cluster sends is never wanted.
    pub(super) const fn is_abandoned(self, index: usize) -> bool {
        self.is_foreign(index) || !self.ready.contains(index) && !self.ready.is_empty()
    }
}

/// A change that is worth a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointChange {
    /// An endpoint has another state, for this reason (empty for a ready one).
    State {
        index: usize,
        state: EndpointState,
        reason: String,
    },
    /// Requests go to this endpoint from now on.
    Active { index: usize },
}

/// What is known of an endpoint and the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    /// It was not compared with the others, or belongs to another cluster.
    Unproven,
    /// It belonged to the cluster until it could not be reached. Since then a server of another cluster may have got its address.
    Former,
    /// It belonged to the cluster when its identity was last read.
    Proven,
}

#[derive(Debug)]
struct Endpoint {
    state: EndpointState,
    /// Failed checks in a row.
    failure_count: u32,
    membership: Membership,
    /// Whether its last check found that its uid cannot be read, and nothing was known of the cluster yet.
    is_pending: bool,
    checks_until_identity: u32,
    /// When it may become active again, if it is the preferred one.
    return_at: Instant,
    probed_at: Option<Instant>,
    /// When it last accepted the gateway's credentials.
    accepted_at: Option<Instant>,
    /// Since when it has not accepted them.
    unauthorized_since: Option<Instant>,
    due_at: Instant,
    backoff: Backoff,
}

impl Endpoint {
    fn new(now: Instant) -> Self {
        Self {
            state: EndpointState::Unchecked,
            failure_count: 0,
            membership: Membership::Unproven,
            is_pending: false,
            checks_until_identity: 0,
            return_at: now,
            probed_at: None,
            accepted_at: None,
            unauthorized_since: None,
            due_at: now,
            backoff: Backoff::brisk(),
        }
    }

    /// Whether it may be used if no endpoint is ready: a check that fails everywhere may be wrong everywhere, such as that of a
    /// hook after the start or of a storage that is slow.
    fn is_unready_member(&self) -> bool {
        self.state == EndpointState::Unready && self.membership != Membership::Unproven
    }
}

/// What is known of a cluster: its uid, or that the uid cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClusterIdentity {
    Unknown,
    Unreadable,
    Uid(String),
}

/// What the identity of an endpoint says about it.
enum IdentityVerdict {
    /// It belongs to the cluster.
    Member,
    /// Which cluster it must belong to is not decided yet.
    Pending,
    /// It belongs to another cluster, or cannot be compared.
    Foreign(String),
}

/// The states of all endpoints.
#[derive(Debug)]
pub(super) struct EndpointTable {
    endpoints: Vec<Endpoint>,
    cluster: ClusterIdentity,
    preferred: usize,
    active: usize,
    /// Whether the first checks have ended. Until then no endpoint is chosen instead of the preferred one.
    is_started: bool,
    moved_at: Option<Instant>,
    changes: Vec<EndpointChange>,
}

impl EndpointTable {
    /// A table of `count` endpoints, of which `preferred` becomes active if it is ready.
    pub(super) fn new(count: usize, preferred: usize, now: Instant) -> Self {
        Self {
            endpoints: (0..count.min(ENDPOINTS_MAX))
                .map(|_| Endpoint::new(now))
                .collect(),
            cluster: ClusterIdentity::Unknown,
            preferred,
            active: preferred,
            is_started: false,
            moved_at: None,
            changes: Vec::new(),
        }
    }

    pub(super) fn choice(&self) -> EndpointChoice {
        let mut choice = EndpointChoice {
            active: self.active,
            moved_at: self.moved_at,
            ..EndpointChoice::default()
        };
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            match endpoint.state {
                EndpointState::Ready => choice.ready.insert(index),
                EndpointState::Foreign => choice.foreign.insert(index),
                EndpointState::Unready if endpoint.is_unready_member() => {
                    choice.unready.insert(index);
                }
                EndpointState::Unchecked | EndpointState::Unready | EndpointState::Unreachable => {}
            }
        }
        choice
    }

    /// The first checks have ended.
    pub(super) fn start(&mut self, now: Instant, random: u64) {
        self.is_started = true;
        self.settle(now, random);
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<EndpointChange> {
        std::mem::take(&mut self.changes)
    }

    /// Whether it is known which cluster the endpoints must belong to.
    pub(super) fn has_cluster(&self) -> bool {
        self.cluster != ClusterIdentity::Unknown
    }

    /// Whether the next check of an endpoint has to read its cluster.
    pub(super) fn needs_identity(&self, index: usize) -> bool {
        let endpoint = &self.endpoints[index];
        endpoint.state != EndpointState::Ready || endpoint.checks_until_identity == 0
    }

    /// Whether an endpoint belonged to the cluster when it was last reached.
    pub(super) fn is_proven(&self, index: usize) -> bool {
        self.endpoints[index].membership == Membership::Proven
    }

    /// The endpoints to check now; first those that were never checked, then those whose last check is longest ago.
    pub(super) fn due(&self, now: Instant) -> Vec<usize> {
        let is_due = |index: &usize| self.endpoints[*index].due_at <= now;
        let mut due: Vec<usize> = (0..self.endpoints.len()).filter(is_due).collect();
        due.sort_by_key(|index| self.endpoints[*index].probed_at);
        due
    }

    /// When the next check is due among the endpoints that are not in `except`.
    pub(super) fn next_due(&self, except: EndpointMask) -> Option<Instant> {
        let waiting = self.endpoints.iter().enumerate();
        let waiting = waiting.filter(|(index, _)| !except.contains(*index));
        waiting.map(|(_, endpoint)| endpoint.due_at).min()
    }

    /// Requests to an endpoint fail: it is checked soon.
    pub(super) fn suspect(&mut self, index: usize, now: Instant) {
        let endpoint = &mut self.endpoints[index];
        let earliest = endpoint.probed_at.map_or(now, |at| at + SUSPECT_INTERVAL);
        endpoint.due_at = endpoint.due_at.min(earliest.max(now));
    }

    /// A request could not connect to an endpoint.
    pub(super) fn refused(&mut self, index: usize, reason: &str, now: Instant, random: u64) {
        let endpoint = &self.endpoints[index];
        if endpoint.state == EndpointState::Ready || endpoint.is_unready_member() {
            self.fail(index, EndpointFailure::Connect, reason, (now, random));
            self.settle(now, random);
        }
    }

    /// A watch at the active endpoint has been shown to lack what others have: another one that is ready is tried for some minutes. Several
    /// watches find out at the same time, and move requests once.
    pub(super) fn lagging(&mut self, now: Instant, random: u64) {
        if self.moved_at.is_some_and(|at| now < at + LAGGING_APART) {
            return;
        }
        let is_other = |index: &usize| {
            *index != self.active && self.endpoints[*index].state == EndpointState::Ready
        };
        let others: Vec<usize> = (0..self.endpoints.len()).filter(is_other).collect();
        let pick = usize::try_from(random % others.len().max(1) as u64).unwrap_or(0);
        if let Some(index) = others.get(pick).copied() {
            self.endpoints[self.active].return_at = now + RETURN_AFTER + part(RETURN_AFTER, random);
            self.activate(index, now);
        }
    }

    fn activate(&mut self, index: usize, now: Instant) {
        self.active = index;
        self.moved_at = Some(now);
        self.changes.push(EndpointChange::Active { index });
    }

    /// A check has ended.
    pub(super) fn observe(
        &mut self,
        index: usize,
        outcome: ProbeOutcome,
        now: Instant,
        random: u64,
    ) {
        self.endpoints[index].probed_at = Some(now);
        self.endpoints[index].is_pending = false;
        self.endpoints[index].due_at = now + PROBE_INTERVAL + part(PROBE_JITTER, random);
        let accepts = matches!(
            outcome,
            ProbeOutcome::Ready | ProbeOutcome::Identified(_) | ProbeOutcome::Unidentified
        );
        if accepts {
            self.endpoints[index].accepted_at = Some(now);
            self.endpoints[index].unauthorized_since = None;
        }
        match outcome {
            ProbeOutcome::Undecided => {}
            ProbeOutcome::Ready if self.endpoints[index].state == EndpointState::Ready => {
                self.ready(index, (now, random));
            }
            // It has stopped being ready since this check began. Another server may have its address, so the next check asks for its uid.
            ProbeOutcome::Ready => self.endpoints[index].due_at = now,
            // A load that the server refuses to take must not move to the next one. The next check asks again.
            ProbeOutcome::Unidentified => {
                if self.is_believed(index) {
                    self.endpoints[index].checks_until_identity = 0;
                    self.ready(index, (now, random));
                } else if self.is_ready_former(index) {
                    let reason = "it does not tell the uid of its namespace kube-system";
                    self.fail(index, EndpointFailure::Status, reason, (now, random));
                }
            }
            ProbeOutcome::Identified(uid) => {
                self.identified(index, uid, (now, random));
            }
            ProbeOutcome::Unauthorized => self.unauthorized(index, (now, random)),
            ProbeOutcome::Unready { reason, uid } => {
                self.unready(index, (&reason, uid), (now, random));
            }
            ProbeOutcome::Failed { failure, reason } => {
                self.fail(index, failure, &reason, (now, random));
            }
        }
        self.settle(now, random);
    }

    /// An endpoint does not accept the gateway's credentials. One that is used is left only if another one has accepted them since.
    fn unauthorized(&mut self, index: usize, (now, random): (Instant, u64)) {
        let endpoint = &mut self.endpoints[index];
        let is_ready = endpoint.state == EndpointState::Ready;
        let is_news = endpoint.unauthorized_since.is_none();
        let since = *endpoint.unauthorized_since.get_or_insert(now);
        let is_better = |other: &Endpoint| {
            let has_accepted = other.accepted_at.is_some_and(|at| at > since);
            other.state == EndpointState::Ready && (has_accepted || !is_ready)
        };
        if self.endpoints.iter().any(is_better) {
            let reason = "it does not accept the gateway's credentials";
            self.fail(index, EndpointFailure::Status, reason, (now, random));
        } else if !is_ready {
            self.identified(index, None, (now, random));
        } else if is_news {
            (0..self.endpoints.len()).for_each(|other| self.suspect(other, now));
        }
    }

    fn identified(&mut self, index: usize, uid: Option<String>, at: (Instant, u64)) {
        let is_told = uid.is_some();
        match self.identify(index, uid, at.0) {
            IdentityVerdict::Member => {
                self.join(index, is_told, at);
                for other in 0..self.endpoints.len() {
                    if self.cluster == ClusterIdentity::Unreadable
                        && self.endpoints[other].is_pending
                    {
                        self.join(other, false, at);
                    }
                }
            }
            IdentityVerdict::Pending => self.endpoints[index].is_pending = true,
            IdentityVerdict::Foreign(reason) => {
                if is_told {
                    self.endpoints[index].membership = Membership::Unproven;
                }
                self.fail(index, EndpointFailure::Foreign, &reason, at);
            }
        }
    }

    /// An endpoint is not ready, and may have told its uid.
    fn unready(&mut self, index: usize, (reason, uid): (&str, Option<String>), at: (Instant, u64)) {
        if let (ClusterIdentity::Uid(cluster), Some(uid)) = (&self.cluster, uid) {
            if *cluster != uid {
                return self.identified(index, Some(uid), at);
            }
            self.endpoints[index].membership = Membership::Proven;
        }
        self.fail(index, EndpointFailure::Status, reason, at);
    }

    /// Whether an endpoint that does not tell its uid is taken for a member. One that could not be reached meanwhile must tell it, unless no
    /// other endpoint is ready.
    fn is_believed(&self, index: usize) -> bool {
        let mut others = self.endpoints.iter().enumerate();
        match self.endpoints[index].membership {
            Membership::Proven => true,
            Membership::Former => {
                !others.any(|(other, one)| other != index && one.state == EndpointState::Ready)
            }
            Membership::Unproven => false,
        }
    }

    /// Whether an endpoint is used although it has not shown its uid since it could not be reached.
    fn is_ready_former(&self, index: usize) -> bool {
        let endpoint = &self.endpoints[index];
        endpoint.state == EndpointState::Ready && endpoint.membership == Membership::Former
    }

    /// An endpoint is ready and taken for a member, because it has told its uid or because it is believed without.
    fn join(&mut self, index: usize, is_told: bool, at: (Instant, u64)) {
        let is_comparable = self.cluster != ClusterIdentity::Unreadable;
        let endpoint = &mut self.endpoints[index];
        endpoint.is_pending = false;
        if is_told || !is_comparable {
            endpoint.membership = Membership::Proven;
        }
        endpoint.checks_until_identity = match endpoint.membership {
            Membership::Proven => CHECKS_PER_IDENTITY,
            Membership::Former | Membership::Unproven => 0,
        };
        let is_proven = endpoint.membership == Membership::Proven;
        self.ready(index, at);
        if is_proven {
            // There is one now that is better than those that only may belong to the cluster.
            let formers = (0..self.endpoints.len()).filter(|other| self.is_ready_former(*other));
            for other in formers.collect::<Vec<_>>() {
                self.suspect(other, at.0);
            }
        }
    }

    /// Compares an endpoint's cluster with that of the others. The first uid decides which cluster it is. That it cannot be read
    /// decides only after all were asked, and only until an endpoint that is used, or any if none is, tells its uid.
    fn identify(&mut self, index: usize, uid: Option<String>, now: Instant) -> IdentityVerdict {
        let is_ready = |endpoint: &Endpoint| endpoint.state == EndpointState::Ready;
        let endpoint = &self.endpoints[index];
        let may_decide = is_ready(endpoint) || !self.endpoints.iter().any(is_ready);
        match (&self.cluster, uid) {
            (ClusterIdentity::Uid(cluster), Some(uid)) if *cluster == uid => {
                IdentityVerdict::Member
            }
            (ClusterIdentity::Uid(cluster), Some(uid)) => IdentityVerdict::Foreign(format!(
                "its namespace kube-system has the uid {uid}, that of the other API servers {cluster}"
            )),
            // A permission that was lost says nothing about the cluster.
            (ClusterIdentity::Uid(_), None) if self.is_believed(index) => IdentityVerdict::Member,
            (ClusterIdentity::Uid(_), None) => IdentityVerdict::Foreign(
                "the uid of its namespace kube-system cannot be read, so it cannot be compared"
                    .to_owned(),
            ),
            (ClusterIdentity::Unreadable, Some(_)) if !may_decide => {
                self.ask_identities(now);
                IdentityVerdict::Foreign(
                    "the uid of its namespace kube-system can be read, that of the other API servers cannot"
                        .to_owned(),
                )
            }
            (ClusterIdentity::Unreadable | ClusterIdentity::Unknown, Some(uid)) => {
                self.cluster = ClusterIdentity::Uid(uid);
                // The others were not compared with this uid.
                self.endpoints
                    .iter_mut()
                    .for_each(|endpoint| endpoint.membership = Membership::Unproven);
                self.ask_identities(now);
                IdentityVerdict::Member
            }
            (ClusterIdentity::Unreadable, None) => IdentityVerdict::Member,
            (ClusterIdentity::Unknown, None) => {
                if self.endpoints.iter().any(|other| other.probed_at.is_none()) {
                    return IdentityVerdict::Pending;
                }
                self.cluster = ClusterIdentity::Unreadable;
                IdentityVerdict::Member
            }
        }
    }

    /// Has the cluster of each ready endpoint read again soon.
    fn ask_identities(&mut self, now: Instant) {
        for index in 0..self.endpoints.len() {
            if self.endpoints[index].state == EndpointState::Ready {
                self.endpoints[index].checks_until_identity = 0;
                self.suspect(index, now);
            }
        }
    }

    fn ready(&mut self, index: usize, (now, random): (Instant, u64)) {
        let endpoint = &mut self.endpoints[index];
        endpoint.failure_count = 0;
        endpoint.checks_until_identity = endpoint.checks_until_identity.saturating_sub(1);
        endpoint.backoff.succeeded();
        if endpoint.state != EndpointState::Ready {
            endpoint.return_at = now + RETURN_AFTER + part(RETURN_AFTER, random);
            self.set(index, EndpointState::Ready, "");
        }
    }

    fn fail(
        &mut self,
        index: usize,
        failure: EndpointFailure,
        reason: &str,
        (now, random): (Instant, u64),
    ) {
        let endpoint = &mut self.endpoints[index];
        endpoint.failure_count += 1;
        let (state, is_certain) = match failure {
            EndpointFailure::Connect | EndpointFailure::Certificate => {
                (EndpointState::Unreachable, true)
            }
            EndpointFailure::Broken | EndpointFailure::Timeout => {
                (EndpointState::Unreachable, false)
            }
            EndpointFailure::Status => (EndpointState::Unready, false),
            EndpointFailure::Foreign => (EndpointState::Foreign, true),
        };
        let was_ready = endpoint.state == EndpointState::Ready;
        // Even after a single failure, another server may have its address.
        endpoint.checks_until_identity = 0;
        if was_ready && !is_certain && endpoint.failure_count < FAILURES_MAX {
            endpoint.due_at = match state {
                // It answers quickly: a second check at once would see the same.
                EndpointState::Unready => now + SUSPECT_INTERVAL,
                EndpointState::Unchecked
                | EndpointState::Ready
                | EndpointState::Unreachable
                | EndpointState::Foreign => now,
            };
            return;
        }
        if state == EndpointState::Unreachable && endpoint.membership == Membership::Proven {
            endpoint.membership = Membership::Former;
        }
        endpoint.due_at = match failure {
            EndpointFailure::Foreign => endpoint.due_at,
            EndpointFailure::Connect
            | EndpointFailure::Certificate
            | EndpointFailure::Broken
            | EndpointFailure::Timeout
            | EndpointFailure::Status => now + endpoint.backoff.next(now, random),
        };
        if endpoint.state != state {
            self.set(index, state, reason);
        }
    }

    fn set(&mut self, index: usize, state: EndpointState, reason: &str) {
        self.endpoints[index].state = state;
        self.changes.push(EndpointChange::State {
            index,
            state,
            reason: reason.to_owned(),
        });
    }

    /// Decides which endpoint is active.
    fn settle(&mut self, now: Instant, random: u64) {
        if !self.is_started {
            return;
        }
        let is_ready = |index: usize| self.endpoints[index].state == EndpointState::Ready;
        let next = if is_ready(self.active) {
            let preferred = &self.endpoints[self.preferred];
            let may_return = is_ready(self.preferred) && preferred.return_at <= now;
            may_return.then_some(self.preferred)
        } else {
            // If none is ready, an endpoint that is at least in contact is better than one that is gone.
            let any_is_ready = (0..self.endpoints.len()).any(is_ready);
            let usable = |index: usize| match any_is_ready {
                true => is_ready(index),
                false => self.endpoints[index].is_unready_member(),
            };
            let all = 0..self.endpoints.len();
            let usable_ones: Vec<_> = all.filter(|index| usable(*index)).collect();
            // Gateways whose endpoint fails spread over the others.
            let pick = usize::try_from(random % usable_ones.len().max(1) as u64).unwrap_or(0);
            let picked = usable_ones.get(pick).copied();
            picked.filter(|_| !usable(self.active))
        };
        if let Some(index) = next.filter(|index| *index != self.active) {
            self.activate(index, now);
        }
    }
}

/// The fraction `random / 2^64` of `whole`, in milliseconds.
fn part(whole: Duration, random: u64) -> Duration {
    let millis = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(random % millis)
}

#[cfg(test)]
mod tests;
