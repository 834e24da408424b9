//! A cache of authorizer decisions. Each question is in flight at most once, however many requests wait for its decision, and it
//! continues when they are cancelled. Questions wait for permits, which callers share.

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use moka::future::Cache;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::access_review::AccessVerdict;
use super::authorizer::Authorizer;
use super::changes::{ChangePoint, ScopeChanges, ScopeSet, UserHash};
use super::digest::Digest;
use super::explanation::{Coverage, Explanation};
use super::flights::{FlightWaiter, Flights};
use super::followed::{AuthorizerState, Followed};
use super::node_rules::is_static_node_rule;
use super::policy::PolicyStore;
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use super::review_outage::ReviewOutage;
use super::review_permits::{ReviewPermit, ReviewPermits, in_turn};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::User;
use crate::fairness::Peer;
use crate::metrics::{AuthorizationMetrics, ReviewCause, ReviewOutcome};

/// A decision with its age.
#[derive(Clone, Debug)]
pub struct CachedDecision {
    /// The authorizer's verdict.
    pub verdict: Arc<AccessVerdict>,
    /// When the question was sent.
    pub asked_at: Instant,
    /// What makes the access allowed.
    pub explanation: Explanation,
    /// The last change of roles before the question was sent. The verdict may be older than any later change.
    change_point: ChangePoint,
}

/// How long decisions are cached, and who makes them.
#[derive(Clone, Copy, Debug)]
pub struct DecisionRules {
    /// Whether the authorizer decides from roles what these allow, and asks upstream about the rest only.
    pub decides_by_roles: bool,
    /// For decisions that allow.
    pub allow: Duration,
    /// For decisions that deny.
    pub deny: Duration,
}

/// A cache in front of an [`Authorizer`].
#[derive(Debug)]
pub struct Decisions {
    shared: Arc<DecisionsState>,
    flights: Flights<QuestionFlight, FlightOutcome>,
    /// Permits for questions, shared among callers so that no caller's questions delay those of others.
    permits: ReviewPermits,
}

type FlightOutcome = Result<CachedDecision, ReviewError>;

#[derive(Debug)]
struct DecisionsState {
    authorizer: Arc<dyn Authorizer>,
    policy: Arc<PolicyStore>,
    followed: Arc<Followed>,
    rules: DecisionRules,
    cache: Cache<QuestionKey, CachedDecision, RandomState>,
    /// Identities that may not send self-reviews, with the time and the change point of the refusal.
    forbidden_askers: Cache<IdentityKey, (Instant, ChangePoint), RandomState>,
    changes: Mutex<ScopeChanges>,
    metrics: AuthorizationMetrics,
    outage: ReviewOutage,
}

/// The identity in whose name questions are sent: the digest of its credentials, and the user.
type IdentityKey = (Option<Digest>, Arc<User>);

/// The key of a question in flight. After a change of roles that may affect the decision the key is another one, so that no request joins
/// a flight from before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QuestionFlight {
    question: QuestionKey,
    changed_at: ChangePoint,
}

impl QuestionFlight {
    fn new(question: &QuestionKey, changes: &ScopeChanges) -> Self {
        Self {
            question: question.clone(),
            changed_at: changes.last(&question.user, &question.access),
        }
    }
}

impl Decisions {
    /// Passes the questions that are not cached to this authorizer. A decision that `policy` explains is cached for longer, if upstream's
    /// authorizers are transparent.
    #[must_use]
    pub fn new(
        authorizer: Arc<dyn Authorizer>,
        policy: Arc<PolicyStore>,
        followed: Arc<Followed>,
        rules: DecisionRules,
        metrics: AuthorizationMetrics,
    ) -> Self {
        // Readers check ages by tokio's clock, which tests control; this only frees the memory of expired entries.
        let cache = Cache::builder()
            .weigher(|key: &QuestionKey, decision: &CachedDecision| {
                let text_len = key.text_len() + decision.verdict.reason.len();
                u32::try_from(text_len + ENTRY_LEN).unwrap_or(u32::MAX)
            })
            .max_capacity(CACHE_LEN_MAX)
            .time_to_live(match rules.allow.is_zero() {
                true => rules.deny,
                false => STANDING_TTL,
            })
            .build_with_hasher(RandomState::default());
        let forbidden_askers = Cache::builder()
            .weigher(|(_, user): &IdentityKey, _: &(Instant, ChangePoint)| {
                u32::try_from(user.text_len() + ENTRY_LEN).unwrap_or(u32::MAX)
            })
            .max_capacity(FORBIDDEN_ASKERS_LEN_MAX)
            .time_to_live(FORBIDDEN_ASKERS_TTL)
            .build_with_hasher(RandomState::default());
        Self {
            shared: Arc::new(DecisionsState {
                authorizer,
                policy,
                followed,
                rules,
                cache,
                forbidden_askers,
                changes: Mutex::default(),
                metrics,
                outage: ReviewOutage::of("SubjectAccessReview"),
            }),
            flights: Flights::default(),
            permits: ReviewPermits::new(IN_FLIGHT_MAX, WAITING_MAX),
        }
    }

