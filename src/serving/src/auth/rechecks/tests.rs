//! Rechecks with a scripted authorizer, under tokio's paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use rustls_pki_types::CertificateDer;
use serde_json::json;
use tokio::task::JoinSet;

use super::super::caller::CertificateChain;
use super::super::decisions::tests::{
    Script, allowed, decisions_with, denied, down, payer, pods, question, user,
};
use super::super::digest::CredentialHasher;
use super::super::explanation::Explanation;
use super::super::followed::AuthorizerState;
use super::super::lease::LeaseHold;
use super::super::policy::FollowedPolicy;
use super::super::question::QuestionKey;
use super::super::token_review::TokenVerdict;
use super::queue::{IN_FLIGHT_MAX, WAITING_MAX};
use super::task::SETTLING_TIME;
use super::*;
use crate::metrics::Metrics;

const TIMES: RecheckTimes = RecheckTimes {
    interval: Duration::from_secs(25),
    grace: Duration::from_secs(300),
    decides_by_roles: false,
};

/// The interval and a fifth of it, and the time between two scans.
const CHECKED_WITHIN: Duration = Duration::from_secs(31);

/// A credential authority with one scripted verdict for all credentials, which counts its calls.
#[derive(Debug)]
struct Tokens {
    answer: Mutex<TokenVerdict>,
    reviews: AtomicUsize,
    forgotten: AtomicUsize,
}

impl CredentialAuthority for Tokens {
    fn recheck_token<'a>(
        &'a self,
        _token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = DatedVerdict> + Send + 'a>> {
        self.reviews.fetch_add(1, Ordering::SeqCst);
        let verdict = self.answer.lock().clone();
        let asked_at = Instant::now();
        Box::pin(std::future::ready(DatedVerdict { verdict, asked_at }))
    }

    fn forget<'a>(
        &'a self,
        _token: &'a BearerToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }

    /// Certificates are valid as long as the token is.
    fn is_trusted<'a>(
        &'a self,
        _credential: &'a Credential,
        _payer: Peer,
    ) -> Pin<Box<dyn Future<Output = Option<bool>> + Send + 'a>> {
        let answer = self.answer.lock();
        let is_trusted = answer.as_ref().ok().map(Option::is_some);
        Box::pin(std::future::ready(is_trusted))
    }
}

fn verdict() -> Arc<AccessVerdict> {
    Arc::new(AccessVerdict {
        is_allowed: true,
        reason: String::new(),
    })
}

struct Stage {
    policy: Arc<FollowedPolicy>,
    script: Arc<Script>,
    tokens: Arc<Tokens>,
    rechecks: Arc<Rechecks>,
    running: JoinSet<()>,
}

impl Stage {
    fn new() -> Self {
        let script = Script::always(allowed());
        let tokens = Arc::new(Tokens {
            answer: Mutex::new(Ok(Some(user("jane")))),
            reviews: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(0),
        });
        let metrics = Metrics::new().unwrap().authorization();
        let decisions = decisions_with(&script, Arc::default());
        let policy = Arc::new(FollowedPolicy::default());
        decisions.policy().replace(Arc::clone(&policy));
        decisions.policy().set_current(true);
        let rechecks = Rechecks::new(
            TIMES,
            ReviewBudget::Unlimited,
            decisions,
            Arc::clone(&tokens) as _,
            metrics,
        );
        let rechecks = Arc::new(rechecks);
        let mut running = JoinSet::new();
        let runner = Arc::clone(&rechecks);
        running.spawn(async move { runner.run().await });
        Self {
            policy,
            script,
            tokens,
            rechecks,
            running,
        }
    }

    fn lease(&self, key: LeaseKey, requirements: Vec<Requirement>) -> (Lease, LeaseHold) {
        let confirmation = Confirmation::credential(Instant::now());
        let requirements = requirements.into_iter();
        let requirements = requirements.map(|one| (one, confirmation)).collect();
        let lease = self.rechecks.lease(key, &verdict(), requirements);
        let hold = lease.hold();
        (lease, hold)
    }

