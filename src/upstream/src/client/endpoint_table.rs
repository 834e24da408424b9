//! Which of several API servers requests go to: an ordered failover. Pure: time is an argument.
//!
//! One endpoint is *active* and gets every request while it is ready, so that reads which the API server answers from its own
//! watch cache do not alternate between caches of different age. When it is not ready any more, the next one in the order of the
//! configuration becomes active. The endpoint that was preferred at the start becomes active again after some minutes.

use std::time::{Duration, Instant};

pub use super::endpoint_state::{EndpointFailure, EndpointState};

/// Maximum number of endpoints. A control plane has three or five.
pub const ENDPOINTS_MAX: usize = 16;

/// Time between two checks of an endpoint that is ready, or of another cluster.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time to the next check of an endpoint that is not ready. Requests may be waiting for it.
const UNREADY_INTERVAL: Duration = Duration::from_secs(2);
/// Time to the check that decides after a first failure.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// This many failed checks in a row make a ready endpoint unready. A refused connection needs only one.
const FAILURES_MAX: u32 = 2;
/// The preferred endpoint becomes active again after it has been ready for this long, and up to twice as long, so that its
/// caches are warm and many gateways do not return at the same moment.
pub(super) const RETURN_AFTER: Duration = Duration::from_secs(300);
/// Watches that lag move requests at most this often.
const LAGGING_APART: Duration = Duration::from_secs(30);
/// A ready API server's watch caches are not further behind than this. In practice it is seconds.
const LAG_MAX: Duration = Duration::from_secs(600);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    Answered(ProbeAnswer),
    Failed {
        failure: EndpointFailure,
        reason: String,
    },
    /// This process could not check it, such as for lack of open files.
    Undecided,
}

/// What an endpoint has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeAnswer {
    /// Why `/readyz` says that it is not ready.
    pub(super) unready: Option<String>,
    /// Whether it accepts the gateway's credentials.
    pub(super) is_authorized: bool,
    pub(super) uid: ClusterUid,
}

impl ProbeAnswer {
    pub(super) fn has_error(&self) -> bool {
        self.unready.is_some() || !self.is_authorized || self.uid == ClusterUid::Untold
    }
}

/// The uid of the namespace `kube-system`, which identifies a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterUid {
    Told(String),
    /// The gateway is not allowed to read it.
    Denied,
    /// There was no answer, or one that says nothing about the cluster, such as 429.
    Untold,
}

/// What requests need to know of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointChoice {
    /// The endpoint that requests go to if it is usable.
    pub(super) active: usize,
    /// The endpoints that requests may go to, the active one first: those that are ready, or else known members of the cluster
    /// that answer. A check that fails everywhere may be wrong everywhere, such as that of a hook after the start.
    targets: Vec<usize>,
    /// Whether the targets are ready.
    has_ready: bool,
    foreign: Vec<usize>,
    /// When another endpoint became active.
    moved_at: Option<Instant>,
}

impl EndpointChoice {
    /// The endpoint for the next attempt of a request that these endpoints have failed.
    pub(super) fn next(&self, failed: &[usize]) -> Option<usize> {
        self.targets
            .iter()
            .copied()
            .find(|index| !failed.contains(index))
    }

    /// Whether another endpoint became active so recently that its caches may be behind what the last one has answered.
    pub(super) fn has_moved(&self, now: Instant) -> bool {
        self.moved_at.is_some_and(|at| now < at + LAG_MAX)
    }

    /// Whether the endpoint belongs to another cluster.
    pub(super) fn is_foreign(&self, index: usize) -> bool {
        self.foreign.contains(&index)
    }

