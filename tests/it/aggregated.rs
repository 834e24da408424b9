//! An aggregated API server that shows each caller something else: through a gateway, every caller gets what the server itself would send,
//! byte for byte, however the gateway came to know the group, and whatever it held before.

mod random_requests;
mod server;
mod stage;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use http::StatusCode;
use kube_fanout::config::{CacheLists, ResourcePattern, ServeSettings};
use serde_json::Value;

use crate::support::auth::{next_piece, read_to_end, until};
use crate::support::random::Random;
use random_requests::{CallerRequest, Comparison};
use stage::{ADMIN, AggregatedStage, CALLERS, POLICIES, state_in};

/// Requests of each comparison.
const REQUESTS: usize = 67;

fn named(settings: &mut ServeSettings) {
    let patterns = ["*", "*.projectcalico.org"].map(|text| text.parse::<ResourcePattern>());
    settings.cached = CacheLists {
        allowed: patterns.map(Result::unwrap).to_vec(),
        denied: Vec::new(),
    };
}

async fn compare(stage: &AggregatedStage, gateway: std::net::SocketAddr, seed: u64) -> Comparison {
    let mut random = Random(seed);
    let mut comparison = Comparison::default();
    for _ in 0..REQUESTS {
        let request = CallerRequest::random(&mut random);
        comparison.compare(stage, gateway, &request).await;
    }
    comparison
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_caller_gets_what_the_server_shows_to_that_caller() {
    let stage = AggregatedStage::new().await;
    stage.serve_by_service().await;
    let gateway = stage.gateway(|_| {}).await;
    let comparison = compare(&stage, gateway.address, 1).await;
    comparison.assert_equal();
    // The comparison covers callers who see everything, something and nothing.
    assert!(comparison.codes.is_superset(&BTreeSet::from([200, 403])));
    gateway.ended().await;
}

/// Before the mend this is what every gateway did.
#[tokio::test]
async fn a_group_that_the_operator_names_is_cached_and_the_comparison_notices() {
    let stage = AggregatedStage::new().await;
    stage.serve_by_service().await;
    let gateway = stage.gateway(named).await;
    let comparison = compare(&stage, gateway.address, 1).await;
    assert!(comparison.differences > 0);
    gateway.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_moves_to_a_service_gives_its_cache_up_at_once() {
    let stage = AggregatedStage::new().await;
    let (folder, state) = state_in("moves");
    let gateway = stage.gateway(|settings| settings.state = Some(state)).await;
    let list = stage.get(gateway.address, ADMIN, POLICIES).await;
    assert_eq!(list.status(), StatusCode::OK);
    let list: Value = serde_json::from_slice(list.body()).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    until("the list is served from memory", async || {
        stage.cached_objects(&gateway).await > 0.0
    })
    .await;
    let checkpoint = folder.join("networkpolicies.v3.projectcalico.org.json.checkpoint");
    until("there is a checkpoint", async || checkpoint.exists()).await;
    let target = format!("{POLICIES}?watch=1&resourceVersion={version}");
    let mut watch = stage
        .watch(gateway.address, ADMIN, &target)
        .await
        .into_body();
    stage.touch_policy().await;
    let event = next_piece(&mut watch).await.unwrap();
    assert!(event.starts_with("{\"type\":\"MODIFIED\""), "{event}");

    stage.serve_by_service().await;
    let end = read_to_end(watch).await;
    assert!(end.contains("\"code\":410"), "{end}");
    until("the checkpoint is removed", async || !checkpoint.exists()).await;
    compare(&stage, gateway.address, 2).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);

    // And the other way round: some API server may send requests to the service for a while.
    stage.serve_locally().await;
    compare(&stage, gateway.address, 3).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    gateway.ended().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// A gateway of an older version has left a checkpoint, and another one offers its cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_checkpoint_nor_a_handover_brings_such_a_cache_back() {
    let stage = AggregatedStage::new().await;
    let (folder, state) = state_in("older");
    stage.serve_by_service().await;
    let older = stage
        .gateway(|settings| {
            named(settings);
            settings.state = Some(state.clone());
            settings.pin_resources = vec![stage::policies()];
        })
        .await;
    let checkpoint = folder.join("networkpolicies.v3.projectcalico.org.json.checkpoint");
    until("there is a checkpoint", async || checkpoint.exists()).await;
    older.ended().await;
    assert!(checkpoint.exists());
    let other = stage.gateway(named).await;
    stage.get(other.address, ADMIN, POLICIES).await;
    until("the other gateway has the cache", async || {
        stage.cached_objects(&other).await > 0.0
    })
    .await;

    let gateway = stage
        .gateway(|settings| {
            settings.state = Some(state);
            settings.handover = Some(stage.handover_from(other.address));
        })
        .await;
    until("the gateway is ready", async || {
        stage.is_ready(&gateway).await
    })
    .await;
    until("the checkpoint is removed", async || !checkpoint.exists()).await;
    compare(&stage, gateway.address, 3).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    let handover = "/kube-fanout/handover/networkpolicies.v3.projectcalico.org.json";
    let handed = stage.get(gateway.address, stage::GATEWAY, handover).await;
    assert_eq!(handed.status(), StatusCode::NOT_FOUND);
    gateway.ended().await;
    other.ended().await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// The gateway cannot know yet that the group has moved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cache_is_filled_from_a_service_while_the_watch_of_api_services_is_silent() {
    let stage = AggregatedStage::new().await;
    stage.mode().is_silent.store(true, Ordering::Relaxed);
    let gateway = stage.gateway(|_| {}).await;
    until("the APIServices are known", async || {
        stage
            .metric(&gateway, "kube_fanout_api_services_known")
            .await
            > 0.0
    })
    .await;
    stage.serve_by_service().await;
    compare(&stage, gateway.address, 4).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    gateway.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_not_used_before_it_is_known_that_the_group_has_moved_meanwhile() {
    let stage = AggregatedStage::new().await;
    let (folder, state) = state_in("meanwhile");
    let settings = |settings: &mut ServeSettings| settings.state = Some(state.clone());
    let gateway = stage.gateway(settings).await;
    stage.get(gateway.address, ADMIN, POLICIES).await;
    let checkpoint = folder.join("networkpolicies.v3.projectcalico.org.json.checkpoint");
    until("there is a checkpoint", async || checkpoint.exists()).await;
    gateway.ended().await;

    stage.serve_by_service().await;
    stage.mode().is_unavailable.store(true, Ordering::Relaxed);
    let gateway = stage.gateway(settings).await;
    compare(&stage, gateway.address, 5).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    assert!(
        checkpoint.exists(),
        "it would be used if the group had not moved"
    );
    stage.mode().is_unavailable.store(false, Ordering::Relaxed);
    until("the checkpoint is removed", async || !checkpoint.exists()).await;
    compare(&stage, gateway.address, 6).await.assert_equal();
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    gateway.ended().await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn without_the_right_to_read_api_services_only_built_in_groups_are_cached() {
    let stage = AggregatedStage::without_api_services().await;
    let gateway = stage.gateway(|_| {}).await;
    for (token, _) in CALLERS {
        let [through, direct] = stage.both(gateway.address, token, POLICIES).await;
        assert_eq!(through.body(), direct.body(), "{token}");
    }
    stage
        .get(gateway.address, ADMIN, "/api/v1/configmaps")
        .await;
    assert_eq!(stage.cached_objects(&gateway).await, 0.0);
    assert_eq!(
        stage
            .metric(&gateway, "kube_fanout_api_services_known")
            .await,
        0.0
    );
    let ready = stage.admin(&gateway, "/readyz?verbose").await;
    assert!(ready.contains("only built-in groups"), "{ready}");
    let status = stage.admin(&gateway, "/status.json").await;
    assert!(status.contains("only built-in groups"), "{status}");
    gateway.ended().await;
}
