//! Forwarded answers are compared with what memory would have answered: each planted difference is counted where it belongs, and there is none
//! where nothing was planted.

#![allow(
    clippy::disallowed_methods,
    reason = "a test runner passes variables, not settings"
)]

mod callers;
mod front;
mod rules;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::PATIENCE;
use crate::support::auth::until;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, bytes, connect_and_get_as, listed, metric_sum, send,
};
use crate::support::gateway::Running;
use crate::support::http_server::HttpServer;
use crate::support::protobuf_relay::{self, PROTOBUF};
use crate::support::resuming::{Balancer, Store, http1_client, http2_client};

const OUTCOMES: [&str; 6] = [
    "equal",
    "missing",
    "extra",
    "content",
    "status",
    "not_comparable",
];

struct Stage {
    apiserver: Apiserver,
    front: HttpServer,
    gateway: Running,
}

impl Stage {
    async fn new() -> Self {
        Self::ruled("shadow").await
    }

    async fn ruled(rules: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let apiserver = apiserver::start(listener, Options::default()).unwrap();
        let front = front::start(apiserver.address()).await;
        let gateway = ruled(front.address, rules).await;
        let stage = Self {
            apiserver,
            front,
            gateway,
        };
        for name in ["a", "b", "c"] {
            stage.create(name).await;
        }
        stage
    }

