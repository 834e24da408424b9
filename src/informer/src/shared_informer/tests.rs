//! One informer from its initial list to its end, against a scripted upstream.

mod reentry;

use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::*;
use crate::resource::Gvr;
use crate::upstream::driver::samples::scripted::{Asked, EXPIRED, Feed, Script, marker};
use crate::{Notification, Raw};

struct Scene {
    requests: mpsc::Receiver<Asked>,
    /// The last request, which gets no response.
    unanswered: Option<Asked>,
    informer: SharedInformer<Raw>,
}

impl Scene {
    fn new(options: InformerOptions<Raw>) -> Self {
        let (upstream, requests) = Script::new();
        let list_watch = ListWatch::raw(&Gvr::new("", "v1", "configmaps"));
        let informer = SharedInformer::with_options(Arc::new(upstream), list_watch, options);
        Self {
            requests,
            unanswered: None,
            informer,
        }
    }

    /// A started informer, with its first stream.
    async fn started(options: InformerOptions<Raw>) -> (Self, Feed) {
        let mut scene = Self::new(options);
        scene.informer.start();
        let feed = scene.next_stream().await;
        (scene, feed)
    }

    /// Accepts the next stream.
    async fn next_stream(&mut self) -> Feed {
        self.requests.recv().await.unwrap().open()
    }

    /// Ends a stream, and waits for the next request: by then everything before the end has been read.
    async fn wait_until_read(&mut self, feed: Feed) {
        drop(feed);
        self.unanswered = self.requests.recv().await;
        assert!(self.unanswered.is_some());
    }
}

async fn send(feed: &Feed, lines: &[String]) {
    feed.send(Ok(Bytes::from(lines.concat()))).await.unwrap();
}

fn event(kind: &str, name: &str, version: u64) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

/// The notifications that a handler received, as short texts.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<String>>>);

impl Received {
    fn handler(&self) -> impl Fn(&Notification<Raw>) + Send + Sync + 'static {
        let received = Arc::clone(&self.0);
        move |notification| received.lock().unwrap().push(summary(notification))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn summary(notification: &Notification<Raw>) -> String {
    match notification {
        Notification::Added {
            object,
            in_initial_list,
        } => format!("add {} {in_initial_list}", object.resource_version()),
        Notification::Updated { old, new } => format!(
            "update {} {}",
            old.resource_version(),
            new.resource_version()
        ),
        Notification::Deleted {
            object,
            final_state_known,
            ..
        } => format!("delete {} {final_state_known}", object.resource_version()),
    }
}

fn stored(informer: &SharedInformer<Raw>) -> Vec<String> {
    let snapshot = informer.store().snapshot();
    let mut entries: Vec<_> = snapshot
        .iter()
        .map(|object| format!("{} {}", object.key(), object.resource_version()))
        .collect();
    entries.sort();
    entries
}

#[tokio::test]
async fn the_initial_list_is_told_as_such_and_what_follows_is_not() {
    let (mut scene, feed) = Scene::started(InformerOptions::default()).await;
    let received = Received::default();
    let registration = scene.informer.add_handler(received.handler());
    send(&feed, &[event("ADDED", "x", 3), marker(5)]).await;
    scene.informer.synced().await.unwrap();
    registration.synced().await.unwrap();
    assert_eq!(received.take(), ["add 3 true"]);
    let more = [
        event("ADDED", "y", 6),
        event("MODIFIED", "x", 7),
        event("DELETED", "y", 8),
    ];
    send(&feed, &more).await;
    scene.wait_until_read(feed).await;
    scene.informer.shutdown().await;
    // The order is kept only per object.
    assert_eq!(
        received.take(),
        ["add 6 false", "delete 8 true", "update 3 7"]
    );
    assert_eq!(stored(&scene.informer), ["a/x 7"]);
}

#[tokio::test]
async fn the_type_of_a_notification_depends_on_the_store_not_on_the_servers_event_type() {
    let (mut scene, feed) = Scene::started(InformerOptions::default()).await;
    let received = Received::default();
    scene.informer.add_handler(received.handler());
    let odd = [
        marker(5),
        event("MODIFIED", "x", 6),
        event("ADDED", "x", 7),
        event("DELETED", "unknown", 8),
    ];
    send(&feed, &odd).await;
    scene.wait_until_read(feed).await;
    scene.informer.shutdown().await;
    assert_eq!(received.take(), ["add 6 false", "update 6 7"]);
}

#[tokio::test]
async fn the_store_is_synced_only_with_the_marker() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    send(&feed, &[event("ADDED", "x", 3)]).await;
    tokio::task::yield_now().await;
    assert!(!scene.informer.has_synced());
    assert_eq!(scene.informer.store().len(), 0);
    send(&feed, &[marker(3)]).await;
    scene.informer.synced().await.unwrap();
    assert_eq!(stored(&scene.informer), ["a/x 3"]);
}

