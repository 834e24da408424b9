//! Checks against a scripted upstream, with paused time.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::cache::WatchCache;
use crate::cache::samples::{World, kind};
use crate::resource::Layout;
use crate::upstream::driver::samples::scripted::{Asked, Script};
use crate::view::Hub;

struct Scene {
    world: World,
    upstream: mpsc::Receiver<Asked>,
    connections: watch::Sender<u64>,
    doubt: Arc<Notify>,
    cache: Arc<WatchCache>,
    lag: Arc<Mutex<bool>>,
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
        let doubt = Arc::new(Notify::new());
        let triggers = CheckTriggers {
            connections: connected,
            doubt: Arc::clone(&doubt),
        };
        let lag = Arc::new(Mutex::new(false));
        let found = Arc::clone(&lag);
        let (cache, checked) = (Arc::clone(&served.cache), served);
        let checks =
            tokio::spawn(
                async move { contradiction(&script, &checked, triggers, &found, 0).await },
            );
        Self {
            world,
            upstream,
            connections,
            doubt,
            cache,
            lag,
            checks,
        }
    }

    fn reconnects(&self) {
        self.connections.send_modify(|count| *count += 1);
    }

    /// Responds to the request for the cluster's uid.
    async fn respond_uid(&mut self, uid: &str) {
        let request = self.upstream.recv().await.unwrap();
        assert_eq!(request.path, "/api/v1/namespaces/kube-system");
        let namespace = format!(
            "{{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"kube-system\",\"uid\":\"{uid}\",\"resourceVersion\":\"4\"}}}}\n"
        );
        request.whole(200, &namespace).await;
    }

    /// Responds to the next sample with the cached objects of these keys and `others`; returns the requested path.
    async fn respond_list(
        &mut self,
        version: u64,
        keys: &[&str],
        others: &str,
        token: &str,
    ) -> String {
        let request = self.upstream.recv().await.unwrap();
        let cached = keys.iter().map(|key| {
            let sample = &self.world.state[*key];
            entry(&key[2..], sample.uid, sample.version)
        });
        let others = (!others.is_empty()).then(|| others.to_owned());
        let items = cached.chain(others).collect::<Vec<_>>().join(",");
        let path = request.path.clone();
        request
            .whole(200, &format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}},\"items\":[{items}]}}"))
            .await;
        path
    }

    /// Responds to a check of one object among many: upstream has `present`, and its version is `version`. Returns the requested path.
    async fn respond_object(&mut self, version: u64, present: &[&str]) -> String {
        self.respond_list(version, &["a/x"], "", "more").await;
        self.respond_list(version, present, "", "").await
    }

    /// More objects than a page holds.
    fn grows(&mut self) {
        for number in 0..30 {
            self.writes(&format!("a/z{number}"));
        }
    }

    /// Writes an object, which is then the newest one.
    fn writes(&mut self, key: &str) {
        let change = self.world.write(key, None);
        self.world.apply(vec![change]);
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
    scene.respond_uid("c").await;
    // Written after the cache's version: no contradiction.
    let newer = entry("z", 9, version + 5);
    let keys = ["a/x", "a/y"];
    scene.respond_list(version + 5, &keys, &newer, "").await;
    scene.reconnects();
    scene.respond_uid("c").await;
    let older = entry("z", 9, version);
    scene.respond_list(version + 5, &keys, &older, "").await;
    // The check is repeated.
    scene.respond_list(version + 5, &keys, &older, "").await;
    assert_eq!(scene.found().await, Contradiction::Listed);
}

