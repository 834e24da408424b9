//! Decisions of authorizers, remembered for a while. A question is in flight once, however many wait for its answer.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use moka::future::Cache;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::access_review::AccessVerdict;
use super::changes::{ChangePoint, ScopeChanges, ScopeSet};
use super::digest::Digest;
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use super::review_permits::{ReviewPermit, ReviewPermits};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::User;
use crate::fairness::Peer;
use crate::metrics::{AuthorizationMetrics, ReviewOutcome};

/// Whoever decides questions; tests have their own.
pub trait Authorizer: Send + Sync + std::fmt::Debug + 'static {
    /// The decision.
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>>;
}

/// A decision and its age.
#[derive(Clone, Debug)]
pub struct CachedDecision {
    /// What was decided.
    pub verdict: Arc<AccessVerdict>,
    /// When that was asked.
    pub asked_at: Instant,
    /// No change after this one is known to it.
    moment: ChangePoint,
}

/// How long decisions are remembered.
#[derive(Clone, Copy, Debug)]
pub struct DecisionTtls {
    /// Those that allow.
    pub allow: Duration,
    /// Those that deny.
    pub deny: Duration,
}

/// The memory of decisions.
#[derive(Debug)]
pub struct Decisions {
    shared: Arc<DecisionsState>,
    /// Questions in flight. They end with the memory.
    tasks: Mutex<JoinSet<()>>,
    /// Those of questions, shared among callers so that nobody's questions delay those of others.
    places: ReviewPermits,
    is_remembering: bool,
}

type FlightOutcome = Result<CachedDecision, ReviewError>;

#[derive(Debug)]
struct DecisionsState {
    authorizer: Arc<dyn Authorizer>,
    ttls: DecisionTtls,
    cache: Cache<QuestionKey, CachedDecision, RandomState>,
    /// Who may not ask about itself, and when that was learnt.
    forbidden_askers: Cache<IdentityKey, (Instant, ChangePoint), RandomState>,
    flights: Mutex<Flights>,
    metrics: AuthorizationMetrics,
}

/// Who asks, whatever the question.
type IdentityKey = (Option<Digest>, Arc<User>);

#[derive(Debug, Default)]
struct Flights {
    changes: ScopeChanges,
    flights: HashMap<QuestionKey, Flight, RandomState>,
}

#[derive(Clone, Debug)]
struct Flight {
    moment: ChangePoint,
    outcome: watch::Receiver<Option<FlightOutcome>>,
}

impl Decisions {
    /// Asks this authorizer each time. For one that decides from memory.
    #[must_use]
    pub fn unremembered(authorizer: Arc<dyn Authorizer>, metrics: AuthorizationMetrics) -> Self {
        let ttls = DecisionTtls {
            allow: Duration::ZERO,
            deny: Duration::ZERO,
        };
        Self {
            is_remembering: false,
            ..Self::new(authorizer, ttls, metrics)
        }
    }

    /// Asks this authorizer what it does not remember.
    #[must_use]
    pub fn new(
        authorizer: Arc<dyn Authorizer>,
        ttls: DecisionTtls,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let weight = |key: &QuestionKey, decision: &CachedDecision| {
            let text_len = key.text_len() + decision.verdict.reason.len();
            u32::try_from(text_len + ENTRY_LEN).unwrap_or(u32::MAX)
        };
        // Ages are looked at below, by tokio's clock; this lets go of the memory.
        let cache = Cache::builder()
            .weigher(weight)
            .max_capacity(CACHE_LEN_MAX)
            .time_to_live(ttls.allow.max(ttls.deny))
            .build_with_hasher(RandomState::default());
        let weight = |(_, user): &IdentityKey, _: &(Instant, ChangePoint)| {
            u32::try_from(user.text_len() + ENTRY_LEN).unwrap_or(u32::MAX)
        };
        let forbidden_askers = Cache::builder()
            .weigher(weight)
            .max_capacity(FORBIDDEN_ASKERS_LEN_MAX)
            .time_to_live(FORBIDDEN_ASKERS_TTL)
            .build_with_hasher(RandomState::default());
        Self {
            shared: Arc::new(DecisionsState {
                authorizer,
                ttls,
                cache,
                forbidden_askers,
                flights: Mutex::default(),
                metrics,
            }),
            tasks: Mutex::default(),
            places: ReviewPermits::new(IN_FLIGHT_MAX, WAITING_MAX),
            is_remembering: true,
        }
    }

    /// The decision, remembered or asked for. Of failures only that the caller may not ask is remembered, for a moment.
    ///
    /// # Errors
    /// [`ReviewError`] if there is none.
    pub async fn decide(&self, question: &AccessQuestion) -> Result<CachedDecision, ReviewError> {
        if !self.is_remembering {
            let moment = self.shared.flights().changes.now();
            let purpose = ReviewPurpose::Authorization;
            return self.shared.ask(question, moment, purpose).await;
        }
        if let Some(outcome) = self.shared.known(&question.key).await {
            self.shared.metrics.cache_hits.inc();
            return outcome;
        }
        self.shared.metrics.cache_misses.inc();
        let outcome = tokio::time::timeout(WAIT_MAX, self.asked(question)).await;
        outcome.map_err(|_elapsed| unavailable("no decision in time"))?
    }

