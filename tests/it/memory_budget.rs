//! A gateway process whose history outgrows its memory: it gives history back, refuses and loses nobody, and has room again after the load.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::PATIENCE;
use crate::support::client::{
    CONFIGMAPS, HttpVersion, connect_and_get, connect_and_get_as, get, version_of,
};
use crate::support::process::GatewayProcess;
use crate::support::protobuf_relay::{self, PROTOBUF};

const OBJECTS: usize = 300;
const OBJECT_LEN: usize = 16_000;
/// What the gateway may have beyond what it needs for the objects and one client. The history takes it within seconds.
const ROOM: u64 = 48 << 20;
const WRITES_PER_SECOND: u32 = 300;
const POLL_PERIOD: std::time::Duration = std::time::Duration::from_millis(50);

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec![format!("configmaps={OBJECTS}").parse().unwrap()],
        object_len: OBJECT_LEN,
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

pub(crate) async fn text(server: SocketAddr, target: &str) -> String {
    let response = get(server, target).await;
    assert_eq!(response.status(), 200, "{target}");
    let body = response.into_body().collect().await;
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

async fn listed(server: SocketAddr) -> Value {
    serde_json::from_str(&text(server, CONFIGMAPS).await).unwrap()
}

/// The sum of the samples that begin like this.
pub(crate) async fn metric(gateway: &GatewayProcess, prefix: &str) -> f64 {
    let page = text(gateway.admin, "/metrics").await;
    let name = format!("kube_fanout_{prefix}");
    let samples = page.lines().filter(|line| line.starts_with(&name));
    let values = samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    values.sum()
}

pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let give_up_at = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(
            Instant::now() < give_up_at,
            "timed out waiting until {what}"
        );
        tokio::time::sleep(POLL_PERIOD).await;
    }
}

/// A watch that is read by a task of its own, to the version that `end` will have.
fn follow(
    (http, server): (HttpVersion, SocketAddr),
    version: u64,
    mut end: tokio::sync::watch::Receiver<u64>,
) -> tokio::task::JoinHandle<Vec<u64>> {
    tokio::spawn(async move {
        let target = format!("{CONFIGMAPS}?watch=1&resourceVersion={version}");
        let response = connect_and_get(http, server, &target).await.unwrap();
        assert_eq!(response.status(), 200);
        let (mut body, mut rest, mut versions) = (response.into_body(), Vec::new(), vec![version]);
        loop {
            let newest = versions.last().copied().unwrap_or_default();
            if *end.borrow_and_update() > 0 && newest >= *end.borrow() {
                return versions;
            }
            let frame = tokio::select! {
                frame = body.frame() => frame.unwrap().unwrap(),
                changed = end.changed() => {
                    changed.unwrap();
                    continue;
                }
            };
            rest.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = memchr::memchr(b'\n', &rest) {
                let after = rest.split_off(end + 1);
                let line = std::mem::replace(&mut rest, after);
                let event: Value = serde_json::from_slice(&line).unwrap();
                assert_ne!(event["type"], "ERROR", "{event}");
                versions.push(version_of(&event["object"]));
            }
        }
    })
}

/// Resident bytes of a gateway that has filled its cache, without a bound.
async fn resident_when_filled(flags: &[String]) -> u64 {
    let gateway = GatewayProcess::start(flags).await;
    listed(gateway.address).await;
    until("memory was read", async || {
        metric(&gateway, "memory_bytes{part=\"objects\"}").await > 0.0
    })
    .await;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes of one process"
    )]
    let resident = metric(&gateway, "memory_resident_bytes").await as u64;
    gateway.terminate();
    resident
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_outgrows_memory_shrinks_and_no_client_loses_anything() {
    let apiserver = apiserver().await;
    let mut flags = vec![
        "--upstream".to_owned(),
        format!("http://{}", apiserver.address()),
        "--ring-age-min".to_owned(),
        "20s".to_owned(),
    ];
    let max = resident_when_filled(&flags).await + ROOM;
    flags.extend(["--memory-max".to_owned(), max.to_string()]);
    let gateway = GatewayProcess::start(&flags).await;
    let version = version_of(&listed(gateway.address).await);
    let (end, ended) = tokio::sync::watch::channel(0);
    let servers = [
        (HttpVersion::One, apiserver.address()),
        (HttpVersion::One, gateway.address),
        (HttpVersion::Two, gateway.address),
    ];
    let clients: Vec<_> = servers
        .into_iter()
        .map(|server| follow(server, version, ended.clone()))
        .collect();

    apiserver.set_churn(WRITES_PER_SECOND);
    let taken = async |step: &str| {
        let series = format!("memory_pressure_steps_total{{step=\"{step}\"}}");
        metric(&gateway, &series).await
    };
    until("history is given back", async || {
        taken("history").await > 0.0
    })
    .await;
    assert!(
        taken("frames").await > 0.0,
        "what can be made again goes first"
    );
    // The load goes on, and history is given back again and again instead of anything else.
    let events = async || metric(&gateway, "upstream_events_received_total").await;
    let enough = events().await + 5_000.0;
    until("the load went on", async || events().await > enough).await;
    assert_eq!(metric(&gateway, "cache_given_up_total").await, 0.0);
    apiserver.set_churn(0);

    let newest = listed(apiserver.address()).await;
    end.send(version_of(&newest)).unwrap();
    let mut seen = Vec::new();
    for client in clients {
        seen.push(
            tokio::time::timeout(PATIENCE, client)
                .await
                .unwrap()
                .unwrap(),
        );
    }
    assert!(seen[0].len() > 5_000);
    assert_eq!(seen[1], seen[0]);
    assert_eq!(seen[2], seen[0]);
    until("memory is not short any more", async || {
        metric(&gateway, "memory_pressure ").await == 0.0
    })
    .await;
    until_parts_sum_up(&gateway).await;
    assert_eq!(listed(gateway.address).await, newest);
    drop(
        follow(
            (HttpVersion::Two, gateway.address),
            version_of(&newest),
            ended,
        )
        .await
        .unwrap(),
    );
    gateway.terminate();
}