    /// Whether requests that wait for this endpoint should go to another one. If there is none, they wait for this one to come back:
    /// sending them again could not help. Only what another cluster sends is never wanted.
    pub(super) fn is_abandoned(&self, index: usize) -> bool {
        self.is_foreign(index) || self.has_ready && !self.targets.contains(&index)
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

#[derive(Debug)]
struct Endpoint {
    state: EndpointState,
    /// Failed checks in a row.
    failure_count: u32,
    /// Whether it has shown that it belongs to the cluster, and not since that it belongs to another one.
    is_member: bool,
    /// Whether it accepted the gateway's credentials when it was last asked.
    is_authorized: bool,
    /// Since when it is ready without a lagging watch.
    ready_since: Instant,
    /// When a request could not connect to it.
    refused_at: Option<Instant>,
}

impl Endpoint {
    const fn unchecked(now: Instant) -> Self {
        Self {
            state: EndpointState::Unchecked,
            failure_count: 0,
            is_member: false,
            is_authorized: true,
            ready_since: now,
            refused_at: None,
        }
    }
}

/// What is known of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClusterIdentity {
    Uid(String),
    /// No endpoint lets the gateway read it.
    Unreadable,
}

/// What an answer says about the cluster of an endpoint.
enum IdentityVerdict {
    Member,
    Unshown,
    /// It belongs to another cluster, or cannot be compared.
    Foreign(String),
}

/// The states of all endpoints.
#[derive(Debug)]
pub(super) struct EndpointTable {
    endpoints: Vec<Endpoint>,
    cluster: Option<ClusterIdentity>,
    preferred: usize,
    active: usize,
    return_after: Duration,
    moved_at: Option<Instant>,
    changes: Vec<EndpointChange>,
}

impl EndpointTable {
    /// A table of `count` endpoints, of which `preferred` becomes active if it is ready.
    pub(super) fn new(
        count: usize,
        preferred: usize,
        return_after: Duration,
        now: Instant,
    ) -> Self {
        Self {
            endpoints: (0..count).map(|_| Endpoint::unchecked(now)).collect(),
            cluster: None,
            preferred,
            active: preferred,
            return_after,
            moved_at: None,
            changes: Vec::new(),
        }
    }