    fn held(&self, question: AccessQuestion) -> (Lease, LeaseHold) {
        let key = LeaseKey {
            credential: None,
            impersonator: None,
            question: question.key.clone(),
        };
        self.lease(key, vec![Requirement::Access(question)])
    }

    fn revocations(&self, reason: Revocation) -> u64 {
        self.rechecks.metrics.revocations.count(reason)
    }

    fn set_token(&self, answer: TokenVerdict) {
        *self.tokens.answer.lock() = answer;
    }
}

fn token() -> BearerToken {
    BearerToken::from_authorization(HeaderValue::from_static("Bearer secret"))
}

fn own_question() -> AccessQuestion {
    let mut question = question("jane", pods("a"));
    let digest = CredentialHasher::new(&[7; 32]).token(&token());
    question.key.credentials = Some(digest);
    question.identity = QuestionIdentity::Caller {
        token: token(),
        owner: user("jane"),
        impersonation: Arc::default(),
        digest,
    };
    question
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_ends_streams_within_the_interval() {
    let stage = Stage::new();
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    pass(300).await;
    assert!(!lease.is_revoked());
    let count = stage.script.asked_count();
    // Every 25 to 30 s, and a scan's time later.
    assert!((9..=12).contains(&count), "{count} questions in 300 s");
    stage.script.then_always(denied());
    let mut revoked = std::pin::pin!(lease.revoked());
    tokio::time::timeout(CHECKED_WITHIN, &mut revoked)
        .await
        .unwrap();
    assert_eq!(stage.revocations(Revocation::Denied), 1);
}

#[tokio::test(start_paused = true)]
async fn a_denial_drops_cached_decisions_of_its_user() {
    let stage = Stage::new();
    let of = |name: &str| question(name, pods("b"));
    for question in [of("jane"), of("joe")] {
        let decision = stage.rechecks.decisions.decide(&question).await.unwrap();
        assert!(decision.verdict.is_allowed);
    }
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    stage.script.then_always(denied());
    lease.revoked().await;
    let is_allowed = async |name| {
        let decision = stage.rechecks.decisions.decide(&of(name)).await.unwrap();
        decision.verdict.is_allowed
    };
    assert!(!is_allowed("jane").await);
    assert!(is_allowed("joe").await);
}

#[tokio::test(start_paused = true)]
async fn many_streams_that_ask_alike_cost_one_question() {
    let stage = Stage::new();
    let held: Vec<_> = (0..100)
        .map(|_| stage.held(question("jane", pods("a"))))
        .collect();
    pass(31).await;
    assert_eq!(stage.script.asked_count(), 1);
    stage.script.then_always(denied());
    pass(31).await;
    assert!(held.iter().all(|(lease, _)| lease.is_revoked()));
    assert_eq!(stage.revocations(Revocation::Denied), 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_may_be_older_than_a_change_is_asked_again() {
    let stage = Stage::new();
    let (of_a, _a) = stage.held(question("jane", pods("a")));
    let (of_b, _b) = stage.held(question("joe", pods("b")));
    pass(1).await;
    stage.script.then_always(denied());
    for _ in 0..100 {
        let scope = RoleScope::Namespace("a".to_owned());
        stage.rechecks.roles_changed(scope);
    }
    pass(3).await;
    assert_eq!(stage.script.asked_count(), 0, "too young to tell");
    pass(2).await;
    assert!(of_a.is_revoked() && !of_b.is_revoked());
    assert_eq!(stage.script.asked_count(), 1);
}

/// A binding by which a user may list pods in all namespaces.
fn binding(user: &str) -> ClusterRoleBinding {
    let binding = json!({
        "metadata": {"name": format!("of-{user}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    serde_json::from_value(binding).unwrap()
}

/// Roles by which these users may list pods.
fn grant(stage: &Stage, users: &[&str]) {
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    });
    let role: ClusterRole = serde_json::from_value(role).unwrap();
    stage.policy.update(|policy| {
        policy.put_cluster_role(role);
        for user in users {
            policy.put_cluster_role_binding(binding(user));
        }
        true
    });
}

/// A stream whose access upstream has allowed, and perhaps roles explain.
async fn decided(stage: &Stage, name: &str) -> (Lease, LeaseHold) {
    let question = question(name, pods("a"));
    let decision = stage.rechecks.decisions.decide(&question).await.unwrap();
    let key = LeaseKey {
        credential: None,
        impersonator: None,
        question: question.key.clone(),
    };
    let confirmation = Confirmation {
        at: decision.asked_at,
        is_doubtful: false,
        explanation: decision.explanation,
    };
    let requirements = vec![(Requirement::Access(question), confirmation)];
    let lease = stage.rechecks.lease(key, &verdict(), requirements);
    let hold = lease.hold();
    (lease, hold)
}

#[tokio::test(start_paused = true)]
async fn a_change_of_roles_is_asked_about_where_roles_no_longer_explain() {
    let stage = Stage::new();
    stage
        .rechecks
        .followed
        .set_authorizers(AuthorizerState::Transparent);
    grant(&stage, &["jane", "joe"]);
    let _streams = [
        decided(&stage, "jane").await,
        decided(&stage, "joe").await,
        decided(&stage, "by-a-webhook").await,
    ];
    stage.script.asked();
    pass(200).await;
    let asked = |stage: &Stage| {
        let asked = stage.script.asked();
        let names = asked.iter().map(|(key, _)| key.user.name.clone());
        names
            .filter(|name| name != "by-a-webhook")
            .collect::<Vec<_>>()
    };
    assert!(asked(&stage).is_empty(), "roles explain both");
    // Something else changes.
    grant(&stage, &["ann"]);
    stage.rechecks.roles_changed(RoleScope::Cluster);
    pass(15).await;
    assert!(asked(&stage).is_empty());
    stage
        .policy
        .update(|policy| policy.remove_binding("", "of-joe"));
    stage.rechecks.roles_changed(RoleScope::Cluster);
    pass(2).await;
    assert_eq!(asked(&stage), ["joe"]);
    // Once more, for another API server that may not have known; then at the interval, because nothing explains it now.
    pass(10).await;
    assert_eq!(asked(&stage), ["joe"]);
    pass(31).await;
    assert_eq!(asked(&stage), ["joe"]);
}

#[tokio::test(start_paused = true)]
async fn roles_that_are_not_known_are_no_reason_to_ask() {
    let stage = Stage::new();
    stage
        .rechecks
        .followed
        .set_authorizers(AuthorizerState::Transparent);
    grant(&stage, &["jane"]);
    let _stream = decided(&stage, "jane").await;
    pass(100).await;
    assert_eq!(stage.script.asked_count(), 1);
    let policy = stage.rechecks.decisions.policy();
    policy.set_current(false);
    stage.rechecks.roles_changed(RoleScope::Cluster);
    pass(2).await;
    stage
        .policy
        .update(|policy| policy.remove_binding("", "of-jane"));
    policy.set_current(true);
    pass(6).await;
    let events = stage
        .rechecks
        .metrics
        .access_reviews
        .count(ReviewCause::Event);
    assert_eq!(events, 1, "what changed meanwhile is looked at");
}

#[tokio::test(start_paused = true)]
async fn answers_that_contradict_each_other_are_no_longer_shared() {
    let stage = Stage::new();
    let followed = &stage.rechecks.followed;
    followed.set_authorizers(AuthorizerState::Transparent);
    stage.script.deny_subject("two");
    let _streams = ["one", "two"].map(|subject| {
        let mut question = question("jane", pods("a"));
        question.subject = user(subject);
        let token = BearerToken::new(subject).unwrap();
        let key = LeaseKey {
            credential: Some(CredentialHasher::new(&[7; 32]).token(&token)),
            impersonator: None,
            question: question.key.clone(),
        };
        let confirmation = Confirmation {
            at: Instant::now(),
            is_doubtful: false,
            explanation: Explanation::Roles,
        };
        let requirements = vec![(Requirement::Access(question), confirmation)];
        let lease = stage.rechecks.lease(key, &verdict(), requirements);
        (lease.hold(), lease)
    });
    pass(59).await;
    assert!(!followed.is_contradicted());
    pass(2).await;
    assert!(!followed.is_contradicted(), "a right may just have changed");
    pass(16).await;
    assert!(followed.is_contradicted());
}

#[tokio::test(start_paused = true)]
async fn decisions_made_while_a_change_settles_are_dropped_again() {
    let stage = Stage::new();
    let is_allowed = async || {
        let question = question("jane", pods("a"));
        let decision = stage.rechecks.decisions.decide(&question).await.unwrap();
        decision.verdict.is_allowed
    };
    stage.rechecks.roles_changed(RoleScope::Cluster);
    tokio::time::sleep(SETTLING_TIME / 2).await;
    // The API server's authorizer has not learned of the change yet.
    assert!(is_allowed().await);
    stage.script.then_always(denied());
    assert!(is_allowed().await);
    tokio::time::sleep(SETTLING_TIME).await;
    assert!(!is_allowed().await);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_as_old_as_its_question() {
    let stage = Stage::new();
    stage.script.close();
    let asked_at = Instant::now();
    let question = question("jane", pods("a"));
    let deciding = stage.rechecks.decisions.decide(&question);
    let opening = async {
        pass(10).await;
        stage.script.open();
    };
    let (decision, ()) = tokio::join!(deciding, opening);
    assert_eq!(decision.unwrap().asked_at, asked_at);
}

#[tokio::test(start_paused = true)]
async fn changes_without_end_do_not_put_the_check_off() {
    let stage = Stage::new();
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    stage.script.then_always(denied());
    for _ in 0..65 {
        stage.rechecks.roles_changed(RoleScope::Cluster);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lease.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn streams_outlive_an_outage_by_the_grace_and_recover() {
    let stage = Stage::new();
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    pass(60).await;
    stage.script.then_always(down());
    pass(240).await;
    assert!(!lease.is_revoked());
    stage.script.then_always(allowed());
    pass(60).await;
    stage.script.then_always(down());
    pass(260).await;
    assert!(!lease.is_revoked());
    pass(80).await;
    assert!(lease.is_revoked());
    assert_eq!(stage.revocations(Revocation::GraceOver), 1);
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_hangs_ends_streams_with_the_grace() {
    let stage = Stage::new();
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    stage.script.close();
    let start = Instant::now();
    lease.revoked().await;
    let lifetime = start.elapsed();
    assert!(
        lifetime >= TIMES.grace && lifetime <= TIMES.grace + TIMES.interval.mul_f64(1.3),
        "{lifetime:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_token_ends_its_streams_and_no_others() {
    let stage = Stage::new();
    let hasher = CredentialHasher::new(&[7; 32]);
    let other = BearerToken::from_authorization(HeaderValue::from_static("Bearer other"));
    let lease_with = |token: &BearerToken| {
        let question = question("jane", pods("a"));
        let digest = hasher.token(token);
        let requirement = Requirement::Token {
            token: token.clone(),
            digest,
            user: user("jane"),
            payer: payer("jane"),
        };
        let key = LeaseKey {
            credential: Some(digest),
            impersonator: None,
            question: question.key.clone(),
        };
        stage.lease(key, vec![Requirement::Access(question), requirement])
    };
    let (lease, _hold) = lease_with(&token());
    let (other_lease, _other) = lease_with(&other);
    pass(31).await;
    assert_eq!(stage.tokens.reviews.load(Ordering::SeqCst), 2);
    assert_eq!(
        stage.script.asked_count(),
        1,
        "the shared access was checked twice"
    );
    assert!(!lease.is_revoked());
    stage.set_token(Err(ReviewError::Unauthorized));
    pass(60).await;
    assert!(!lease.is_revoked(), "a failure is not a refusal");
    stage.set_token(Ok(None));
    pass(31).await;
    assert!(lease.is_revoked());
    assert_eq!(stage.revocations(Revocation::Unauthenticated), 2);
    assert!(other_lease.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_become_another_users_ends_streams() {
    let stage = Stage::new();
    let digest = CredentialHasher::new(&[7; 32]).token(&token());
    let question = question("jane", pods("a"));
    let key = LeaseKey {
        credential: Some(digest),
        impersonator: None,
        question: question.key.clone(),
    };
    let requirement = Requirement::Token {
        token: token(),
        digest,
        user: user("jane"),
        payer: payer("jane"),
    };
    let (lease, _hold) = stage.lease(key, vec![requirement]);
    let mut regrouped = (*user("jane")).clone();
    regrouped.groups.push("new".to_owned());
    stage.set_token(Ok(Some(Arc::new(regrouped))));
    pass(31).await;
    assert!(lease.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_own_question_is_refused_is_no_longer_believed() {
    let refusals = [
        (ReviewError::Unauthorized, Revocation::Unauthenticated, 1),
        (ReviewError::SelfReviewForbidden, Revocation::Denied, 0),
    ];
    for (error, reason, forgotten) in refusals {
        let stage = Stage::new();
        let decision = stage.rechecks.decisions.decide(&own_question()).await;
        assert!(decision.unwrap().verdict.is_allowed);
        let (lease, _hold) = stage.held(own_question());
        stage.script.then_always(Err(error));
        pass(31).await;
        assert!(lease.is_revoked());
        assert_eq!(stage.revocations(reason), 1);
        assert_eq!(stage.tokens.forgotten.load(Ordering::SeqCst), forgotten);
        let decision = stage.rechecks.decisions.decide(&own_question()).await;
        assert!(decision.is_err(), "the decision is still cached");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_may_no_longer_review_itself_has_no_cached_decision() {
    let stage = Stage::new();
    let other = AccessQuestion {
        key: QuestionKey {
            access: Arc::new(pods("b")),
            ..own_question().key
        },
        ..own_question()
    };
    let decision = stage.rechecks.decisions.decide(&other).await.unwrap();
    assert!(decision.verdict.is_allowed);
    let (lease, _hold) = stage.held(own_question());
    stage
        .script
        .then_always(Err(ReviewError::SelfReviewForbidden));
    lease.revoked().await;
    let refused = stage.rechecks.decisions.decide(&other).await.unwrap_err();
    assert_eq!(refused, ReviewError::SelfReviewForbidden);
}

#[tokio::test(start_paused = true)]
async fn failures_of_the_gateways_own_reviews_revoke_only_after_the_grace_period() {
    for error in [
        ReviewError::Unauthorized,
        ReviewError::Forbidden {
            message: String::new(),
        },
        ReviewError::Malformed {
            reason: String::new(),
        },
    ] {
        let stage = Stage::new();
        let (lease, _hold) = stage.held(question("jane", pods("a")));
        stage.script.then_always(Err(error));
        pass(200).await;
        assert!(!lease.is_revoked());
        pass(200).await;
        assert!(lease.is_revoked());
    }
}

#[tokio::test(start_paused = true)]
async fn checks_in_flight_are_bounded() {
    let stage = Stage::new();
    stage.script.close();
    let held: Vec<_> = (0..200)
        .map(|n| stage.held(question(&format!("user-{}", n % 50), pods(&n.to_string()))))
        .collect();
    pass(40).await;
    // All users are at one address, so a permit stays free for other addresses.
    let in_flight = IN_FLIGHT_MAX - 1;
    assert_eq!(stage.script.asked_count(), in_flight);
    stage.script.open();
    pass(1).await;
    assert_eq!(stage.script.asked_count(), held.len() - in_flight);
    assert_eq!(stage.script.in_flight_max(), in_flight);
}

/// Leases of one user, each for another namespace.
fn hold_many(stage: &Stage, name: &str, count: usize) -> Vec<(Lease, LeaseHold)> {
    let questions = (0..count).map(|number| question(name, pods(&number.to_string())));
    questions.map(|question| stage.held(question)).collect()
}

#[tokio::test(start_paused = true)]
async fn checks_of_one_user_that_hang_keep_no_other_user_from_being_checked() {
    let stage = Stage::new();
    stage.script.close();
    let _greedy = hold_many(&stage, "greedy", 1_000);
    // Jane's check is due later than all of the above.
    pass(15).await;
    let _jane = stage.held(question("jane", pods("a")));
    // Due at the latest 45 s after the start; the first checks that hang are given up later.
    pass(32).await;
    let asked = stage.script.asked();
    assert_eq!(asked.len(), IN_FLIGHT_MAX * 4 / 5 + 1 + 1);
    assert!(asked.iter().any(|(key, _)| key.user.name == "jane"));
}

#[tokio::test(start_paused = true)]
async fn users_take_turns_however_much_each_has_to_be_checked() {
    let stage = Stage::new();
    stage.script.close();
    let _many: Vec<_> = (0..40)
        .flat_map(|number| hold_many(&stage, &format!("user-{number}"), 50))
        .collect();
    pass(15).await;
    let _jane = stage.held(question("jane", pods("a")));
    pass(30).await;
    stage.script.open();
    pass(1).await;
    let mut asked = stage.script.asked().into_iter();
    let position = asked.position(|(key, _)| key.user.name == "jane");
    let position = position.expect("the question of jane was asked");
    assert!(
        position <= IN_FLIGHT_MAX + 40,
        "{position} questions came first"
    );
}

#[tokio::test(start_paused = true)]
async fn of_one_user_the_longest_unconfirmed_is_checked_first() {
    let stage = Stage::new();
    stage.script.close();
    let mut held = Vec::new();
    for number in 0..100 {
        held.push(stage.held(question("jane", pods(&number.to_string()))));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stage.rechecks.roles_changed(RoleScope::Cluster);
    pass(5).await;
    stage.script.open();
    pass(1).await;
    let asked = stage.script.asked().into_iter().map(|(key, _)| key.access);
    let expected = (0..100).map(|number: usize| Arc::new(pods(&number.to_string())));
    assert!(asked.eq(expected));
}

#[tokio::test(start_paused = true)]
async fn checks_that_find_no_room_in_the_line_are_made_all_the_same() {
    let stage = Stage::new();
    stage.script.close();
    let held = hold_many(&stage, "jane", WAITING_MAX + 100);
    pass(40).await;
    stage.script.open();
    stage.script.then_always(denied());
    pass(5).await;
    assert!(held.iter().all(|(lease, _)| lease.is_revoked()));
}

#[tokio::test(start_paused = true)]
async fn checks_go_on_when_their_task_was_begun_anew() {
    let mut stage = Stage::new();
    let (lease, _hold) = stage.held(question("jane", pods("a")));
    stage.script.close();
    pass(31).await;
    assert_eq!(stage.script.asked_count(), 1);
    stage.running.shutdown().await;
    stage.script.open();
    stage.script.then_always(denied());
    let runner = Arc::clone(&stage.rechecks);
    stage.running.spawn(async move { runner.run().await });
    pass(31).await;
    assert!(lease.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_no_longer_counts_ends_the_streams_that_stand_on_it() {
    let stage = Stage::new();
    let hasher = CredentialHasher::new(&[7; 32]);
    let chain: CertificateChain = Arc::new([CertificateDer::from(vec![1])]);
    let digests = ["client", "front proxy"].map(|one| hasher.certificates(one, &chain));
    assert_ne!(digests[0], digests[1]);
    let [(of_certificate, _one), (of_token, _other)] = [Some(digests[0]), None].map(|digest| {
        let question = question("jane", pods("a"));
        let key = LeaseKey {
            credential: digest,
            impersonator: None,
            question: question.key.clone(),
        };
        let certificate = digest.map(|digest| Requirement::Certificate {
            credential: Credential::Certificate(Arc::clone(&chain)),
            digest,
            payer: payer("jane"),
        });
        let access = Requirement::Access(question);
        stage.lease(key, certificate.into_iter().chain([access]).collect())
    });
    pass(300).await;
    assert!(!of_certificate.is_revoked());
    stage.set_token(Ok(None));
    pass(30).await;
    assert!(of_certificate.is_revoked() && !of_token.is_revoked());
    assert_eq!(stage.revocations(Revocation::Unauthenticated), 1);
}
