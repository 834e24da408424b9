//! The pass-through between a real client and a real server, with HTTP/1.1 and HTTP/2 on either side.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot set up its peers has failed"
)]

mod certificates;
mod ends;
mod front;
mod identity;
mod peer;
mod reviews;

use std::time::Duration;

use bytes::Bytes;
use front::{Fixture, Http, certificate, clear_text, empty};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube_fanout::metrics::PassthroughError;
use kube_fanout::upstream::client::{ConnectSource, ForwardIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const ALL: [(Http, Http); 4] = [
    (Http::One, Http::One),
    (Http::One, Http::Two),
    (Http::Two, Http::One),
    (Http::Two, Http::Two),
];

fn data(piece: &'static [u8]) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from_static(piece)))
}

#[tokio::test]
async fn targets_reach_upstream_byte_for_byte() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Gateway).await;
        for target in [
            "/api/v1/namespaces/a%2Fb/configmaps/x%20y%C3%A9?labelSelector=a%3D%3Db,c%20in%20(d)&watch",
            "//api//v1/../v1/pods/?",
            "/apis/x/v1/things/a+b;c=d/log?x=%zz&&y",
        ] {
            let (_, text) = fixture.get(target, &[]).await;
            let version = if up == Http::One {
                "HTTP/1.1"
            } else {
                "HTTP/2.0"
            };
            assert_eq!(
                text.lines().next().unwrap(),
                format!("GET {target} {version}"),
                "{down:?}"
            );
        }
    }
}

#[tokio::test]
async fn request_headers_go_through_except_those_of_the_connection() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let sent = [
            ("authorization", "Bearer caller"),
            ("audit-id", "42"),
            ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
            ("impersonate-user", "jane"),
            ("user-agent", "kubectl/v1.36"),
            ("x-remote-user", "root"),
            ("te", "trailers"),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
            ("tracestate", "vendor=1"),
        ];
        let (_, text) = fixture.get("/headers", &sent).await;
        let mut lines: Vec<_> = text.lines().skip(1).collect();
        lines.sort_unstable();
        let host = match up {
            Http::One => format!("host: 127.0.0.1:{}", fixture.peer.address.port()),
            Http::Two => format!("host: localhost:{}", fixture.peer.address.port()),
        };
        let expected = [
            "accept: application/json;as=Table;v=v1;g=meta.k8s.io",
            "audit-id: 42",
            "authorization: Bearer caller",
            &host,
            "impersonate-user: jane",
            "te: trailers",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate: vendor=1",
            "user-agent: kubectl/v1.36",
            "x-forwarded-for: 192.0.2.7",
        ];
        assert_eq!(lines, expected, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn response_status_headers_and_length_come_back() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let (response, _) = fixture.get("/any", &[]).await;
        let headers = response.headers();
        assert_eq!(headers["audit-id"], "from-upstream");
        assert_eq!(headers.get_all("warning").iter().count(), 2);
        assert!(headers.contains_key("content-length"));
        assert!(!headers.contains_key("keep-alive") && !headers.contains_key("proxy-authenticate"));

        let (response, text) = fixture.get("/status", &[]).await;
        assert_eq!((response.status(), text.len()), (StatusCode::CONFLICT, 28));

        let head = Request::head(fixture.uri("/length")).body(empty()).unwrap();
        let response = fixture.send(head).await;
        assert_eq!(
            response.headers()["content-length"],
            "1234",
            "{down:?} {up:?}"
        );
    }
}

#[tokio::test]
async fn bodies_and_trailers_stream_both_ways() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let mut sum = HeaderMap::new();
        sum.insert("x-sum", HeaderValue::from_static("abc"));
        let frames = [data(b"one,"), data(b"two"), Ok(Frame::trailers(sum))];
        let request = Request::post(fixture.uri("/trailers"))
            .header("te", "trailers")
            .header("trailer", "x-sum")
            .body(peer::streamed(frames.into_iter()))
            .unwrap();
        let response = fixture
            .send(request)
            .await
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(
            response.trailers().unwrap()["x-sum"],
            "abc",
            "{down:?} {up:?}"
        );
        assert_eq!(response.to_bytes(), "one,two");
    }
}

