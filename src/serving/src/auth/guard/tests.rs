//! The guard in each mode, with scripted reviews.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use http::HeaderValue;

use super::super::access::ResourceAccess;
use super::super::authenticator::AuthenticatorSettings;
use super::super::caller::BearerToken;
use super::super::decisions::tests::{Script, allowed, denied, down, pods};
use super::super::followed::AuthorizerState;
use super::super::tests::{ClientCa, client};
use super::super::token_cache::TokenCache;
use super::super::token_review::{TokenAuthenticator, TokenVerdict};
use super::super::upstream::ReviewPurpose;
use super::super::user::User;
use super::*;
use crate::metrics::Metrics;

/// A token authenticator that knows these users, by token.
#[derive(Default)]
struct Tokens(Mutex<HashMap<String, Arc<User>>>, AtomicUsize);

impl Tokens {
    fn know(&self, secret: &str, user: User) {
        let mut known = self.0.lock().unwrap();
        known.insert(secret.to_owned(), Arc::new(user));
    }

    fn reviews(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

impl TokenAuthenticator for Tokens {
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        _purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let user = self.0.lock().unwrap().get(token.secret()).cloned();
        Box::pin(std::future::ready(Ok(user)))
    }
}

struct Stage {
    guard: Guard,
    script: Arc<Script>,
    tokens: Arc<Tokens>,
    ca: ClientCa,
}

impl Stage {
    fn new(mode: AuthorizerMode) -> Self {
        Self::with(mode, false)
    }

    fn with(mode: AuthorizerMode, anonymous: bool) -> Self {
        let metrics = Metrics::new().unwrap();
        let tokens = Arc::new(Tokens::default());
        for name in ["jane", "joe"] {
            let user = User {
                name: name.to_owned(),
                groups: vec!["system:authenticated".to_owned()],
                ..User::default()
            };
            let mut known = tokens.0.lock().unwrap();
            known.insert(format!("{name}s-token"), Arc::new(user));
        }
        let clock: super::super::token_cache::WallClock = Arc::new(SystemTime::now);
        let cache = TokenCache::new(
            Arc::clone(&tokens) as _,
            Arc::clone(&clock),
            metrics.authentication(),
        );
        let ca = ClientCa::new("ca");
        let settings = AuthenticatorSettings {
            anonymous,
            client_ca: Some(ca.authorities()),
            front_proxy: None,
        };
        let authenticator =
            Authenticator::new(settings, cache.unwrap(), clock, metrics.authentication());
        let script = Script::always(allowed());
        let settings = GuardSettings {
            mode,
            allow_ttl: Duration::from_secs(300),
            deny_ttl: Duration::from_secs(30),
            reauthorize_interval: Duration::from_secs(25),
            review_budget: ReviewBudget::Unlimited,
            reauthorize_grace: Duration::from_secs(300),
        };
        let guard = Guard::new(
            settings,
            Arc::new(authenticator),
            Deciders {
                authorizer: Arc::clone(&script) as _,
                policy: Arc::default(),
            },
            CredentialHasher::new(&[7; 32]),
            metrics.authorization(),
        );
        Self {
            guard,
            script,
            tokens,
            ca,
        }
    }

