//! The reflector against a scripted server, with a queue and a store behind it. The clock is paused: it advances only when all tasks wait.

mod failures;
mod simulation;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::resource::Gvr;
use crate::upstream::driver::RequestPurpose;
use crate::upstream::driver::samples::scripted::{
    Asked, EXPIRED, Feed, Script, bookmark, marker, push, settled, sort_of,
};
use crate::upstream::reflector::RelistReason;
use crate::{
    DeltaKind, DeltaSubject, FailureKind, Indexer, InformerCounts, KeyError, KeyFn, KnownObjects,
    Metadata, Raw, TransformError, cached_key,
};

/// Decodable objects have strings as their data.
#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// A short text about a decoded object, with a leading space; may be empty.
trait Describe: Send + Sync + 'static {
    fn describe(&self) -> String;
}

impl Describe for ConfigMap {
    fn describe(&self) -> String {
        self.data
            .get("k")
            .map_or_else(String::new, |value| format!(" {value}"))
    }
}

impl Describe for Metadata {
    fn describe(&self) -> String {
        format!(" {}", self.metadata.uid.as_deref().unwrap_or_default())
    }
}

impl Describe for Raw {
    fn describe(&self) -> String {
        format!(" {} bytes", self.bytes().len())
    }
}

fn config_maps() -> ListWatch<ConfigMap> {
    ListWatch::typed(&Gvr::new("", "v1", "configmaps"))
}

/// An object whose data is the JSON `data`.
fn object(key: &str, version: u64, data: &str) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    format!(
        "{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\",\"uid\":\"u1\",\"resourceVersion\":\"{version}\"}},\"data\":{data}}}"
    )
}

