//! Tests of requests for the log filter. Who may make them is tested in `tests/it/log_filter.rs`, too.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;

use super::*;

struct Stage {
    log: LogControl,
    in_force: Arc<Mutex<String>>,
}

impl Stage {
    fn new() -> Self {
        let in_force = Arc::new(Mutex::new("info".to_owned()));
        let applied = Arc::clone(&in_force);
        let log = LogControl::new("info".parse().unwrap(), move |filter| {
            *applied.lock() = filter.to_string();
        });
        Self { log, in_force }
    }

    /// Status and text of the response to a request from this address.
    async fn ask(&self, from: [u8; 4], method: &str, query: &str, body: &str) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/log-filter{query}"))
            .header("host", "localhost:9090")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .unwrap();
        let mut visit = Visit::of(&request, Ipv4Addr::from(from).into(), None, None);
        let response = answer(request, &self.log, &mut visit).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn put(&self, query: &str, body: &str) -> (u16, String) {
        self.ask(HERE, "PUT", query, body).await
    }

    async fn get(&self) -> (u16, String) {
        self.ask(HERE, "GET", "", "").await
    }
}

const HERE: [u8; 4] = [127, 0, 0, 1];

fn ok(text: &str) -> (u16, String) {
    (200, text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_is_put_is_in_force_and_shown() {
    let stage = Stage::new();
    assert_eq!(stage.get().await, ok("info\n"));
    let changed = ok("info,kube_fanout::upstream=debug\nconfigured: info\n");
    assert_eq!(
        stage.put("", "kube_fanout::upstream=debug\n").await,
        changed
    );
    assert_eq!(*stage.in_force.lock(), "info,kube_fanout::upstream=debug");
    assert_eq!(stage.get().await, changed);
    let for_a_time = ok("debug\nin 600 s: info\n");
    assert_eq!(stage.put("?for=10m", "debug").await, for_a_time);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(stage.get().await, ok("debug\nin 599 s: info\n"));
    assert_eq!(stage.put("", "").await, ok("info\n"));
    assert_eq!(*stage.in_force.lock(), "info");
}

#[tokio::test]
async fn what_is_no_filter_changes_nothing_and_the_answer_says_what_is_one() {
    let stage = Stage::new();
    for (query, body, status, reason) in [
        ("", "inof", 400, "the levels are off, error, warn"),
        (
            "",
            "info,kube_fanout",
            400,
            "write info,kube_fanout::upstream=debug",
        ),
        ("?for=10", "debug", 400, "write a time of at most 24h"),
        ("?for=0s", "debug", 400, "write a time of at most 24h"),
        ("?for=25h", "debug", 400, "write a time of at most 24h"),
        ("?for=10m", "", 400, "needs a filter"),
        (
            "?fro=10m",
            "debug",
            400,
            "unknown parameter \"fro\": only for is allowed",
        ),
        ("?for=10m&for=1m", "debug", 400, "for: write it once"),
        ("", &"x".repeat(1 << 20), 413, "more than 4096 bytes"),
    ] {
        let (found, text) = stage.put(query, body).await;
        assert_eq!(found, status, "{query} {text}");
        assert!(text.contains(reason), "{text}");
    }
    assert_eq!(stage.get().await, ok("info\n"));
}

#[tokio::test]
async fn a_body_that_does_not_end_is_not_waited_for() {
    tokio::time::pause();
    let stage = Stage::new();
    let endless = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, std::convert::Infallible>,
    >());
    let request = Request::put("/log-filter").header("host", "localhost");
    let request = request.body(endless).unwrap();
    let mut visit = Visit::of(&request, Ipv4Addr::LOCALHOST.into(), None, None);
    let response = answer(request, &stage.log, &mut visit).await;
    assert_eq!(response.status(), 408);
}

#[tokio::test]
async fn others_may_neither_see_nor_change_it_without_authentication() {
    let stage = Stage::new();
    for method in ["GET", "PUT"] {
        let (status, text) = stage.ask([127, 0, 0, 2], method, "", "off").await;
        assert_eq!(status, 403, "{text}");
    }
    let (status, text) = stage.ask(HERE, "POST", "", "off").await;
    assert_eq!((status, &*text), (405, "only GET, HEAD, PUT\n"));
    assert_eq!(*stage.in_force.lock(), "info");
}
