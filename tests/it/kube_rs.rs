//! kube-rs, unmodified, as a client of the gateway: its stores end up as what the API server holds.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod asked;
mod follower;
mod named;
mod stage;
mod tiers;

use crate::support::history;
use crate::support::quiet;
use follower::Follower;
use history::{order, until};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::watcher::Config;
use kube_fanout::apiserver::faults::Fault;
use stage::Stage;

/// Kinds that are watched, and so watches upstream.
const KIND_COUNT: usize = 3;
const SELECTORS: [Option<&str>; 3] = [None, Some("colour=red"), Some("colour notin (red, green)")];

/// Writes of a burst, and bytes of each object: none of them alone fills what is sent in one go, some together do.
const BURSTS: [(usize, usize); 4] = [(1, 100), (2, 70_000), (4, 70_000), (20, 20_000)];

/// The ways of kube-rs to get the first state.
fn ways() -> [(&'static str, Config); 4] {
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

/// Begins to watch everything, in every way, with every selector.
fn follow_all(stage: &Stage, followers: &mut Vec<Follower>, when: &str) {
    for (way, config) in ways() {
        for selector in SELECTORS {
            follow(stage, followers, (way, config.clone(), selector), when);
        }
    }
}

/// Begins to watch everything in one way, with one selector.
fn follow(
    stage: &Stage,
    followers: &mut Vec<Follower>,
    (way, mut config, selector): (&str, Config, Option<&str>),
    when: &str,
) {
    config.label_selector = selector.map(str::to_owned);
    let name = |what: &str| format!("{what}, {way}, selector {selector:?}, {when}");
    let of = || config.clone();
    followers.extend([
        Follower::start(name("pods"), stage.typed::<Pod>(), of()),
        Follower::start(name("config maps"), stage.typed::<ConfigMap>(), of()),
        Follower::start(name("dynamic pods"), stage.dynamic("", "Pod"), of()),
        Follower::start(
            name("widgets"),
            stage.dynamic("example.com", "Widget"),
            of(),
        ),
        Follower::start(name("pods of a namespace"), stage.namespaced_pods(), of()),
    ]);
}

/// Waits until all stores are what the server holds; some of them must hold something.
async fn converge(followers: &mut [Follower]) {
    let mut held = 0;
    for follower in followers {
        held += follower.converged().await;
    }
    assert!(held > 0, "all stores are empty");
}

/// Bursts of objects of every size, each followed by silence.
async fn end_in_quiet(stage: &Stage, followers: &mut [Follower]) {
    // Whoever is about to watch again may take its time; from then on all watch.
    stage.burst(1, 0).await;
    converge(followers).await;
    for (count, len) in BURSTS {
        stage.burst(count, len).await;
        let changes = || followers.iter().map(|one| one.course().changes).sum();
        let missing = async || {
            let mut missing = Vec::new();
            for follower in &*followers {
                if !follower.agrees().await {
                    missing.push(follower.name().to_owned());
                }
            }
            missing
        };
        let missing = quiet::missing_in_quiet(missing, changes).await;
        assert!(
            missing.is_empty(),
            "behind at the end, {count} writes of {len} bytes: {missing:?}"
        );
    }
}

async fn filled(followers: &mut [Follower]) {
    for follower in followers {
        follower.filled().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_follow_every_write() {
    let mut stage = Stage::set().await;
    let mut followers = Vec::new();
    stage.churn(30).await;
    follow_all(&stage, &mut followers, "from the start");
    filled(&mut followers).await;
    stage.churn(40).await;
    // These list and begin to watch while objects change.
    follow_all(&stage, &mut followers, "amid writes");
    stage.churn(70).await;
    converge(&mut followers).await;
    for follower in &followers {
        follower.check_undisturbed();
    }
    let changes = followers[0].course().changes;
    assert!(changes >= 100, "{} saw {changes}", followers[0].name());
    assert_eq!(stage.server.watch_count(), KIND_COUNT);
    end_in_quiet(&stage, &mut followers).await;
    stage.strike().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_converge_unaware_of_upstream_watches_that_end() {
    let mut stage = Stage::set().await;
    let mut followers = Vec::new();
    stage.churn(50).await;
    follow_all(&stage, &mut followers, "from the start");
    filled(&mut followers).await;
    for after_bytes in [0, 700, 5000] {
        let count = u32::try_from(KIND_COUNT).unwrap();
        order(&stage.server, Fault::CutWatch { after_bytes }, None, count);
        order(&stage.server, Fault::EndWatches, None, 1);
        stage.churn(20).await;
        converge(&mut followers).await;
    }
    for follower in &followers {
        follower.check_undisturbed();
    }
    end_in_quiet(&stage, &mut followers).await;
    stage.strike().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_converge_after_history_was_forgotten_upstream() {
    let mut stage = Stage::set().await;
    let mut followers = Vec::new();
    stage.churn(50).await;
    follow_all(&stage, &mut followers, "from the start");
    filled(&mut followers).await;
    for _ in 0..2 {
        stage.tear_history(30).await;
        converge(&mut followers).await;
    }
    assert!(stage.metric("kube_fanout_upstream_relists_total").await >= 3.0);
    // Whoever comes now meets the relisted caches.
    follow_all(&stage, &mut followers, "after the relists");
    stage.churn(20).await;
    converge(&mut followers).await;
    for follower in &followers {
        follower.check_undisturbed();
    }
    let server = &stage.server;
    until("one watch a kind", || server.watch_count() == KIND_COUNT).await;
    end_in_quiet(&stage, &mut followers).await;
    stage.strike().await;
}
