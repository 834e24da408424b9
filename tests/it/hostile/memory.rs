//! A process above its memory limit: it drops caches, those without watches first, and fills them again when there is room.

use http_body_util::BodyExt;
use kube_fanout::admission::resident;
use kube_fanout_testkit::apiserver::{self, Options};
use tokio::net::TcpListener;

use crate::hostile::stage::{Stage, until, upstream_uri};
use crate::support::PATIENCE;

const STATE: &str = "kube_fanout_cache_state";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
/// The distance from the memory in use to the limit: far more than the process itself allocates while the test runs.
const ROOM: usize = 256 << 20;

/// Allocates memory until the process has `len` bytes resident.
fn ballast(len: usize) -> Vec<u8> {
    vec![1; len.saturating_sub(resident().unwrap())]
}

async fn has_state(stage: &Stage, resource: &str, state: &str) -> bool {
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
    let upstream = upstream_uri("http", &apiserver.address().to_string());
    let max = resident().unwrap() + ROOM;
    let stage = Stage::with_upstream_and(apiserver, upstream, |settings| {
        settings.admission.memory_max = max;
    })
    .await;
    for (path, resource) in [(PODS, "pods"), (NODES, "nodes")] {
        assert_eq!(stage.get(path).await.status(), 200);
        assert!(has_state(&stage, resource, "ready").await);
    }
    let uri = format!("http://{}{NODES}?watch=1", stage.address);
    let watch = stage.client.get(uri.parse().unwrap()).await.unwrap();
    assert_eq!(watch.status(), 200);

    let slightly_above = ballast(max + max / 16);
    until("the cache without watches is dropped", async || {
        has_state(&stage, "pods", "memory").await
    })
    .await;
    assert!(has_state(&stage, "nodes", "ready").await);
    let ready = stage.admin("/readyz?verbose").await;
    assert_eq!(ready.status(), 200);
    let checks = String::from_utf8_lossy(ready.body()).into_owned();
    let line = "[+]pods.v1 ok: forwarded: memory\n";
    assert!(checks.contains(line), "{checks}");
    assert_eq!(stage.get(PODS).await.status(), 200, "not forwarded");

    let far_above = ballast(max + max / 4);
    let events = tokio::time::timeout(PATIENCE, watch.into_body().collect());
    let events = events.await.unwrap().unwrap().to_bytes();
    assert!(events.ends_with(b"\n"), "the stream ends within an event");
    assert!(has_state(&stage, "nodes", "memory").await);

    drop((slightly_above, far_above));
    until("both caches are filled again", async || {
        has_state(&stage, "pods", "ready").await && has_state(&stage, "nodes", "ready").await
    })
    .await;
    stage.shut_down().await;
}