    /// Asks now, whatever is remembered, and remembers the answer.
    ///
    /// # Errors
    /// [`ReviewError`] if there is none.
    pub async fn decide_afresh(
        &self,
        question: &AccessQuestion,
    ) -> Result<CachedDecision, ReviewError> {
        let moment = self.shared.flights().changes.now();
        let decision = self
            .shared
            .ask(question, moment, ReviewPurpose::Recheck)
            .await?;
        if self.is_remembering {
            let key = question.key.clone();
            self.shared.remember(key, decision.clone()).await;
        }
        Ok(decision)
    }

    /// Forgets the decisions that changes of roles may matter to, also those in flight.
    pub fn forget(&self, scopes: &ScopeSet) {
        self.shared.flights().changes.record(scopes);
    }

    /// Forgets one decision.
    pub async fn forget_one(&self, key: &QuestionKey) {
        self.shared.cache.invalidate(key).await;
    }

    /// Whether nothing has changed since a decision was asked for that may matter to it.
    #[must_use]
    pub fn is_current(&self, decision: &CachedDecision, key: &QuestionKey) -> bool {
        let flights = self.shared.flights();
        flights.is_current(decision.moment, key)
    }

    async fn asked(&self, question: &AccessQuestion) -> FlightOutcome {
        let key = &question.key;
        let joined = self.shared.flights().joined(key);
        let mut outcome = match joined {
            Some(outcome) => outcome,
            None => {
                let place = self.place(question.payer).await?;
                // Somebody else may have asked meanwhile.
                if let Some(outcome) = self.shared.known(key).await {
                    return outcome;
                }
                self.flight(question, place)
            }
        };
        let outcome = outcome.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err(unavailable("the question was interrupted")))
    }

    async fn place(&self, payer: Peer) -> Result<ReviewPermit, ReviewError> {
        let turn = self.places.turn(payer).ok_or_else(|| {
            self.shared.metrics.reviews.inc(ReviewOutcome::QueueFull);
            unavailable("too many questions wait for their turn")
        });
        let place = turn?.come().await;
        place.ok_or_else(|| unavailable("no place for a question"))
    }

    /// Joins the question's flight, or begins it. It goes on when nobody waits for it any more.
    fn flight(
        &self,
        question: &AccessQuestion,
        place: ReviewPermit,
    ) -> watch::Receiver<Option<FlightOutcome>> {
        let mut flights = self.shared.flights();
        if let Some(outcome) = flights.joined(&question.key) {
            return outcome;
        }
        let (sender, outcome) = watch::channel(None);
        let moment = flights.changes.now();
        let flight = Flight {
            moment,
            outcome: outcome.clone(),
        };
        flights.flights.insert(question.key.clone(), flight);
        drop(flights);
        let (shared, question) = (Arc::clone(&self.shared), question.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let landing = Landing {
                shared: &shared,
                key: &question.key,
                moment,
            };
            let outcome = shared.ask_patiently(&question, moment).await;
            shared.learn(&question, &outcome, moment).await;
            drop(landing);
            drop(place);
            sender.send_replace(Some(outcome));
        });
        outcome
    }
}

/// Ends a flight, also if its task panics.
struct Landing<'a> {
    shared: &'a DecisionsState,
    key: &'a QuestionKey,
    moment: ChangePoint,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut flights = self.shared.flights();
        // A change of roles may have let another one begin.
        let is_own = |flight: &Flight| flight.moment == self.moment;
        if flights.flights.get(self.key).is_some_and(is_own) {
            flights.flights.remove(self.key);
        }
    }
}

impl Flights {
    /// The flight of the question, unless it began before a change that may matter.
    fn joined(&self, key: &QuestionKey) -> Option<watch::Receiver<Option<FlightOutcome>>> {
        let flight = self.flights.get(key)?;
        let is_current = self.is_current(flight.moment, key);
        is_current.then(|| flight.outcome.clone())
    }

    fn is_current(&self, since: ChangePoint, key: &QuestionKey) -> bool {
        self.changes.is_current(since, &key.user, &key.access)
    }
}

