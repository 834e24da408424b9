//! Comparisons with a scripted upstream, in paused time.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::cache::samples::{Sample as CachedSample, World, kind};
use crate::drain_flag::DrainFlag;
use crate::metrics::Metrics;
use crate::resource::{CacheKey, Layout};
use crate::upstream::driver::samples::scripted::{Asked, Script};
use crate::view::Hub;

const KEYS: [&str; 6] = ["a-b/x", "a/x", "a/y", "a/z", "b/x", "b/y"];

struct Scene {
    world: World,
    upstream: mpsc::Receiver<Asked>,
    recorder: Arc<ResourceRecorder>,
    comparing: JoinHandle<Contradiction>,
}

impl Scene {
    /// A cache of the objects [`KEYS`].
    fn new() -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut world = World::new(3, 100, Arc::clone(&hub) as _);
        for key in KEYS {
            let change = world.write(key, None);
            world.apply(vec![change]);
        }
        let cache = Arc::clone(world.writer.cache());
        let key = CacheKey::json(&cache.kind().gvr);
        let served = ServedResource { cache, hub };
        let metrics = Metrics::new().unwrap();
        let recorder = Arc::new(ResourceRecorder::new(&metrics, &key, DrainFlag::default()));
        let (script, upstream) = Script::new();
        let counts = Arc::clone(&recorder);
        let limits = LiveLimits::generous();
        limits.update(|values| values.drift_interval = Duration::from_secs(60));
        let pace = DriftPace::new(limits, 0);
        let comparing = tokio::spawn(async move { drift(&script, &served, &counts, pace).await });
        Self {
            world,
            upstream,
            recorder,
            comparing,
        }
    }

    /// The objects after `start` and up to `last`.
    fn between(&self, start: &str, last: &str) -> Vec<CachedSample> {
        let objects = self.world.state.iter();
        let inside = objects.filter(|(key, _)| &***key > start && &***key <= last);
        inside.map(|(_, sample)| sample.clone()).collect()
    }

    /// Responds to the next request with these objects and the number of those that follow. Returns the key that it starts after.
    async fn respond(
        &mut self,
        version: u64,
        objects: &[CachedSample],
        remaining: Option<u64>,
    ) -> Option<String> {
        let request = self.upstream.recv().await.unwrap();
        let asked_start = start_of(&request.path);
        request.whole(200, &page(version, objects, remaining)).await;
        asked_start
    }

    async fn found(self) -> Contradiction {
        let found = tokio::time::timeout(Duration::from_secs(600), self.comparing);
        found.await.expect("a contradiction").unwrap()
    }

    /// The next request is that of another page a minute later: nothing was found.
    async fn goes_on(&mut self) -> Asked {
        let before = tokio::time::Instant::now();
        let request = self.upstream.recv().await.unwrap();
        assert!(before.elapsed() > Duration::from_secs(30), "found");
        request
    }
}

fn page(version: u64, objects: &[CachedSample], remaining: Option<u64>) -> String {
    let items: Vec<String> = objects.iter().map(|sample| sample.json().0).collect();
    let rest = remaining.map_or_else(String::new, |count| {
        format!(",\"continue\":\"more\",\"remainingItemCount\":{count}")
    });
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"{rest}}},\"items\":[{}]}}",
        items.join(",")
    )
}

fn start_of(path: &str) -> Option<String> {
    let (_, token) = path.split_once("continue=")?;
    let (token, _) = token.split_once('&')?;
    let token = ContinueToken::decode(token).unwrap();
    assert_eq!(token, token.at_latest(), "the newest state is read");
    Some(token.start.trim_end_matches('\0').to_owned())
}

#[tokio::test(start_paused = true)]
async fn all_pages_of_a_cache_are_compared_and_then_again() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    for _ in 0..2 {
        let first = scene.between("", "a/x");
        assert_eq!(scene.respond(version, &first, Some(4)).await, None);
        let second = scene.between("a/x", "b/x");
        let start = scene.respond(version, &second, Some(1)).await;
        assert_eq!(start.as_deref(), Some("a/x"));
        let third = scene.between("b/x", "z");
        let start = scene.respond(version, &third, None).await;
        assert_eq!(start.as_deref(), Some("b/x"));
    }
    let request = scene.goes_on().await;
    assert_eq!(start_of(&request.path), None);
    assert_eq!(scene.recorder.compared_so_far(), (12, 2));
}