    async fn authenticate(
        &self,
        headers: &[(&'static str, &str)],
    ) -> Result<Caller, CallerRefusal> {
        let headers = map(headers);
        let peer = PeerIdentity::default();
        let caller = self
            .guard
            .authenticate(&headers, &peer, Continuity::New)
            .await;
        caller.map_err(|denial| denial.refusal)
    }

    async fn ask(
        &self,
        headers: &[(&'static str, &str)],
        access: &Access,
    ) -> Result<Lease, CallerRefusal> {
        let caller = self.authenticate(headers).await?;
        let authorization = self
            .guard
            .authorize(&caller, access, Continuity::New)
            .await?;
        Ok(authorization.lease)
    }

    fn run(&self) -> tokio::task::JoinHandle<()> {
        let guard = self.guard.clone();
        tokio::spawn(async move { guard.run().await })
    }
}

fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

const JANE: (&str, &str) = ("authorization", "Bearer janes-token");
const JOE: (&str, &str) = ("authorization", "Bearer joes-token");
const AS_JOE: (&str, &str) = ("impersonate-user", "joe");
const AS_GROUP: (&str, &str) = ("impersonate-group", "dev");

const ALL: [AuthorizerMode; 3] = [
    AuthorizerMode::SelfCheck,
    AuthorizerMode::Review,
    AuthorizerMode::Rbac,
];

#[tokio::test(start_paused = true)]
async fn without_valid_credentials_nothing_is_reviewed() {
    for mode in ALL {
        let stage = Stage::new(mode);
        for headers in [&[][..], &[("authorization", "Bearer unknown")]] {
            let refusal = stage.ask(headers, &pods("a")).await.unwrap_err();
            assert_eq!(refusal, CallerRefusal::Unauthorized);
        }
        assert_eq!(stage.script.asked_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
async fn a_denial_has_user_access_and_reason() {
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Review] {
        let stage = Stage::new(mode);
        stage.script.then_always(denied());
        match stage.ask(&[JANE], &pods("a")).await.unwrap_err() {
            CallerRefusal::Forbidden {
                user,
                access,
                reason,
            } => {
                assert_eq!((&*user.name, &*access), ("jane", &pods("a")));
                assert_eq!(reason, "no");
            }
            other => panic!("{other:?}"),
        }
    }
    // Another authorizer of upstream may allow what no role allows.
    let stage = Stage::new(AuthorizerMode::Rbac);
    stage.script.then_always(denied());
    let refusal = stage.ask(&[JANE], &pods("a")).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Forward);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
async fn without_an_answer_nothing_is_allowed() {
    let errors = [
        down(),
        Err(ReviewError::Malformed {
            reason: "secret address".to_owned(),
        }),
    ];
    for mode in ALL {
        for error in &errors {
            let stage = Stage::new(mode);
            stage.script.then_always(error.clone());
            match stage.ask(&[JANE], &pods("a")).await.unwrap_err() {
                CallerRefusal::Undecided { message } => assert!(!message.contains("secret")),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_may_not_review_themselves_are_forwarded() {
    let stage = Stage::new(AuthorizerMode::SelfCheck);
    stage
        .script
        .then_always(Err(ReviewError::SelfReviewForbidden));
    let refusal = stage.ask(&[JANE], &pods("a")).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Forward);
    // In this mode it is the gateway that may not ask, which is a failure that another attempt does not mend.
    let stage = Stage::new(AuthorizerMode::Review);
    stage.script.then_always(Err(ReviewError::Forbidden {
        message: String::new(),
    }));
    let refusal = stage.ask(&[JANE], &pods("a")).await.unwrap_err();
    assert!(
        matches!(refusal, CallerRefusal::Failed { .. }),
        "{refusal:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_that_upstream_refuses_is_forgotten() {
    let stage = Stage::new(AuthorizerMode::SelfCheck);
    assert!(stage.authenticate(&[JANE]).await.is_ok());
    stage.script.then_always(Err(ReviewError::Unauthorized));
    let refusal = stage.ask(&[JANE], &pods("a")).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Unauthorized);
    let refusal = stage.authenticate(&[JANE]).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Unauthorized);
}

#[tokio::test(start_paused = true)]
async fn anonymous_callers_are_asked_about_by_the_gateway_only() {
    let stage = Stage::with(AuthorizerMode::SelfCheck, true);
    let refusal = stage.ask(&[], &pods("a")).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Forward);
    assert_eq!(stage.script.asked_count(), 0);
    let stage = Stage::with(AuthorizerMode::Review, true);
    stage.script.then_always(denied());
    let refusal = stage.ask(&[], &pods("a")).await.unwrap_err();
    assert!(
        matches!(refusal, CallerRefusal::Forbidden { .. }),
        "{refusal:?}"
    );
    let (key, _) = stage.script.asked().remove(0);
    assert_eq!(key.user.name, "system:anonymous");
}

/// OpenShift's self-reviews answer some scoped tokens as if they had every scope, and roles know nothing of scopes.
#[tokio::test(start_paused = true)]
async fn only_upstream_decides_what_a_scoped_token_may_do() {
    let rows = [
        (&["user:check-access", "user:info"][..], true),
        (&["user:full", "user:info"], true),
        (&["user:full"], false),
    ];
    for (scopes, is_limited) in rows {
        let jane = User {
            name: "jane".to_owned(),
            extra: [(
                "scopes.authorization.openshift.io".to_owned(),
                scopes.iter().map(|&scope| scope.to_owned()).collect(),
            )]
            .into(),
            ..User::default()
        };
        for mode in ALL {
            let stage = Stage::new(mode);
            {
                let mut known = stage.tokens.0.lock().unwrap();
                known.insert("janes-token".to_owned(), Arc::new(jane.clone()));
            }
            for headers in [&[JANE][..], &[JANE, AS_JOE]] {
                let answer = stage.ask(headers, &pods("a")).await;
                if is_limited && mode != AuthorizerMode::Review {
                    assert_eq!(answer.unwrap_err(), CallerRefusal::Forward, "{mode:?}");
                    assert_eq!(stage.script.asked_count(), 0);
                } else {
                    answer.unwrap();
                }
            }
        }
    }
}

/// A self-review with these impersonation headers would ignore the scopes, too.
#[tokio::test(start_paused = true)]
async fn only_upstream_decides_what_a_user_impersonated_with_scopes_may_do() {
    const SCOPE: (&str, &str) = (
        "impersonate-extra-scopes.authorization.openshift.io",
        "user:check-access",
    );
    for mode in [AuthorizerMode::SelfCheck, AuthorizerMode::Rbac] {
        let stage = Stage::new(mode);
        let refusal = stage.ask(&[JANE, AS_JOE, SCOPE], &pods("a")).await;
        assert_eq!(refusal.unwrap_err(), CallerRefusal::Forward, "{mode:?}");
    }
}

fn impersonate(resource: &str, name: &str) -> Access {
    Access::Resource(ResourceAccess {
        verb: "impersonate".to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..ResourceAccess::default()
    })
}

#[tokio::test(start_paused = true)]
async fn each_part_of_an_impersonation_is_asked_for_the_impersonator() {
    let stage = Stage::new(AuthorizerMode::Review);
    let caller = stage.authenticate(&[JANE, AS_JOE, AS_GROUP]).await.unwrap();
    assert_eq!(caller.user.name, "joe");
    assert_eq!(caller.impersonator.as_ref().unwrap().name, "jane");
    let asked = stage.script.asked();
    assert!(asked.iter().all(|(key, _)| key.user.name == "jane"));
    let asked: Vec<_> = asked.into_iter().map(|(key, _)| key.access).collect();
    assert_eq!(
        asked,
        [impersonate("users", "joe"), impersonate("groups", "dev")].map(Arc::new)
    );
    stage
        .guard
        .authorize(&caller, &pods("a"), Continuity::New)
        .await
        .unwrap();
    let asked = stage.script.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0.user.name, "joe");
    assert!(asked[0].0.user.is_in("dev"));
}

/// Upstream may allow it by constrained impersonation, which it can check only if it sees the caller's own credential.
#[tokio::test(start_paused = true)]
async fn a_denied_impersonation_is_upstreams_to_answer_if_it_sees_the_caller() {
    let stage = Stage::new(AuthorizerMode::Review);
    let caller = stage.authenticate(&[JANE]).await.unwrap();
    for credential in [
        caller.credential.clone(),
        Credential::Certificate(Arc::default()),
    ] {
        stage.script.next(allowed());
        stage.script.next(denied());
        stage.guard.roles_changed(RoleScope::Cluster);
        let caller = Caller {
            credential: credential.clone(),
            ..caller.clone()
        };
        let headers = map(&[JANE, AS_JOE, AS_GROUP]);
        let refusal = stage.guard.resolve_impersonation(caller, &headers).await;
        assert_eq!(stage.script.asked_count(), 2);
        match (credential, refusal.unwrap_err().refusal) {
            (Credential::Token(_), CallerRefusal::Forward) => {}
            (Credential::Certificate(_), CallerRefusal::Forbidden { user, access, .. }) => {
                assert_eq!(user.name, "jane");
                assert_eq!(*access, impersonate("groups", "dev"));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
#[expect(clippy::wildcard_enum_match_arm, reason = "anything else is a failure")]
async fn upstream_resolves_impersonation_of_callers_who_ask_themselves() {
    const A: (&str, &str) = ("impersonate-unknown", "a");
    const AB: (&str, &str) = ("impersonate-unknown", "aimpersonate-unknownb");
    let stage = Stage::new(AuthorizerMode::SelfCheck);
    let caller = stage.authenticate(&[JANE, AS_JOE, AS_GROUP]).await.unwrap();
    assert_eq!(caller.user.name, "joe");
    assert_eq!(stage.script.asked_count(), 0);
    let question = stage.guard.question(&caller, pods("a")).unwrap();
    let jane = stage.authenticate(&[JANE]).await.unwrap();
    assert_eq!(question.payer, jane.peer);
    match &question.identity {
        QuestionIdentity::Caller {
            token,
            owner,
            impersonation,
            ..
        } => {
            assert_eq!(token.secret(), "janes-token");
            assert_eq!(owner.name, "jane");
            assert_eq!(**impersonation, map(&[AS_JOE, AS_GROUP]));
        }
        other => panic!("{other:?}"),
    }
    // Questions are equal only if the token and all impersonation headers are.
    let keys = [
        &[JANE, AS_JOE, AS_GROUP][..],
        &[JANE, AS_JOE],
        &[JOE],
        &[JOE, AS_JOE],
        &[JANE, AS_JOE, AS_GROUP, ("impersonate-unknown", "x")],
        &[JANE, AS_JOE, AS_GROUP, A],
        &[JANE, AS_JOE, AS_GROUP, A, ("impersonate-unknown", "b")],
        &[JANE, AS_JOE, AS_GROUP, AB],
    ];
    for (number, headers) in keys.into_iter().enumerate() {
        stage.ask(headers, &pods("a")).await.unwrap();
        assert_eq!(stage.script.asked_count(), 1, "row {number}");
        stage.ask(headers, &pods("a")).await.unwrap();
        assert_eq!(stage.script.asked_count(), 0, "row {number}");
    }
    // Requests with invalid impersonation headers are forwarded.
    let refusal = stage.authenticate(&[JANE, AS_GROUP]).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Forward);
}

#[tokio::test(start_paused = true)]
async fn forwarded_requests_are_not_reviewed() {
    for mode in ALL {
        let stage = Stage::new(mode);
        let rows = [
            &[][..],
            &[JANE],
            &[JANE, AS_JOE],
            &[("authorization", "Bearer unknown")],
        ];
        for headers in rows {
            let headers = map(headers);
            let peer = PeerIdentity::default();
            let forwarding = stage.guard.forwarding(&headers, &peer).await.unwrap();
            assert!(matches!(forwarding, Forwarding::AsCaller));
        }
        assert_eq!(stage.script.asked_count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_neither_roles_nor_upstream_allow_is_forwarded() {
    let stage = Stage::new(AuthorizerMode::Rbac);
    stage.ask(&[JANE], &pods("a")).await.unwrap();
    stage.script.then_always(denied());
    let refusal = stage.ask(&[JANE], &pods("b")).await.unwrap_err();
    assert_eq!(refusal, CallerRefusal::Forward);
}

mod property;
mod streams;
