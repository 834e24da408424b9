//! A gateway behind a gateway. Faults strike the API server, the gateway in front of it and the network between the two; clients of
//! the other gateway notice nothing and have everything.

use kube_fanout::apiserver::faults::Fault;
use kube_fanout::apiserver::route::ResourceVerb;

use crate::kube_rs::follower::Follower;
use crate::kube_rs::stage::Stage;
use crate::kube_rs::{KIND_COUNT, SELECTORS, converge, end_in_quiet, filled, follow, ways};
use crate::support::history::{order, until};

/// A stage of two gateways with clients that have their first lists.
async fn tiers() -> (Stage, Vec<Follower>) {
    let (mut stage, mut followers) = (Stage::behind_gateway().await, Vec::new());
    stage.churn(50).await;
    // What comes while caches are filled may be forwarded, for a while.
    stage.fill_caches().await;
    for ((way, config), selector) in ways().into_iter().zip(SELECTORS.into_iter().cycle()) {
        follow(
            &stage,
            &mut followers,
            (way, config, selector),
            "from the start",
        );
    }
    filled(&mut followers).await;
    (stage, followers)
}

/// All clients have everything, also of what is written from now on, and no client was disturbed.
async fn end(stage: Stage, mut followers: Vec<Follower>) {
    for follower in &followers {
        follower.check_undisturbed();
    }
    end_in_quiet(&stage, &mut followers).await;
    // One of each kind, and one of namespaces, which the second gateway lists to learn about the API server.
    let server = &stage.server;
    until("one watch a kind", || {
        server.watch_count() <= KIND_COUNT + 1
    })
    .await;
    stage.strike().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_the_api_server_reach_no_client_of_the_second_gateway() {
    let (mut stage, mut followers) = tiers().await;
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
        order(&stage.server, fault, Some(ResourceVerb::Watch), count);
        order(&stage.server, Fault::EndWatches, None, 1);
        stage.churn(10).await;
        converge(&mut followers).await;
    }
    stage.tear_history(20).await;
    converge(&mut followers).await;
    end(stage, followers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_breaks_or_goes_silent_between_gateways_loses_nothing() {
    let (mut stage, mut followers) = tiers().await;
    stage.wire().cut();
    stage.churn_directly(10).await;
    converge(&mut followers).await;
    // Silence that ends, and silence that ends with the connections.
    for breaks in [false, true] {
        stage.wire().set_silent(true);
        stage.churn_directly(20).await;
        if breaks {
            stage.wire().cut();
        }
        stage.wire().set_silent(false);
        converge(&mut followers).await;
    }
    end(stage, followers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_restarted_before_another_loses_nothing() {
    let (mut stage, mut followers) = tiers().await;
    stage.stop_lower().await;
    stage.churn_directly(10).await;
    stage.start_lower().await;
    stage.churn_directly(10).await;
    converge(&mut followers).await;
    // The API server forgets what was written while there was no gateway before it.
    stage.stop_lower().await;
    stage.churn_directly(20).await;
    order(&stage.server, Fault::Compact, None, 1);
    stage.start_lower().await;
    converge(&mut followers).await;
    end(stage, followers).await;
}
