//! A second gateway that reads from a first one. Faults of the API server, of the first gateway and of the network between the gateways
//! must not disturb the clients of the second gateway, and their stores must be complete.

use kube_fanout_testkit::apiserver::faults::Fault;
use kube_fanout_testkit::apiserver::request::Verb;

use crate::kube_rs::stage::Stage;
use crate::kube_rs::store_watcher::StoreWatcher;
use crate::kube_rs::{
    KIND_COUNT, SELECTORS, converge, end_in_quiet, filled, list_methods, watch_with,
};
use crate::support::history::{order, until};

/// A stage of two gateways, with watchers whose first lists are complete.
async fn tiers() -> (Stage, Vec<StoreWatcher>) {
    let (mut stage, mut watchers) = (Stage::behind_gateway().await, Vec::new());
    stage.churn(50).await;
    // Fill the caches first, because the gateway forwards requests while it fills a cache.
    stage.fill_caches().await;
    for ((method, config), selector) in list_methods()
        .into_iter()
        .zip(SELECTORS.into_iter().cycle())
    {
        watch_with(
            &stage,
            &mut watchers,
            (method, config, selector),
            "from the start",
        );
    }
    filled(&mut watchers).await;
    (stage, watchers)
}

/// Checks that no watcher was disturbed, and that all receive further writes.
async fn end(stage: Stage, mut watchers: Vec<StoreWatcher>) {
    for watcher in &watchers {
        watcher.check_undisturbed();
    }
    end_in_quiet(&stage, &mut watchers).await;
    // One watch for each kind, one of namespaces, which the second gateway lists to probe its upstream, and two of APIServices: the first
    // gateway's own, and that of its cache for the second one.
    let server = &stage.server;
    until("one upstream watch per kind", || {
        server.watch_count() <= KIND_COUNT + 3
    })
    .await;
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_the_api_server_reach_no_client_of_the_second_gateway() {
    let (mut stage, mut watchers) = tiers().await;
    let count = u32::try_from(KIND_COUNT).unwrap();
    let refusal = |code| Fault::Refuse {
        code,
        retry_after_seconds: 1,
    };
    for fault in [
        Fault::CutWatch { after_bytes: 700 },
        Fault::GarbageFrame,
        Fault::CloseConnection,
        refusal(503),
        refusal(410),
    ] {
        order(&stage.server, fault, Some(Verb::Watch), count);
        order(&stage.server, Fault::EndWatches, None, 1);
        stage.churn(10).await;
        converge(&mut watchers).await;
    }
    stage.lose_history(20).await;
    converge(&mut watchers).await;
    end(stage, watchers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_breaks_or_goes_silent_between_gateways_loses_nothing() {
    let (mut stage, mut watchers) = tiers().await;
    stage.wire().cut();
    stage.churn_directly(10).await;
    converge(&mut watchers).await;
    // First the silence ends, then it ends by breaking the connections.
    for cuts_connections in [false, true] {
        stage.wire().set_silent(true);
        stage.churn_directly(20).await;
        if cuts_connections {
            stage.wire().cut();
        }
        stage.wire().set_silent(false);
        converge(&mut watchers).await;
    }
    end(stage, watchers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_restarted_before_another_loses_nothing() {
    let (mut stage, mut watchers) = tiers().await;
    stage.stop_first_gateway().await;
    stage.churn_directly(10).await;
    stage.start_first_gateway().await;
    stage.churn_directly(10).await;
    converge(&mut watchers).await;
    // The API server compacts the history of the writes that no gateway has seen.
    stage.stop_first_gateway().await;
    stage.churn_directly(20).await;
    order(&stage.server, Fault::Compact, None, 1);
    stage.start_first_gateway().await;
    converge(&mut watchers).await;
    end(stage, watchers).await;
}