impl DecisionsState {
    fn flights(&self) -> MutexGuard<'_, Flights> {
        // Nothing under the lock panics half way.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn known(&self, key: &QuestionKey) -> Option<FlightOutcome> {
        if let Some(decision) = self.remembered(key).await {
            return Some(Ok(decision));
        }
        let is_forbidden_to_ask = self.is_forbidden_to_ask(key).await;
        is_forbidden_to_ask.then_some(Err(ReviewError::SelfReviewForbidden))
    }

    async fn remembered(&self, key: &QuestionKey) -> Option<CachedDecision> {
        let decision = self.cache.get(key).await?;
        let ttl = match decision.verdict.is_allowed {
            true => self.ttls.allow,
            false => self.ttls.deny,
        };
        let is_fresh = decision.asked_at.elapsed() < ttl;
        let is_current = || {
            let flights = self.flights();
            flights.is_current(decision.moment, key)
        };
        (is_fresh && is_current()).then_some(decision)
    }

    /// Remembers what came of a question.
    async fn learn(&self, question: &AccessQuestion, outcome: &FlightOutcome, moment: ChangePoint) {
        match outcome {
            Ok(decision) => self.remember(question.key.clone(), decision.clone()).await,
            Err(ReviewError::SelfReviewForbidden) => {
                let known = (Instant::now(), moment);
                self.forbidden_askers
                    .insert(asker_key(&question.key), known)
                    .await;
            }
            Err(_) => {}
        }
    }

    /// Whether upstream has just refused to let this caller ask about itself.
    async fn is_forbidden_to_ask(&self, key: &QuestionKey) -> bool {
        let Some((learnt_at, moment)) = self.forbidden_askers.get(&asker_key(key)).await else {
            return false;
        };
        learnt_at.elapsed() < FORBIDDEN_ASKERS_TTL && self.flights().is_current(moment, key)
    }

    async fn remember(&self, key: QuestionKey, decision: CachedDecision) {
        if key.text_len() < CACHED_TEXT_LEN_MAX {
            self.cache.insert(key, decision).await;
        }
    }

    /// Tries again a few times within its time, as the API server's webhook does.
    async fn ask_patiently(&self, question: &AccessQuestion, moment: ChangePoint) -> FlightOutcome {
        let attempts = async {
            let mut delay = RETRY_DELAY;
            for _ in 1..ATTEMPTS {
                match self
                    .ask(question, moment, ReviewPurpose::Authorization)
                    .await
                {
                    Err(ReviewError::Unavailable { .. }) => tokio::time::sleep(delay).await,
                    outcome => return outcome,
                }
                delay = delay * 3 / 2;
            }
            self.ask(question, moment, ReviewPurpose::Authorization)
                .await
        };
        let outcome = tokio::time::timeout(ASK_MAX, attempts).await;
        outcome.unwrap_or_else(|_elapsed| Err(unavailable("no decision in time")))
    }

    async fn ask(
        &self,
        question: &AccessQuestion,
        moment: ChangePoint,
        purpose: ReviewPurpose,
    ) -> FlightOutcome {
        // The decision is as old as the question.
        let asked_at = Instant::now();
        let verdict = self.authorizer.decide(question, purpose).await;
        self.metrics
            .review_duration
            .observe(asked_at.elapsed().as_secs_f64());
        self.metrics.reviews.inc(match &verdict {
            Ok(verdict) if verdict.is_allowed => ReviewOutcome::Allowed,
            Ok(_) => ReviewOutcome::Denied,
            Err(error) if may_not_ask(&question.asker, error) => ReviewOutcome::Unasked,
            Err(_) => ReviewOutcome::Failed,
        });
        Ok(CachedDecision {
            verdict: Arc::new(verdict?),
            asked_at,
            moment,
        })
    }
}

fn asker_key(key: &QuestionKey) -> IdentityKey {
    (key.credentials, Arc::clone(&key.user))
}

/// Whether an error is about the caller, not about the gateway or upstream.
fn may_not_ask(asker: &QuestionIdentity, error: &ReviewError) -> bool {
    match (asker, error) {
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

/// All of a question's attempts, as long as the API server lets a webhook take.
const ASK_MAX: Duration = Duration::from_secs(30);
/// Waiting for a place included.
const WAIT_MAX: Duration = Duration::from_secs(30);
const ATTEMPTS: usize = 3;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Strings of a question that is remembered; the API server's webhook has this bound, too.
const CACHED_TEXT_LEN_MAX: usize = 10_000;

/// A hundred thousand usual questions.
const CACHE_LEN_MAX: u64 = 64 << 20;

/// Spares upstream a review with each request of a caller that may not ask.
const FORBIDDEN_ASKERS_TTL: Duration = Duration::from_secs(10);
const FORBIDDEN_ASKERS_LEN_MAX: u64 = 4 << 20;

/// What an entry takes beside its strings, about.
const ENTRY_LEN: usize = 512;

/// Questions in flight: 52 of a user that is alone, and some for others at any time. The API server runs 200 writes at once by default.
const IN_FLIGHT_MAX: usize = 64;
/// Questions that wait: 16,384 of a user that is alone, such as a service account of a pod on each of so many nodes.
const WAITING_MAX: usize = 20_480;

#[cfg(test)]
pub(in crate::auth) mod tests;
