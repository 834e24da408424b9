//! Which credential of a request authenticates the caller.

use std::pin::Pin;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rustls_pki_types::CertificateDer;

use super::*;
use crate::auth::tests::{ClientCa, authority, client, day};
use crate::auth::token_review::{TokenAuthenticator, TokenVerdict};
use crate::auth::upstream::{ReviewError, ReviewPurpose};
use crate::metrics::Metrics;

/// A token authenticator. It accepts `good` and an expired JWT. Reviews of `unclear` fail, `shy` may not review itself, and reviews of
/// tokens that begin with `endless` never end. All other tokens are invalid.
struct OneToken;

impl TokenAuthenticator for OneToken {
    fn authenticate<'a>(
        &'a self,
        token: &'a BearerToken,
        _purpose: ReviewPurpose,
    ) -> Pin<Box<dyn Future<Output = TokenVerdict> + Send + 'a>> {
        let user = User {
            name: "by-token".to_owned(),
            ..User::default()
        };
        if token.secret().starts_with("endless") {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(match token.secret() {
            "good" | "h.eyJleHAiOjV9.s" => Ok(Some(Arc::new(user.authenticated()))),
            "unclear" => Err(ReviewError::Unauthorized),
            "shy" => Err(ReviewError::SelfReviewForbidden),
            _ => Ok(None),
        }))
    }
}

struct Stage {
    client_ca: ClientCa,
    proxy_ca: ClientCa,
    authenticator: Authenticator,
    metrics: AuthenticationMetrics,
}

fn stage(anonymous: bool, allowed_names: &[&str]) -> Stage {
    let client_ca = ClientCa::new("clients");
    let authorities = Some(client_ca.authorities());
    stage_with(client_ca, authorities, anonymous, allowed_names)
}