    /// What events cover now.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        self.shared.coverage()
    }

    /// What the gateway notices by itself.
    #[must_use]
    pub fn followed(&self) -> &Arc<Followed> {
        &self.shared.followed
    }

    /// The roles and bindings that explain decisions.
    #[must_use]
    pub fn policy(&self) -> &PolicyStore {
        &self.shared.policy
    }

    /// How long the authorizer has been failing.
    pub(super) fn outage_age(&self) -> Duration {
        self.shared.outage.age()
    }

    /// The decision, from the cache or from the authorizer. Failures are not cached, except [`ReviewError::SelfReviewForbidden`], which
    /// is cached for 10 s.
    ///
    /// # Errors
    /// [`ReviewError`] if the question waits for its turn for more than 30 s, or then for its answer.
    pub async fn decide(&self, question: &AccessQuestion) -> Result<CachedDecision, ReviewError> {
        if let Some(outcome) = self.shared.cached(&question.key).await {
            self.shared.metrics.cache_hits.inc();
            return outcome;
        }
        self.shared.metrics.cache_misses.inc();
        self.await_flight(question).await
    }

    /// Asks the authorizer now, without looking into the cache, and caches the decision. Needs no permit, because `rechecks` bounds the
    /// number of calls.
    ///
    /// # Errors
    /// [`ReviewError`] if there is no decision.
    pub async fn recheck(&self, question: &AccessQuestion) -> Result<CachedDecision, ReviewError> {
        let change_point = self.shared.changes().now();
        let decision = self
            .shared
            .ask(question, change_point, ReviewPurpose::Recheck)
            .await?;
        let key = question.key.clone();
        self.shared.store(key, decision.clone()).await;
        Ok(decision)
    }

    /// Asks the authorizer about the user with all its attributes, and remembers nothing. `None` if there is no answer.
    pub async fn ask_apart(&self, question: &AccessQuestion) -> Option<bool> {
        let change_point = self.shared.changes().now();
        let purpose = ReviewPurpose::Recheck;
        let decision = self.shared.ask(question, change_point, purpose).await;
        decision.ok().map(|decision| decision.verdict.is_allowed)
    }

    /// The last change of roles, or denial, that may affect a question.
    #[must_use]
    pub fn last_change(&self, key: &QuestionKey) -> ChangePoint {
        self.shared.changes().last(&key.user, &key.access)
    }

    /// Invalidates the decisions that changes of roles may affect, including those in flight.
    pub fn forget(&self, scopes: &ScopeSet) {
        self.shared.changes().record(scopes);
    }

    /// Invalidates the decisions about a user, who was denied an access that was allowed before.
    pub fn forget_user(&self, user: UserHash) {
        self.shared.changes().record_denial(user);
    }

    /// Removes one decision from the cache.
    pub async fn forget_one(&self, key: &QuestionKey) {
        self.shared.cache.invalidate(key).await;
    }

    /// Whether no change of roles since the question was sent may affect the decision.
    #[must_use]
    pub fn is_current(&self, decision: &CachedDecision, key: &QuestionKey) -> bool {
        self.shared.is_current(decision, key)
    }

    async fn await_flight(&self, question: &AccessQuestion) -> FlightOutcome {
        let key = QuestionFlight::new(&question.key, &self.shared.changes());
        let waiter = match self.flights.join(&key) {
            Some(waiter) => waiter,
            None => {
                let permit = self.permit(question.payer).await?;
                // Another flight may have stored a decision while this request waited for its permit.
                if let Some(outcome) = self.shared.cached(&question.key).await {
                    return outcome;
                }
                self.flight(question, permit)?
            }
        };
        let outcome = waiter.outcome().await;
        outcome.unwrap_or_else(|| Err(unavailable("the access review was aborted")))
    }

    async fn permit(&self, payer: Peer) -> Result<ReviewPermit, ReviewError> {
        let pending = self.permits.request(payer).ok_or_else(|| {
            self.shared.metrics.reviews.inc(ReviewOutcome::QueueFull);
            ReviewError::Busy
        });
        in_turn(pending?).await
    }

    /// Joins the question's flight, or starts it.
    fn flight(
        &self,
        question: &AccessQuestion,
        permit: ReviewPermit,
    ) -> Result<FlightWaiter<FlightOutcome>, ReviewError> {
        let (key, change_point) = {
            let changes = self.shared.changes();
            (QuestionFlight::new(&question.key, &changes), changes.now())
        };
        self.flights.join_or_begin(key, || {
            let (shared, question) = (Arc::clone(&self.shared), question.clone());
            Ok(async move {
                let outcome = shared.ask_with_retries(&question, change_point).await;
                shared
                    .store_outcome(&question, &outcome, change_point)
                    .await;
                drop(permit);
                outcome
            })
        })
    }
}