/// Until the parts sum up to what is resident. Readings are a second apart, and a page may be written between two of them.
async fn until_parts_sum_up(gateway: &GatewayProcess) {
    until("the parts sum up to what is resident", async || {
        let resident = metric(gateway, "memory_resident_bytes").await;
        let sum = metric(gateway, "memory_bytes{").await;
        resident > 0.0 && (sum / resident - 1.0).abs() < 0.02
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_resident_belongs_to_parts_also_when_clients_have_left() {
    const CLIENTS: usize = 300;
    let apiserver = apiserver().await;
    let upstream = format!("http://{}", apiserver.address());
    let gateway = GatewayProcess::start(&["--upstream".to_owned(), upstream]).await;
    listed(gateway.address).await;
    until_parts_sum_up(&gateway).await;
    let free_before = metric(&gateway, "memory_bytes{part=\"free\"}").await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let request = b"GET /version HTTP/1.1\r\nHost: gateway\r\n\r\n";
        client.write_all(request).await.unwrap();
        client.read_u8().await.unwrap();
        clients.push(client);
    }
    until_parts_sum_up(&gateway).await;
    drop(clients);
    until("what clients took is free", async || {
        metric(&gateway, "memory_bytes{part=\"connections\"}").await < (1 << 20) as f64
            && metric(&gateway, "memory_bytes{part=\"free\"}").await > free_before
    })
    .await;
    until_parts_sum_up(&gateway).await;
    gateway.terminate();
}

/// Opens this many watches, each on a stream of its own; they end when the result is dropped.
async fn watches(server: SocketAddr, version: u64, count: usize) -> JoinSet<()> {
    const STREAMS: usize = 100;
    let mut tasks = JoinSet::new();
    for _ in 0..count / STREAMS {
        let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
        let executor = TokioExecutor::new();
        let (mut sender, connection) = http2::handshake(executor, io).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        for _ in 0..STREAMS {
            let target = format!("http://gateway{CONFIGMAPS}?watch=1&resourceVersion={version}");
            let request = http::Request::get(target)
                .body(Full::<Bytes>::default())
                .unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            let body = response.into_body();
            tasks.spawn(async move { drop(body.collect().await) });
        }
    }
    tasks
}

/// Each part is counted where it comes and goes, so that a part that is forgotten, or counted twice, shows in some of these shapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_resident_belongs_to_parts_with_many_objects_in_both_encodings_and_many_watches() {
    const WATCHES: usize = 2_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=50000".parse().unwrap()],
        object_len: 500,
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let relay = protobuf_relay::start(apiserver.address()).await;
    let upstream = format!("http://{}", relay.address);
    let gateway = GatewayProcess::start(&["--upstream".to_owned(), upstream]).await;
    let held = async |part: &str| {
        let resident = metric(&gateway, "memory_resident_bytes").await;
        metric(&gateway, &format!("memory_bytes{{part=\"{part}\"}}")).await / resident
    };
    let version = version_of(&listed(gateway.address).await);
    until_parts_sum_up(&gateway).await;
    let one_encoding = held("objects").await;
    let list = connect_and_get_as(HttpVersion::One, gateway.address, CONFIGMAPS, PROTOBUF).await;
    drop(list.unwrap().into_body().collect().await.unwrap());
    until("both caches are counted", async || {
        held("objects").await > one_encoding
    })
    .await;
    until_parts_sum_up(&gateway).await;
    let open = watches(gateway.address, version, WATCHES).await;
    until("all watches are open", async || {
        metric(&gateway, "longrunning_requests").await >= WATCHES as f64
    })
    .await;
    until_parts_sum_up(&gateway).await;
    // What no part knows stays a small share.
    assert!(held("other").await < 0.15, "{}", held("other").await);
    drop(open);
    until("all watches are gone", async || {
        metric(&gateway, "longrunning_requests").await == 0.0
    })
    .await;
    until_parts_sum_up(&gateway).await;
    gateway.terminate();
}
