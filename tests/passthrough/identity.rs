//! Under whose name requests travel, and that nothing a client sends changes that.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use kube_fanout::fairness::Shortage;
use kube_fanout::metrics::PermitKind;
use kube_fanout::upstream::client::ForwardIdentity;

use crate::ALL;
use crate::front::{AS_JANE, Http, Row, empty};

/// An upper guard.
const PATIENCE: Duration = Duration::from_secs(10);

/// What clients try: to be somebody else, or to have what says who they are taken off on the way.
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
    // HTTP/2 has no such header; hyper's client leaves it out there.
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
        let row = Row::with_own_token(down, up).await;
        let (_, text) = row.get("/any", &tricks(down)).await;
        let expected = [
            "authorization: Bearer caller",
            "authorization: Bearer second",
            "impersonate-extra-scopes: all",
            "impersonate-group: system:masters",
            "impersonate-user: root",
            "impersonate_user: root",
            "sec-websocket-protocol: base64url.bearer.authorization.k8s.io.YQ, v4",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-uri: /healthz",
            "x_remote_user: root",
        ];
        assert_eq!(lines(&text), expected, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn the_gateway_impersonates_callers_whose_credentials_cannot_travel_and_nobody_else() {
    for (down, up) in ALL {
        let row = Row::with_own_token(down, up).await;
        let (_, text) = row.get(&format!("/any?{AS_JANE}"), &tricks(down)).await;
        let expected = [
            "authorization: Bearer gateway",
            "impersonate-group: a",
            "impersonate-group: b",
            "impersonate-uid: 7",
            "impersonate-user: jane",
            "impersonate_user: root",
            "sec-websocket-protocol: v4",
            "x-forwarded-for: 192.0.2.1",
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
            let row = Row::with_own_token(Http::One, up).await;
            let request = Request::get(row.uri(&format!("/upgrade?{query}")))
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
            let response = row.send(request).await;
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
            assert_eq!(response.headers()["x-seen"], expected, "{up:?}");
        }
    }
}

/// Without authentication everybody is the gateway, and nobody can be more.
#[tokio::test]
async fn where_callers_are_not_told_apart_no_token_of_theirs_travels() {
    let row = Row::new(Http::One, Http::One, ForwardIdentity::Gateway).await;
    let sent = [
        ("authorization", "Bearer caller"),
        ("x-remote-user", "root"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.YQ",
        ),
    ];
    let (_, text) = row.get("/any", &sent).await;
    assert!(lines(&text).is_empty(), "{text}");
    let listed = [
        ("impersonate-user", "root"),
        ("connection", "impersonate-user"),
    ];
    let (response, _) = row.get("/any", &listed).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
}

/// An answer that redirects, to whatever it was asked, is the client's to follow or not (CVE-2020-8559, CVE-2022-3172).
#[tokio::test]
async fn redirects_are_answers_and_nobody_follows_them() {
    for upgrade in [false, true] {
        let row = Row::with_own_token(Http::One, Http::One).await;
        let mut headers = vec![("authorization", "Bearer caller")];
        if upgrade {
            headers.extend([("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]);
        }
        let (response, _) = row.get("/redirect", &headers).await;
        assert_eq!(response.status(), StatusCode::FOUND);
        assert_eq!(response.headers()["location"], "/upgrade");
        assert_eq!(row.metrics.requests.get(), 1);
        assert_eq!(row.metrics.upgrades.get(), 0);
        // The connection is an ordinary one after it, and its next request is judged by its own headers.
        let (_, text) = row.get("/any", &[]).await;
        assert!(!text.contains("authorization"), "{text}");
    }
}

/// API servers close a connection after a request whose credentials they do not take, with what others have on it.
#[tokio::test]
async fn nobody_shares_a_connection_whose_token_upstream_has_not_taken() {
    let row = Row::with_own_token(Http::One, Http::Two).await;
    let version = async |target: &str, token: &str| {
        let header = format!("Bearer {token}");
        let mut headers = Vec::new();
        headers.extend((!token.is_empty()).then_some(("authorization", header.as_str())));
        let (_, text) = row.get(target, &headers).await;
        let first = text.lines().next().unwrap_or_default();
        first.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    for (target, token, expected) in [
        ("/any", "good", "HTTP/1.1"),
        ("/any", "good", "HTTP/2.0"),
        ("/any", "other", "HTTP/1.1"),
        ("/unauthorized", "bad", "{\"code\":401}"),
        // The API server says so before it looks at the token.
        ("/bad-request", "bad", ""),
        ("/any", "bad", "HTTP/1.1"),
        ("/unauthorized", "good", "{\"code\":401}"),
        ("/any", "good", "HTTP/1.1"),
        ("/any", "", "HTTP/1.1"),
        ("/any", "", "HTTP/1.1"),
        // What lasts is proven by its own answer, too.
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

/// A watch that was begun apart stays there, and takes a file: there are so many and no more.
#[tokio::test]
async fn what_lasts_and_is_not_proven_has_places_for_as_many_files_as_there_are() {
    for target in ["/silent?watch", "/silent?long"] {
        let mut row = Row::with_files(2).await;
        let send = |token: String| {
            let request = Request::get(row.uri(target)).header("authorization", token);
            row.client.request(request.body(empty()).unwrap())
        };
        let status = async |token: &str| send(format!("Bearer {token}")).await.unwrap();
        let open = [status("a").await, status("b").await];
        assert!(open.iter().all(|answer| answer.status() == StatusCode::OK));
        assert_eq!(status("c").await.status(), StatusCode::TOO_MANY_REQUESTS);
        let place = (PermitKind::ForwardedWatches, Shortage::Total);
        assert_eq!(row.metrics.shortages.count(place.0, place.1), 1);
        // Who has been taken shares a connection of HTTP/2, and takes no file of its own.
        assert_eq!(status("a").await.status(), StatusCode::OK, "{target}");
        drop(open);
        for _ in 0..3 {
            assert_eq!(row.peer.seen.recv().await, Some("silent dropped"));
        }
        let request = Request::get(row.uri(target)).body(empty()).unwrap();
        assert_eq!(row.send(request).await.status(), StatusCode::OK);
    }
}

/// Go's server may take in the rest of a request before it says that it refuses it.
#[tokio::test]
async fn a_body_that_does_not_come_holds_the_place_of_an_unproven_request_only_for_a_while() {
    let mut row = Row::answered_within(Duration::from_millis(100), ForwardIdentity::Caller).await;
    for headers in [&[][..], &[("authorization", "Bearer bad")]] {
        let mut request = Request::post(row.uri("/hang?long"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = StreamBody::new(futures::stream::pending());
        let request = request.body(body.boxed_unsync()).unwrap();
        let answer = tokio::time::timeout(PATIENCE, row.send(request)).await;
        assert_eq!(answer.unwrap().status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(row.peer.seen.recv().await, Some("hanging"));
    }
}

/// The places of unproven requests are few: an answer that is there in whole gives its place back, whether it is read or not.
#[tokio::test]
async fn clients_that_do_not_read_hold_no_place_of_unproven_requests() {
    let row = Row::with_own_token(Http::Two, Http::Two).await;
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_stream_window_size(0)
        .build_http();
    let mut unread = Vec::new();
    for number in 0..200 {
        let request = Request::get(row.uri("/unauthorized"))
            .header("authorization", format!("Bearer {number}"))
            .body(empty())
            .unwrap();
        let answer = client.request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{number}");
        unread.push(answer);
    }
}