/// What two periodic checks find if upstream lists an object that was written after the cache's version at both.
async fn lags(events: &[&str]) -> bool {
    let mut scene = Scene::new();
    let newer = entry("z", 9, scene.world.version + 1);
    scene.respond_uid("c").await;
    let version = scene.world.version + 5;
    scene
        .respond_list(version, &["a/x", "a/y"], &newer, "")
        .await;
    for key in events {
        scene.writes(key);
    }
    scene.upstream.recv().await.unwrap().refuse(503).await;
    *scene.lag.lock()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_not_brought_in_a_minute_what_upstream_lists_is_said_to_lag() {
    assert!(lags(&[]).await);
    assert!(!lags(&["a/z"]).await);
}

#[tokio::test(start_paused = true)]
async fn an_object_gone_upstream_is_a_contradiction_once_the_stream_has_passed() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    scene.reconnects();
    scene.respond_uid("c").await;
    // More objects than a page: the newest one is read by name. It is deleted at this moment.
    scene.respond_list(version + 9, &["a/x"], "", "more").await;
    let path = scene.respond_list(version + 9, &[], "", "").await;
    assert!(path.contains("/namespaces/a/"), "{path}");
    assert!(path.contains("fieldSelector=metadata.name%3Dy"), "{path}");
    sleep(Duration::from_secs(1)).await;
    let deleted = scene.world.delete("a/y").unwrap();
    scene.world.apply(vec![deleted]);
    scene.world.version = version + 20;
    let passed = scene.world.write("a/z", None);
    scene.world.apply(vec![passed]);
    // The next samples are complete lists without the object, and no deletion event arrives.
    for _ in 0..2 {
        scene.reconnects();
        let request = tokio::time::timeout(Duration::from_secs(20), scene.upstream.recv());
        let mut request = request.await.unwrap().unwrap();
        if request.path.contains("kube-system") {
            request.whole(404, "{}").await;
            request = scene.upstream.recv().await.unwrap();
        }
        let z = &scene.world.state["a/z"];
        let at = scene.world.version;
        let item = entry("z", z.uid, z.version);
        request
            .whole(200, &format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{at}\"}},\"items\":[{item}]}}"))
            .await;
    }
    assert_eq!(scene.found().await, Contradiction::Missing);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_opened_again_is_checked_at_once_although_a_check_waits_for_the_last_one() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    scene.reconnects();
    scene.respond_uid("c").await;
    // One object was deleted at a version that the cache never reaches, because a backup is restored.
    scene.respond_list(version + 9, &["a/x"], "", "").await;
    scene.reconnects();
    let request = tokio::time::timeout(Duration::from_secs(20), scene.upstream.recv());
    request.await.unwrap().unwrap().whole(404, "{}").await;
    for _ in 0..2 {
        scene.respond_list(3, &[], "", "").await;
    }
    assert_eq!(scene.found().await, Contradiction::Older);
}

#[tokio::test(start_paused = true)]
async fn another_cluster_is_a_contradiction() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    // The uid is learnt by a periodic check.
    scene.respond_uid("c").await;
    scene.respond_list(version, &["a/x", "a/y"], "", "").await;
    scene.reconnects();
    scene.respond_uid("d").await;
    assert_eq!(scene.found().await, Contradiction::Cluster);
}

