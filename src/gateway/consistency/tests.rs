//! Samples from a scripted upstream, under a clock that stands until all wait.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::cache::tests::samples::{World, kind};
use crate::resource::Layout;
use crate::upstream::driver::tests::scripted::{Asked, Script};
use crate::view::Hub;

struct Scene {
    world: World,
    upstream: mpsc::Receiver<Asked>,
    connections: watch::Sender<u64>,
    checks: JoinHandle<Contradiction>,
}

impl Scene {
    /// A cache of two objects that has connected once.
    fn new() -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut world = World::new(7, 100, Arc::clone(&hub) as _);
        for key in ["a/x", "a/y"] {
            let change = world.write(key, None);
            world.apply(vec![change]);
        }
        let cache = Arc::clone(world.writer.cache());
        let served = ServedResource { cache, hub };
        let (script, upstream) = Script::new();
        let (connections, connected) = watch::channel(1);
        let checks =
            tokio::spawn(async move { contradiction(&script, &served, connected, 0).await });
        Self {
            world,
            upstream,
            connections,
            checks,
        }
    }

    fn reconnects(&self) {
        self.connections.send_modify(|count| *count += 1);
    }

    /// Answers the question which cluster it is.
    async fn is_cluster(&mut self, uid: &str) {
        let asked = self.upstream.recv().await.unwrap();
        assert_eq!(asked.path, "/api/v1/namespaces/kube-system");
        let namespace = format!(
            "{{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"kube-system\",\"uid\":\"{uid}\",\"resourceVersion\":\"4\"}}}}\n"
        );
        asked.whole(200, &namespace).await;
    }

    /// Answers the next sample with what is held of these keys, and says what was asked for.
    async fn lists(&mut self, version: u64, keys: &[&str], others: &str, token: &str) -> String {
        let asked = self.upstream.recv().await.unwrap();
        let held = keys.iter().map(|key| {
            let sample = &self.world.state[*key];
            entry(&key[2..], sample.uid, sample.version)
        });
        let others = (!others.is_empty()).then(|| others.to_owned());
        let items = held.chain(others).collect::<Vec<_>>().join(",");
        let path = asked.path.clone();
        asked
            .whole(200, &format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}},\"items\":[{items}]}}"))
            .await;
        path
    }

    async fn found(self) -> Contradiction {
        let found = tokio::time::timeout(Duration::from_secs(600), self.checks);
        found.await.expect("a contradiction").unwrap()
    }
}

fn entry(name: &str, uid: u64, version: u64) -> String {
    format!(
        "{{\"metadata\":{{\"namespace\":\"a\",\"name\":\"{name}\",\"uid\":\"u{uid}\",\"resourceVersion\":\"{version}\"}}}}"
    )
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_cache_must_hold_and_does_not_is_a_contradiction() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    scene.reconnects();
    scene.is_cluster("c").await;
    // Written later than the cache has heard of: no contradiction.
    let newer = entry("z", 9, version + 5);
    let keys = ["a/x", "a/y"];
    scene.lists(version + 5, &keys, &newer, "").await;
    scene.reconnects();
    scene.is_cluster("c").await;
    let older = entry("z", 9, version);
    scene.lists(version + 5, &keys, &older, "").await;
    // It is looked at twice.
    scene.lists(version + 5, &keys, &older, "").await;
    assert_eq!(scene.found().await, Contradiction::Listed);
}

#[tokio::test(start_paused = true)]
async fn an_object_gone_upstream_is_a_contradiction_once_the_stream_has_passed() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    scene.reconnects();
    scene.is_cluster("c").await;
    // More than a page: the newest is asked for by its name. It is deleted just now.
    scene.lists(version + 9, &["a/x"], "", "more").await;
    let path = scene.lists(version + 9, &[], "", "").await;
    assert!(path.contains("/namespaces/a/"), "{path}");
    assert!(path.contains("fieldSelector=metadata.name%3Dy"), "{path}");
    sleep(Duration::from_secs(1)).await;
    let deleted = scene.world.delete("a/y").unwrap();
    scene.world.apply(vec![deleted]);
    scene.world.version = version + 20;
    let passed = scene.world.write("a/z", None);
    scene.world.apply(vec![passed]);
    // The next time a whole list lacks one, and only a later event comes.
    for _ in 0..2 {
        scene.reconnects();
        let asked = tokio::time::timeout(Duration::from_secs(20), scene.upstream.recv());
        let mut asked = asked.await.unwrap().unwrap();
        if asked.path.contains("kube-system") {
            asked.whole(404, "{}").await;
            asked = scene.upstream.recv().await.unwrap();
        }
        let z = &scene.world.state["a/z"];
        let at = scene.world.version;
        let item = entry("z", z.uid, z.version);
        asked
            .whole(200, &format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{at}\"}},\"items\":[{item}]}}"))
            .await;
    }
    assert_eq!(scene.found().await, Contradiction::Missing);
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_a_contradiction() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    // Learnt when nothing else asks for a check.
    scene.is_cluster("c").await;
    scene.lists(version, &["a/x", "a/y"], "", "").await;
    scene.reconnects();
    scene.is_cluster("d").await;
    assert_eq!(scene.found().await, Contradiction::Cluster);
}

#[tokio::test(start_paused = true)]
async fn a_version_older_than_before_is_a_contradiction_if_it_stays() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let keys = ["a/x", "a/y"];
    scene.reconnects();
    scene.is_cluster("c").await;
    // One server of several that is behind, once, is none.
    scene.lists(version - 1, &keys, "", "").await;
    scene.lists(version, &keys, "", "").await;
    scene.reconnects();
    scene.is_cluster("c").await;
    scene.lists(version - 1, &keys, "", "").await;
    scene.lists(version - 1, &keys, "", "").await;
    assert_eq!(scene.found().await, Contradiction::Older);
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_looked_for_again_by_the_same_name() {
    // Objects are chosen at random; another choice would hardly be the same eight times.
    for _ in 0..8 {
        let mut scene = Scene::new();
        for number in 0..30 {
            let change = scene.world.write(&format!("a/z{number}"), None);
            scene.world.apply(vec![change]);
        }
        let version = scene.world.version;
        scene.is_cluster("c").await;
        scene.lists(version, &["a/x"], "", "more").await;
        let first = scene.lists(version, &[], "", "").await;
        scene.lists(version, &["a/x"], "", "more").await;
        let second = scene.lists(version, &[], "", "").await;
        assert_eq!(first, second);
        assert_eq!(scene.found().await, Contradiction::Missing);
    }
}