#[tokio::test]
async fn an_empty_collection_is_synced_with_the_marker() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    let registration = scene.informer.add_handler(|_: &Notification<Raw>| {});
    // Lets the informer begin to wait.
    tokio::task::yield_now().await;
    send(&feed, &[marker(3)]).await;
    scene.informer.synced().await.unwrap();
    registration.synced().await.unwrap();
    assert_eq!(scene.informer.store().len(), 0);
}

#[tokio::test]
async fn a_late_handler_gets_the_present_objects() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    send(&feed, &[event("ADDED", "x", 3), marker(5)]).await;
    scene.informer.synced().await.unwrap();
    let received = Received::default();
    let registration = scene.informer.add_handler(received.handler());
    registration.synced().await.unwrap();
    assert_eq!(received.take(), ["add 3 true"]);
}

#[tokio::test]
async fn a_relist_tells_differences_and_nothing_of_what_stayed() {
    let (mut scene, feed) = Scene::started(InformerOptions::default()).await;
    let received = Received::default();
    scene.informer.add_handler(received.handler());
    let names = ["gone", "stays", "changes"];
    let initial = names.map(|name| event("ADDED", name, 3));
    send(&feed, &[initial.concat(), marker(5), EXPIRED.into()]).await;
    let feed = scene.next_stream().await;
    let state = [
        event("ADDED", "stays", 3),
        event("ADDED", "changes", 8),
        event("ADDED", "new", 9),
        marker(9),
        event("MODIFIED", "new", 10),
    ];
    send(&feed, &state).await;
    scene.wait_until_read(feed).await;
    scene.informer.shutdown().await;
    let mut received = received.take();
    received.sort();
    assert_eq!(
        received,
        [
            "add 3 true",
            "add 3 true",
            "add 3 true",
            "add 9 false",
            "delete 3 false",
            "update 3 8",
            "update 9 10",
        ]
    );
}

#[tokio::test]
async fn a_transform_decides_what_is_stored() {
    let transform: Transform<Raw> = Arc::new(|object| {
        *object.object_mut() = Raw::from_bytes(Bytes::from_static(b"{}"));
        Ok(())
    });
    let options = InformerOptions {
        transform: Some(transform),
        ..InformerOptions::default()
    };
    let (scene, feed) = Scene::started(options).await;
    send(&feed, &[event("ADDED", "x", 3), marker(5)]).await;
    scene.informer.synced().await.unwrap();
    assert_eq!(
        scene.informer.lister().object("a", "x").unwrap().bytes(),
        b"{}"
    );
}

#[tokio::test]
async fn an_index_added_late_is_consistent_with_the_store() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    send(&feed, &[event("ADDED", "x", 3), marker(5)]).await;
    scene.informer.synced().await.unwrap();
    let by_version =
        crate::index_by(|object: &Cached<Raw>| vec![object.resource_version().to_string()]);
    scene.informer.add_index("version", by_version).unwrap();
    let keys = scene.informer.store().index_keys("version", "3").unwrap();
    assert_eq!(keys.len(), 1);
}

#[tokio::test]
async fn shut_down_before_it_synced_an_informer_says_so_and_starts_no_more() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    let waiting = tokio::spawn({
        let informer = scene.informer.clone();
        async move { informer.synced().await }
    });
    scene.informer.shutdown().await;
    assert_eq!(
        waiting.await.unwrap().unwrap_err().to_string(),
        "the informer of configmaps.v1 was shut down before it held its initial list"
    );
    assert!(feed.is_closed());
    scene.informer.start();
    scene.informer.shutdown().await;
    let registration = scene.informer.add_handler(|_: &Notification<Raw>| {});
    assert!(registration.ended().is_some());
}

