//! Questions to a scripted upstream, with paused time.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::cache::samples::{World, kind};
use crate::resource::Layout;
use crate::upstream::driver::RequestPurpose;
use crate::upstream::driver::samples::scripted::{Asked, Script, settled, sort_of};
use crate::view::Hub;

struct Scene {
    world: World,
    served: ServedResource,
    freshness: Arc<ResourceFreshness>,
    fetch: Arc<Script>,
    upstream: mpsc::Receiver<Asked>,
}

/// A cache of one object, and its views.
fn cache() -> (World, ServedResource) {
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    let mut world = World::new(7, 100, Arc::clone(&hub) as _);
    let change = world.write("a/x", None);
    world.apply(vec![change]);
    let cache = Arc::clone(world.writer.cache());
    (world, ServedResource { cache, hub })
}

/// A page at `version` with objects of these names and versions.
fn page(version: u64, entries: &[(&str, u64)], token: &str) -> String {
    let item = |(name, version): &(&str, u64)| {
        format!(
            "{{\"metadata\":{{\"namespace\":\"a\",\"name\":\"{name}\",\"uid\":\"u\",\"resourceVersion\":\"{version}\"}}}}"
        )
    };
    let items = entries.iter().map(item).collect::<Vec<_>>().join(",");
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}},\"items\":[{items}]}}"
    )
}

impl Scene {
    fn new() -> Self {
        let (world, served) = cache();
        let (script, upstream) = Script::new();
        Self {
            world,
            served,
            freshness: Arc::default(),
            fetch: Arc::new(script),
            upstream,
        }
    }

    /// Starts a consistent read.
    fn reader(&self) -> JoinHandle<Latest> {
        let (freshness, fetch) = (Arc::clone(&self.freshness), Arc::clone(&self.fetch));
        let served = self.served.clone();
        tokio::spawn(async move { freshness.latest(&fetch, &served).await })
    }

    /// Reads upstream's version.
    fn version_reader(&self) -> JoinHandle<Option<ResourceVersion>> {
        let (freshness, fetch) = (Arc::clone(&self.freshness), Arc::clone(&self.fetch));
        tokio::spawn(async move {
            let gvr = kind(Layout::Typed).gvr;
            freshness.upstream_version(&fetch, &gvr).await
        })
    }

    /// Responds to the next request, which must be of this sort.
    async fn respond(&mut self, sort: &str, version: u64, entries: &[(&str, u64)], token: &str) {
        let request = self.request(sort).await;
        request.whole(200, &page(version, entries, token)).await;
    }

    async fn request(&mut self, sort: &str) -> Asked {
        let request = tokio::time::timeout(Duration::from_secs(600), self.upstream.recv());
        let request = request.await.expect("a request").unwrap();
        assert_eq!(sort_of(&request.path), sort, "{}", request.path);
        request
    }
}

