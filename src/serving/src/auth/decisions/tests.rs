//! Decisions with a scripted authorizer, under tokio's paused clock. Other tests of `auth` use the script and the builders, too.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::LazyLock;

use tokio::sync::watch;

use super::super::access::{Access, ResourceAccess};
use super::super::caller::BearerToken;
use super::super::changes::RoleScope;
use super::super::digest::CredentialHasher;
use super::*;
use crate::fairness::Users;
use crate::metrics::Metrics;

/// An authorizer that returns scripted answers and records the questions.
#[derive(Debug)]
pub(in crate::auth) struct Script {
    state: Mutex<ScriptState>,
    /// While it is false, all answers wait.
    gate: watch::Sender<bool>,
}

type Answer = Result<AccessVerdict, ReviewError>;

type AnswerOf = dyn Fn(&AccessQuestion) -> Option<Answer> + Send;

/// Answers to certain questions, which take precedence over the others.
struct Exception(Box<AnswerOf>);

impl std::fmt::Debug for Exception {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Exception(..)")
    }
}

#[derive(Debug)]
struct ScriptState {
    exception: Option<Exception>,
    asked: Vec<(QuestionKey, ReviewPurpose)>,
    /// The next answers, each used once.
    next: VecDeque<Result<AccessVerdict, ReviewError>>,
    /// The answer when there is no other one.
    always: Result<AccessVerdict, ReviewError>,
    in_flight: usize,
    in_flight_max: usize,
}

impl Script {
    pub(in crate::auth) fn always(answer: Result<AccessVerdict, ReviewError>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ScriptState {
                exception: None,
                asked: Vec::new(),
                next: VecDeque::new(),
                always: answer,
                in_flight: 0,
                in_flight_max: 0,
            }),
            gate: watch::Sender::new(true),
        })
    }

    pub(in crate::auth) fn then_always(&self, answer: Result<AccessVerdict, ReviewError>) {
        self.state().always = answer;
    }

    pub(in crate::auth) fn next(&self, answer: Result<AccessVerdict, ReviewError>) {
        self.state().next.push_back(answer);
    }

    pub(in crate::auth) fn deny(&self, is_denied: impl Fn(&Access) -> bool + Send + 'static) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            is_denied(&question.key.access).then(denied)
        })));
    }

    pub(in crate::auth) fn deny_user(&self, name: &'static str) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            (question.key.user.name == name).then(denied)
        })));
    }

    pub(in crate::auth) fn deny_subject(&self, name: &'static str) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            (question.subject.name == name).then(denied)
        })));
    }

    pub(in crate::auth) fn refuse_user(&self, name: &'static str) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            (question.key.user.name == name).then_some(Err(ReviewError::Unauthorized))
        })));
    }

    pub(in crate::auth) fn deny_pod(&self, uid: &'static str) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            (question.subject.pod_uid() == Some(uid)).then(denied)
        })));
    }

    /// Answers questions that are sent with this token as upstream does when it is not valid.
    pub(in crate::auth) fn refuse_token(&self, secret: &'static str) {
        self.state().exception = Some(Exception(Box::new(move |question| {
            let is_refused = match &question.identity {
                QuestionIdentity::Caller { token, .. } => token.secret() == secret,
                QuestionIdentity::Gateway | QuestionIdentity::Impersonated => false,
            };
            is_refused.then_some(Err(ReviewError::Unauthorized))
        })));
    }

    /// The questions since the last call.
    pub(in crate::auth) fn asked(&self) -> Vec<(QuestionKey, ReviewPurpose)> {
        std::mem::take(&mut self.state().asked)
    }

    /// The number of questions since the last call.
    pub(in crate::auth) fn asked_count(&self) -> usize {
        self.asked().len()
    }

    pub(in crate::auth) fn in_flight_max(&self) -> usize {
        self.state().in_flight_max
    }

    pub(in crate::auth) fn close(&self) {
        self.gate.send_replace(false);
    }

    pub(in crate::auth) fn open(&self) {
        self.gate.send_replace(true);
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock()
    }
}