    pub(super) fn choice(&self) -> EndpointChoice {
        let count = self.endpoints.len();
        let in_order = || (self.active..count).chain(0..self.active);
        let has_ready = in_order().any(|index| self.is_ready(index));
        EndpointChoice {
            active: self.active,
            targets: in_order()
                .filter(|index| {
                    let endpoint = &self.endpoints[*index];
                    match has_ready {
                        true => self.is_ready(*index),
                        false => endpoint.state == EndpointState::Unready && endpoint.is_member,
                    }
                })
                .collect(),
            has_ready,
            foreign: in_order()
                .filter(|index| self.endpoints[*index].state == EndpointState::Foreign)
                .collect(),
            moved_at: self.moved_at,
        }
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<EndpointChange> {
        std::mem::take(&mut self.changes)
    }

    /// Whether it is known which cluster the endpoints must belong to.
    pub(super) const fn has_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    /// The time to the next check of an endpoint.
    pub(super) fn pause(&self, index: usize) -> Duration {
        let endpoint = &self.endpoints[index];
        match endpoint.state {
            EndpointState::Ready if endpoint.failure_count > 0 => RECHECK_INTERVAL,
            EndpointState::Ready | EndpointState::Foreign => CHECK_INTERVAL,
            EndpointState::Unchecked | EndpointState::Unready | EndpointState::Unreachable => {
                UNREADY_INTERVAL
            }
        }
    }

    /// All endpoints were checked. If the cluster is unknown, the first one in the order of the configuration that is ready and
    /// tells a uid decides which it is. Uids that nobody lets the gateway read are not compared.
    pub(super) fn observe_all(
        &mut self,
        outcomes: Vec<ProbeOutcome>,
        began: Instant,
        now: Instant,
    ) {
        if self.cluster.is_none() {
            let answers = outcomes.iter().filter_map(|outcome| match outcome {
                ProbeOutcome::Answered(answer) => Some(answer),
                ProbeOutcome::Failed { .. } | ProbeOutcome::Undecided => None,
            });
            // One that is not ready decides only where none is.
            let has_ready = answers.clone().any(|answer| answer.unready.is_none());
            for answer in answers.filter(|answer| answer.unready.is_none() || !has_ready) {
                match &answer.uid {
                    ClusterUid::Told(uid) => {
                        self.cluster = Some(ClusterIdentity::Uid(uid.clone()));
                        break;
                    }
                    ClusterUid::Denied => self.cluster = Some(ClusterIdentity::Unreadable),
                    ClusterUid::Untold => {}
                }
            }
        }
        for (index, outcome) in outcomes.into_iter().enumerate() {
            self.apply(index, outcome, began, now);
        }
        self.settle(now);
    }

    /// A check that began at `began` has ended.
    pub(super) fn observe(
        &mut self,
        index: usize,
        outcome: ProbeOutcome,
        began: Instant,
        now: Instant,
    ) {
        self.apply(index, outcome, began, now);
        self.settle(now);
    }

    /// A request could not connect to an endpoint.
    pub(super) fn refused(&mut self, index: usize, reason: &str, now: Instant) {
        let endpoint = &mut self.endpoints[index];
        endpoint.refused_at = Some(now);
        if matches!(
            endpoint.state,
            EndpointState::Ready | EndpointState::Unready
        ) {
            self.fail(index, EndpointFailure::Connect, reason);
            self.settle(now);
        }
    }

    /// A watch at the active endpoint has been shown to lack what others have: the next one that is ready is used for some minutes.
    /// Several watches find out at the same time, and move requests once.
    pub(super) fn lagging(&mut self, now: Instant) {
        if self.moved_at.is_some_and(|at| now < at + LAGGING_APART) {
            return;
        }
        let choice = self.choice();
        if let Some(index) = choice.next(&[self.active]).filter(|_| choice.has_ready) {
            self.endpoints[self.active].ready_since = now;
            self.activate(index, now);
        }
    }

    fn is_ready(&self, index: usize) -> bool {
        self.endpoints[index].state == EndpointState::Ready
    }

    fn apply(&mut self, index: usize, outcome: ProbeOutcome, began: Instant, now: Instant) {
        match outcome {
            ProbeOutcome::Undecided => {}
            ProbeOutcome::Failed { failure, reason } => self.fail(index, failure, &reason),
            // It may have come from a server that is gone since. Another one may have got its address, so the next check decides.
            ProbeOutcome::Answered(_)
                if self.endpoints[index]
                    .refused_at
                    .is_some_and(|at| at >= began) => {}
            ProbeOutcome::Answered(answer) => self.answered(index, answer, now),
        }
    }

    fn answered(&mut self, index: usize, answer: ProbeAnswer, now: Instant) {
        let is_first_refusal = self.endpoints[index].is_authorized && !answer.is_authorized;
        self.endpoints[index].is_authorized = answer.is_authorized;
        // A server that starts, or refuses the gateway's token, answers 403 or 401 whatever its cluster is.
        let is_comparable = answer.unready.is_none() && answer.is_authorized;
        match self.identify(index, answer.uid, is_comparable) {
            IdentityVerdict::Foreign(reason) => {
                self.endpoints[index].is_member = false;
                return self.fail(index, EndpointFailure::Foreign, &reason);
            }
            IdentityVerdict::Member => self.endpoints[index].is_member = true,
            IdentityVerdict::Unshown if self.is_ready(index) => {}
            IdentityVerdict::Unshown => {
                let reason = "it does not tell the uid of its namespace kube-system";
                let reason = answer.unready.as_deref().unwrap_or(reason);
                return self.fail(index, EndpointFailure::Status, reason);
            }
        }
        if let Some(reason) = answer.unready {
            self.fail(index, EndpointFailure::Status, &reason);
        } else if !answer.is_authorized && !is_first_refusal && self.is_better_than(index) {
            let reason = "it does not accept the gateway's credentials";
            self.fail(index, EndpointFailure::Status, reason);
        } else {
            self.ready(index, now);
        }
    }

    /// Whether another endpoint is ready and accepts the gateway's credentials.
    fn is_better_than(&self, index: usize) -> bool {
        self.endpoints.iter().enumerate().any(|(other, endpoint)| {
            other != index && self.is_ready(other) && endpoint.is_authorized
        })
    }

    /// Compares an endpoint's cluster with that of the others.
    fn identify(&mut self, index: usize, uid: ClusterUid, is_comparable: bool) -> IdentityVerdict {
        let is_used =
            self.is_ready(index) || !(0..self.endpoints.len()).any(|one| self.is_ready(one));
        match (&self.cluster, uid) {
            (Some(ClusterIdentity::Uid(cluster)), ClusterUid::Told(uid)) => {
                if *cluster == uid {
                    return IdentityVerdict::Member;
                }
                IdentityVerdict::Foreign(format!(
                    "its namespace kube-system has the uid {uid}, that of the other API servers {cluster}"
                ))
            }
            // A permission that was lost says nothing about the cluster.
            (Some(ClusterIdentity::Uid(_)), ClusterUid::Denied)
                if !self.endpoints[index].is_member && is_comparable =>
            {
                IdentityVerdict::Foreign(
                    "the uid of its namespace kube-system cannot be read, so it cannot be compared"
                        .to_owned(),
                )
            }
            (Some(ClusterIdentity::Unreadable), ClusterUid::Denied) => IdentityVerdict::Member,
            (Some(ClusterIdentity::Unreadable), ClusterUid::Told(uid)) if is_used => {
                self.cluster = Some(ClusterIdentity::Uid(uid));
                // The others were not compared with this uid.
                for endpoint in &mut self.endpoints {
                    endpoint.is_member = false;
                }
                IdentityVerdict::Member
            }
            (Some(ClusterIdentity::Unreadable), ClusterUid::Told(_)) => IdentityVerdict::Foreign(
                "the uid of its namespace kube-system can be read, that of the other API servers cannot"
                    .to_owned(),
            ),
            (Some(_), ClusterUid::Denied | ClusterUid::Untold) | (None, _) => {
                IdentityVerdict::Unshown
            }
        }
    }

    fn ready(&mut self, index: usize, now: Instant) {
        self.endpoints[index].failure_count = 0;
        if !self.is_ready(index) {
            self.endpoints[index].ready_since = now;
            self.set(index, EndpointState::Ready, "");
        }
    }

    fn fail(&mut self, index: usize, failure: EndpointFailure, reason: &str) {
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
        self.endpoints[index].failure_count += 1;
        let is_left = is_certain || self.endpoints[index].failure_count >= FAILURES_MAX;
        if is_left || !self.is_ready(index) {
            self.set(index, state, reason);
        }
    }

    fn set(&mut self, index: usize, state: EndpointState, reason: &str) {
        if self.endpoints[index].state != state {
            self.endpoints[index].state = state;
            self.changes.push(EndpointChange::State {
                index,
                state,
                reason: reason.to_owned(),
            });
        }
    }

    /// Decides which endpoint is active.
    fn settle(&mut self, now: Instant) {
        let preferred = &self.endpoints[self.preferred];
        let may_return = self.is_ready(self.preferred)
            && now.duration_since(preferred.ready_since) >= self.return_after;
        let next = match may_return {
            true => Some(self.preferred),
            // The active one is the first if it is usable.
            false => self.choice().next(&[]),
        };
        if let Some(index) = next.filter(|index| *index != self.active) {
            self.activate(index, now);
        }
    }

    fn activate(&mut self, index: usize, now: Instant) {
        self.active = index;
        self.moved_at = Some(now);
        self.changes.push(EndpointChange::Active { index });
    }
}

#[cfg(test)]
mod tests;