#[tokio::test(start_paused = true)]
async fn changes_after_the_version_of_a_page_are_no_difference() {
    let mut scene = Scene::new();
    let (version, before) = (scene.world.version, scene.between("", "z"));
    let request = scene.upstream.recv().await.unwrap();
    let changes = vec![
        scene.world.delete("a/x").unwrap(),
        scene.world.write("a/new", None),
        scene.world.write("b/y", Some("x")),
    ];
    scene.world.apply(changes);
    request.whole(200, &page(version, &before, None)).await;
    scene.goes_on().await;
    assert_eq!(scene.recorder.compared_so_far(), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_ahead_of_the_cache_waits_for_it() {
    let mut scene = Scene::new();
    let deletion = scene.world.delete("a/y").unwrap();
    let (version, after) = (scene.world.version, scene.between("", "z"));
    scene.respond(version, &after, None).await;
    scene.world.apply(vec![deletion]);
    scene.goes_on().await;
    assert_eq!(scene.recorder.compared_so_far(), (5, 1));
}

/// Finds `expected` when upstream responds with what `change` makes of the objects; not before the second time.
async fn finds(expected: Contradiction, change: impl Fn(&mut Vec<CachedSample>)) {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let right = scene.between("", "z");
    let mut wrong = right.clone();
    change(&mut wrong);
    // A server that lags behind for a moment.
    scene.respond(version, &wrong, None).await;
    scene.respond(version, &right, None).await;
    let request = scene.goes_on().await;
    request.whole(200, &page(version, &wrong, None)).await;
    scene.respond(version, &wrong, None).await;
    assert_eq!(scene.found().await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_only_the_cache_holds_is_drift() {
    for at in 0..KEYS.len() {
        finds(Contradiction::Missing, |objects| drop(objects.remove(at))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_only_upstream_holds_is_drift() {
    for key in ["a-b/a", "a/xx", "c/z"] {
        finds(Contradiction::Listed, |objects| {
            objects.push(CachedSample::new(key, 11));
            objects.sort_by(|one, other| one.key.cmp(&other.key));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_and_another_uid_are_drift() {
    finds(Contradiction::Listed, |objects| objects[2].version -= 1).await;
    finds(Contradiction::Listed, |objects| objects[2].uid += 1).await;
}

#[tokio::test(start_paused = true)]
async fn another_number_of_objects_has_all_objects_compared_at_once() {
    for remaining in [3, 5] {
        let mut scene = Scene::new();
        let version = scene.world.version;
        let first = scene.between("", "a/x");
        for _ in 0..2 {
            scene.respond(version, &first, Some(remaining)).await;
        }
        let before = tokio::time::Instant::now();
        assert_eq!(scene.respond(version, &first, Some(4)).await, None);
        let mut second = scene.between("a/x", "z");
        second.remove(1);
        for _ in 0..2 {
            scene.respond(version, &second, None).await;
        }
        assert!(before.elapsed() < Duration::from_secs(10), "not at once");
        assert_eq!(scene.found().await, Contradiction::Missing);
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_that_is_wrong_while_all_objects_are_equal_is_ignored() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let (first, second) = (scene.between("", "a/x"), scene.between("a/x", "z"));
    for _ in 0..3 {
        scene.respond(version, &first, Some(100)).await;
    }
    scene.respond(version, &second, None).await;
    let request = scene.goes_on().await;
    request.whole(200, &page(version, &first, Some(100))).await;
    let request = scene.goes_on().await;
    assert_eq!(start_of(&request.path).as_deref(), Some("a/x"));
}

#[tokio::test(start_paused = true)]
async fn two_different_differences_are_no_drift() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    for at in [1, 2] {
        let mut wrong = scene.between("", "z");
        wrong.remove(at);
        scene.respond(version, &wrong, None).await;
    }
    scene.goes_on().await;
    assert_eq!(scene.recorder.compared_so_far(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_requested_again_from_the_same_start() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let first = scene.between("", "a/x");
    scene.respond(version, &first, Some(4)).await;
    scene.goes_on().await.refuse(503).await;
    scene.goes_on().await.fail();
    let request = scene.goes_on().await;
    assert_eq!(start_of(&request.path).as_deref(), Some("a/x"));
}

#[tokio::test(start_paused = true)]
async fn lists_without_order_are_not_compared() {
    let mut scene = Scene::new();
    let (version, mut objects) = (scene.world.version, scene.between("", "z"));
    objects.swap(1, 2);
    scene.respond(version, &objects, None).await;
    let next = tokio::time::timeout(Duration::from_secs(86_400), scene.upstream.recv());
    assert!(next.await.is_err(), "another page was requested");
    assert_eq!(scene.recorder.compared_so_far(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_starts_over() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let first = scene.between("", "a/x");
    scene.respond(version, &first, Some(4)).await;
    let request = scene.goes_on().await;
    assert!(start_of(&request.path).is_some());
    request.refuse(400).await;
    let request = scene.goes_on().await;
    assert_eq!(start_of(&request.path), None);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_older_than_a_proven_version_is_a_contradiction_if_it_stays() {
    let mut scene = Scene::new();
    let (version, all) = (scene.world.version, scene.between("", "z"));
    let snapshot = scene.world.writer.cache().snapshot().unwrap();
    let proven = ResourceVersion(version + 40);
    assert!(scene.world.writer.cache().prove(&snapshot, proven));
    for _ in 0..2 {
        scene.respond(version + 15, &all, None).await;
    }
    assert_eq!(scene.found().await, Contradiction::Older);
}