impl Authorizer for Script {
    fn decide<'a>(
        &'a self,
        question: &'a AccessQuestion,
        purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = Result<AccessVerdict, ReviewError>> + Send + 'a>> {
        Box::pin(async move {
            let mut gate = self.gate.subscribe();
            {
                let mut state = self.state();
                state.asked.push((question.key.clone(), purpose));
                state.in_flight += 1;
                state.in_flight_max = state.in_flight_max.max(state.in_flight);
            }
            gate.wait_for(|is_open| *is_open).await.unwrap();
            let mut state = self.state();
            state.in_flight -= 1;
            let exception = state.exception.as_ref();
            let exception = exception.and_then(|Exception(answer)| answer(question));
            let next = exception.or_else(|| state.next.pop_front());
            next.unwrap_or_else(|| state.always.clone())
        })
    }
}

pub(in crate::auth) fn allowed() -> Result<AccessVerdict, ReviewError> {
    Ok(AccessVerdict {
        is_allowed: true,
        reason: String::new(),
    })
}

pub(in crate::auth) fn denied() -> Result<AccessVerdict, ReviewError> {
    Ok(AccessVerdict {
        is_allowed: false,
        reason: "no".to_owned(),
    })
}

pub(in crate::auth) fn down() -> Result<AccessVerdict, ReviewError> {
    Err(unavailable("down"))
}

pub(in crate::auth) fn pods(namespace: &str) -> Access {
    Access::Resource(ResourceAccess {
        verb: "list".to_owned(),
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceAccess::default()
    })
}

pub(in crate::auth) fn user(name: &str) -> Arc<User> {
    Arc::new(User {
        name: name.to_owned(),
        ..User::default()
    })
}

/// The client that pays for reviews about a user.
pub(in crate::auth) fn payer(name: &str) -> Peer {
    static USERS: LazyLock<Users> = LazyLock::new(Users::default);
    USERS.known(Peer::UNKNOWN, name, &[])
}

pub(in crate::auth) fn question(name: &str, access: Access) -> AccessQuestion {
    AccessQuestion {
        identity: QuestionIdentity::Gateway,
        subject: user(name),
        payer: payer(name),
        key: QuestionKey {
            credentials: None,
            user: user(name),
            access: Arc::new(access),
            authorizers: AuthorizerState::Opaque,
        },
    }
}

pub(in crate::auth) fn namespace(name: &str) -> ScopeSet {
    let mut scopes = ScopeSet::default();
    scopes.insert(RoleScope::Namespace(name.to_owned()));
    scopes
}

fn everything() -> ScopeSet {
    let mut scopes = ScopeSet::default();
    scopes.insert(RoleScope::Cluster);
    scopes
}

const TTLS: DecisionRules = DecisionRules {
    decides_by_roles: false,
    allow: Duration::from_secs(300),
    deny: Duration::from_secs(30),
};

pub(in crate::auth) fn decisions(script: &Arc<Script>) -> Arc<Decisions> {
    decisions_with(script, Arc::default())
}

pub(in crate::auth) fn decisions_with(
    script: &Arc<Script>,
    followed: Arc<Followed>,
) -> Arc<Decisions> {
    let metrics = Metrics::new().unwrap().authorization();
    let authorizer = Arc::clone(script) as _;
    Arc::new(Decisions::new(
        authorizer,
        Arc::default(),
        followed,
        TTLS,
        metrics,
    ))
}

async fn is_allowed(decisions: &Decisions, question: &AccessQuestion) -> bool {
    decisions.decide(question).await.unwrap().verdict.is_allowed
}