/// Request and response stream at the same time: each chunk's response arrives before the next chunk is sent.
#[tokio::test]
async fn nothing_waits_for_a_body_to_be_complete() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let (pieces, body) = peer::fed();
        let request = Request::post(fixture.uri("/body")).body(body).unwrap();
        pieces.send("first".into()).await.unwrap();
        let mut response = fixture.send(request).await.into_body();
        assert_eq!(next_data(&mut response).await, "first", "{down:?} {up:?}");
        pieces.send("second".into()).await.unwrap();
        assert_eq!(next_data(&mut response).await, "second", "{down:?} {up:?}");
        drop(pieces);
        // The end of the body may be an empty frame.
        let rest = response.collect().await.unwrap().to_bytes();
        assert!(rest.is_empty(), "{down:?} {up:?}");
    }
}

async fn next_data(body: &mut hyper::body::Incoming) -> Bytes {
    body.frame().await.unwrap().unwrap().into_data().unwrap()
}

#[tokio::test]
async fn a_big_upload_arrives_whole() {
    const PIECE: &[u8] = &[b'x'; 64 << 10];
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let frames = std::iter::repeat_with(|| data(PIECE)).take(512);
        let request = Request::post(fixture.uri("/swallow"))
            .body(peer::streamed(frames))
            .unwrap();
        let response = fixture
            .send(request)
            .await
            .into_body()
            .collect()
            .await
            .unwrap();
        assert_eq!(
            response.to_bytes(),
            (512 * PIECE.len()).to_string(),
            "{down:?} {up:?}"
        );
        assert_eq!(fixture.metrics.bytes_sent.sum(), 512 * PIECE.len() as u64);
    }
}

#[tokio::test]
async fn a_broken_answer_is_broken_downstream_too() {
    for (down, up) in ALL {
        let fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let request = Request::get(fixture.uri("/broken")).body(empty()).unwrap();
        let Ok(response) = fixture.try_send(request).await else {
            continue;
        };
        assert!(
            response.into_body().collect().await.is_err(),
            "{down:?} {up:?}"
        );
        assert_eq!(fixture.metrics.errors.count(PassthroughError::Broken), 1);
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_work_upstream() {
    for (down, up) in ALL {
        let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let request = Request::get(fixture.uri("/endless")).body(empty()).unwrap();
        let mut body = fixture.send(request).await.into_body();
        next_data(&mut body).await;
        drop(body);
        assert_eq!(
            fixture.peer.seen.recv().await,
            Some("endless dropped"),
            "{down:?} {up:?}"
        );

        let request = Request::get(fixture.uri("/hang")).body(empty()).unwrap();
        let seen = &mut fixture.peer.seen;
        tokio::select! {
            _ = fixture.client.request(request) => panic!("the hanging request was answered"),
            event = seen.recv() => assert_eq!(event, Some("hanging")),
        }
        assert_eq!(
            fixture.peer.seen.recv().await,
            Some("hang dropped"),
            "{down:?} {up:?}"
        );
    }
}

#[tokio::test]
async fn an_upload_that_breaks_off_breaks_off_upstream() {
    for (down, up) in ALL {
        let mut fixture = Fixture::new(down, up, ForwardIdentity::Caller).await;
        let (breaks, told) = tokio::sync::oneshot::channel();
        let request = Request::put(fixture.uri("/swallow"))
            .header("content-length", "1000")
            .body(peer::breaking_on(told))
            .unwrap();
        let (client, seen) = (&fixture.client, &mut fixture.peer.seen);
        let seeing = async {
            let began = seen.recv().await;
            let _ = breaks.send(());
            [began, seen.recv().await]
        };
        let (_, events) = tokio::join!(client.request(request), seeing);
        let expected = ["upload began", "upload broke off"].map(Some);
        assert_eq!(events, expected, "{down:?} {up:?}");
    }
}

#[tokio::test]
async fn an_expectation_is_met_before_the_body_is_sent() {
    let fixture = Fixture::new(Http::One, Http::Two, ForwardIdentity::Caller).await;
    let mut stream = tokio::net::TcpStream::connect(fixture.address)
        .await
        .unwrap();
    let head =
        "POST /swallow HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let mut response = [0; 15];
    stream.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 200 OK");
}

fn upgrade_request(fixture: &Fixture) -> Request<peer::PeerBody> {
    Request::post(fixture.uri("/upgrade?command=sh"))
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(empty())
        .unwrap()
}

#[tokio::test]
async fn an_upgrade_carries_bytes_both_ways_until_one_side_ends() {
    for up in [Http::One, Http::Two] {
        let fixture = Fixture::new(Http::One, up, ForwardIdentity::Caller).await;
        let mut response = fixture.send(upgrade_request(&fixture)).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
        assert_eq!(response.headers()["x-stream-protocol-version"], "v5");
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        stream.write_all(b"world").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello WORLD", "{up:?}");
        assert_eq!(fixture.passthrough.drain(Duration::from_secs(60)).await, 0);
        let metrics = &fixture.metrics;
        assert_eq!(
            (metrics.bytes_sent.sum(), metrics.bytes_received.sum()),
            (5, 11)
        );
        assert_eq!(
            (metrics.upgrades.get(), metrics.requests_active.get()),
            (1, 0)
        );
    }
}

#[tokio::test]
async fn a_drain_cuts_what_is_left_and_refuses_new_upgrades() {
    let fixture = Fixture::new(Http::One, Http::One, ForwardIdentity::Caller).await;
    let mut response = fixture.send(upgrade_request(&fixture)).await;
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    assert_eq!(fixture.passthrough.drain(Duration::ZERO).await, 1);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(fixture.metrics.requests_active.get(), 0);
    let refused = fixture.send(upgrade_request(&fixture)).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer() {
    let fixture = Fixture::new(Http::One, Http::Two, ForwardIdentity::Caller).await;
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    let (response, text) = fixture.get("/status", &headers).await;
    assert_eq!((response.status(), text.len()), (StatusCode::CONFLICT, 28));
    assert!(!response.headers().contains_key("upgrade"));
}

#[track_caller]
fn check_status(text: &str, code: u16, reason: &str) {
    let status: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&"Status".into(), &"Failure".into())
    );
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&code.into(), &reason.into()),
        "{text}"
    );
}

