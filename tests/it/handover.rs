//! A new gateway takes its caches over from another one: upstream is not listed, and clients of the other gateway continue here and miss
//! nothing. What cannot be used costs only its cache, which is then listed upstream.

mod peer;
mod protobuf;
mod rights;

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use http_body_util::Full;
use hyper::body::Bytes;
use kube_fanout::config::{HandoverSettings, ServeSettings};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, Watch, bytes, get, listed, metric, metric_at, send, text,
};
use crate::support::gateway::Running;
use crate::support::process::GatewayProcess;
use peer::Answer;

const OBJECTS: usize = 300;
const STATE: &str = "/kube-fanout/handover/configmaps.v1.json";
const LISTS: &str = "kube_fanout_upstream_lists_total";
const TAKEN: &str = "kube_fanout_handovers_taken_total";

async fn apiserver() -> Apiserver {
    apiserver_of(500).await
}

/// An API server whose objects have this length.
async fn apiserver_of(object_len: usize) -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let objects = [format!("configmaps={OBJECTS}"), "services=20".to_owned()];
    let options = Options {
        objects: objects.map(|text| text.parse().unwrap()).to_vec(),
        object_len,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

fn flags(upstream: SocketAddr, more: &[&str]) -> Vec<String> {
    let flags = ["--upstream", &format!("http://{upstream}")];
    let flags = flags.iter().chain(more);
    flags.map(|flag| (*flag).to_owned()).collect()
}

async fn gateway(upstream: SocketAddr, more: &[&str]) -> GatewayProcess {
    GatewayProcess::start(&flags(upstream, more)).await
}

/// A gateway that takes its caches over from the one at `peer`.
async fn next(upstream: SocketAddr, peer: SocketAddr, more: &[&str]) -> GatewayProcess {
    let from = format!("http://{peer}");
    let flags: Vec<_> = ["--handover-from", &from]
        .iter()
        .chain(more)
        .copied()
        .collect();
    gateway(upstream, &flags).await
}

/// Waits until the gateway is ready; returns what `/readyz` said before.
async fn ready(admin: SocketAddr) {
    let give_up_at = Instant::now() + PATIENCE;
    loop {
        let response = get(admin, "/readyz").await;
        if response.status() == 200 {
            return;
        }
        let checks = text(admin, "/readyz?verbose").await;
        assert!(Instant::now() < give_up_at, "not ready: {checks}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A client that watches through a gateway that is replaced by the next one sees what a direct client sees, byte for byte.
async fn check_replaced((object_len, writes_per_second): (usize, u32), http: HttpVersion) {
    let apiserver = apiserver_of(object_len).await;
    let upstream = apiserver.address();
    let first = gateway(upstream, &[]).await;
    let (version, _) = listed(first.address).await;
    let mut direct = Watch::start(upstream, version).await;
    let mut client = Watch::start_with(http, first.address, version).await;
    apiserver.set_churn(writes_per_second);
    client.read_events(100).await;

    let second = next(upstream, first.address, &[]).await;
    ready(second.admin).await;
    // No client has asked the second gateway yet.
    assert_eq!(metric(&second, TAKEN, "\"taken\"").await, 1.0);
    // A client that has been away since the beginning finds its version here, too.
    let mut away = Watch::start_with(http, second.address, version).await;
    first.kill();
    while client.read().await {}
    let mut client = client.resume(second.address).await;
    client.read_events(100).await;
    apiserver.set_churn(0);
    // The last write: other resources were written to as well.
    let last = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"last"}}"#;
    create(upstream, "/api/v1/namespaces/default/configmaps", last).await;
    let (newest, objects) = listed(upstream).await;
    for watch in [&mut client, &mut direct, &mut away] {
        watch.read_to(newest).await;
    }
    assert_eq!(client.events, direct.events);
    assert_eq!(away.events, direct.events);
    assert_eq!(listed(second.address).await, (newest, objects));
    assert_eq!(metric(&second, LISTS, "").await, 0.0);
}

#[tokio::test]
async fn clients_of_a_replaced_gateway_continue_at_the_next_one() {
    check_replaced((500, 400), HttpVersion::One).await;
}

#[tokio::test]
async fn clients_over_http2_continue_at_the_next_gateway_with_long_objects() {
    check_replaced((20_000, 50), HttpVersion::Two).await;
}

/// A gateway behind a gateway takes over what the first one holds, also if its own client comes before.
#[tokio::test]
async fn a_tier_takes_over_from_the_tier_before_it() {
    let apiserver = apiserver().await;
    let first = gateway(apiserver.address(), &[]).await;
    listed(first.address).await;
    let second = next(first.address, first.address, &[]).await;
    let expected = listed(apiserver.address()).await;
    assert_eq!(listed(second.address).await, expected);
    assert_eq!(metric(&second, TAKEN, "\"taken\"").await, 1.0);
    assert_eq!(metric(&second, LISTS, "").await, 0.0);
}

/// A recent checkpoint is used first; the other gateway is asked if there is none.
#[tokio::test]
async fn a_recent_checkpoint_comes_first() {
    let apiserver = apiserver().await;
    let upstream = apiserver.address();
    let folder = std::env::temp_dir().join(format!("kube-fanout-{}", uuid::Uuid::new_v4()));
    let state = ["--state-dir", folder.to_str().unwrap()];
    let first = gateway(upstream, &[]).await;
    listed(first.address).await;
    let taking = next(upstream, first.address, &state).await;
    ready(taking.admin).await;
    assert_eq!(metric(&taking, TAKEN, "\"taken\"").await, 1.0);
    taking.terminate();

    let restarted = next(upstream, first.address, &state).await;
    ready(restarted.admin).await;
    assert_eq!(listed(restarted.address).await, listed(upstream).await);
    assert_eq!(metric(&restarted, TAKEN, "\"taken\"").await, 0.0);
    let restores = "kube_fanout_checkpoint_restores_total";
    assert_eq!(metric(&restarted, restores, "\"restored\"").await, 1.0);
    assert_eq!(metric(&restarted, LISTS, "").await, 0.0);
    drop(restarted);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_gateway_hands_over_what_it_holds_and_nothing_else() {
    let apiserver = apiserver().await;
    let first = gateway(apiserver.address(), &[]).await;
    assert_eq!(
        text(first.address, "/kube-fanout/handover").await,
        r#"{"caches":[]}"#
    );
    listed(first.address).await;
    let index = text(first.address, "/kube-fanout/handover").await;
    assert_eq!(index, r#"{"caches":["configmaps.v1.json"]}"#);
    let state = bytes(first.address, STATE).await;
    assert!(state.starts_with(b"kfstate\n"));
    for (path, code) in [
        ("/kube-fanout/handover/services.v1.json", 404),
        ("/kube-fanout/handover/configmaps.v1.protobuf", 404),
        ("/kube-fanout/handover/configmaps", 404),
        ("/kube-fanout/handover/", 404),
        // It does not compare itself with other gateways.
        ("/kube-fanout/handover/load", 404),
    ] {
        assert_eq!(get(first.address, path).await.status(), code, "{path}");
    }
    let index = text(first.address, "/kube-fanout/handover").await;
    assert!(
        !index.contains("services"),
        "asking starts no cache: {index}"
    );
    let post = http::Request::builder()
        .method(Method::POST)
        .uri(STATE)
        .header("host", "gateway")
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(send(first.address, post).await.status(), 405);
}

async fn create(server: SocketAddr, collection: &str, object: impl Into<Bytes>) {
    let request = http::Request::post(collection)
        .header("host", "gateway")
        .header("content-type", "application/json")
        .body(Full::new(object.into()))
        .unwrap();
    assert_eq!(send(server, request).await.status(), 201);
}

/// The gateway of a cluster whose uid is known.
async fn with_uid(apiserver: &Apiserver) -> GatewayProcess {
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"}}"#;
    create(apiserver.address(), "/api/v1/namespaces", namespace).await;
    let gateway = gateway(apiserver.address(), &[]).await;
    listed(gateway.address).await;
    gateway
}

/// What a gateway would send for this resource.
async fn state(gateway: &GatewayProcess, name: &str) -> Bytes {
    bytes(gateway.address, &format!("/kube-fanout/handover/{name}")).await
}

/// A gateway whose other gateway answers in this way for config maps, and as it should for services.
const INDEX: &str = r#"{"caches":["configmaps.v1.json","services.v1.json","%","pods.v1.yaml"]}"#;

/// A gateway that has both caches.
async fn honest_gateway(upstream: SocketAddr) -> GatewayProcess {
    let honest = gateway(upstream, &[]).await;
    for path in [CONFIGMAPS, "/api/v1/services"] {
        assert_eq!(get(honest.address, path).await.status(), 200);
    }
    honest
}

async fn check_refused(answer: Answer, outcome: &str) {
    let apiserver = apiserver().await;
    let honest = honest_gateway(apiserver.address()).await;
    check_refused_before(&apiserver, &honest, answer, outcome).await;
}

async fn check_refused_before(
    apiserver: &Apiserver,
    honest: &GatewayProcess,
    answer: Answer,
    outcome: &str,
) {
    let upstream = apiserver.address();
    let services = state(honest, "services.v1.json").await;
    let peer = peer::start(INDEX, services, answer).await;
    let taking = next(upstream, peer.address, &[]).await;
    check_not_taken(upstream, (taking.address, taking.admin), outcome).await;
    if outcome != "other_history" {
        taking.logged("the cache is not taken over").await;
    }
}

/// The same with a bound of handovers that a test can reach.
async fn check_bounded(answer: Answer, outcome: &str, bound: fn(&mut HandoverSettings)) {
    let apiserver = apiserver().await;
    let upstream = apiserver.address();
    let honest = honest_gateway(upstream).await;
    let services = state(&honest, "services.v1.json").await;
    let peer = peer::start(INDEX, services, answer).await;
    let mut handover = HandoverSettings {
        from: format!("http://{}", peer.address).parse().unwrap(),
        ca_file: None,
        server_name: None,
        token_file: None,
        timeout: PATIENCE,
        len_max: 1 << 30,
        rebalance_interval: None,
    };
    bound(&mut handover);
    let mut settings = ServeSettings::embedded(format!("http://{upstream}").parse().unwrap());
    settings.handover = Some(handover);
    let taking = Running::start(settings, Drain::new()).await;
    check_not_taken(upstream, (taking.address, taking.admin), outcome).await;
}

/// The config maps were listed upstream instead of being taken over, and the other cache is not affected.
async fn check_not_taken(
    upstream: SocketAddr,
    (address, admin): (SocketAddr, SocketAddr),
    outcome: &str,
) {
    ready(admin).await;
    assert_eq!(listed(address).await, listed(upstream).await);
    let value = async |resource, name, label: &str| metric_at(admin, resource, name, label).await;
    let outcome = format!("outcome=\"{outcome}\"");
    assert_eq!(value("configmaps", TAKEN, &outcome).await, 1.0);
    assert_eq!(value("configmaps", TAKEN, "").await, 1.0);
    assert_eq!(value("configmaps", LISTS, "").await, 1.0);
    assert_eq!(get(address, "/api/v1/services").await.status(), 200);
    assert_eq!(value("services", TAKEN, "\"taken\"").await, 1.0);
    assert_eq!(value("services", LISTS, "").await, 0.0);
}

/// The state of config maps, changed in this way.
async fn check_changed(change: fn(&mut Vec<u8>), outcome: &str) {
    let apiserver = apiserver().await;
    let honest = honest_gateway(apiserver.address()).await;
    let mut bytes = state(&honest, "configmaps.v1.json").await.to_vec();
    change(&mut bytes);
    let answer = Answer::State(bytes.into());
    check_refused_before(&apiserver, &honest, answer, outcome).await;
}

#[tokio::test]
async fn nonsense_is_refused() {
    check_refused(Answer::State(Bytes::from_static(b"nonsense")), "damaged").await;
    check_refused(Answer::State(Bytes::new()), "damaged").await;
    check_refused(Answer::Page("<html>"), "refused").await;
    check_changed(|bytes| bytes[20_000] ^= 1, "damaged").await;
    check_changed(|bytes| bytes.push(0), "damaged").await;
    let halve = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    check_changed(halve, "damaged").await;
}

#[tokio::test]
async fn a_state_that_breaks_off_is_refused() {
    check_refused(Answer::Cut, "cut").await;
}

#[tokio::test]
async fn a_silent_or_busy_gateway_is_not_waited_for() {
    for answer in [Answer::Silence, Answer::Drops, Answer::Status(429)] {
        check_bounded(answer, "timed_out", |handover| {
            handover.timeout = Duration::from_secs(1);
        })
        .await;
    }
}

#[tokio::test]
async fn an_endless_state_is_bounded() {
    check_bounded(Answer::Endless, "too_long", |handover| {
        handover.len_max = 1 << 20;
    })
    .await;
}

#[tokio::test]
async fn refusals_are_told_apart() {
    check_refused(Answer::Status(403), "denied").await;
    check_refused(Answer::Status(500), "refused").await;
    check_refused(Answer::Status(404), "missing").await;
}

#[tokio::test]
async fn states_of_other_resources_clusters_and_histories_are_refused() {
    let (one, other) = (apiserver().await, apiserver().await);
    let (own, foreign) = (with_uid(&one).await, with_uid(&other).await);
    for gateway in [&own, &foreign] {
        assert_eq!(get(gateway.address, "/api/v1/services").await.status(), 200);
    }
    let services = Answer::State(state(&own, "services.v1.json").await);
    check_refused_before(&one, &own, services, "other_resource").await;
    let cluster = Answer::State(state(&foreign, "configmaps.v1.json").await);
    check_refused_before(&one, &own, cluster, "other_cluster").await;
    // As where the cluster's uid cannot be read.
    let unknown = apiserver().await;
    let stranger = gateway(unknown.address(), &[]).await;
    listed(stranger.address).await;
    let history = Answer::State(state(&stranger, "configmaps.v1.json").await);
    check_refused_before(&one, &own, history, "other_history").await;
}

/// A peer that is not there costs nothing but the attempt.
#[tokio::test]
async fn a_gateway_starts_without_the_others() {
    let apiserver = apiserver().await;
    let upstream = apiserver.address();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let alone = next(upstream, address, &[]).await;
    ready(alone.admin).await;
    assert_eq!(listed(alone.address).await, listed(upstream).await);
    assert_eq!(metric(&alone, TAKEN, "\"unreachable\"").await, 1.0);
    assert_eq!(metric(&alone, LISTS, "").await, 1.0);
}
