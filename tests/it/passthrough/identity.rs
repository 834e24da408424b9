//! The identity of forwarded requests, which no header of the client can change.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube_fanout::fairness::Shortage;
use kube_fanout::metrics::PermitKind;
use kube_fanout::upstream::client::ForwardIdentity;

use crate::passthrough::ALL;
use crate::passthrough::front::{AS_JANE, Fixture, Http, empty};
use crate::passthrough::peer::PeerBody;
use crate::support::PATIENCE;

/// Headers with which clients try to become another user, or to have identity headers removed as hop-by-hop headers.
const TRICKS: [(&str, &str); 14] = [
    ("authorization", "Bearer caller"),
    ("authorization", "Bearer second"),
    ("impersonate-user", "root"),
    ("impersonate-group", "system:masters"),
    ("impersonate-extra-scopes", "all"),
    ("x-remote-user", "root"),
    ("x-remote-group", "system:masters"),
    ("x_remote_user", "root"),
    ("impersonate_user", "root"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x-forwarded-uri", "/healthz"),
    (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.YQ, v4",
    ),
    // HTTP/2 has no Connection header; hyper's client omits it there.
    (
        "connection",
        "close, impersonate-user, impersonate-group, authorization",
    ),
    (
        "connection",
        "X-Forwarded-For, Sec-WebSocket-Protocol, x-mine",
    ),
];

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text
        .lines()
        .skip(1)
        .filter(|line| !line.starts_with("host: "))
        .collect();
    lines.sort_unstable();
    lines
}

fn tricks(down: Http) -> Vec<(&'static str, &'static str)> {
    let may_send = |name: &str| down == Http::One || name != "connection";
    TRICKS
        .into_iter()
        .filter(|(name, _)| may_send(name))
        .collect()
}