#[tokio::test]
async fn an_informer_that_was_never_started_ends_at_once() {
    let scene = Scene::new(InformerOptions::default());
    assert!(!scene.informer.is_started());
    scene.informer.shutdown().await;
    assert!(scene.informer.synced().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_resync_repeats_all_objects_to_handlers_with_a_period() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    let (received, silent) = (Received::default(), Received::default());
    let period = Duration::from_secs(30);
    let resyncing = HandlerOptions::named("resyncing").with_resync(period);
    scene
        .informer
        .add_handler_with(received.handler(), resyncing);
    scene.informer.add_handler(silent.handler());
    send(&feed, &[event("ADDED", "x", 3), marker(5)]).await;
    scene.informer.synced().await.unwrap();
    tokio::time::sleep(period * 2 + Duration::from_secs(1)).await;
    scene.informer.shutdown().await;
    assert_eq!(received.take(), ["add 3 true", "update 3 3", "update 3 3"]);
    assert_eq!(silent.take(), ["add 3 true"]);
}

#[tokio::test(start_paused = true)]
async fn a_resync_that_becomes_due_cuts_off_none_that_runs() {
    let (scene, feed) = Scene::started(InformerOptions::default()).await;
    let count = 1_000;
    let (entering, entered) = crossbeam_channel::bounded(4_096);
    let (release, gate) = crossbeam_channel::bounded::<()>(1);
    let slow = move |notification: &Notification<Raw>| {
        entering.send(summary(notification)).unwrap();
        if matches!(notification, Notification::Updated { .. }) {
            // An error means that the gate stays open.
            gate.recv().unwrap_or_default();
        }
    };
    let other = Received::default();
    let period = Duration::from_secs(3);
    // This handler makes the informer wait in the middle of its resync.
    let blocking = HandlerOptions::named("slow")
        .with_queue(1, crate::Overflow::Block)
        .with_resync(period);
    let slow = scene.informer.add_handler_with(slow, blocking);
    tokio::time::advance(Duration::from_millis(5)).await;
    let resyncing = HandlerOptions::named("other").with_resync(period);
    let received = scene.informer.add_handler_with(other.handler(), resyncing);
    let list: Vec<_> = (0..count)
        .map(|number| event("ADDED", &format!("x{number}"), 3 + number))
        .collect();
    send(&feed, &[list.concat(), marker(2_000)]).await;
    slow.synced().await.unwrap();
    received.synced().await.unwrap();
    assert_eq!(entered.try_iter().count() as u64, count);
    assert_eq!(other.take().len() as u64, count);
    // First the resync of the slow handler becomes due, then that of the other one.
    tokio::time::advance(period - Duration::from_millis(4)).await;
    while entered.is_empty() {
        tokio::task::yield_now().await;
    }
    tokio::time::advance(Duration::from_millis(10)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    drop(release);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let is_done = || entered.len() as u64 == count && other.0.lock().unwrap().len() as u64 == count;
    while !is_done() && std::time::Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    scene.informer.shutdown().await;
    assert_eq!(entered.try_iter().count() as u64, count);
    assert_eq!(other.take().len() as u64, count);
}

#[tokio::test]
async fn a_handler_that_panics_is_counted_and_told_of_the_next_change() {
    let (mut scene, feed) = Scene::started(InformerOptions::default()).await;
    let received = Received::default();
    let handler = received.handler();
    let panics = move |notification: &Notification<Raw>| {
        handler(notification);
        assert!(notification.key().name() != "bad", "planted");
    };
    let registration = scene.informer.add_handler(panics);
    let initial = [event("ADDED", "bad", 3), marker(5)];
    send(&feed, &initial).await;
    registration.synced().await.unwrap();
    send(&feed, &[event("ADDED", "good", 6)]).await;
    scene.wait_until_read(feed).await;
    scene.informer.shutdown().await;
    assert_eq!(received.take(), ["add 3 true", "add 6 false"]);
    assert_eq!(scene.informer.handler_panics(), 1);
}