impl DecisionsState {
    fn changes(&self) -> MutexGuard<'_, ScopeChanges> {
        self.changes.lock()
    }

    /// Whether nothing has happened since the question was sent that may affect the decision. What roles allow after a change stands.
    fn is_current(&self, decision: &CachedDecision, key: &QuestionKey) -> bool {
        let (since, access) = (decision.change_point, &key.access);
        let changes = self.changes();
        if !changes.is_undenied(since, &key.user) {
            return false;
        }
        let are_roles_current = changes.are_roles_current(since, access);
        drop(changes);
        if are_roles_current || !key.is_shared() {
            // An answer to a caller's own review also says that it may impersonate, which roles about the access do not show.
            return are_roles_current;
        }
        decision.explanation == Explanation::NodeRules
            || (decision.verdict.is_allowed && self.policy.explains(&key.user, access))
    }

    /// Whether a decision with this explanation costs upstream nothing.
    fn is_local(&self, explanation: Explanation) -> bool {
        self.rules.decides_by_roles && explanation == Explanation::Roles
    }

    /// How long a decision is used.
    fn ttl(&self, key: &QuestionKey, decision: &CachedDecision) -> Duration {
        if !decision.verdict.is_allowed {
            return self.rules.deny;
        }
        match self.coverage().stands(key, decision.explanation) && !self.rules.allow.is_zero() {
            true => STANDING_TTL,
            false => self.rules.allow,
        }
    }

    fn coverage(&self) -> Coverage {
        Coverage {
            is_transparent: self.followed.authorizers() == AuthorizerState::Transparent,
            has_roles: self.policy.is_current(),
            has_bound_objects: self.followed.has_bound_objects(),
        }
    }

    /// What makes an access allowed, for which upstream gave this reason.
    fn explain(&self, key: &QuestionKey, reason: &str) -> Explanation {
        if self.policy.explains(&key.user, &key.access) {
            return Explanation::Roles;
        }
        // A role allows it that is not known here yet.
        let is_by_role = reason.starts_with(ROLE_REASON);
        match !is_by_role && is_static_node_rule(&key.user, &key.access) {
            true => Explanation::NodeRules,
            false => Explanation::None,
        }
    }

    async fn cached(&self, key: &QuestionKey) -> Option<FlightOutcome> {
        if let Some(decision) = self.cached_decision(key).await {
            return Some(Ok(decision));
        }
        self.is_forbidden_to_ask(key)
            .await
            .then_some(Err(ReviewError::SelfReviewForbidden))
    }

    async fn cached_decision(&self, key: &QuestionKey) -> Option<CachedDecision> {
        let decision = self.cache.get(key).await?;
        let is_fresh = decision.asked_at.elapsed() < self.ttl(key, &decision);
        (is_fresh && self.is_current(&decision, key)).then_some(decision)
    }

    /// Caches the outcome of a flight, if outcomes of its kind are cached.
    async fn store_outcome(
        &self,
        question: &AccessQuestion,
        outcome: &FlightOutcome,
        change_point: ChangePoint,
    ) {
        match outcome {
            Ok(decision) => self.store(question.key.clone(), decision.clone()).await,
            Err(ReviewError::SelfReviewForbidden) => {
                let refusal = (Instant::now(), change_point);
                self.forbidden_askers
                    .insert(identity_key(&question.key), refusal)
                    .await;
            }
            Err(_) => {}
        }
    }

    /// Whether upstream has recently refused a self-review of this identity.
    async fn is_forbidden_to_ask(&self, key: &QuestionKey) -> bool {
        let Some((refused_at, change_point)) = self.forbidden_askers.get(&identity_key(key)).await
        else {
            return false;
        };
        let changes = self.changes();
        refused_at.elapsed() < FORBIDDEN_ASKERS_TTL
            && changes.are_roles_current(change_point, &key.access)
            && changes.is_undenied(change_point, &key.user)
    }

    async fn store(&self, key: QuestionKey, decision: CachedDecision) {
        if key.text_len() < CACHED_TEXT_LEN_MAX {
            self.cache.insert(key, decision).await;
        }
    }

    /// Asks up to `ATTEMPTS` times within `ASK_MAX`, as the API server's webhook does. Only [`ReviewError::Unavailable`] is retried.
    async fn ask_with_retries(
        &self,
        question: &AccessQuestion,
        change_point: ChangePoint,
    ) -> FlightOutcome {
        let attempts = async {
            let mut delay = RETRY_DELAY;
            for _ in 1..ATTEMPTS {
                match self
                    .ask(question, change_point, ReviewPurpose::Authorization)
                    .await
                {
                    Err(ReviewError::Unavailable { .. }) => tokio::time::sleep(delay).await,
                    outcome => return outcome,
                }
                delay = delay * 3 / 2;
            }
            self.ask(question, change_point, ReviewPurpose::Authorization)
                .await
        };
        tokio::time::timeout(ASK_MAX, attempts)
            .await
            .unwrap_or_else(|_elapsed| Err(unavailable("the access review timed out")))
    }

    async fn ask(
        &self,
        question: &AccessQuestion,
        change_point: ChangePoint,
        purpose: ReviewPurpose,
    ) -> FlightOutcome {
        // Taken before the review: the decision may be as old as the question.
        let asked_at = Instant::now();
        let verdict = self.authorizer.decide(question, purpose).await;
        self.metrics
            .review_duration
            .observe(asked_at.elapsed().as_secs_f64());
        self.metrics.reviews.inc(match &verdict {
            Ok(verdict) if verdict.is_allowed => ReviewOutcome::Allowed,
            Ok(_) => ReviewOutcome::Denied,
            Err(error) if may_not_ask(&question.identity, error) => ReviewOutcome::Unasked,
            Err(_) => ReviewOutcome::Failed,
        });
        match &verdict {
            Err(error) if !may_not_ask(&question.identity, error) => self.outage.failed(error),
            Ok(_) | Err(_) => self.outage.succeeded(),
        }
        let explanation = match &verdict {
            Ok(verdict) if verdict.is_allowed => self.explain(&question.key, &verdict.reason),
            Ok(_) | Err(_) => Explanation::None,
        };
        if purpose == ReviewPurpose::Authorization && !self.is_local(explanation) {
            self.metrics.access_reviews.inc(ReviewCause::New);
        }
        let verdict = verdict?;
        Ok(CachedDecision {
            explanation,
            verdict: Arc::new(verdict),
            asked_at,
            change_point,
        })
    }
}