#[tokio::test]
async fn under_the_gateways_identity_callers_neither_authenticate_nor_impersonate() {
    let fixture = Fixture::new(Http::One, Http::One, ForwardIdentity::Gateway).await;
    let (_, text) = fixture
        .get("/any", &[("authorization", "Bearer caller")])
        .await;
    assert!(!text.contains("authorization"), "{text}");
    let (response, text) = fixture
        .get("/any", &[("impersonate-group", "system:masters")])
        .await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    check_status(&text, 403, "Forbidden");
    assert_eq!(fixture.metrics.errors.count(PassthroughError::Refused), 1);
    assert_eq!(fixture.metrics.requests.get(), 2);
}

#[tokio::test]
async fn an_unreachable_upstream_is_503_with_a_time_to_come_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = listener.local_addr().unwrap();
    drop(listener);
    for (down, method) in [(Http::One, Method::GET), (Http::Two, Method::POST)] {
        let peer = peer::start(None).await;
        let fixture =
            Fixture::with_source(peer, clear_text(nowhere), ForwardIdentity::Caller, down).await;
        let request = Request::builder()
            .method(method)
            .uri(fixture.uri("/api/v1/pods"))
            .header("audit-id", "42")
            .body(empty())
            .unwrap();
        let response = fixture.send(request).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(response.headers()["audit-id"], "42");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        check_status(
            std::str::from_utf8(&body).unwrap(),
            503,
            "ServiceUnavailable",
        );
        assert_eq!(fixture.metrics.errors.count(PassthroughError::Connect), 1);
    }
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_is_named_as_the_cause() {
    let (acceptor, _) = certificate();
    let (_, other_ca) = certificate();
    let peer = peer::start(Some(acceptor)).await;
    let source = ConnectSource::Url {
        url: format!("https://localhost:{}", peer.address.port())
            .parse()
            .unwrap(),
        ca_file: Some(other_ca),
    };
    let fixture = Fixture::with_source(peer, source, ForwardIdentity::Caller, Http::One).await;
    let (response, text) = fixture.get("/any", &[]).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("certificate is not trusted"), "{text}");
}

/// More requests than one connection has streams for: the excess requests must not wait for the others.
#[tokio::test]
async fn many_hanging_requests_do_not_block_the_next() {
    let mut fixture = Fixture::new(Http::One, Http::Two, ForwardIdentity::Caller).await;
    // Once upstream has accepted a token, its requests may share connections.
    let token = ("authorization", "Bearer caller");
    fixture.get("/any", &[token]).await;
    let mut hanging = tokio::task::JoinSet::new();
    for _ in 0..230 {
        let request = Request::get(fixture.uri("/hang")).header(token.0, token.1);
        let request = request.body(empty()).unwrap();
        let client = fixture.client.clone();
        hanging.spawn(async move { client.request(request).await });
        assert_eq!(fixture.peer.seen.recv().await, Some("hanging"));
    }
    let (response, _) = fixture.get("/any", &[token]).await;
    assert_eq!(response.status(), StatusCode::OK);
    let (response, _) = fixture.get("/any", &[]).await;
    assert_eq!(
        response.status(),
        StatusCode::OK,
        "a request without a token"
    );
}

