//! A collector in the test's process.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::super::export::QUEUE_LEN;
use super::super::sampler::FOLLOWED_MAX;
use super::*;
use crate::metrics::{Metrics, SpanOutcome};

const TIMEOUT: Duration = Duration::from_secs(30);
const TRACE_ID: [u8; 16] = [0xab; 16];

/// A collector; returns its address, and the bodies that it gets.
async fn collector() -> (http::Uri, mpsc::Receiver<Bytes>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let sender = sender.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let sender = sender.clone();
                async move {
                    assert_eq!(request.uri().path(), "/v1/traces");
                    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    sender.send(body).await.unwrap();
                    Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (format!("http://{address}").parse().unwrap(), receiver)
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_what_it_causes_continue_the_clients_trace() {
    let (endpoint, mut bodies) = collector().await;
    let (layer, export) = spans(&endpoint, 0.0).unwrap();
    tracing_subscriber::registry().with(layer).init();
    let metrics = Arc::new(Metrics::new().unwrap());
    let counted = Arc::clone(&metrics);
    tokio::spawn(async move { export.run(&counted.traces()).await });

    let mut headers = HeaderMap::new();
    let parent = format!("00-{}-00f067aa0ba902b7-01", "ab".repeat(16));
    headers.insert("traceparent", parent.parse().unwrap());
    headers.insert("tracestate", "vendor=1".parse().unwrap());
    let span = request_span("list", || "pods.v1".to_owned(), &headers);
    span.in_scope(|| {
        let forward = tracing::trace_span!(target: SPAN_TARGET, "forward");
        propagate(&forward, &mut headers);
    });
    record_outcome(&span, http::StatusCode::TOO_MANY_REQUESTS);
    drop(span);
    let sent = headers["traceparent"].to_str().unwrap();
    assert_ne!(sent, parent);
    assert_eq!(sent[..36], parent[..36], "the trace is the client's");
    assert_ne!(
        sent[36..52],
        parent[36..52],
        "the parent is the gateway's span"
    );
    assert_eq!(headers["tracestate"], "vendor=1");

    let body = tokio::time::timeout(TIMEOUT, bodies.recv())
        .await
        .unwrap()
        .unwrap();
    for part in [
        &TRACE_ID[..],
        b"request",
        b"forward",
        b"pods.v1",
        b"outcome",
        b"kube-fanout",
        &[0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7],
    ] {
        assert!(contains(&body, part), "{part:?} in {body:?}");
    }
    assert!(!contains(&body, b"thread.id"));

    // A request without a trace is sampled by the ratio, which is zero: nothing is sent, and upstream is told nothing.
    let mut headers = HeaderMap::new();
    let span = request_span("list", || "pods.v1".to_owned(), &headers);
    propagate(&span, &mut headers);
    assert!(headers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn callers_decide_for_a_bounded_number_of_requests() {
    // Nobody listens: what is recorded is counted by what is lost.
    let endpoint = "http://127.0.0.1:9".parse().unwrap();
    let (layer, _export) = spans(&endpoint, 0.0).unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    let _guard = tracing::subscriber::set_default(subscriber);
    let parent = format!("00-{}-00f067aa0ba902b7-01", "ab".repeat(16));
    let mut sent = HeaderMap::new();
    sent.insert("traceparent", parent.parse().unwrap());
    let recorded = || {
        let is_recorded = |_: &usize| {
            let span = request_span("list", String::new, &sent);
            let mut headers = sent.clone();
            propagate(&span, &mut headers);
            // A span that is not recorded leaves the caller's trace as it is.
            headers["traceparent"] != sent["traceparent"]
        };
        (0..FOLLOWED_MAX as usize + 100).filter(is_recorded).count()
    };
    assert_eq!(recorded(), FOLLOWED_MAX as usize);
    assert_eq!(recorded(), 0);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(recorded(), FOLLOWED_MAX as usize);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_a_queue_and_no_more() {
    // Connections are accepted by the kernel, and nobody reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (layer, export) = spans(&endpoint.parse().unwrap(), 1.0).unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    let _guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..QUEUE_LEN + 100 {
        drop(request_span("list", String::new, &HeaderMap::new()));
    }
    let metrics = Metrics::new().unwrap().traces();
    export.finish(&metrics, Duration::from_secs(60)).await;
    assert_eq!(metrics.count(SpanOutcome::Dropped), 100);
    assert_eq!(metrics.count(SpanOutcome::Exported), 0);
    // One batch fails after its time; then the end is not delayed further.
    assert_eq!(metrics.count(SpanOutcome::Failed), 512);
}
