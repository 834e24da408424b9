//! A process beyond its bound of memory: it gives caches up, in order, and fills them again when there is room.

use http_body_util::BodyExt;
use kube_fanout::admission::resident;
use kube_fanout::apiserver::{self, Options};
use tokio::net::TcpListener;

use crate::stage::{PATIENCE, Stage, until, upstream};

const STATE: &str = "kube_fanout_cache_state";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
/// Far more than the process takes by itself while the test runs.
const ROOM: usize = 256 << 20;

/// Memory that the process does not need, so much that it has `len` bytes.
fn ballast(len: usize) -> Vec<u8> {
    vec![1; len.saturating_sub(resident().unwrap())]
}

async fn is(stage: &Stage, resource: &str, state: &str) -> bool {
    let labels = [
        format!("resource=\"{resource}\""),
        format!("state=\"{state}\""),
    ];
    let labels = labels.each_ref().map(String::as_str);
    stage.metric(STATE, &labels).await == 1.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_are_given_up_for_memory_those_without_watches_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["pods=200".parse().unwrap(), "nodes=200".parse().unwrap()],
        object_len: 2_048,
        seed: Some(1),
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    let way = upstream("http", &apiserver.address().to_string());
    let max = resident().unwrap() + ROOM;
    let stage = Stage::behind_with(apiserver, way, |settings| {
        settings.admission.memory_max = max;
    })
    .await;
    for (path, resource) in [(PODS, "pods"), (NODES, "nodes")] {
        assert_eq!(stage.get(path).await.status(), 200);
        assert!(is(&stage, resource, "ready").await);
    }
    let uri = format!("http://{}{NODES}?watch=1", stage.address);
    let watch = stage.client.get(uri.parse().unwrap()).await.unwrap();
    assert_eq!(watch.status(), 200);

    let little = ballast(max + max / 16);
    until("what nobody watches goes", async || {
        is(&stage, "pods", "memory").await
    })
    .await;
    assert!(is(&stage, "nodes", "ready").await);
    let ready = stage.admin("/readyz?verbose").await;
    assert_eq!(ready.status(), 200);
    let checks = String::from_utf8_lossy(ready.body()).into_owned();
    let line = "[+]pods.v1 ok: forwarded: memory\n";
    assert!(checks.contains(line), "{checks}");
    assert_eq!(stage.get(PODS).await.status(), 200, "forwarded");

    let much = ballast(max + max / 4);
    let events = tokio::time::timeout(PATIENCE, watch.into_body().collect());
    let events = events.await.unwrap().unwrap().to_bytes();
    assert!(events.ends_with(b"\n"), "it ends between two events");
    assert!(is(&stage, "nodes", "memory").await);

    drop((little, much));
    until("there is room for both again", async || {
        is(&stage, "pods", "ready").await && is(&stage, "nodes", "ready").await
    })
    .await;
    stage.ended().await;
}