    async fn create(&self, name: &str) {
        let object = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"v"}}}}"#
        );
        let request = http::Request::post("/api/v1/namespaces/default/configmaps")
            .header("host", "gateway")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(object)))
            .unwrap();
        assert_eq!(send(self.apiserver.address(), request).await.status(), 201);
    }

    async fn get(&self, target: &str, lie: &str) -> http::Response<Incoming> {
        let request = http::Request::get(target)
            .header("host", "gateway")
            .header("x-lie", lie);
        send(self.gateway.address, request.body(Full::default()).unwrap()).await
    }

    /// Waits until so many comparisons of a verb were made, and returns them by outcome.
    async fn compared(&self, verb: &str, total: usize) -> Vec<(&'static str, usize)> {
        let give_up_at = Instant::now() + PATIENCE;
        loop {
            let found = outcomes(self.gateway.admin, verb).await;
            if found.iter().map(|(_, count)| count).sum::<usize>() >= total {
                return found;
            }
            assert!(Instant::now() < give_up_at, "{found:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn ruled(upstream: SocketAddr, rules: &str) -> Running {
    let settings = ServeSettings {
        serving: rules.parse().unwrap(),
        ..ServeSettings::embedded(format!("http://{upstream}").parse().unwrap())
    };
    Running::start(settings, Drain::new()).await
}

/// Comparisons of config maps by outcome, without those that were never found.
async fn outcomes(admin: SocketAddr, verb: &str) -> Vec<(&'static str, usize)> {
    by_outcome(admin, "configmaps", verb).await
}

/// The same of another resource.
async fn by_outcome(admin: SocketAddr, resource: &str, verb: &str) -> Vec<(&'static str, usize)> {
    let mut found = Vec::new();
    for outcome in OUTCOMES {
        let labels = format!("outcome=\"{outcome}\",resource=\"{resource}\",verb=\"{verb}\"");
        let name = "kube_fanout_shadow_comparisons_total";
        match metric_sum(admin, name, &labels).await {
            0 => {}
            count => found.push((outcome, count)),
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_list_is_counted_by_what_is_false() {
    for (lie, outcome) in [
        ("drop", "extra"),
        ("add", "missing"),
        ("duplicate", "missing"),
        ("bytes", "content"),
        ("version", "content"),
        ("reorder", "content"),
        ("cut", "content"),
        ("403", "status"),
        ("410", "status"),
        ("503", "not_comparable"),
    ] {
        let stage = Stage::new().await;
        let response = stage.get(CONFIGMAPS, lie).await;
        response.into_body().collect().await.unwrap();
        assert_eq!(stage.compared("LIST", 1).await, [(outcome, 1)], "{lie}");
        // The truth is equal.
        let truth = bytes(stage.gateway.address, CONFIGMAPS).await;
        assert_eq!(truth, bytes(stage.front.address, CONFIGMAPS).await);
        let found = stage.compared("LIST", 2).await;
        assert!(found.contains(&("equal", 1)), "{lie}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_event_is_counted_by_what_is_false() {
    for (lie, expected) in [
        ("nothing", &[("equal", 4)][..]),
        ("drop", &[("equal", 3), ("extra", 1)]),
        ("duplicate", &[("equal", 4), ("missing", 1)]),
        ("reorder", &[("equal", 3), ("missing", 1), ("extra", 1)]),
        ("type", &[("equal", 3), ("content", 1)]),
        ("bytes", &[("equal", 3), ("content", 1)]),
        ("cut", &[("equal", 1), ("content", 1)]),
        ("gone", &[("not_comparable", 1)]),
    ] {
        let stage = Stage::new().await;
        let (version, _) = listed(stage.apiserver.address()).await;
        // Memory would not reach back to this version if its cache began later.
        bytes(stage.gateway.address, CONFIGMAPS).await;
        stage.compared("LIST", 1).await;
        let target = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
        let mut response = stage.get(&target, lie).await.into_body();
        for name in ["d", "e", "f", "g"] {
            stage.create(name).await;
        }
        let total = expected.iter().map(|(_, count)| count).sum();
        let read = async { while let Some(Ok(_)) = response.frame().await {} };
        let compared = async {
            tokio::select! {
                found = stage.compared("WATCH", total) => found,
                // A stream that ends is compared all the same.
                () = read => stage.compared("WATCH", total).await,
            }
        };
        let found = timeout(PATIENCE, compared).await.unwrap();
        assert_eq!(found, expected, "{lie}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_with_initial_events_is_compared_from_its_first_event_on() {
    let stage = Stage::new().await;
    let target = format!(
        "{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut body = stage.get(&target, "nothing").await.into_body();
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let compared = async {
        // The initial events are one comparison.
        assert_eq!(stage.compared("WATCH", 1).await, [("equal", 1)]);
        stage.create("d").await;
        stage.compared("WATCH", 2).await
    };
    let found = tokio::select! {
        found = compared => found,
        () = read => panic!("the watch ended"),
    };
    assert_eq!(found, [("equal", 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_memory_does_not_answer_is_not_comparable() {
    let stage = Stage::new().await;
    let (version, _) = listed(stage.apiserver.address()).await;
    // Only upstream renders Tables, and the test's API server does not.
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let response = connect_and_get_as(HttpVersion::One, stage.gateway.address, CONFIGMAPS, table);
    assert_eq!(response.await.unwrap().status(), 200);
    assert_eq!(stage.compared("LIST", 1).await, [("not_comparable", 1)]);
    // Memory's history begins later.
    bytes(stage.gateway.address, CONFIGMAPS).await;
    stage.compared("LIST", 2).await;
    let before = version - 1;
    let target = format!("{CONFIGMAPS}?resourceVersion={before}&resourceVersionMatch=Exact");
    bytes(stage.gateway.address, &target).await;
    let found = stage.compared("LIST", 3).await;
    assert_eq!(found, [("equal", 1), ("not_comparable", 2)]);
}

/// Lists in all ways until the test ends: whole, in pages, by selector, in both encodings, over both versions of HTTP.
async fn list_on(gateway: SocketAddr, on: watch::Receiver<bool>, http: HttpVersion, accept: &str) {
    while *on.borrow() {
        for options in [
            "",
            "?resourceVersion=0",
            "?labelSelector=app%3Dapp-1",
            "?fieldSelector=metadata.namespace%3Ddefault",
        ] {
            let target = format!("{CONFIGMAPS}{options}");
            let response = connect_and_get_as(http, gateway, &target, accept).await;
            response.unwrap().into_body().collect().await.unwrap();
        }
        let mut token = String::new();
        while *on.borrow() {
            let target = format!("{CONFIGMAPS}?limit=30&continue={token}");
            let response = connect_and_get_as(http, gateway, &target, "application/json").await;
            let page = response.unwrap().into_body().collect().await.unwrap();
            let page: serde_json::Value = serde_json::from_slice(&page.to_bytes()).unwrap();
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => next.clone_into(&mut token),
                _ => break,
            }
        }
    }
}

/// Waits until so many watches are being compared.
async fn watches_compared(gateway: &Running, count: usize) {
    until("the comparisons have begun or ended", async || {
        metric_sum(gateway.admin, "kube_fanout_shadow_watches", "").await == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_writes_nothing_differs_and_clients_get_everything() {
    let seconds = std::env::var("KUBE_FANOUT_TEST_SHADOW_SECONDS");
    let seconds = seconds.map_or(10, |text| text.parse().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=200".parse().unwrap()],
        object_len: 600,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let relay = protobuf_relay::start(apiserver.address()).await;
    let gateway = ruled(relay.address, "shadow").await;
    // The first comparison starts the cache, whose history must reach back to where the watches begin.
    bytes(gateway.address, CONFIGMAPS).await;
    while outcomes(gateway.admin, "LIST").await.is_empty() {
        sleep(Duration::from_millis(20)).await;
    }
    let (from, _) = listed(apiserver.address()).await;
    let (last_version, last) = watch::channel(u64::MAX);
    let balancer = Balancer::of(&[gateway.address]);
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let store = Store::after(from, "");
        let client = http1_client(gateway.address, balancer.clone(), last.clone(), store);
        clients.spawn(async move { vec![client.await] });
    }
    for _ in 0..5 {
        let store = Store::after(from, "");
        clients.spawn(http2_client(
            gateway.address,
            balancer.clone(),
            last.clone(),
            store,
        ));
    }
    let (on, is_on) = watch::channel(true);
    let mut lists = JoinSet::new();
    for http in [HttpVersion::One, HttpVersion::Two] {
        for accept in ["application/json", PROTOBUF] {
            lists.spawn(list_on(gateway.address, is_on.clone(), http, accept));
        }
    }
    apiserver.set_churn(30);
    sleep(Duration::from_secs(seconds)).await;
    apiserver.set_churn(0);
    on.send(false).unwrap();
    lists.join_all().await;
    let (newest, _) = listed(apiserver.address()).await;
    last_version.send(newest).unwrap();
    let mut events = 0;
    for store in clients.join_all().await.into_iter().flatten() {
        events += store.events_until(newest).len();
    }
    // A client that leaves has events that are still to be compared.
    watches_compared(&gateway, 0).await;
    for verb in ["LIST", "WATCH"] {
        let found = outcomes(gateway.admin, verb).await;
        let differences = ["missing", "extra", "content", "status"];
        let is_difference = |(outcome, _): &&(&str, usize)| differences.contains(outcome);
        assert_eq!(found.iter().find(is_difference), None, "{verb}: {found:?}");
    }
    let compared = outcomes(gateway.admin, "WATCH").await;
    #[allow(clippy::print_stdout, reason = "shows what the run covered")]
    {
        let lists = outcomes(gateway.admin, "LIST").await;
        println!("{events} events; watches: {compared:?}; lists: {lists:?}");
    }
    let equal = compared.iter().find(|(outcome, _)| *outcome == "equal");
    assert!(
        equal.is_some_and(|(_, count)| *count > events / 2),
        "{compared:?} of {events}"
    );
}