#[tokio::test(start_paused = true)]
async fn a_version_older_than_before_is_a_contradiction_if_it_stays() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let keys = ["a/x", "a/y"];
    scene.reconnects();
    scene.respond_uid("c").await;
    // A single response from a server that lags behind is no contradiction.
    scene.respond_list(version - 1, &keys, "", "").await;
    scene.respond_list(version, &keys, "", "").await;
    scene.reconnects();
    scene.respond_uid("c").await;
    scene.respond_list(version - 1, &keys, "", "").await;
    scene.respond_list(version - 1, &keys, "", "").await;
    assert_eq!(scene.found().await, Contradiction::Older);
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_looked_for_again_by_the_same_name() {
    // The object is chosen at random; choosing again would hardly give the same one eight times.
    for _ in 0..8 {
        let mut scene = Scene::new();
        scene.grows();
        let version = scene.world.version;
        scene.respond_uid("c").await;
        let first = scene.respond_object(version, &[]).await;
        let second = scene.respond_object(version, &[]).await;
        assert_eq!(first, second);
        assert_eq!(scene.found().await, Contradiction::Missing);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_looked_for_again_after_its_second_check_was_interrupted() {
    let mut scene = Scene::new();
    scene.grows();
    let version = scene.world.version;
    scene.respond_uid("c").await;
    let first = scene.respond_object(version, &[]).await;
    // The second check waits for a version that does not come before the watch is opened again.
    assert_eq!(scene.respond_object(version + 1_000, &[]).await, first);
    sleep(Duration::from_secs(1)).await;
    scene.writes("a/newest");
    scene.reconnects();
    scene.respond_uid("c").await;
    let version = scene.world.version;
    for _ in 0..2 {
        assert_eq!(scene.respond_object(version, &[]).await, first);
    }
    assert_eq!(scene.found().await, Contradiction::Missing);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_second_check_failed_is_looked_for_until_it_is_found() {
    let mut scene = Scene::new();
    scene.grows();
    let version = scene.world.version;
    scene.respond_uid("c").await;
    let first = scene.respond_object(version, &[]).await;
    let (_, name) = first.split_once("metadata.name%3D").unwrap();
    let name = name.split('&').next().unwrap();
    let failed = scene.upstream.recv().await.unwrap();
    failed.whole(500, "{}").await;
    scene.writes("a/newest");
    let version = scene.world.version;
    scene.reconnects();
    scene.respond_uid("c").await;
    scene.upstream.recv().await.unwrap().whole(500, "{}").await;
    scene.reconnects();
    scene.respond_uid("c").await;
    let key = format!("a/{name}");
    assert_eq!(scene.respond_object(version, &[&key]).await, first);
    // It is there: the check after the next reconnect begins with the newest object again.
    scene.reconnects();
    scene.respond_uid("c").await;
    let next = scene.respond_object(version, &["a/newest"]).await;
    assert!(next.contains("metadata.name%3Dnewest"), "{next}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_between_the_newest_event_and_a_proven_version_has_another_history() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let snapshot = scene.cache.snapshot().unwrap();
    assert!(scene.cache.prove(&snapshot, ResourceVersion(version + 40)));
    let keys = ["a/x", "a/y"];
    scene.reconnects();
    scene.respond_uid("c").await;
    for _ in 0..2 {
        scene.respond_list(version + 15, &keys, "", "").await;
    }
    assert_eq!(scene.found().await, Contradiction::Older);
}

#[tokio::test(start_paused = true)]
async fn an_object_written_before_a_proven_version_and_not_in_the_proof_is_a_contradiction() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let snapshot = scene.cache.snapshot().unwrap();
    assert!(scene.cache.prove(&snapshot, ResourceVersion(version + 40)));
    scene.reconnects();
    scene.respond_uid("c").await;
    let between = entry("z", 9, version + 20);
    for _ in 0..2 {
        scene
            .respond_list(version + 50, &["a/x", "a/y"], &between, "")
            .await;
    }
    assert_eq!(scene.found().await, Contradiction::Listed);
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_checked_at_once() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let before = tokio::time::Instant::now();
    scene.doubt.notify_one();
    scene.respond_uid("c").await;
    assert!(before.elapsed() <= SPREAD);
    scene.respond_list(version, &["a/x", "a/y"], "", "").await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_could_not_be_made_is_made_again_soon() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    scene.reconnects();
    let before = tokio::time::Instant::now();
    let uid = scene.upstream.recv().await.unwrap();
    uid.refuse(503).await;
    scene.respond_list(version, &["a/x", "a/y"], "", "").await;
    for code in [429, 503] {
        scene.respond_uid("c").await;
        scene.upstream.recv().await.unwrap().refuse(code).await;
    }
    scene.respond_uid("c").await;
    scene.upstream.recv().await.unwrap().fail();
    scene.respond_uid("c").await;
    assert!(before.elapsed() < PERIOD / 2);
    for _ in 0..2 {
        scene.respond_list(version - 1, &[], "", "").await;
    }
    assert_eq!(scene.found().await, Contradiction::Older);
}