#[tokio::test]
async fn an_upstream_that_accepts_and_never_answers_is_a_504_in_time() {
    let mut fixture =
        Fixture::answered_within(Duration::from_secs(1), ForwardIdentity::Gateway).await;
    let (response, text) = fixture.get("/hang", &[("audit-id", "mine")]).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(response.headers()["audit-id"], "mine");
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["reason"], "Timeout", "{status}");
    assert_eq!(fixture.peer.seen.recv().await, Some("hanging"));
    assert_eq!(
        fixture.peer.seen.recv().await,
        Some("hang dropped"),
        "the request upstream has ended, too"
    );
    assert_eq!(fixture.metrics.errors.count(PassthroughError::Timeout), 1);
}

#[tokio::test]
async fn an_upstream_that_falls_silent_within_an_answer_is_given_up() {
    let mut fixture =
        Fixture::answered_within(Duration::from_secs(1), ForwardIdentity::Gateway).await;
    let request = Request::get(fixture.uri("/silent")).body(empty()).unwrap();
    let mut body = fixture.send(request).await.into_body();
    assert_eq!(next_data(&mut body).await, "first");
    assert!(
        body.frame().await.unwrap().is_err(),
        "an incomplete body must end with an error"
    );
    assert_eq!(fixture.peer.seen.recv().await, Some("silent dropped"));
    assert_eq!(fixture.metrics.errors.count(PassthroughError::Timeout), 1);
    assert_eq!(fixture.metrics.requests_active.get(), 0);
}

/// Followed logs and watches may send nothing for hours; the timeout applies to short requests only.
#[tokio::test]
async fn an_upstream_may_be_silent_within_an_answer_that_lasts() {
    let limit = Duration::from_secs(1);
    for target in ["/silent?long", "/silent?watch"] {
        let mut fixture = Fixture::answered_within(limit, ForwardIdentity::Gateway).await;
        let request = Request::get(fixture.uri(target)).body(empty()).unwrap();
        let mut body = fixture.send(request).await.into_body();
        assert_eq!(next_data(&mut body).await, "first");
        // Two short requests time out one after the other; the long request outlasts both.
        for _ in 0..2 {
            let (response, _) = fixture.get("/hang", &[]).await;
            assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        }
        for event in ["hanging", "hang dropped"].repeat(2) {
            assert_eq!(fixture.peer.seen.recv().await, Some(event), "{target}");
        }
        assert_eq!(fixture.metrics.requests_active.get(), 1);
        drop(body);
        assert_eq!(fixture.peer.seen.recv().await, Some("silent dropped"));
    }
}

#[tokio::test]
async fn a_watch_whose_answer_does_not_begin_is_a_504_in_time() {
    let fixture = Fixture::answered_within(Duration::from_secs(1), ForwardIdentity::Gateway).await;
    let (response, _) = fixture.get("/hang?watch", &[]).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
}

/// What may last is silent for as long as a service is, with a body as without. Only the body itself has to come.
#[tokio::test]
async fn a_long_request_may_wait_for_its_answer_once_its_body_is_sent() {
    let limit = Duration::from_secs(1);
    let mut fixture = Fixture::answered_within(limit, ForwardIdentity::Gateway).await;
    let whole = peer::streamed(std::iter::once(data(b"all of it")));
    let request = Request::post(fixture.uri("/hang?long"))
        .body(whole)
        .unwrap();
    let waiting = tokio::spawn(fixture.client.request(request));
    assert_eq!(fixture.peer.seen.recv().await, Some("hanging"));
    // Two bodies that stop halfway time out one after the other; the request before them outlasts both.
    for _ in 0..2 {
        let (pieces, body) = peer::fed();
        pieces.send("half of".into()).await.unwrap();
        let request = Request::post(fixture.uri("/swallow?long")).body(body);
        let response = fixture.send(request.unwrap()).await;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        for event in ["upload began", "upload broke off"] {
            assert_eq!(fixture.peer.seen.recv().await, Some(event));
        }
    }
    assert!(!waiting.is_finished());
    assert_eq!(fixture.metrics.requests_active.get(), 1);
    waiting.abort();
}