#[tokio::test]
async fn a_callers_own_credentials_travel_untouched() {
    for (down, up) in ALL {
        let fixture = Fixture::with_own_token(down, up).await;
        let (_, text) = fixture.get("/any", &tricks(down)).await;
        let expected = [
            "authorization: Bearer caller",
            "authorization: Bearer second",
            "impersonate-extra-scopes: all",
            "impersonate-group: system:masters",
            "impersonate-user: root",
            "impersonate_user: root",
            "sec-websocket-protocol: base64url.bearer.authorization.k8s.io.YQ, v4",
            "x-forwarded-for: 192.0.2.1, 192.0.2.7",
            "x-forwarded-uri: /healthz",
            "x_remote_user: root",
        ];
        assert_eq!(lines(&text), expected, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn the_gateway_impersonates_callers_whose_credentials_cannot_travel_and_nobody_else() {
    for (down, up) in ALL {
        let fixture = Fixture::with_own_token(down, up).await;
        let (_, text) = fixture.get(&format!("/any?{AS_JANE}"), &tricks(down)).await;
        let expected = [
            "authorization: Bearer gateway",
            "impersonate-group: a",
            "impersonate-group: b",
            "impersonate-uid: 7",
            "impersonate-user: jane",
            "impersonate_user: root",
            "sec-websocket-protocol: v4",
            "x-forwarded-for: 192.0.2.1, 192.0.2.7",
            "x-forwarded-uri: /healthz",
            "x_remote_user: root",
        ];
        assert_eq!(lines(&text), expected, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn upgrades_travel_under_the_same_names() {
    for (query, expected) in [
        (
            "",
            "authorization: Bearer caller; impersonate-user: root; \
             sec-websocket-protocol: base64url.bearer.authorization.k8s.io.YQ, v4",
        ),
        (
            AS_JANE,
            "authorization: Bearer gateway; impersonate-group: a; impersonate-group: b; \
             impersonate-uid: 7; impersonate-user: jane; sec-websocket-protocol: v4",
        ),
    ] {
        for up in [Http::One, Http::Two] {
            let fixture = Fixture::with_own_token(Http::One, up).await;
            let request = Request::get(fixture.uri(&format!("/upgrade?{query}")))
                .header("connection", "Upgrade, Authorization, Impersonate-User")
                .header("upgrade", "websocket")
                .header("authorization", "Bearer caller")
                .header("impersonate-user", "root")
                .header("x-remote-user", "root")
                .header(
                    "sec-websocket-protocol",
                    "base64url.bearer.authorization.k8s.io.YQ, v4",
                )
                .body(empty())
                .unwrap();
            let response = fixture.send(request).await;
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
            assert_eq!(response.headers()["x-seen"], expected, "{up:?}");
        }
    }
}

/// Without authentication every request has the gateway's identity, and no client can get another one.
#[tokio::test]
async fn where_callers_are_not_told_apart_no_token_of_theirs_travels() {
    let fixture = Fixture::new(Http::One, Http::One, ForwardIdentity::Gateway).await;
    let sent = [
        ("authorization", "Bearer caller"),
        ("x-remote-user", "root"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.YQ",
        ),
    ];
    let (_, text) = fixture.get("/any", &sent).await;
    assert_eq!(lines(&text), ["x-forwarded-for: 192.0.2.7"]);
    let listed = [
        ("impersonate-user", "root"),
        ("connection", "impersonate-user"),
    ];
    let (response, _) = fixture.get("/any", &listed).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

/// The gateway returns redirects to the client and never follows them (CVE-2020-8559, CVE-2022-3172).
#[tokio::test]
async fn redirects_are_answers_and_nobody_follows_them() {
    for upgrade in [false, true] {
        let fixture = Fixture::with_own_token(Http::One, Http::One).await;
        let mut headers = vec![("authorization", "Bearer caller")];
        if upgrade {
            headers.extend([("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        }
        let (response, _) = fixture.get("/redirect", &headers).await;
        assert_eq!(response.status(), StatusCode::FOUND);
        assert_eq!(response.headers()["location"], "/upgrade");
        assert_eq!(fixture.metrics.requests.get(), 1);
        assert_eq!(fixture.metrics.upgrades.get(), 0);
        // The connection remains an ordinary HTTP connection: the next request is handled by its own headers.
        let (_, text) = fixture.get("/any", &[]).await;
        assert!(!text.contains("authorization"), "{text}");
    }
}

/// API servers close a connection after a request with invalid credentials, which ends the other requests on it. Therefore a new token
/// does not share a connection.
#[tokio::test]
async fn nobody_shares_a_connection_whose_token_upstream_has_not_taken() {
    let fixture = Fixture::with_own_token(Http::One, Http::Two).await;
    let version = async |target: &str, token: &str| {
        let header = format!("Bearer {token}");
        let mut headers = Vec::new();
        headers.extend((!token.is_empty()).then_some(("authorization", header.as_str())));
        let (_, text) = fixture.get(target, &headers).await;
        let first = text.lines().next().unwrap_or_default();
        first.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    for (target, token, expected) in [
        ("/any", "good", "HTTP/1.1"),
        ("/any", "good", "HTTP/2.0"),
        ("/any", "other", "HTTP/1.1"),
        ("/unauthorized", "bad", "{\"code\":401}"),
        // The API server answers 400 before it checks the token, so this proves nothing.
        ("/bad-request", "bad", ""),
        ("/any", "bad", "HTTP/1.1"),
        ("/unauthorized", "good", "{\"code\":401}"),
        ("/any", "good", "HTTP/1.1"),
        ("/any", "", "HTTP/1.1"),
        ("/any", "", "HTTP/1.1"),
        // The response to a long-running request proves its token, too.
        ("/any?watch", "watcher", "HTTP/1.1"),
        ("/any?watch", "watcher", "HTTP/2.0"),
        ("/any?long", "reader", "HTTP/1.1"),
        ("/any?long", "reader", "HTTP/2.0"),
        ("/unauthorized?watch", "reader", "{\"code\":401}"),
        ("/any?long", "reader", "HTTP/1.1"),
        ("/any?watch", "", "HTTP/1.1"),
        (&format!("/any?{AS_JANE}"), "", "HTTP/2.0"),
    ] {
        assert_eq!(version(target, token).await, expected, "{target} {token}");
    }
}

/// A watch that started on a separate connection stays there and uses a file descriptor, whose number is limited.
#[tokio::test]
async fn what_lasts_and_is_not_proven_has_places_for_as_many_files_as_there_are() {
    for target in ["/silent?watch", "/silent?long"] {
        let mut fixture = Fixture::with_files(2).await;
        let send = |token: String| {
            let request = Request::get(fixture.uri(target)).header("authorization", token);
            fixture.client.request(request.body(empty()).unwrap())
        };
        let status = async |token: &str| send(format!("Bearer {token}")).await.unwrap();
        let open = [status("a").await, status("b").await];
        assert!(
            open.iter()
                .all(|response| response.status() == StatusCode::OK)
        );
        assert_eq!(status("c").await.status(), StatusCode::TOO_MANY_REQUESTS);
        let shortage = (PermitKind::ForwardedWatches, Shortage::Total);
        assert_eq!(fixture.metrics.shortages.count(shortage.0, shortage.1), 1);
        // A token that upstream has accepted shares an HTTP/2 connection, and needs no descriptor of its own.
        assert_eq!(status("a").await.status(), StatusCode::OK, "{target}");
        drop(open);
        for _ in 0..3 {
            assert_eq!(fixture.peer.seen.recv().await, Some("silent dropped"));
        }
        let request = Request::get(fixture.uri(target)).body(empty()).unwrap();
        assert_eq!(fixture.send(request).await.status(), StatusCode::OK);
    }
}

/// A POST with this token and a body that never comes.
fn half_sent(fixture: &Fixture, target: &str, token: &str) -> http::request::Builder {
    Request::post(fixture.uri(target)).header("authorization", token)
}

fn endless_body() -> PeerBody {
    StreamBody::new(futures::stream::pending()).boxed_unsync()
}

/// Go's server reads up to 256 KiB of a request body before it sends a refusal, unless the connection ends with the response.
#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body() {
    for (down, up) in ALL {
        let fixture = Fixture::with_own_token(down, up).await;
        let (conflict, _) = fixture
            .get("/status", &[("authorization", "Bearer proven")])
            .await;
        assert_eq!(conflict.status(), StatusCode::CONFLICT);
        for token in ["Bearer proven", "Bearer 1", "Bearer 2", "Bearer 3"] {
            for target in ["/refuse", "/refuse?long", "/refuse?watch"] {
                let request = half_sent(&fixture, target, token).body(endless_body());
                let response = tokio::time::timeout(PATIENCE, fixture.send(request.unwrap())).await;
                let status = response.map(|response| response.status());
                assert_eq!(
                    status,
                    Ok(StatusCode::FORBIDDEN),
                    "{down:?} {up:?} {target} {token}"
                );
            }
            if down == Http::One {
                let request = half_sent(&fixture, "/refuse", token)
                    .header("connection", "Upgrade")
                    .header("upgrade", "SPDY/3.1")
                    .body(endless_body());
                let response = tokio::time::timeout(PATIENCE, fixture.send(request.unwrap())).await;
                let status = response.map(|response| response.status());
                assert_eq!(status, Ok(StatusCode::FORBIDDEN), "{up:?} tunnel {token}");
            }
        }
    }
}

/// A server in front of the API server may read the body whatever the headers say.
#[tokio::test]
async fn a_body_that_does_not_come_holds_a_permit_only_for_a_while_whoever_sends_it() {
    let fixture =
        Fixture::answered_within(Duration::from_millis(100), ForwardIdentity::Caller).await;
    fixture
        .get("/status", &[("authorization", "Bearer proven")])
        .await;
    for token in ["", "Bearer bad", "Bearer proven"] {
        for target in ["/hang", "/hang?long", "/hang?watch"] {
            let request = half_sent(&fixture, target, token).body(endless_body());
            let response = tokio::time::timeout(PATIENCE, fixture.send(request.unwrap())).await;
            let status = response.map(|response| response.status());
            assert_eq!(status, Ok(StatusCode::GATEWAY_TIMEOUT), "{target} {token}");
        }
        let request = half_sent(&fixture, "/hang?long", token)
            .header("connection", "Upgrade")
            .header("upgrade", "SPDY/3.1")
            .body(empty());
        let response = tokio::time::timeout(PATIENCE, fixture.send(request.unwrap())).await;
        let status = response.map(|response| response.status());
        assert_eq!(status, Ok(StatusCode::GATEWAY_TIMEOUT), "tunnel {token}");
    }
    assert_eq!(fixture.metrics.requests_active.get(), 0);
}

/// Requests with unproven tokens have few permits: a complete response releases its permit, whether the client reads it or not.
#[tokio::test]
async fn clients_that_do_not_read_hold_no_place_of_unproven_requests() {
    let fixture = Fixture::with_own_token(Http::Two, Http::Two).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(0)
        .build_http();
    let mut unread = Vec::new();
    for number in 0..200 {
        let request = Request::get(fixture.uri("/unauthorized"))
            .header("authorization", format!("Bearer {number}"))
            .body(empty())
            .unwrap();
        let response = client.request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{number}");
        unread.push(response);
    }
}
