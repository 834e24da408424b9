//! Gateways of which one has all clients, as after a rolling update: it sends clients away until the others have as many, and no client
//! misses an event or has to list.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube_fanout::config::{HandoverSettings, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::PATIENCE;
use crate::support::client::{listed, metric_sum};
use crate::support::gateway::Running;
use crate::support::resuming::{Balancer, Store, http1_client, http2_client};

/// Clients with a watch over HTTP/1.1, and clients with two watches on one connection of HTTP/2.
const HTTP1_CLIENTS: usize = 100;
const HTTP2_CLIENTS: usize = 50;
const WATCHES: usize = HTTP1_CLIENTS + 2 * HTTP2_CLIENTS;
/// The most that a gateway may have more than the mean of two.
const MARGIN: usize = 50;
/// Longer than clients need to arrive elsewhere.
const INTERVAL: Duration = Duration::from_secs(4);

/// An address that leads to a gateway which starts later: each needs to know where the other one is.
struct LaterAddress {
    address: SocketAddr,
    gateway: watch::Sender<Option<SocketAddr>>,
}

impl LaterAddress {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (gateway, known) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                // Before that there is nobody.
                let Some(gateway) = *known.borrow() else {
                    continue;
                };
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(gateway).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Self { address, gateway }
    }
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=50".parse().unwrap()],
        object_len: 600,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// A gateway that compares itself with the one at this address.
async fn gateway(apiserver: &Apiserver, peer: SocketAddr) -> Running {
    let upstream = format!("http://{}", apiserver.address()).parse().unwrap();
    let settings = ServeSettings {
        handover: Some(HandoverSettings {
            from: format!("http://{peer}").parse().unwrap(),
            ca_file: None,
            server_name: None,
            token_file: None,
            timeout: Duration::from_secs(5),
            len_max: 1 << 30,
            rebalance_interval: Some(INTERVAL),
        }),
        ..ServeSettings::embedded(upstream)
    };
    Running::start(settings, Drain::new()).await
}

async fn watches(gateway: &Running) -> usize {
    metric_sum(gateway.admin, "kube_fanout_longrunning_requests", "").await
}

async fn lists(gateway: &Running) -> usize {
    metric_sum(gateway.admin, "kube_fanout_request_total", "verb=\"LIST\"").await
}

/// Waits until the gateways have about as many watches, and all clients have one.
async fn balanced(gateways: [&Running; 2]) {
    let give_up_at = Instant::now() + 2 * PATIENCE;
    loop {
        let [one, other] = [watches(gateways[0]).await, watches(gateways[1]).await];
        if one + other == WATCHES && one.max(other) <= WATCHES / 2 + MARGIN {
            return;
        }
        assert!(Instant::now() < give_up_at, "{one} and {other} watches");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until each gateway has compared itself so many times more and found nothing to do.
async fn rested(gateways: [&Running; 2], comparisons: usize) {
    let count = async |gateway: &Running| {
        let name = "kube_fanout_rebalance_comparisons_total";
        metric_sum(gateway.admin, name, "outcome=\"balanced\"").await
    };
    let give_up_at = Instant::now() + 2 * PATIENCE;
    for gateway in gateways {
        let enough = count(gateway).await + comparisons;
        while count(gateway).await < enough {
            assert!(Instant::now() < give_up_at, "no rest");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Connections whose clients were sent away, at each gateway.
async fn sent_away(gateways: [&Running; 2]) -> [usize; 2] {
    let [one, other] = gateways
        .map(|gateway| metric_sum(gateway.admin, "kube_fanout_rebalance_connections_total", ""));
    [one.await, other.await]
}

/// Once the gateways are balanced, nobody moves any more.
async fn check_rest(gateways: [&Running; 2]) {
    rested(gateways, 2).await;
    let sent = sent_away(gateways).await;
    rested(gateways, 2).await;
    assert_eq!(sent_away(gateways).await, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_move_to_a_gateway_that_has_none_and_miss_nothing() {
    let apiserver = apiserver().await;
    let later = LaterAddress::new().await;
    let empty = gateway(&apiserver, later.address).await;
    let full = gateway(&apiserver, empty.address).await;
    later.gateway.send(Some(full.address)).unwrap();
    let (from, _) = listed(full.address).await;
    listed(empty.address).await;
    let lists_before = [lists(&full).await, lists(&empty).await];
    let balancer = Balancer::of(&[full.address, empty.address]);
    let (last_version, last) = watch::channel(u64::MAX);
    let direct = http1_client(
        apiserver.address(),
        Balancer::of(&[apiserver.address()]),
        last.clone(),
        Store::after(from, ""),
    );
    let direct = tokio::spawn(direct);
    let mut clients = JoinSet::new();
    for _ in 0..HTTP1_CLIENTS {
        let (balancer, last) = (Arc::clone(&balancer), last.clone());
        let client = http1_client(full.address, balancer, last, Store::after(from, ""));
        clients.spawn(async move { vec![client.await] });
    }
    for _ in 0..HTTP2_CLIENTS {
        let (balancer, last) = (Arc::clone(&balancer), last.clone());
        clients.spawn(http2_client(
            full.address,
            balancer,
            last,
            Store::after(from, ""),
        ));
    }
    apiserver.set_churn(50);
    let both = [&full, &empty];
    balanced(both).await;
    check_rest(both).await;
    balanced(both).await;
    apiserver.set_churn(0);
    let (newest, _) = listed(apiserver.address()).await;
    last_version.send(newest).unwrap();

    let direct = direct.await.unwrap().events_until(newest);
    assert!(!direct.is_empty());
    let (mut moved, mut count) = (0, 0);
    for store in clients.join_all().await.into_iter().flatten() {
        assert_eq!(store.events_until(newest), direct);
        assert_eq!(store.unmarked_ends, 0, "each watch ends with a bookmark");
        moved += store.ends;
        count += 1;
    }
    assert_eq!(count, WATCHES);
    assert_eq!([lists(&full).await, lists(&empty).await], lists_before);
    let ends = metric_sum(
        full.admin,
        "kube_fanout_stream_ends_total",
        "reason=\"rebalance\"",
    )
    .await;
    // The last clients may have left before they saw their watch end.
    assert!(ends >= moved, "{ends} {moved}");
    assert!(moved >= WATCHES / 2 - MARGIN, "{moved}");
    // The other gateway had fewer all the time.
    assert_eq!(
        metric_sum(empty.admin, "kube_fanout_rebalance_connections_total", "").await,
        0
    );
}