fn identity_key(key: &QuestionKey) -> IdentityKey {
    (key.credentials, Arc::clone(&key.user))
}

/// Whether an error means that the caller may not ask, rather than a failure of the gateway or of upstream.
fn may_not_ask(identity: &QuestionIdentity, error: &ReviewError) -> bool {
    match (identity, error) {
        (_, ReviewError::SelfReviewForbidden)
        | (QuestionIdentity::Caller { .. }, ReviewError::Unauthorized) => true,
        (
            QuestionIdentity::Gateway
            | QuestionIdentity::Impersonated
            | QuestionIdentity::Caller { .. },
            _,
        ) => false,
    }
}

fn unavailable(reason: &str) -> ReviewError {
    ReviewError::Unavailable {
        reason: reason.to_owned(),
    }
}

/// How the API server's reasons begin if a role allows an access.
const ROLE_REASON: &str = "RBAC:";

/// How long a decision is used that stands until an event. Streams are checked again a minute before.
const STANDING_TTL: Duration = Duration::from_secs(60 * 60);

/// Bounds all attempts of a question together; the API server's bound for a webhook.
const ASK_MAX: Duration = Duration::from_secs(30);
const ATTEMPTS: usize = 3;
/// Delay before the second attempt; the next delay is half as long again.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A decision is cached only if the strings of its question have fewer bytes; the API server's webhook cache has the same bound.
const CACHED_TEXT_LEN_MAX: usize = 10_000;

/// Maximum size of the cache in bytes: about a hundred thousand typical questions.
const CACHE_LEN_MAX: u64 = 64 << 20;

/// How long a forbidden self-review is cached, so that a caller that may not ask does not cost upstream a review with each request.
const FORBIDDEN_ASKERS_TTL: Duration = Duration::from_secs(10);
/// Maximum size of that cache in bytes.
const FORBIDDEN_ASKERS_LEN_MAX: u64 = 4 << 20;

/// Approximate memory of an entry without its strings, in bytes.
const ENTRY_LEN: usize = 512;

/// Maximum number of questions in flight. A single user gets at most 52, so that others always find a permit. By default the API server
/// executes 200 writes at once.
const IN_FLIGHT_MAX: usize = 64;
/// Maximum number of waiting questions. A single user gets at most 52,429: one service account may have a pod on each of as many nodes.
const WAITING_MAX: usize = 65_536;

#[cfg(test)]
pub(in crate::auth) mod tests;