#[tokio::test(start_paused = true)]
async fn decisions_are_remembered_as_long_as_they_may_be() {
    for (answer, ttl) in [(allowed(), TTLS.allow), (denied(), TTLS.deny)] {
        let script = Script::always(answer.clone());
        let decisions = decisions(&script);
        let question = question("jane", pods("a"));
        for _ in 0..2 {
            let decision = decisions.decide(&question).await.unwrap();
            assert_eq!(Ok((*decision.verdict).clone()), answer);
        }
        tokio::time::advance(ttl - Duration::from_millis(1)).await;
        decisions.decide(&question).await.unwrap();
        assert_eq!(script.asked_count(), 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        decisions.decide(&question).await.unwrap();
        assert_eq!(script.asked_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn questions_that_differ_in_any_part_have_answers_of_their_own() {
    let resource = ResourceAccess {
        verb: "list".to_owned(),
        ..ResourceAccess::default()
    };
    let changed = |change: fn(&mut ResourceAccess)| {
        let mut access = resource.clone();
        change(&mut access);
        Access::Resource(access)
    };
    let accesses = [
        Access::Resource(resource.clone()),
        changed(|access| access.verb = "watch".to_owned()),
        changed(|access| access.group = "x".to_owned()),
        changed(|access| access.version = "x".to_owned()),
        changed(|access| access.resource = "x".to_owned()),
        changed(|access| access.subresource = "x".to_owned()),
        changed(|access| access.namespace = "x".to_owned()),
        changed(|access| access.name = "x".to_owned()),
        changed(|access| access.field_selector = "x".to_owned()),
        changed(|access| access.label_selector = "x".to_owned()),
        Access::Path {
            verb: "list".to_owned(),
            path: String::new(),
        },
    ];
    let jane = (*user("jane")).clone();
    let users = [
        jane.clone(),
        User {
            name: "joe".to_owned(),
            ..jane.clone()
        },
        User {
            uid: "1".to_owned(),
            ..jane.clone()
        },
        User {
            groups: vec!["g".to_owned()],
            ..jane.clone()
        },
        User {
            extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
            ..jane
        },
    ];
    let script = Script::always(denied());
    let decisions = decisions(&script);
    for (number, user) in users.into_iter().enumerate() {
        let user = Arc::new(user);
        for access in &accesses {
            let mut question = question("", access.clone());
            question.key.user = Arc::clone(&user);
            decisions.decide(&question).await.unwrap();
            assert_eq!(script.asked_count(), 1, "user {number}, {access:?}");
            decisions.decide(&question).await.unwrap();
            assert_eq!(script.asked_count(), 0, "user {number}, {access:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_equal_questions_share_one_review() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let (decisions, question) = (Arc::clone(&decisions), question.clone());
            tokio::spawn(async move { is_allowed(&decisions, &question).await })
        })
        .collect();
    tokio::task::yield_now().await;
    // The first waiter started the flight, and is cancelled.
    let mut waiters = waiters.into_iter();
    waiters.next().unwrap().abort();
    tokio::task::yield_now().await;
    script.open();
    for waiter in waiters {
        assert!(waiter.await.unwrap());
    }
    assert_eq!(script.asked_count(), 1);

    // No request waits for the flight any more.
    script.close();
    decisions.forget(&everything());
    let abandoned = tokio::spawn({
        let (decisions, question) = (Arc::clone(&decisions), question.clone());
        async move { is_allowed(&decisions, &question).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    abandoned.abort();
    script.open();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.asked_count(), 1);
    assert!(is_allowed(&decisions, &question).await);
    assert_eq!(script.asked_count(), 0, "the answer was not cached");
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_and_not_remembered() {
    let script = Script::always(down());
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    assert!(decisions.decide(&question).await.is_err());
    assert_eq!(script.asked_count(), ATTEMPTS);
    script.next(down());
    script.then_always(allowed());
    assert!(is_allowed(&decisions, &question).await);
    assert_eq!(script.asked_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn nonsense_and_refusals_are_neither_decisions_nor_tried_again() {
    let errors = [
        ReviewError::Malformed {
            reason: String::new(),
        },
        ReviewError::Unauthorized,
        ReviewError::Forbidden {
            message: String::new(),
        },
    ];
    for error in errors {
        let script = Script::always(Err(error.clone()));
        let decisions = decisions(&script);
        let question = question("jane", pods("a"));
        for _ in 0..2 {
            let failure = decisions.decide(&question).await.unwrap_err();
            assert_eq!(failure, error);
        }
        assert_eq!(script.asked_count(), 2);
    }
}

fn own_question(name: &str, access: Access) -> AccessQuestion {
    AccessQuestion {
        identity: QuestionIdentity::Impersonated,
        ..question(name, access)
    }
}

fn may_not_ask() -> Result<AccessVerdict, ReviewError> {
    Err(ReviewError::SelfReviewForbidden)
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_may_not_review_itself_is_remembered_for_a_moment() {
    let script = Script::always(may_not_ask());
    let decisions = decisions(&script);
    let of_jane = |namespace| own_question("jane", pods(namespace));
    for namespace in ["a", "b", "c"] {
        let refused = decisions.decide(&of_jane(namespace)).await.unwrap_err();
        assert_eq!(refused, ReviewError::SelfReviewForbidden);
    }
    assert_eq!(script.asked_count(), 1);
    // The refusal is cached neither for another user nor for the same user with a token.
    let mut with_token = of_jane("a");
    with_token.key.credentials =
        Some(CredentialHasher::new(&[7; 32]).token(&BearerToken::new("t").unwrap()));
    for question in [own_question("joe", pods("a")), with_token] {
        assert!(decisions.decide(&question).await.is_err());
        assert_eq!(script.asked_count(), 1);
    }
    script.then_always(allowed());
    tokio::time::advance(FORBIDDEN_ASKERS_TTL - Duration::from_millis(1)).await;
    assert!(decisions.decide(&of_jane("a")).await.is_err());
    assert_eq!(script.asked_count(), 0);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(is_allowed(&decisions, &of_jane("a")).await);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_roles_forgets_callers_that_may_not_review_themselves() {
    let script = Script::always(may_not_ask());
    let decisions = decisions(&script);
    let question = own_question("jane", pods("a"));
    assert!(decisions.decide(&question).await.is_err());
    script.then_always(allowed());
    decisions.forget(&everything());
    assert!(is_allowed(&decisions, &question).await);
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_forbidden_reviewers_is_bounded() {
    let decisions = decisions(&Script::always(may_not_ask()));
    let long = "a".repeat(9_000);
    for number in 0..1_000 {
        let question = own_question(&format!("{long}{number}"), pods("a"));
        assert!(decisions.decide(&question).await.is_err());
    }
    decisions.shared.forbidden_askers.run_pending_tasks().await;
    assert!(decisions.shared.forbidden_askers.weighted_size() <= FORBIDDEN_ASKERS_LEN_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_does_not_answer_is_given_up() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let start = Instant::now();
    let outcome = decisions.decide(&question("jane", pods("a"))).await;
    assert!(matches!(outcome, Err(ReviewError::Unavailable { .. })));
    assert_eq!(start.elapsed(), ASK_MAX);
}

/// A herd after a restart: the last questions get their permits late, and an answer takes its time.
#[tokio::test(start_paused = true)]
async fn a_question_that_waited_long_for_its_turn_has_all_the_time_of_a_review() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let names = (0..share_of_one(IN_FLIGHT_MAX)).map(|n| format!("role-{n}"));
    let _unanswered = ask_as(&decisions, payer("busy"), names);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let late = ask_as(&decisions, payer("busy"), ["late".to_owned()].into_iter());
    // The others have been given up 30 s after they were asked, and this one was asked 20 s after it had come.
    tokio::time::sleep(Duration::from_secs(35)).await;
    script.open();
    all_allowed(late).await;
}

/// How many of these permits a single caller gets.
fn share_of_one(permits: usize) -> usize {
    permits * 4 / 5 + 1
}

/// Decides one question for each name, all with permits of this peer.
fn ask_as(
    decisions: &Arc<Decisions>,
    peer: Peer,
    names: impl Iterator<Item = String>,
) -> Vec<tokio::task::JoinHandle<FlightOutcome>> {
    names
        .map(|name| {
            let question = AccessQuestion {
                payer: peer,
                ..question(&name, pods("a"))
            };
            let decisions = Arc::clone(decisions);
            tokio::spawn(async move { decisions.decide(&question).await })
        })
        .collect()
}

async fn all_allowed(outcomes: impl IntoIterator<Item = tokio::task::JoinHandle<FlightOutcome>>) {
    for outcome in outcomes {
        assert!(outcome.await.unwrap().unwrap().verdict.is_allowed);
    }
}

#[tokio::test(start_paused = true)]
async fn one_users_questions_wait_for_each_other_and_not_for_others() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let names = (0..1_000).map(|n| format!("role-{n}"));
    // A caller that impersonates many users has only its own share.
    let greedy = ask_as(&decisions, payer("greedy"), names);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.asked_count(), share_of_one(IN_FLIGHT_MAX));
    let others: Vec<_> = ["jane", "joe", "sue"]
        .into_iter()
        .flat_map(|name| ask_as(&decisions, payer(name), [name.to_owned()].into_iter()))
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.asked_count(), 3);
    script.open();
    all_allowed(greedy.into_iter().chain(others)).await;
    assert!(script.in_flight_max() <= IN_FLIGHT_MAX);
}

#[tokio::test(start_paused = true)]
async fn questions_in_flight_and_in_line_are_bounded_however_many_users_ask() {
    let script = Script::always(allowed());
    script.close();
    let metrics = Metrics::new().unwrap().authorization();
    let mut decisions = Decisions::new(
        Arc::clone(&script) as _,
        Arc::default(),
        Arc::default(),
        TTLS,
        metrics.clone(),
    );
    decisions.permits = ReviewPermits::new(IN_FLIGHT_MAX, 100);
    let decisions = Arc::new(decisions);
    let outcomes: Vec<_> = (0..300)
        .map(|number| format!("user-{number}"))
        .flat_map(|name| ask_as(&decisions, payer(&name), [name].into_iter()))
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(script.asked_count() <= IN_FLIGHT_MAX);
    script.open();
    let mut refused = 0;
    for outcome in outcomes {
        match outcome.await.unwrap() {
            Ok(decision) => assert!(decision.verdict.is_allowed),
            Err(error) => {
                assert_eq!(error, ReviewError::Busy);
                refused += 1;
            }
        }
    }
    assert!(refused >= 300 - IN_FLIGHT_MAX as u64 - 100, "{refused}");
    assert_eq!(metrics.reviews.count(ReviewOutcome::QueueFull), refused);
}

#[tokio::test(start_paused = true)]
async fn operators_have_places_of_their_own() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let callers = (0..200).map(|number| format!("user-{number}"));
    let callers: Vec<_> = callers
        .flat_map(|name| ask_as(&decisions, payer(&name), [name].into_iter()))
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    script.asked();
    let operator = payer("user-0").operator();
    let operator = ask_as(&decisions, operator, ["operator".to_owned()].into_iter());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.asked_count(), 1);
    script.open();
    all_allowed(callers.into_iter().chain(operator)).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_roles_forgets_what_it_may_matter_to() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let (of_a, of_b) = (question("jane", pods("a")), question("jane", pods("b")));
    let count = async || {
        decisions.decide(&of_a).await.unwrap();
        let a = script.asked_count();
        decisions.decide(&of_b).await.unwrap();
        (a, script.asked_count())
    };
    assert_eq!(count().await, (1, 1));
    decisions.forget(&namespace("a"));
    assert_eq!(count().await, (1, 0));
    decisions.forget(&everything());
    assert_eq!(count().await, (1, 1));
    assert_eq!(count().await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_change_is_not_remembered_and_not_joined() {
    let script = Script::always(allowed());
    script.close();
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    let ask = || {
        let (decisions, question) = (Arc::clone(&decisions), question.clone());
        tokio::spawn(async move { decisions.decide(&question).await.unwrap() })
    };
    let before = ask();
    tokio::time::sleep(Duration::from_millis(1)).await;
    decisions.forget(&namespace("a"));
    script.next(allowed());
    script.next(denied());
    let after = ask();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(script.asked_count(), 2, "the outdated flight was joined");
    script.open();
    let (before, after) = (before.await.unwrap(), after.await.unwrap());
    assert!(!decisions.is_current(&before, &question.key));
    assert!(decisions.is_current(&after, &question.key));
    // Only the decision of the newer flight may be cached, whichever ended last.
    let cached = decisions.decide(&question).await.unwrap();
    assert!(decisions.is_current(&cached, &question.key));
}

#[tokio::test(start_paused = true)]
async fn a_question_of_many_words_is_asked_each_time() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let question = question("jane", pods(&"a".repeat(CACHED_TEXT_LEN_MAX)));
    for _ in 0..2 {
        assert!(is_allowed(&decisions, &question).await);
        assert_eq!(script.asked_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_by_the_length_of_questions() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let long = "a".repeat(9_000);
    for number in 0..8_000 {
        let key = question("jane", pods(&format!("{long}{number}"))).key;
        let verdict = Arc::new(allowed().unwrap());
        let decision = CachedDecision {
            verdict,
            asked_at: Instant::now(),
            explanation: Explanation::None,
            change_point: ChangePoint::default(),
        };
        decisions.shared.store(key, decision).await;
    }
    decisions.shared.cache.run_pending_tasks().await;
    assert!(decisions.shared.cache.weighted_size() <= CACHE_LEN_MAX);
    assert!(decisions.shared.cache.entry_count() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_decision_takes_the_place_of_a_remembered_one() {
    let script = Script::always(allowed());
    let decisions = decisions(&script);
    let question = question("jane", pods("a"));
    assert!(is_allowed(&decisions, &question).await);
    script.then_always(denied());
    let fresh = decisions.recheck(&question).await.unwrap();
    assert!(!fresh.verdict.is_allowed);
    assert!(!is_allowed(&decisions, &question).await);
    let purposes: Vec<_> = script
        .asked()
        .into_iter()
        .map(|(_, purpose)| purpose)
        .collect();
    assert_eq!(
        purposes,
        [ReviewPurpose::Authorization, ReviewPurpose::Recheck]
    );
}

mod flights;