fn event(kind: &str, key: &str, version: u64, data: &str) -> String {
    let object = object(key, version, data);
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// An event whose object can be decoded.
fn line(kind: &str, key: &str, version: u64) -> String {
    event(kind, key, version, "{}")
}

/// An event whose object cannot be decoded as `ConfigMap`.
fn odd(kind: &str, key: &str, version: u64) -> String {
    event(kind, key, version, "7")
}

fn list(items: &[String], version: u64, token: &str) -> String {
    format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\",\"continue\":\"{token}\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}

struct Scene<T> {
    requests: mpsc::Receiver<Asked>,
    queue: Arc<DeltaFifo<Cached<T>>>,
    store: Arc<Indexer<Cached<T>>>,
    failures: Arc<Mutex<Vec<String>>>,
    counts: InformerCounters,
    task: JoinHandle<()>,
}

impl<T: Describe> Scene<T> {
    fn new(list_watch: ListWatch<T>) -> Self {
        Self::with(list_watch, cached_key(), |reflector| reflector)
    }

    fn with(
        list_watch: ListWatch<T>,
        key: KeyFn<Cached<T>>,
        change: impl FnOnce(Reflector<T, Script>) -> Reflector<T, Script>,
    ) -> Self {
        let (script, requests) = Script::new();
        let store = Arc::new(Indexer::new(Arc::clone(&key)));
        let known = Arc::clone(&store) as Arc<dyn KnownObjects<Cached<T>>>;
        let queue = Arc::new(DeltaFifo::bounded(key, known, 4));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&failures);
        let reflector =
            Reflector::new(Arc::new(script), list_watch).on_failure(Arc::new(move |failure| {
                let source = std::error::Error::source(failure);
                let source = source.map_or_else(String::new, |source| format!(": {source}"));
                recorded.lock().unwrap().push(format!("{failure}{source}"));
            }));
        let reflector = change(reflector);
        let counts = reflector.counts().clone();
        Self {
            requests,
            task: tokio::spawn(reflector.run_into(Arc::clone(&queue))),
            queue,
            store,
            failures,
            counts,
        }
    }

    /// The next request, which must be of this sort. The clock advances while the driver waits to send it.
    async fn request(&mut self, sort: &str) -> Asked {
        let request = self.requests.recv().await.unwrap();
        assert_eq!(sort_of(&request.path), sort, "{}", request.path);
        request
    }

    /// Pops and stores everything that is queued. Returns it as short texts.
    fn drain(&self) -> Vec<String> {
        let mut drained = Vec::new();
        let mut take = |deltas: &[crate::Delta<Cached<T>>]| {
            for delta in deltas {
                let object = delta.subject.object().unwrap();
                let known = match delta.subject {
                    DeltaSubject::Object(_) => "",
                    DeltaSubject::FinalStateUnknown { .. } => " ?",
                };
                let (kind, key, version) = (delta.kind, object.key(), object.resource_version());
                drained.push(format!(
                    "{kind:?} {key} {version}{}{known}",
                    object.describe()
                ));
                if delta.kind == DeltaKind::Deleted {
                    self.store.remove(object.key());
                } else {
                    self.store.put(Arc::clone(object)).unwrap();
                }
            }
        };
        while let Some(popped) = self.queue.pop(|_, deltas, _| {
            take(deltas);
            Ok::<_, ()>(())
        }) {
            popped.unwrap();
        }
        // The objects of a replacement are queued in arbitrary order, so they come first here.
        drained.sort_by_key(|text| !text.starts_with("Replaced"));
        drained
    }

    /// Key and version of all stored objects.
    fn stored(&self) -> Vec<String> {
        let mut keys = KnownObjects::keys(&*self.store);
        keys.sort();
        let version = |key| {
            KnownObjects::object(&*self.store, key)
                .unwrap()
                .resource_version()
        };
        keys.iter()
            .map(|key| format!("{key} {}", version(key)))
            .collect()
    }

    fn failures(&self) -> Vec<String> {
        std::mem::take(&mut self.failures.lock().unwrap())
    }

    fn counts(&self) -> InformerCounts {
        self.counts.snapshot()
    }

    /// Streams an initial list: afterwards the store holds `a/x 3`, and the watch continues from version 5.
    async fn go_live(mut self) -> (Self, Feed) {
        let feed = self.request("stream 0").await.open();
        push(&feed, &[line("ADDED", "a/x", 3), marker(5)]).await;
        self.drain();
        assert_eq!(self.stored(), ["a/x 3"]);
        (self, feed)
    }
}

async fn live() -> (Scene<ConfigMap>, Feed) {
    Scene::new(config_maps()).go_live().await
}

fn last_version(scene: &Scene<ConfigMap>) -> Option<u64> {
    scene.counts().last_version.map(|version| version.0)
}

#[tokio::test(start_paused = true)]
async fn a_streamed_start_replaces_all_at_once_and_changes_follow_by_the_servers_word() {
    let mut scene = Scene::new(config_maps());
    let feed = scene.request("stream 0").await.open();
    push(&feed, &[line("ADDED", "b/y", 4), line("ADDED", "a/x", 3)]).await;
    assert!(scene.drain().is_empty() && last_version(&scene).is_none());
    push(&feed, &[marker(5)]).await;
    assert_eq!(scene.drain().len(), 2);
    let lines = [
        line("MODIFIED", "a/new", 6),
        line("ADDED", "a/x", 7),
        line("DELETED", "b/y", 8),
    ];
    push(&feed, &lines).await;
    assert_eq!(
        scene.drain(),
        ["Updated a/new 6", "Added a/x 7", "Deleted b/y 8"]
    );
    assert_eq!(scene.stored(), ["a/new 6", "a/x 7"]);
    assert!(scene.failures().is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_within_initial_data_count_and_data_that_broke_off_does_not() {
    let mut scene = Scene::new(config_maps());
    let feed = scene.request("stream 0").await.open();
    push(&feed, &[line("ADDED", "a/lost", 2)]).await;
    drop(feed);
    let feed = scene.request("stream 0").await.open();
    let lines = [
        line("ADDED", "a/x", 3),
        line("ADDED", "a/gone", 4),
        line("DELETED", "a/gone", 6),
        line("MODIFIED", "a/x", 7),
        marker(7),
    ];
    push(&feed, &lines).await;
    assert_eq!(scene.drain(), ["Replaced a/x 7"]);
    assert_eq!(
        scene.failures(),
        ["the connection for a watch failed: the stream ended before its initial data did"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_paged_start_replaces_when_the_last_page_has_come() {
    let mut scene = Scene::new(config_maps().in_pages(1));
    let pages = [
        list(&[object("a/x", 3, "{}")], 7, "t1"),
        list(&[object("a/y", 6, "{}")], 7, ""),
    ];
    scene.request("list 0").await.whole(200, &pages[0]).await;
    let request = scene.request("page t1").await;
    assert!(request.path.contains("limit=1"), "{}", request.path);
    assert!(scene.drain().is_empty());
    request.whole(200, &pages[1]).await;
    scene.request("watch 7").await;
    assert_eq!(scene.drain().len(), 2);
    assert_eq!(last_version(&scene), Some(7));
}

#[tokio::test(start_paused = true)]
async fn where_streams_are_refused_pages_are_asked_for() {
    let mut scene = Scene::new(config_maps());
    scene.request("stream 0").await.refuse(422).await;
    let whole = list(&[object("a/x", 3, "{}")], 7, "");
    scene.request("list 0").await.whole(200, &whole).await;
    scene.request("watch 7").await;
    assert_eq!(scene.drain(), ["Replaced a/x 3"]);
    assert_eq!(scene.failures(), ["the server refused a watch: 422  ()"]);
    assert_eq!(scene.counts().relists(RelistReason::StreamRefused), 1);
}

#[tokio::test(start_paused = true)]
async fn versions_follow_events_and_bookmarks_and_watches_resume_from_them() {
    let (mut scene, feed) = live().await;
    assert_eq!(last_version(&scene), Some(5));
    push(&feed, &[line("MODIFIED", "a/x", 6)]).await;
    assert_eq!(last_version(&scene), Some(6));
    push(&feed, &[bookmark(9)]).await;
    assert_eq!(last_version(&scene), Some(9));
    drop(feed);
    scene.request("watch 9").await;
    let counts = scene.counts();
    assert_eq!(
        (counts.events, counts.replaced, counts.watches_opened),
        (1, 1, 1)
    );
    assert!(counts.bytes > 300);
}

#[tokio::test(start_paused = true)]
async fn lost_history_leads_to_a_relist_and_vanished_objects_are_deleted() {
    let (mut scene, feed) = live().await;
    push(&feed, &[line("ADDED", "a/y", 6), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    push(&feed, &[line("ADDED", "a/y", 8), marker(9)]).await;
    assert_eq!(
        scene.drain(),
        ["Replaced a/y 8", "Added a/y 6", "Deleted a/x 3 ?"]
    );
    assert_eq!(
        scene.failures(),
        ["the server refused a watch: 410 Expired (too old)"]
    );
    assert_eq!(scene.counts().relists(RelistReason::Expired), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_broke_off_is_resumed_without_a_list() {
    let (mut scene, feed) = live().await;
    let half = line("MODIFIED", "a/x", 7)[..40].to_owned();
    push(&feed, &[line("MODIFIED", "a/x", 6), half]).await;
    drop(feed);
    scene.request("watch 6").await.fail();
    scene.request("watch 6").await.refuse(503).await;
    let feed = scene.request("watch 6").await.open();
    push(&feed, &[line("MODIFIED", "a/x", 7)]).await;
    assert_eq!(scene.drain(), ["Updated a/x 6", "Updated a/x 7"]);
    assert_eq!(
        scene.failures(),
        [
            "the connection for a watch failed: the stream ended within a frame",
            "the connection for a watch failed: no route",
            "the server refused a watch: 503  ()",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_back_off_as_client_go_does() {
    let (mut scene, feed) = live().await;
    drop(feed);
    let mut requested_at = Instant::now();
    for step_ms in [0, 800, 1_600, 3_200, 6_400] {
        scene.request("watch 5").await.fail();
        let waited = requested_at.elapsed();
        let step = Duration::from_millis(step_ms);
        // The clock's resolution is a millisecond.
        let longest = step * 2 + Duration::from_millis(1);
        assert!((step..=longest).contains(&waited), "{step:?}: {waited:?}");
        requested_at = Instant::now();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_without_an_event_is_not_opened_again_at_once() {
    let (mut scene, feed) = live().await;
    drop(feed);
    drop(scene.request("watch 5").await.open());
    let ended_at = Instant::now();
    scene.request("watch 5").await;
    assert!(ended_at.elapsed() >= Duration::from_millis(800));
}

#[tokio::test(start_paused = true)]
async fn watches_ask_for_five_to_ten_minutes_and_for_bookmarks() {
    let (mut scene, mut feed) = live().await;
    let mut seen = std::collections::BTreeSet::new();
    for version in 6..26 {
        push(&feed, &[bookmark(version)]).await;
        drop(feed);
        let request = scene.request(&format!("watch {version}")).await;
        assert!(request.path.contains("allowWatchBookmarks=true"));
        let (_, seconds) = request.path.split_once("timeoutSeconds=").unwrap();
        let seconds: u64 = seconds.split_once('&').unwrap().0.parse().unwrap();
        assert!((300..600).contains(&seconds), "{seconds}");
        seen.insert(seconds);
        feed = request.open();
    }
    assert!(seen.len() > 1, "all alike");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_keeps_its_last_good_state() {
    let (scene, feed) = live().await;
    push(&feed, &[odd("MODIFIED", "a/x", 6), line("ADDED", "a/y", 7)]).await;
    assert_eq!(scene.drain(), ["Added a/y 7"]);
    assert_eq!(scene.stored(), ["a/x 3", "a/y 7"]);
    let failures = scene.failures();
    assert_eq!(failures.len(), 1);
    assert!(
        failures[0].starts_with("a/x at version 6 cannot be decoded: "),
        "{failures:?}"
    );
    assert_eq!(scene.counts().failures(FailureKind::Undecodable), 1);
    push(&feed, &[line("MODIFIED", "a/x", 8)]).await;
    assert_eq!(scene.drain(), ["Updated a/x 8"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_cannot_be_decoded_is_told_with_the_last_state_known() {
    let (scene, feed) = live().await;
    push(
        &feed,
        &[line("MODIFIED", "a/x", 6), odd("DELETED", "a/x", 7)],
    )
    .await;
    assert_eq!(scene.drain(), ["Updated a/x 6", "Deleted a/x 6 ?"]);
    push(&feed, &[line("ADDED", "a/y", 8)]).await;
    scene.drain();
    push(
        &feed,
        &[odd("DELETED", "a/y", 9), odd("DELETED", "a/never", 10)],
    )
    .await;
    assert_eq!(scene.drain(), ["Deleted a/y 8 ?"]);
    assert!(scene.stored().is_empty());
    assert_eq!(scene.counts().failures(FailureKind::Undecodable), 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_with_an_object_that_cannot_be_decoded_tells_no_end_of_it() {
    let (mut scene, feed) = live().await;
    // One undecodable object is stored, one is still queued, one is unknown.
    push(&feed, &[line("ADDED", "a/queued", 6), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    let lines = [
        odd("ADDED", "a/queued", 8),
        odd("ADDED", "a/x", 8),
        odd("ADDED", "a/never", 8),
        line("ADDED", "a/z", 8),
        marker(9),
    ];
    push(&feed, &lines).await;
    assert_eq!(scene.drain(), ["Replaced a/z 8", "Added a/queued 6"]);
    assert_eq!(scene.stored(), ["a/queued 6", "a/x 3", "a/z 8"]);
    assert_eq!(scene.counts().failures(FailureKind::Undecodable), 3);
    // Objects that are really gone are deleted by the next list.
    push(&feed, &[EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    push(&feed, &[marker(12)]).await;
    assert_eq!(scene.drain().len(), 3);
    assert!(scene.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_with_another_object_that_cannot_be_decoded_tells_the_end_of_the_one_before() {
    let (mut scene, feed) = live().await;
    push(&feed, &[line("ADDED", "a/queued", 6), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    let recreated = |key, version| odd("ADDED", key, version).replace("u1", "u2");
    let lines = [recreated("a/queued", 8), recreated("a/x", 8), marker(9)];
    push(&feed, &lines).await;
    let mut drained = scene.drain();
    drained.sort();
    assert_eq!(
        drained,
        [
            "Added a/queued 6",
            "Deleted a/queued 6 ?",
            "Deleted a/x 3 ?"
        ]
    );
    assert!(scene.stored().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_transform_hook_changes_refuses_and_may_panic() {
    let transform: Transform<ConfigMap> = Arc::new(|cached| {
        let data = &mut cached.object_mut().data;
        match data.get("k").map(String::as_str) {
            Some("refuse") => return Err(TransformError::new("no such thing")),
            Some("panic") => panic!("at {}", 7),
            _ => data.insert("k".into(), "changed".into()),
        };
        Ok(())
    });
    let scene = Scene::with(config_maps(), cached_key(), |reflector| {
        reflector.transformed(transform)
    });
    let (scene, feed) = scene.go_live().await;
    let with = |version, data| event("MODIFIED", "a/x", version, data);
    let lines = [
        with(6, "{\"k\":\"old\"}"),
        with(7, "{\"k\":\"refuse\"}"),
        with(8, "{\"k\":\"panic\"}"),
        event("DELETED", "a/x", 9, "{\"k\":\"panic\"}"),
    ];
    push(&feed, &lines).await;
    assert_eq!(
        scene.drain(),
        ["Updated a/x 6 changed", "Deleted a/x 6 changed ?"]
    );
    assert_eq!(
        scene.failures(),
        [
            "a/x at version 7 cannot be transformed: no such thing",
            "transforming a/x at version 8 panicked: at 7",
            "transforming a/x at version 9 panicked: at 7",
        ]
    );
    assert_eq!(scene.counts().failures(FailureKind::Panicked), 2);
}

#[tokio::test(start_paused = true)]
async fn a_decoder_that_panics_is_a_failure_of_one_object() {
    #[derive(Deserialize)]
    #[serde(from = "serde_json::Value")]
    struct Fragile;
    impl From<serde_json::Value> for Fragile {
        fn from(value: serde_json::Value) -> Self {
            assert!(value["data"].is_object(), "data is no object");
            Self
        }
    }
    impl Describe for Fragile {
        fn describe(&self) -> String {
            String::new()
        }
    }
    let scene = Scene::new(ListWatch::<Fragile>::typed(&Gvr::new(
        "",
        "v1",
        "configmaps",
    )));
    let (scene, feed) = scene.go_live().await;
    push(&feed, &[odd("ADDED", "a/y", 6), line("ADDED", "a/z", 7)]).await;
    assert_eq!(scene.drain(), ["Added a/z 7"]);
    assert_eq!(
        scene.failures(),
        ["decoding a/y at version 6 panicked: data is no object"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_function_that_fails_leaves_objects_at_their_last_state() {
    let key: KeyFn<Cached<ConfigMap>> = Arc::new(|object| match &*object.describe() {
        " bad" => Err(KeyError::new("no key today")),
        _ => Ok(object.key().clone()),
    });
    let scene = Scene::with(config_maps(), key, |reflector| reflector);
    let (mut scene, feed) = scene.go_live().await;
    let bad = |kind, version| event(kind, "a/x", version, "{\"k\":\"bad\"}");
    push(&feed, &[bad("MODIFIED", 6), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    push(
        &feed,
        &[bad("ADDED", 8), line("ADDED", "a/y", 7), marker(9)],
    )
    .await;
    assert_eq!(scene.drain(), ["Replaced a/y 7"]);
    assert_eq!(scene.stored(), ["a/x 3", "a/y 7"]);
    push(&feed, &[bad("DELETED", 10)]).await;
    assert_eq!(scene.drain(), ["Deleted a/x 3 ?"]);
    assert_eq!(scene.counts().failures(FailureKind::Key), 3);
    assert!(scene.failures()[0].starts_with("a/x at version 6 cannot be queued"));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_failure_hook_is_counted_and_stops_nothing() {
    let scene = Scene::with(config_maps(), cached_key(), |reflector| {
        reflector.on_failure(Arc::new(|_| panic!("hook")))
    });
    let (scene, feed) = scene.go_live().await;
    push(&feed, &[odd("MODIFIED", "a/x", 6), line("ADDED", "a/y", 7)]).await;
    assert_eq!(scene.drain(), ["Added a/y 7"]);
    assert_eq!(scene.counts().hook_panics, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_is_believed_and_told_of() {
    let (mut scene, feed) = live().await;
    push(&feed, &[bookmark(50), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    push(
        &feed,
        &[
            line("ADDED", "a/y", 2),
            marker(4),
            line("MODIFIED", "a/y", 5),
        ],
    )
    .await;
    assert_eq!(
        scene.drain(),
        ["Replaced a/y 2", "Updated a/y 5", "Deleted a/x 3 ?"]
    );
    assert_eq!(last_version(&scene), Some(5));
    assert_eq!(
        scene.failures()[1],
        "the server went back from version 50 to 4"
    );
    drop(feed);
    scene.request("watch 5").await;
}

#[tokio::test(start_paused = true)]
async fn events_that_go_back_or_repeat_are_left_out_and_others_of_one_version_are_not() {
    let (mut scene, feed) = live().await;
    let lines = [
        line("MODIFIED", "a/x", 7),
        line("ADDED", "a/y", 7),
        line("MODIFIED", "a/x", 7),
        line("MODIFIED", "a/x", 6),
        bookmark(6),
    ];
    push(&feed, &lines).await;
    assert_eq!(scene.drain(), ["Updated a/x 7", "Added a/y 7"]);
    drop(feed);
    let feed = scene.request("watch 7").await.open();
    push(&feed, &[line("ADDED", "a/y", 7), line("ADDED", "a/z", 7)]).await;
    assert_eq!(scene.drain(), ["Added a/z 7"]);
    assert_eq!(scene.counts().ignored, 4);
}

#[tokio::test(start_paused = true)]
async fn events_at_the_version_of_a_list_are_not_repeated() {
    let mut scene = Scene::new(config_maps());
    let feed = scene.request("stream 0").await.open();
    push(
        &feed,
        &[line("ADDED", "a/x", 5), marker(5), line("ADDED", "a/x", 5)],
    )
    .await;
    assert_eq!(scene.drain(), ["Replaced a/x 5"]);
    assert_eq!(scene.counts().ignored, 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_without_name_or_version_ends_the_watch_and_thrice_leads_to_a_list() {
    for (part, replacement) in [
        ("\"name\":\"y\"", "\"name\":\"\""),
        ("\"resourceVersion\":\"7\",", ""),
    ] {
        let (mut scene, mut feed) = live().await;
        let text = line("ADDED", "a/y", 7).replace(
            "\"uid\":\"u1\",\"resourceVersion\":\"7\"",
            "\"resourceVersion\":\"7\",\"uid\":\"u1\"",
        );
        let bad = text.replace(part, replacement);
        assert_ne!(bad, text);
        for _ in 0..3 {
            push(&feed, std::slice::from_ref(&bad)).await;
            if let Ok(request) =
                tokio::time::timeout(Duration::from_secs(60), scene.requests.recv()).await
            {
                let request = request.unwrap();
                let sort = sort_of(&request.path);
                feed = request.open();
                if sort == "stream 5" {
                    break;
                }
                assert_eq!(sort, "watch 5");
            }
        }
        push(
            &feed,
            &[line("ADDED", "a/x", 3), line("ADDED", "a/y", 7), marker(8)],
        )
        .await;
        scene.drain();
        assert_eq!(scene.stored(), ["a/x 3", "a/y 7"]);
        let counts = scene.counts();
        assert_eq!(counts.failures(FailureKind::Unreadable), 3);
        assert_eq!(counts.relists(RelistReason::Unparsable), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_cut_short_or_no_json_leave_the_store_as_it_is() {
    let (mut scene, feed) = live().await;
    push(&feed, &[EXPIRED.into()]).await;
    scene.request("stream latest").await.refuse(422).await;
    let whole = list(&[object("a/x", 8, "{}"), object("a/y", 8, "{}")], 9, "");
    let cut = Bytes::from(whole[..whole.len() / 2].to_owned());
    // The connection breaks; the response is truncated; protobuf; a Table.
    let feed = scene.request("list latest").await.open();
    feed.send(Ok(cut.clone())).await.unwrap();
    feed.send(Err("connection reset".into())).await.unwrap();
    let feed = scene.request("list latest").await.open();
    feed.send(Ok(cut)).await.unwrap();
    drop(feed);
    let binary = "application/vnd.kubernetes.protobuf";
    drop(scene.request("list latest").await.answer(200, binary));
    let table = list(&[], 9, "").replace("ConfigMapList", "Table");
    scene.request("list latest").await.whole(200, &table).await;
    let request = scene.request("list latest").await;
    assert!(scene.drain().is_empty());
    assert_eq!(scene.stored(), ["a/x 3"]);
    let failures = scene.failures().split_off(2);
    let starts = [
        "the connection for a list failed: connection reset",
        "the response to a list cannot be read: expected",
        "the response to a list cannot be read: content type \"application/vnd.kubernetes.protobuf\"",
        "the response to a list cannot be read: a Table came",
    ];
    assert_eq!(failures.len(), starts.len(), "{failures:?}");
    for (failure, start) in failures.iter().zip(starts) {
        assert!(failure.starts_with(start), "{failure}");
    }
    request.whole(200, &whole).await;
    scene.request("watch 9").await;
    scene.drain();
    assert_eq!(scene.stored(), ["a/x 8", "a/y 8"]);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_gone_for_long_keeps_its_store_until_a_list_says_otherwise() {
    let (mut scene, feed) = live().await;
    drop(feed);
    for _ in 0..3 {
        scene.request("watch 5").await.refuse(404).await;
    }
    scene.request("stream 5").await.refuse(404).await;
    for _ in 0..20 {
        scene.request("list 5").await.refuse(404).await;
    }
    let requested_at = Instant::now();
    let request = scene.request("list 5").await;
    assert!((30..61).contains(&requested_at.elapsed().as_secs()));
    assert_eq!(scene.stored(), ["a/x 3"]);
    request.whole(200, &list(&[], 90, "")).await;
    let feed = scene.request("watch 90").await.open();
    push(&feed, &[line("ADDED", "a/new", 91)]).await;
    assert_eq!(scene.drain(), ["Deleted a/x 3 ?", "Added a/new 91"]);
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_and_kept_of_whole_objects() {
    let mut scene = Scene::new(ListWatch::metadata(&Gvr::new("", "v1", "configmaps")));
    let request = scene.request("stream 0").await;
    assert_eq!(request.purpose, RequestPurpose::WatchMetadata);
    let feed = request.open();
    push(&feed, &[odd("ADDED", "a/x", 3), marker(5)]).await;
    assert_eq!(scene.drain(), ["Replaced a/x 3 u1"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_no_metadata_alone_is_asked_for_whole_objects() {
    let mut scene = Scene::new(ListWatch::metadata(&Gvr::new("", "v1", "configmaps")));
    scene.request("stream 0").await.refuse(406).await;
    let request = scene.request("list 0").await;
    assert_eq!(request.purpose, RequestPurpose::Read);
    request
        .whole(200, &list(&[object("a/x", 3, "{}")], 7, ""))
        .await;
    assert_eq!(
        scene.request("watch 7").await.purpose,
        RequestPurpose::Watch
    );
    assert_eq!(scene.drain(), ["Replaced a/x 3 u1"]);
}

#[tokio::test(start_paused = true)]
async fn raw_objects_are_the_bytes_that_came() {
    let scene = Scene::new(ListWatch::raw(&Gvr::new("", "v1", "configmaps")));
    let (scene, feed) = scene.go_live().await;
    push(&feed, &[odd("MODIFIED", "a/x", 6)]).await;
    let len = object("a/x", 6, "7").len();
    assert_eq!(scene.drain(), [format!("Updated a/x 6 {len} bytes")]);
}

#[tokio::test(start_paused = true)]
async fn while_the_queue_is_full_nothing_is_read() {
    let (scene, feed) = live().await;
    for version in 6..40 {
        feed.send(Ok(Bytes::from(line("MODIFIED", "a/x", version))))
            .await
            .unwrap();
        settled().await;
    }
    // The queue accepts 4 deltas; the rest stays unread.
    assert_eq!(scene.queue.delta_count(), 4);
    assert_eq!(last_version(&scene), Some(9));
    scene.drain();
    settled().await;
    assert_eq!(last_version(&scene), Some(39));
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_ends_the_reading_whatever_it_waits_for() {
    let (scene, _feed) = live().await;
    scene.queue.close();
    scene.task.await.unwrap();
    let mut scene = Scene::new(config_maps());
    scene.request("stream 0").await.fail();
    settled().await;
    scene.queue.close();
    scene.task.await.unwrap();
}

#[test]
fn managed_fields_are_left_out_where_asked_and_always_of_metadata() {
    let with = "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"3\",\"managedFields\":[{\"manager\":\"m\"}]}}";
    let parts = crate::decode::scan_object(with.as_bytes(), FieldTable::default()).unwrap();
    let object = crate::resource::Object::new(parts, with.as_bytes());
    let gvr = Gvr::new("", "v1", "configmaps");
    let raw = |list_watch: ListWatch<Raw>| {
        let made = list_watch.make(&object).unwrap();
        String::from_utf8(made.bytes().to_vec()).unwrap()
    };
    assert_eq!(raw(ListWatch::raw(&gvr)), with);
    assert!(!raw(ListWatch::raw(&gvr).without_managed_fields()).contains("managedFields"));
    let metadata =
        |list_watch: ListWatch<Metadata>| list_watch.make(&object).unwrap().metadata.managed_fields;
    assert_eq!(metadata(ListWatch::metadata(&gvr)), None);
    let kept = metadata(ListWatch::metadata(&gvr).with_managed_fields());
    assert_eq!(kept.unwrap().len(), 1);
}
