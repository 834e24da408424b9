//! Unmodified kube-rs as a client of the gateway: its stores must end up equal to the API server's objects.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod asked;
mod stage;
pub(crate) mod store_watcher;
mod tiers;

use crate::support::history;
use crate::support::quiet;
use history::{order, until};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::watcher::Config;
use kube_fanout_testkit::apiserver::faults::Fault;
use stage::Stage;
use store_watcher::StoreWatcher;

/// The number of watched kinds, which is also the number of watches upstream.
const KIND_COUNT: usize = 3;
const SELECTORS: [Option<&str>; 3] = [None, Some("colour=red"), Some("colour notin (red, green)")];

/// The writes of a burst, and the bytes of each object: a single object never fills what the gateway sends in one turn, some bursts do.
const BURSTS: [(usize, usize); 4] = [(1, 100), (2, 70_000), (4, 70_000), (20, 20_000)];

/// The ways in which kube-rs can get the initial state.
fn list_methods() -> [(&'static str, Config); 4] {
    [
        ("list-watch", Config::default()),
        ("list-watch by pages", Config::default().page_size(2)),
        (
            "list-watch from any version",
            Config::default().any_semantic(),
        ),
        ("streaming list", Config::default().streaming_lists()),
    ]
}

/// Starts watchers of all kinds, with every way of listing and every selector.
fn watch_all(stage: &Stage, watchers: &mut Vec<StoreWatcher>, when: &str) {
    for (method, config) in list_methods() {
        for selector in SELECTORS {
            watch_with(stage, watchers, (method, config.clone(), selector), when);
        }
    }
}

/// Starts watchers of all kinds, with one way of listing and one selector.
fn watch_with(
    stage: &Stage,
    watchers: &mut Vec<StoreWatcher>,
    (method, mut config, selector): (&str, Config, Option<&str>),
    when: &str,
) {
    config.label_selector = selector.map(str::to_owned);
    let name = |what: &str| format!("{what}, {method}, selector {selector:?}, {when}");
    let copy = || config.clone();
    watchers.extend([
        StoreWatcher::start(name("pods"), stage.typed::<Pod>(), copy()),
        StoreWatcher::start(name("config maps"), stage.typed::<ConfigMap>(), copy()),
        StoreWatcher::start(name("dynamic pods"), stage.dynamic("", "Pod"), copy()),
        StoreWatcher::start(
            name("widgets"),
            stage.dynamic("example.com", "Widget"),
            copy(),
        ),
        StoreWatcher::start(name("pods of a namespace"), stage.namespaced_pods(), copy()),
    ]);
}

/// Waits until all stores equal the server's objects; some stores must not be empty.
async fn converge(watchers: &mut [StoreWatcher]) {
    let mut object_count = 0;
    for watcher in watchers {
        object_count += watcher.converged().await;
    }
    assert!(object_count > 0, "all stores are empty");
}

/// Writes bursts of every size, and checks after each that nothing is missing although no further event follows.
async fn end_in_quiet(stage: &Stage, watchers: &mut [StoreWatcher]) {
    // A watcher may still be waiting to watch again; after this write has arrived, all of them are watching.
    stage.burst(1, 0).await;
    converge(watchers).await;
    for (count, len) in BURSTS {
        stage.burst(count, len).await;
        let changes = || watchers.iter().map(|watcher| watcher.stats().changes).sum();
        let missing = async || {
            let mut missing = Vec::new();
            for watcher in &*watchers {
                if !watcher.is_equal().await {
                    missing.push(watcher.name().to_owned());
                }
            }
            missing
        };
        let missing = quiet::missing_in_quiet(missing, changes).await;
        assert!(
            missing.is_empty(),
            "incomplete after {count} writes of {len} bytes: {missing:?}"
        );
    }
}

async fn filled(watchers: &mut [StoreWatcher]) {
    for watcher in watchers {
        watcher.filled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_follow_every_write() {
    let mut stage = Stage::start().await;
    let mut watchers = Vec::new();
    stage.churn(30).await;
    watch_all(&stage, &mut watchers, "from the start");
    filled(&mut watchers).await;
    stage.churn(40).await;
    // These watchers list and start to watch while objects change.
    watch_all(&stage, &mut watchers, "during writes");
    stage.churn(70).await;
    converge(&mut watchers).await;
    for watcher in &watchers {
        watcher.check_undisturbed();
    }
    let changes = watchers[0].stats().changes;
    assert!(changes >= 100, "{} saw {changes}", watchers[0].name());
    // One for each kind, and one of APIServices.
    assert_eq!(stage.server.watch_count(), KIND_COUNT + 1);
    end_in_quiet(&stage, &mut watchers).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_converge_unaware_of_upstream_watches_that_end() {
    let mut stage = Stage::start().await;
    let mut watchers = Vec::new();
    stage.churn(50).await;
    watch_all(&stage, &mut watchers, "from the start");
    filled(&mut watchers).await;
    for after_bytes in [0, 700, 5000] {
        let count = u32::try_from(KIND_COUNT).unwrap();
        order(&stage.server, Fault::CutWatch { after_bytes }, None, count);
        order(&stage.server, Fault::EndWatches, None, 1);
        stage.churn(20).await;
        converge(&mut watchers).await;
    }
    for watcher in &watchers {
        watcher.check_undisturbed();
    }
    end_in_quiet(&stage, &mut watchers).await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_converge_after_history_was_forgotten_upstream() {
    let mut stage = Stage::start().await;
    let mut watchers = Vec::new();
    stage.churn(50).await;
    watch_all(&stage, &mut watchers, "from the start");
    filled(&mut watchers).await;
    for _ in 0..2 {
        stage.lose_history(30).await;
        converge(&mut watchers).await;
    }
    assert!(stage.metric("kube_fanout_upstream_relists_total").await >= 3.0);
    // These watchers read the relisted caches.
    watch_all(&stage, &mut watchers, "after the relists");
    stage.churn(20).await;
    converge(&mut watchers).await;
    for watcher in &watchers {
        watcher.check_undisturbed();
    }
    let server = &stage.server;
    until("one upstream watch per kind", || {
        server.watch_count() == KIND_COUNT + 1
    })
    .await;
    end_in_quiet(&stage, &mut watchers).await;
    stage.shut_down().await;
}
