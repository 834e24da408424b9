//! A gateway that reads from another one asks it for gzip; its clients do not notice.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http_body_util::Full;
use hyper::body::Bytes;

use super::client::{Asked, Client};
use super::stage::Stage;
use super::{CONFIGMAPS, INPUT, SENT, WATCH};
use crate::support::auth::until;
use crate::support::client::{HttpVersion, get, metric_sum, send};
use crate::support::gateway::Running;

const OBJECTS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gateway_is_sent_a_fraction_and_gives_its_clients_all() {
    let stage = Stage::new().await;
    let second = stage.behind().await;
    let mut last = String::new();
    for _ in 0..OBJECTS {
        last = stage.create_alike().await;
    }
    filled(&second, CONFIGMAPS).await;
    let target = format!(
        "{WATCH}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    );
    let asked = Asked {
        target: &target,
        encoding: "identity",
        ..Asked::default()
    };
    let mut clients = [
        Client::open(HttpVersion::One, stage.gateway.address, &asked).await,
        Client::open(HttpVersion::One, second.address, &asked).await,
        // A single client does not change what the second gateway gets.
        Client::open(HttpVersion::One, stage.gateway.address, &Asked::default()).await,
    ];
    all_until(&mut clients, &last).await;
    let metric = |name| metric_sum(stage.gateway.admin, name, "resource=\"configmaps\"");
    let (input, sent) = (metric(INPUT).await, metric(SENT).await);
    for _ in 0..OBJECTS {
        let name = stage.create_alike().await;
        all_until(&mut clients, &name).await;
    }
    let is_counted = async || metric(INPUT).await >= input + 2 * OBJECTS * 2_000;
    until("the events are counted", is_counted).await;
    let (input, sent) = (metric(INPUT).await - input, metric(SENT).await - sent);
    assert!(sent * 4 < input, "{sent} of {input} bytes");
    for len in [100, 1 << 20, 700] {
        let name = stage.create(CONFIGMAPS, len).await;
        all_until(&mut clients, &name).await;
    }
    assert!(clients[0].steady().eq(clients[1].steady()));
    drop(clients);
    second.ended().await;
    stage.end().await;
}

async fn all_until(clients: &mut [Client], name: &str) {
    for client in clients {
        client.until(name).await;
    }
}

/// Waits until the gateway answers from its own memory.
async fn filled(gateway: &Running, resource: &str) {
    let label = format!("resource=\"{resource}\"");
    until("the cache is filled", async || {
        let path = format!("/api/v1/{resource}?limit=1");
        assert_eq!(get(gateway.address, &path).await.status(), 200);
        metric_sum(
            gateway.admin,
            "kube_fanout_cache_initializations_total",
            &label,
        )
        .await
            > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_not_compressed_between_gateways() {
    let stage = Stage::new().await;
    let second = stage.behind().await;
    for (resource, is_compressed) in [("secrets", false), (CONFIGMAPS, true)] {
        filled(&second, resource).await;
        let target = format!("/api/v1/{resource}?watch=1");
        let asked = Asked {
            target: &target,
            ..Asked::default()
        };
        let mut client = Client::open(HttpVersion::One, second.address, &asked).await;
        for len in [100, 5_000] {
            let name = stage.create(resource, len).await;
            client.until(&name).await;
        }
        let label = format!("resource=\"{resource}\"");
        let input = metric_sum(stage.gateway.admin, INPUT, &label).await;
        assert_eq!(input > 0, is_compressed, "{resource}: {input} bytes");
    }
    second.ended().await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_for_gateways_are_compressed_but_those_of_secrets() {
    let stage = Stage::new().await;
    for (resource, coding) in [("secrets", None), (CONFIGMAPS, Some("gzip"))] {
        stage.create(resource, 200_000).await;
        filled(&stage.gateway, resource).await;
        let list = http::Request::get(format!("/api/v1/{resource}"))
            .header("host", "gateway")
            .header(ACCEPT_ENCODING, "x-gzip")
            .body(Full::<Bytes>::default())
            .unwrap();
        let list = send(stage.gateway.address, list).await;
        let answered = list.headers().get(CONTENT_ENCODING);
        assert_eq!(answered.map(|coding| coding.to_str().unwrap()), coding);
    }
    stage.end().await;
}