fn stage_with(
    client_ca: ClientCa,
    authorities: Option<ClientAuthorities>,
    anonymous: bool,
    allowed_names: &[&str],
) -> Stage {
    let proxy_ca = ClientCa::new("proxies");
    let front_proxy = FrontProxySettings {
        client_ca: "proxies.pem".into(),
        allowed_names: allowed_names.iter().map(|&name| name.to_owned()).collect(),
        username_headers: vec![HeaderName::from_static("x-remote-user")],
        uid_headers: Vec::new(),
        group_headers: vec![HeaderName::from_static("x-remote-group")],
        extra_header_prefixes: vec!["x-remote-extra-".to_owned()],
    };
    let metrics = Metrics::new().unwrap().authentication();
    let clock: WallClock = Arc::new(|| day(2026, 11, 22));
    let one_token = Arc::new(OneToken);
    let tokens = TokenCache::new(one_token, Arc::clone(&clock), metrics.clone());
    let settings = AuthenticatorSettings {
        anonymous,
        client_ca: authorities,
        front_proxy: Some((front_proxy, proxy_ca.authorities())),
    };
    Stage {
        authenticator: Authenticator::new(settings, tokens.unwrap(), clock, metrics.clone()),
        client_ca,
        proxy_ca,
        metrics,
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

fn peer(certificates: Vec<CertificateDer<'static>>) -> PeerIdentity {
    PeerIdentity {
        certificates: certificates.into(),
        ..PeerIdentity::default()
    }
}

const ALICE: (&str, &str) = ("x-remote-user", "alice");
const GOOD: (&str, &str) = ("authorization", "Bearer good");
const BAD: (&str, &str) = ("authorization", "Bearer bad");

impl Stage {
    /// Name and credential of the caller, or the refusal.
    async fn caller_of(
        &self,
        pairs: &[(&'static str, &'static str)],
        peer: &PeerIdentity,
    ) -> String {
        match self
            .authenticator
            .authenticate(&headers(pairs), peer, Continuity::New)
            .await
        {
            Ok(caller) => format!("{} {:?}", caller.user.name, caller.credential),
            Err(refusal) => format!("{refusal:?}"),
        }
    }

    /// The caller as whom the gateway forwards the same request, `as the caller` if it does not impersonate, or the refusal.
    async fn local(&self, pairs: &[(&'static str, &'static str)], peer: &PeerIdentity) -> String {
        let headers = headers(pairs);
        match self
            .authenticator
            .authenticate_locally(&headers, peer)
            .await
        {
            Ok(Some(caller)) => format!("{} {:?}", caller.user.name, caller.credential),
            Ok(None) => "as the caller".to_owned(),
            Err(refusal) => format!("{refusal:?}"),
        }
    }
}

#[tokio::test]
#[expect(clippy::type_complexity, reason = "a table of rows")]
async fn the_first_credential_that_counts_says_who_is_calling() {
    let stage = stage(true, &["proxy"]);
    let nobody = peer(Vec::new());
    let bob = peer(vec![stage.client_ca.sign(&client("bob", &[]))]);
    let proxy = peer(vec![stage.proxy_ca.sign(&client("proxy", &[]))]);
    let other = peer(vec![stage.proxy_ca.sign(&client("other", &[]))]);
    let longer = peer(vec![stage.proxy_ca.sign(&client("proxy-2", &[]))]);
    let stranger = peer(vec![ClientCa::new("clients").sign(&client("bob", &[]))]);
    let refused = "Unauthorized";
    let rows: [(&[(&str, &str)], &PeerIdentity, &str, &str); 20] = [
        (&[], &nobody, "system:anonymous Anonymous", "as the caller"),
        (
            &[ALICE],
            &nobody,
            "system:anonymous Anonymous",
            "as the caller",
        ),
        (&[GOOD], &nobody, "by-token Token", "as the caller"),
        (&[BAD], &nobody, refused, "as the caller"),
        (
            &[("authorization", "Bearer unclear")],
            &nobody,
            "Unverified",
            "as the caller",
        ),
        (
            &[("authorization", "Basic x")],
            &nobody,
            "system:anonymous Anonymous",
            "as the caller",
        ),
        (&[], &bob, "bob Certificate", "bob Certificate"),
        (&[GOOD], &bob, "bob Certificate", "bob Certificate"),
        (&[BAD], &bob, "bob Certificate", "bob Certificate"),
        (&[ALICE], &bob, "bob Certificate", "bob Certificate"),
        (&[ALICE], &proxy, "alice FrontProxy", "alice FrontProxy"),
        (
            &[ALICE, GOOD],
            &proxy,
            "alice FrontProxy",
            "alice FrontProxy",
        ),
        (&[("x_remote_user", "alice")], &proxy, refused, refused),
        (
            &[("x-remote-user", ""), GOOD],
            &proxy,
            "by-token Token",
            "as the caller",
        ),
        (&[ALICE], &other, refused, refused),
        (&[ALICE], &longer, refused, refused),
        (&[], &stranger, refused, refused),
        (&[ALICE], &stranger, refused, refused),
        (&[GOOD], &stranger, "by-token Token", "as the caller"),
        (&[("authorization", "Basic x")], &stranger, refused, refused),
    ];
    for (pairs, peer, expected, forwarded) in rows {
        assert_eq!(stage.caller_of(pairs, peer).await, expected, "{pairs:?}");
        assert_eq!(stage.local(pairs, peer).await, forwarded, "{pairs:?}");
    }
}

#[tokio::test]
async fn a_certificate_without_a_name_does_not_authenticate() {
    let mut stage = stage(true, &[]);
    // Like the API server, the gateway requires a common name of a front proxy only if allowed names are configured.
    let proxy = peer(vec![stage.proxy_ca.sign(&client("", &[]))]);
    assert_eq!(stage.caller_of(&[ALICE], &proxy).await, "alice FrontProxy");
    stage.authenticator.front_proxy = None;
    let nameless = peer(vec![stage.client_ca.sign(&client("", &["devs"]))]);
    let nobody = peer(Vec::new());
    for pairs in [&[][..], &[ALICE], &[GOOD], &[BAD]] {
        let caller = stage.caller_of(pairs, &nameless).await;
        assert_eq!(caller, stage.caller_of(pairs, &nobody).await, "{pairs:?}");
        assert_eq!(stage.local(pairs, &nameless).await, "as the caller");
    }
}

#[tokio::test]
async fn anonymous_callers_need_to_be_enabled() {
    let stage = stage(false, &[]);
    let nobody = peer(Vec::new());
    for pairs in [&[][..], &[ALICE], &[("authorization", "Bearer ")]] {
        assert_eq!(
            stage.caller_of(pairs, &nobody).await,
            "Unauthorized",
            "{pairs:?}"
        );
    }
    let failures = stage
        .metrics
        .anonymous
        .count(AuthenticationOutcome::Failure);
    assert_eq!(failures, 3);
    // Without allowed names, every certificate of the proxies' authority is a front proxy's.
    let other = peer(vec![stage.proxy_ca.sign(&client("other", &[]))]);
    assert_eq!(stage.caller_of(&[ALICE], &other).await, "alice FrontProxy");
}

#[tokio::test]
async fn certificates_of_clients_are_no_proxys_that_fails() {
    let stage = stage(true, &["proxy"]);
    let failures = || {
        let outcomes = &stage.metrics.front_proxy;
        outcomes.count(AuthenticationOutcome::Failure)
    };
    let bob = peer(vec![stage.client_ca.sign(&client("bob", &[]))]);
    assert_eq!(stage.caller_of(&[], &bob).await, "bob Certificate");
    assert_eq!(failures(), 0);
    let other = peer(vec![stage.proxy_ca.sign(&client("other", &[]))]);
    assert_eq!(stage.caller_of(&[ALICE], &other).await, "Unauthorized");
    assert_eq!(failures(), 1);
}

#[tokio::test]
async fn where_only_proxies_have_certificates_no_other_is_anonymous() {
    let stage = stage_with(ClientCa::new("clients"), None, true, &["proxy"]);
    let stranger = peer(vec![stage.client_ca.sign(&client("bob", &[]))]);
    let other = peer(vec![stage.proxy_ca.sign(&client("other", &[]))]);
    for peer in [stranger, other] {
        assert_eq!(stage.caller_of(&[], &peer).await, "Unauthorized");
        assert_eq!(stage.caller_of(&[GOOD], &peer).await, "by-token Token");
    }
    let proxy = peer(vec![stage.proxy_ca.sign(&client("proxy", &[]))]);
    assert_eq!(stage.caller_of(&[ALICE], &proxy).await, "alice FrontProxy");
}

#[tokio::test]
async fn a_websocket_token_counts_after_the_header() {
    let stage = stage(true, &[]);
    let nobody = peer(Vec::new());
    let with = |token: &'static str, more: Option<(&'static str, &'static str)>| {
        let upgrade = [("upgrade", "websocket"), ("connection", "upgrade")];
        let mut pairs = upgrade.to_vec();
        pairs.push(("sec-websocket-protocol", token));
        pairs.extend(more);
        pairs
    };
    // "good" and "bad" in base64.
    let good = "v1, base64url.bearer.authorization.k8s.io.Z29vZA";
    let bad = "v1, base64url.bearer.authorization.k8s.io.YmFk";
    let twice = "v1, base64url.bearer.authorization.k8s.io.YmFk, base64url.bearer.authorization.k8s.io.YmFk";
    for (pairs, expected) in [
        (with(good, None), "by-token Token"),
        (with(good, Some(BAD)), "by-token Token"),
        (with(bad, Some(GOOD)), "by-token Token"),
        (with(bad, None), "Unauthorized"),
        (with(twice, None), "Unauthorized"),
        (with("v1", None), "system:anonymous Anonymous"),
    ] {
        assert_eq!(
            stage.caller_of(&pairs, &nobody).await,
            expected,
            "{pairs:?}"
        );
    }
}

#[tokio::test]
async fn new_authorities_count_at_once_and_old_ones_no_longer() {
    let stage = stage(true, &[]);
    let (new_clients, new_proxies) = (ClientCa::new("clients"), ClientCa::new("proxies"));
    let old = peer(vec![stage.client_ca.sign(&client("bob", &[]))]);
    let new = peer(vec![new_clients.sign(&client("carol", &[]))]);
    let old_proxy = peer(vec![stage.proxy_ca.sign(&client("proxy", &[]))]);
    let new_proxy = peer(vec![new_proxies.sign(&client("proxy", &[]))]);
    assert_eq!(stage.caller_of(&[], &old).await, "bob Certificate");
    assert_eq!(stage.caller_of(&[], &new).await, "Unauthorized");
    assert_eq!(
        stage.caller_of(&[ALICE], &old_proxy).await,
        "alice FrontProxy"
    );
    // Whether the chain is trusted as a client's, and as a front proxy's.
    let trusted = async |peer: &PeerIdentity| {
        let chain = || Arc::clone(&peer.certificates);
        let credentials = [
            Credential::Certificate(chain()),
            Credential::FrontProxy(chain()),
        ];
        let [client, proxy] = &credentials;
        let authenticator = &stage.authenticator;
        let trusted = async |credential| {
            let trusted = authenticator.is_certificate_trusted(credential, Peer::UNKNOWN);
            trusted.await.unwrap()
        };
        (trusted(client).await, trusted(proxy).await)
    };
    assert_eq!(trusted(&old).await, (true, false));
    assert_eq!(trusted(&old_proxy).await, (false, true));
    let file = std::env::temp_dir().join(format!("kube-fanout-ca-{}.pem", std::process::id()));
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(stage.authenticator.reload_client_ca(&file).is_err());
    assert!(stage.authenticator.reload_front_proxy_ca(&file).is_err());
    assert_eq!(stage.caller_of(&[], &old).await, "bob Certificate");
    std::fs::write(&file, new_clients.pem()).unwrap();
    stage.authenticator.reload_client_ca(&file).unwrap();
    std::fs::write(&file, new_proxies.pem()).unwrap();
    stage.authenticator.reload_front_proxy_ca(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(stage.caller_of(&[], &old).await, "Unauthorized");
    assert_eq!(stage.caller_of(&[], &new).await, "carol Certificate");
    assert_eq!(stage.caller_of(&[ALICE], &old_proxy).await, "Unauthorized");
    assert_eq!(
        stage.caller_of(&[ALICE], &new_proxy).await,
        "alice FrontProxy"
    );
    assert_eq!(trusted(&old).await, (false, false));
    assert_eq!(trusted(&old_proxy).await, (false, false));
    assert_eq!(trusted(&new).await, (true, false));
    assert_eq!(trusted(&new_proxy).await, (false, true));
}

#[tokio::test]
async fn a_verdict_is_verified_again_when_it_may_have_expired() {
    let ca = ClientCa::new("clients");
    let verifier = CertificateVerifier::new(Some(ca.authorities()));
    let bob = peer(vec![ca.sign(&client("bob", &[]))]);
    for (time, expected) in [
        (day(2019, 12, 31), false),
        (day(2020, 1, 1) - Duration::from_millis(1), false),
        (day(2020, 1, 1) + Duration::from_millis(999), true),
        (day(2040, 1, 1), true),
        (day(2040, 1, 2), false),
        (day(2040, 1, 1), true),
        (day(2019, 12, 31), false),
    ] {
        let verdict = verifier.verify(&bob.certificates, bob.peer, time);
        let verdict = verdict.await.unwrap();
        assert_eq!(verdict.is_ok(), expected, "{time:?}");
    }
}

#[tokio::test]
async fn a_chain_is_more_than_its_first_certificate() {
    let root = ClientCa::new("root");
    let between = root.intermediate(&authority("between"));
    let verifier = CertificateVerifier::new(Some(root.authorities()));
    let leaf = between.sign(&client("bob", &[]));
    let alone = peer(vec![leaf.clone()]);
    let whole = peer(vec![leaf, between.der()]);
    for (peer, expected) in [(&alone, false), (&whole, true), (&alone, false)] {
        let verdict = verifier.verify(&peer.certificates, peer.peer, day(2026, 11, 22));
        let verdict = verdict.await.unwrap();
        assert_eq!(verdict.is_ok(), expected);
    }
}

#[tokio::test]
async fn callers_carry_the_end_of_their_credential_and_no_secret_is_shown() {
    let stage = stage(true, &[]);
    let bob = peer(vec![stage.client_ca.sign(&client("bob", &["devs"]))]);
    let caller = stage
        .authenticator
        .authenticate(&headers(&[]), &bob, Continuity::New)
        .await
        .unwrap();
    assert_eq!(
        caller.expires_at,
        Some(day(2040, 1, 1) + Duration::from_secs(1))
    );
    assert!(caller.user.is_in("devs"));
    let nobody = peer(Vec::new());
    let caller = stage
        .authenticator
        .authenticate(&headers(&[GOOD]), &nobody, Continuity::New)
        .await;
    let shown = format!("{:?} {:?}", caller.unwrap(), stage.authenticator);
    assert!(!shown.contains("good"), "{shown}");
    // The payload is {"exp":5}.
    let ending = headers(&[("authorization", "Bearer h.eyJleHAiOjV9.s")]);
    let caller = stage
        .authenticator
        .authenticate(&ending, &nobody, Continuity::New);
    let five = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    assert_eq!(caller.await.unwrap().expires_at, Some(five));
    let success = AuthenticationOutcome::Success;
    assert_eq!(stage.metrics.certificate.count(success), 1);
    assert_eq!(stage.metrics.token.count(success), 2);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let settings = AuthSettings {
        client_ca: Some("/nonexistent/ca.pem".into()),
        ..AuthSettings::of_mode(crate::config::AuthMode::Review)
    };
    let text = AuthenticatorSettings::read(&settings)
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("cannot use /nonexistent/ca.pem: No such file"),
        "{text}"
    );
}

#[tokio::test]
async fn tokens_from_one_address_keep_no_review_from_those_of_another() {
    let stage = Arc::new(stage(false, &[]));
    let from = |number| PeerIdentity {
        peer: Peer::from(std::net::IpAddr::from([10, 0, 0, number])),
        ..PeerIdentity::default()
    };
    let mut flood = tokio::task::JoinSet::new();
    for number in 0..53_000 {
        let (stage, peer) = (Arc::clone(&stage), from(1));
        let value = HeaderValue::from_str(&format!("Bearer endless-{number}")).unwrap();
        let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
        flood.spawn(async move {
            stage
                .authenticator
                .authenticate(&headers, &peer, Continuity::New)
                .await
        });
    }
    // The address exceeds its share, so one of its requests is refused.
    let refused = flood.join_next().await.unwrap().unwrap();
    assert_eq!(refused.unwrap_err(), CallerRefusal::Busy);
    assert_eq!(stage.caller_of(&[GOOD], &from(2)).await, "by-token Token");
}

#[tokio::test]
async fn upstream_answers_whose_token_may_not_ask_about_itself() {
    let stage = stage(true, &[]);
    let shy = ("authorization", "Bearer shy");
    assert_eq!(stage.caller_of(&[shy], &peer(Vec::new())).await, "Forward");
    assert_eq!(
        stage.local(&[shy], &peer(Vec::new())).await,
        "as the caller"
    );
}
