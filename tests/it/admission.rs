//! More requests than the gateway admits at once: admitted requests get complete responses, the others get 429, and afterwards the gateway
//! serves as before.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use crate::support::gateway;
use gateway::Running;
use kube_fanout::config::{AdmissionLimits, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::client::text;

const CONFIGMAPS: &str = "/api/v1/configmaps?resourceVersion=0";
/// The objects together are larger than the socket buffers of sender and receiver, so a response that is not read blocks its writer.
const OBJECTS: usize = 32;
const OBJECT_LEN: usize = 1 << 20;

struct Fixture {
    apiserver: Apiserver,
    gateway: Running,
}

impl Fixture {
    async fn with(limits: impl FnOnce(&mut AdmissionLimits)) -> Self {
        Self::with_settings(|settings| limits(&mut settings.admission)).await
    }

    async fn with_settings(adjust: impl FnOnce(&mut ServeSettings)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
            object_len: OBJECT_LEN,
            ..Options::default()
        };
        let apiserver = apiserver::start(listener, options).unwrap();
        let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
        let mut settings = ServeSettings::embedded(upstream);
        adjust(&mut settings);
        Self {
            apiserver,
            gateway: Running::start(settings, Drain::new()).await,
        }
    }

    /// Sends a request over a new connection, and reads the head of the response.
    async fn get(&self, target: &str) -> PartialResponse {
        let socket = TcpSocket::new_v4().unwrap();
        // Otherwise the kernel may take nearly all of a response that is not read.
        socket.set_recv_buffer_size(256 << 10).unwrap();
        let mut stream = socket.connect(self.gateway.address).await.unwrap();
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).await.unwrap(), 0, "{head}");
        }
        PartialResponse { head, stream }
    }

    /// Waits until what lists hold of older states is shown as a number of bytes for which `holds` returns true.
    async fn until_older_states(&self, holds: impl Fn(f64) -> bool) {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            let page = text(self.gateway.admin, "/metrics").await;
            let series = "kube_fanout_memory_bytes{part=\"older_states\"} ";
            let shown = page.lines().find_map(|line| line.strip_prefix(series));
            if holds(shown.unwrap().parse().unwrap()) {
                return;
            }
            assert!(Instant::now() < give_up_at, "{shown:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn ended(self) {
        self.gateway.ended().await;
    }
}

struct PartialResponse {
    head: String,
    stream: BufReader<TcpStream>,
}

impl PartialResponse {
    fn code(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    async fn body(mut self) -> String {
        let mut body = String::new();
        self.stream.read_to_string(&mut body).await.unwrap();
        body
    }

    #[track_caller]
    fn check_code(self, code: &str) -> Self {
        assert_eq!(self.code(), code, "{}", self.head);
        self
    }

    async fn check_refused(self) {
        let response = self.check_code("429");
        let head = response.head.to_lowercase();
        let retry_after = head.split("retry-after: ").nth(1).unwrap();
        let seconds = retry_after.split("\r\n").next().unwrap().to_owned();
        let body = response.body().await;
        let status: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["reason"], "TooManyRequests");
        assert_eq!(status["details"]["retryAfterSeconds"].to_string(), seconds);
    }

    async fn check_whole_list(self) {
        assert_eq!(self.code(), "200", "{}", self.head);
        let body = self.body().await;
        assert_eq!(body.matches("\"uid\":").count(), OBJECTS);
        assert!(body.ends_with("]}\n\r\n0\r\n\r\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_beyond_the_bound_are_sent_away_and_the_others_are_whole() {
    let fixture = Fixture::with(|limits| {
        limits.lists_max = 3;
        limits.lists_waiting_max = 0;
        // The test does not read the lists until it has been refused, so the gateway must not release their permits as stalled.
        limits.list_stall_max = std::time::Duration::from_secs(3_600);
    })
    .await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(fixture.get(CONFIGMAPS).await.check_code("200"));
    }
    for _ in 0..2 {
        fixture.get(CONFIGMAPS).await.check_refused().await;
    }
    // Short lists and forwarded requests need no permit.
    let short_list = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dnone&resourceVersion=0";
    fixture.get(short_list).await.check_code("200");
    fixture.get("/version").await.check_code("200");
    // A watch with initial events needs one.
    fixture
        .get("/api/v1/configmaps?watch=1&resourceVersion=0")
        .await
        .check_refused()
        .await;
    for list in running {
        list.check_whole_list().await;
    }
    for _ in 0..3 {
        fixture.get(CONFIGMAPS).await.check_whole_list().await;
    }
    fixture.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_not_read_hold_up_no_list_of_the_same_client() {
    let fixture = Fixture::with(|limits| {
        limits.lists_max = 3;
        limits.list_stall_max = std::time::Duration::from_millis(100);
    })
    .await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(fixture.get(CONFIGMAPS).await.check_code("200"));
    }
    for _ in 0..2 {
        fixture.get(CONFIGMAPS).await.check_whole_list().await;
    }
    // The stalled lists lost their permits, not their connections: each is complete when it is read.
    for list in unread {
        list.check_whole_list().await;
    }
    fixture.ended().await;
}

/// A client that reads slowly holds all objects as they were, long after they have changed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_list_that_is_not_read_holds_is_shown_as_long_as_it_is_sent() {
    let fixture = Fixture::with_settings(|settings| settings.ring.bytes_max = 4 << 20).await;
    let unread = fixture.get(CONFIGMAPS).await.check_code("200");
    let all = f64::from(u32::try_from(OBJECTS * OBJECT_LEN).unwrap());
    fixture.apiserver.set_churn(50);
    fixture
        .until_older_states(|held| held > all / 2.0 && held < all * 1.1)
        .await;
    fixture.apiserver.set_churn(0);
    unread.check_whole_list().await;
    fixture.until_older_states(|held| held == 0.0).await;
    fixture.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_may_wait_are_all_served() {
    let fixture = Fixture::with(|limits| {
        limits.lists_max = 1;
        limits.lists_waiting_max = 8;
    })
    .await;
    let lists = (0..4).map(|_| async { fixture.get(CONFIGMAPS).await.check_whole_list().await });
    futures::future::join_all(lists).await;
    fixture.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_beyond_the_bound_are_told_so() {
    let fixture = Fixture::with(|limits| limits.watches_max = 1).await;
    let watch = "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dnone&resourceVersion=0";
    let open = fixture.get(watch).await.check_code("200");
    fixture.get(watch).await.check_refused().await;
    fixture.get(CONFIGMAPS).await.check_whole_list().await;
    drop(open);
    fixture.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_are_told_so_and_closed() {
    let fixture = Fixture::with(|limits| limits.connections_max = 2).await;
    let mut lists = Vec::new();
    for _ in 0..2 {
        lists.push(fixture.get(CONFIGMAPS).await.check_code("200"));
    }
    let refused = fixture.get("/version").await;
    assert!(refused.head.to_lowercase().contains("connection: close"));
    refused.check_refused().await;
    for list in lists {
        list.check_whole_list().await;
    }
    fixture.ended().await;
}