fn proven(latest: &Latest) -> Option<u64> {
    match latest {
        Latest::Proven(_, version) => Some(version.0),
        Latest::At(_) | Latest::Unknown => None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_answer_is_given_up_after_three_seconds() {
    let mut scene = Scene::new();
    let started = Instant::now();
    let reader = scene.reader();
    let _unanswered = scene.request("list latest").await;
    let latest = tokio::time::timeout(Duration::from_secs(60), reader).await;
    assert!(matches!(latest.unwrap().unwrap(), Latest::Unknown));
    assert_eq!(started.elapsed().as_secs(), 3);
    // The comparison counts towards the same time limit.
    let started = Instant::now();
    let reader = scene.reader();
    let version = scene.world.version + 5;
    scene.respond("list latest", version, &[], "").await;
    let _unanswered = scene.request("list latest").await;
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
    assert_eq!(started.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_question_continues_after_its_reader_left() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let first = scene.reader();
    let probed = scene.request("list latest").await;
    let second = scene.reader();
    settled().await;
    first.abort();
    settled().await;
    assert!(
        scene.upstream.try_recv().is_err(),
        "a question in progress is not repeated"
    );
    probed.whole(200, &page(version, &[], "")).await;
    scene.respond("list latest", version, &[], "").await;
    assert!(matches!(second.await.unwrap(), Latest::At(at) if at.0 == version));
    settled().await;
    assert!(
        scene.upstream.try_recv().is_err(),
        "no reader waits any more"
    );
}

#[tokio::test(start_paused = true)]
async fn readers_that_arrive_during_a_question_share_the_next() {
    let mut scene = Scene::new();
    let version = scene.world.version;
    let first = scene.reader();
    let probed = scene.request("list latest").await;
    let others: Vec<_> = (0..20).map(|_| scene.reader()).collect();
    settled().await;
    probed.whole(200, &page(version, &[], "")).await;
    assert!(matches!(first.await.unwrap(), Latest::At(_)));
    scene.respond("list latest", version, &[], "").await;
    for other in others {
        assert!(matches!(other.await.unwrap(), Latest::At(_)));
    }
    settled().await;
    assert!(scene.upstream.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_proof_ends_with_the_cache_it_was_made_for() {
    let mut scene = Scene::new();
    let x = scene.world.version;
    let version = x + 50;
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    scene.respond("list latest", version, &[("x", x)], "").await;
    assert_eq!(proven(&reader.await.unwrap()), Some(version));
    // The proof holds as long as nothing is written in the cluster.
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    assert_eq!(proven(&reader.await.unwrap()), Some(version));
    // Upstream's history was replaced: a new cache with as many events, and other objects upstream.
    let old = scene.served.clone();
    old.hub.close();
    (scene.world, scene.served) = cache();
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    let compared = tokio::time::timeout(Duration::from_secs(10), scene.upstream.recv());
    let compared = compared.await.expect("the new cache is compared").unwrap();
    compared.whole(200, &page(version, &[("y", 9)], "")).await;
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
    let latest = scene.freshness.latest(&scene.fetch, &old).await;
    assert!(matches!(latest, Latest::Unknown), "the old cache is closed");
}

#[tokio::test(start_paused = true)]
async fn comparisons_are_paged_and_their_rate_is_bounded() {
    let mut scene = Scene::new();
    for at in 0..999 {
        let change = scene.world.write(&format!("a/y{at:03}"), None);
        scene.world.apply(vec![change]);
    }
    let state = scene.world.state.clone();
    let entry = |(key, sample): (&'_ String, &_)| -> (String, u64) {
        let sample: &crate::cache::samples::Sample = sample;
        (key[2..].to_owned(), sample.version)
    };
    let entries: Vec<(String, u64)> = state.iter().map(entry).collect();
    let entries: Vec<(&str, u64)> = entries.iter().map(|(name, at)| (&**name, *at)).collect();
    let version = scene.world.version + 50;
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    let first = scene.request("list latest").await;
    assert!(first.path.contains("limit=500"), "{}", first.path);
    first
        .whole(200, &page(version, &entries[..500], "more"))
        .await;
    scene
        .respond("page more", version, &entries[500..], "")
        .await;
    assert_eq!(proven(&reader.await.unwrap()), Some(version));
    // Something else is written. 1,000 objects may be compared ten times per second, so this comparison is delayed.
    let compared_at = Instant::now();
    let reader = scene.reader();
    scene.respond("list latest", version + 1, &[], "").await;
    let census = scene.request("list latest").await;
    assert!(compared_at.elapsed() >= Duration::from_millis(99));
    let census_page = page(version + 1, &entries, "");
    census.whole(200, &census_page).await;
    assert_eq!(proven(&reader.await.unwrap()), Some(version + 1));
    // An event that passes the version ends the wait; nothing is compared.
    let reader = scene.reader();
    scene.respond("list latest", version + 2, &[], "").await;
    tokio::time::sleep(STREAM_WAIT + Duration::from_millis(20)).await;
    scene.world.version = version + 1;
    let change = scene.world.write("a/z", None);
    scene.world.apply(vec![change]);
    assert!(matches!(reader.await.unwrap(), Latest::At(at) if at.0 == version + 2));
    settled().await;
    assert!(scene.upstream.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_comparison_that_would_begin_too_late_is_left_to_upstream() {
    let mut scene = Scene::new();
    let version = scene.world.version + 50;
    let inquiry = scene.freshness.inquiry(&scene.served.cache);
    assert!(
        inquiry.account_for_comparison(CENSUS_MAX),
        "costs five seconds"
    );
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    let start = Instant::now();
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "without a useless wait"
    );
    assert!(!inquiry.account_for_comparison(CENSUS_MAX + 1));
}

#[tokio::test(start_paused = true)]
async fn pages_that_do_not_belong_together_prove_nothing() {
    let mut scene = Scene::new();
    let x = scene.world.version;
    let version = x + 50;
    for (second, token) in [(version + 1, ""), (version, "more")] {
        let reader = scene.reader();
        scene.respond("list latest", version, &[], "").await;
        scene
            .respond("list latest", version, &[("x", x)], "more")
            .await;
        scene.respond("page more", second, &[], token).await;
        assert!(matches!(reader.await.unwrap(), Latest::Unknown));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_behind_the_cache_has_another_history() {
    let mut scene = Scene::new();
    let reader = scene.reader();
    let older = scene.world.version - 1;
    scene.respond("list latest", older, &[], "").await;
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
}

#[tokio::test(start_paused = true)]
async fn a_question_costs_upstream_the_metadata_of_one_object() {
    let mut scene = Scene::new();
    let _reader = scene.reader();
    let request = scene.request("list latest").await;
    assert!(request.path.ends_with("?limit=1"), "{}", request.path);
    assert_eq!(request.purpose, RequestPurpose::ReadVersions);
}

#[tokio::test(start_paused = true)]
async fn the_version_of_upstream_is_read_after_the_call_and_shared() {
    let mut scene = Scene::new();
    let first = scene.version_reader();
    let request = scene.upstream.recv().await.unwrap();
    let late = [scene.version_reader(), scene.version_reader()];
    tokio::time::sleep(Duration::from_millis(1)).await;
    request.whole(200, &page(20, &[], "")).await;
    let request = scene.upstream.recv().await.unwrap();
    request.whole(200, &page(30, &[], "")).await;
    assert_eq!(first.await.unwrap(), Some(ResourceVersion(20)));
    for call in late {
        assert_eq!(call.await.unwrap(), Some(ResourceVersion(30)));
    }
    assert!(scene.upstream.try_recv().is_err(), "they shared a request");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_does_not_tell_its_version_is_not_asked_by_each_caller() {
    let mut scene = Scene::new();
    let started = Instant::now();
    let mut readers = vec![scene.version_reader()];
    let _unanswered = scene.request("list latest").await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        readers.push(scene.version_reader());
    }
    for reader in readers {
        assert_eq!(reader.await.unwrap(), None);
    }
    assert_eq!(scene.version_reader().await.unwrap(), None);
    assert_eq!(started.elapsed().as_secs(), 3);
    assert!(scene.upstream.try_recv().is_err(), "asked once");
    // A second later it may answer again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reader = scene.version_reader();
    scene.respond("list latest", 20, &[], "").await;
    assert_eq!(reader.await.unwrap(), Some(ResourceVersion(20)));
}

#[tokio::test(start_paused = true)]
async fn the_version_of_upstream_is_still_read_when_the_caller_leaves() {
    let mut scene = Scene::new();
    let first = scene.version_reader();
    let request = scene.request("list latest").await;
    let second = scene.version_reader();
    settled().await;
    first.abort();
    settled().await;
    assert!(scene.upstream.try_recv().is_err(), "one request at a time");
    request.whole(200, &page(20, &[], "")).await;
    scene.respond("list latest", 30, &[], "").await;
    assert_eq!(second.await.unwrap(), Some(ResourceVersion(30)));
}

#[tokio::test(start_paused = true)]
async fn an_uncollected_failure_is_not_an_answer_a_minute_later() {
    let mut scene = Scene::new();
    let reader = scene.version_reader();
    let _unanswered = scene.request("list latest").await;
    assert_eq!(reader.await.unwrap(), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reader = scene.version_reader();
    scene.respond("list latest", 20, &[], "").await;
    assert_eq!(reader.await.unwrap(), Some(ResourceVersion(20)));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_behind_a_proof_has_another_history_and_the_cache_is_checked() {
    let mut scene = Scene::new();
    let x = scene.world.version;
    let version = x + 40;
    let reader = scene.reader();
    scene.respond("list latest", version, &[], "").await;
    scene.respond("list latest", version, &[("x", x)], "").await;
    assert_eq!(proven(&reader.await.unwrap()), Some(version));
    let reader = scene.reader();
    scene.respond("list latest", x + 15, &[], "").await;
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
    let doubt = tokio::time::timeout(Duration::ZERO, scene.freshness.doubt.notified());
    assert!(doubt.await.is_ok());
    // The comparison, too, may be answered by another server.
    let reader = scene.reader();
    scene.respond("list latest", version + 9, &[], "").await;
    scene
        .respond("list latest", version + 5, &[("x", x)], "")
        .await;
    assert!(matches!(reader.await.unwrap(), Latest::Unknown));
    let doubt = tokio::time::timeout(Duration::ZERO, scene.freshness.doubt.notified());
    assert!(doubt.await.is_ok());
}
