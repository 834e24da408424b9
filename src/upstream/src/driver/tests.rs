//! The driver against a scripted upstream. The clock is paused and moves only when all tasks wait.

mod failures;
mod silence;
mod start;

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::samples::scripted::{
    Asked, EXPIRED, Feed, Script, bookmark, line, list, marker, push, settled, sort_of,
};
use super::*;
use crate::backoff::Backoff;
use crate::cache::samples::{keep, kind};
use crate::cache::{ApplyOutcome, CacheWriter};
use crate::cache_sink::{CacheSink, FillRecorder};
use crate::reflector::{InitialVersion, ReflectorOptions, RelistReason, StreamingLists};
use crate::resource::{Layout, ResourceVersion};
use crate::view::Hub;

/// What the driver and the sink report, one line each.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn add(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl DriverRecorder for Notes {
    fn rejected(&self, reason: FrameRejection) {
        self.add(format!("rejected {reason:?}"));
    }
    fn relisted(&self, reason: RelistReason) {
        self.add(format!("relisted {}", <&str>::from(reason)));
    }
    fn connected(&self, connected: WatchConnection) {
        if let WatchConnection::No(reason) = connected {
            self.add(format!("closed {reason:?}").to_lowercase());
        }
    }
}

impl FillRecorder for Notes {
    fn applied(&self, applied: ApplyOutcome) {
        self.add(format!("applied {}", applied.events));
    }
}

const FRAME_LEN_MAX: usize = 1000;

/// A driver that fills `writer` with config maps.
fn driver<F: Fetch>(
    fetch: F,
    writer: CacheWriter,
    streaming: StreamingLists,
    notes: &Arc<Notes>,
) -> Driver<F, CacheSink> {
    let gvr = writer.cache().kind().gvr.clone();
    let sink = CacheSink::new(writer, Duration::from_millis(5), Arc::clone(notes) as _);
    let reflector = ReflectorMachine::new(options(streaming)).with_backoff(Backoff::brisk());
    let spec = ReadSpec::all(&gvr, FRAME_LEN_MAX);
    Driver::new(
        Arc::new(fetch),
        spec,
        reflector,
        sink,
        Arc::clone(notes) as _,
    )
}

fn options(streaming: StreamingLists) -> ReflectorOptions {
    ReflectorOptions {
        streaming,
        page_len: 2,
        start_from: None,
        initial: InitialVersion::Latest,
    }
}

struct Scene {
    requests: mpsc::Receiver<Asked>,
    cache: Arc<crate::cache::WatchCache>,
    notes: Arc<Notes>,
    driver: JoinHandle<DriverEnd>,
}

impl Scene {
    fn new(streaming: StreamingLists) -> Self {
        let (script, requests) = Script::new();
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let writer = CacheWriter::new(kind(Layout::Typed), keep(1000), hub);
        let cache = Arc::clone(writer.cache());
        let notes = Arc::new(Notes::default());
        let driver = driver(script, writer, streaming, &notes);
        Self {
            requests,
            cache,
            notes,
            driver: tokio::spawn(driver.run()),
        }
    }

    /// The next request, which must be of this sort. The clock moves on while the driver waits before it sends it.
    async fn request(&mut self, sort: &str) -> Asked {
        let request = self.requests.recv().await.unwrap();
        assert_eq!(sort_of(&request.path), sort, "{}", request.path);
        request
    }

    /// Keys and versions of all objects, and the version of the snapshot.
    fn state(&self) -> Option<(Vec<String>, u64)> {
        let snapshot = self.cache.snapshot()?;
        let entries = snapshot
            .objects
            .iter()
            .map(|object| format!("{} {}", object.key(), object.resource_version()))
            .collect();
        Some((entries, snapshot.resource_version.0))
    }

    #[track_caller]
    fn holds(&self, entries: &[&str], version: u64) {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        assert_eq!(self.state(), Some((entries, version)));
    }

    fn history(&self) -> Vec<String> {
        let mut seen = Vec::new();
        let read = self.cache.history().read(0, |_, event| {
            let (kind, key) = (event.kind().as_str(), event.object().key());
            seen.push(format!("{kind} {key} {}", event.resource_version()));
            std::ops::ControlFlow::Continue(())
        });
        assert!(read.is_ok());
        seen
    }

    /// A scene whose driver has streamed `a/x 3` and now watches from version 5.
    async fn live() -> (Self, Feed) {
        let mut scene = Self::new(StreamingLists::Preferred);
        let feed = scene.request("stream latest").await.open();
        push(&feed, &[line("ADDED", "a/x", 3), marker(5)]).await;
        scene.holds(&["a/x 3"], 5);
        scene.notes.take();
        (scene, feed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_streamed_start_is_served_when_its_marker_comes_and_then_followed() {
    let mut scene = Scene::new(StreamingLists::Preferred);
    let feed = scene.request("stream latest").await.open();
    push(&feed, &[line("ADDED", "b/y", 4), line("ADDED", "a/x", 3)]).await;
    assert_eq!(scene.state(), None);
    push(&feed, &[marker(5), line("MODIFIED", "a/x", 6)]).await;
    scene.holds(&["a/x 6", "b/y 4"], 6);
    push(&feed, &[line("DELETED", "b/y", 8), bookmark(11)]).await;
    scene.holds(&["a/x 6"], 11);
    assert_eq!(scene.history(), ["MODIFIED a/x 6", "DELETED b/y 8"]);
}

#[tokio::test(start_paused = true)]
async fn a_paged_start_is_served_when_the_last_page_has_come() {
    let mut scene = Scene::new(StreamingLists::Never);
    let first = list(&[("a/x", 3), ("a/y", 2)], 7, "t1");
    scene.request("list latest").await.whole(200, &first).await;
    // A page that failed is requested again; the pages before it stay.
    scene.request("page t1").await.refuse(503).await;
    let page = scene.request("page t1").await;
    assert_eq!(scene.state(), None);
    page.whole(200, &list(&[("b/z", 6)], 7, "")).await;
    scene.request("watch 7").await.open();
    scene.holds(&["a/x 3", "a/y 2", "b/z 6"], 7);
    assert_eq!(scene.notes.take()[0], "relisted start");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_expired_leads_to_one_whole_list() {
    let mut scene = Scene::new(StreamingLists::Never);
    let first = list(&[("a/x", 3), ("a/gone", 2)], 7, "t1");
    scene.request("list latest").await.whole(200, &first).await;
    scene.request("page t1").await.refuse(410).await;
    let whole = list(&[("a/x", 3), ("a/y", 8)], 9, "");
    scene.request("list latest").await.whole(200, &whole).await;
    scene.request("watch 9").await;
    scene.holds(&["a/x 3", "a/y 8"], 9);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_stops_half_way_is_given_up_and_asked_for_again() {
    let mut scene = Scene::new(StreamingLists::Never);
    let whole = list(&[("a/x", 3)], 7, "");
    let feed = scene.request("list latest").await.open();
    push(&feed, &[whole[..50].to_owned()]).await;
    // The connection stays open, but nothing more arrives.
    let again = scene.request("list latest").await;
    again.whole(200, &whole).await;
    scene.request("watch 7").await;
    scene.holds(&["a/x 3"], 7);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn where_streams_are_refused_pages_are_asked_for() {
    let mut scene = Scene::new(StreamingLists::Preferred);
    scene.request("stream latest").await.refuse(422).await;
    let whole = list(&[("a/x", 3)], 7, "");
    scene.request("list latest").await.whole(200, &whole).await;
    scene.request("watch 7").await;
    scene.holds(&["a/x 3"], 7);
}

#[tokio::test(start_paused = true)]
async fn expired_history_leads_to_a_relist_whose_difference_is_published() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[line("ADDED", "a/y", 6), EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    scene.holds(&["a/x 3", "a/y 6"], 6);
    push(&feed, &[line("ADDED", "b/z", 9), line("ADDED", "a/y", 8)]).await;
    scene.holds(&["a/x 3", "a/y 6"], 6);
    push(&feed, &[marker(12), line("ADDED", "a/x", 14)]).await;
    scene.holds(&["a/x 14", "a/y 8", "b/z 9"], 14);
    assert_eq!(
        scene.history(),
        [
            "ADDED a/y 6",
            "DELETED a/x 7",
            "MODIFIED a/y 8",
            "ADDED b/z 9",
            "ADDED a/x 14",
        ]
    );
    assert_eq!(
        scene.notes.take(),
        [
            "applied 1",
            "closed error",
            "relisted expired",
            "applied 3",
            "applied 1"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_within_a_frame_is_resumed_after_its_last_whole_one() {
    for cut in [true, false] {
        let (mut scene, feed) = Scene::live().await;
        let half = line("MODIFIED", "a/x", 7)[..40].to_owned();
        push(&feed, &[line("MODIFIED", "a/x", 6), half]).await;
        scene.holds(&["a/x 6"], 6);
        if cut {
            feed.send(Err("reset".into())).await.unwrap();
        }
        drop(feed);
        let feed = scene.request("watch 6").await.open();
        push(&feed, &[line("MODIFIED", "a/x", 7)]).await;
        scene.holds(&["a/x 7"], 7);
        assert_eq!(scene.notes.take()[1], "closed disconnected");
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_end_is_resumed_from_the_last_bookmark() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[bookmark(9)]).await;
    drop(feed);
    let feed = scene.request("watch 9").await.open();
    // Repeated events are left out.
    push(
        &feed,
        &[line("ADDED", "a/x", 3), line("MODIFIED", "a/x", 10)],
    )
    .await;
    push(&feed, &[line("DELETED", "a/y", 8)]).await;
    scene.holds(&["a/x 10"], 10);
    assert_eq!(scene.history(), ["MODIFIED a/x 10"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_after_newer_ones_leads_to_a_list() {
    for late in [line("MODIFIED", "a/x", 8), line("ADDED", "a/new", 8)] {
        let (mut scene, feed) = Scene::live().await;
        push(&feed, &[bookmark(9), late]).await;
        let feed = scene.request("stream latest").await.open();
        push(&feed, &[line("ADDED", "a/x", 10), marker(12)]).await;
        scene.holds(&["a/x 10"], 12);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_deletion_of_the_object_that_is_held_is_applied() {
    for version in [3, 4, 9] {
        let (scene, feed) = Scene::live().await;
        push(&feed, &[bookmark(9), line("DELETED", "a/x", version)]).await;
        scene.holds(&[], 9);
        assert_eq!(scene.history(), ["DELETED a/x 9"]);
        // A client that left with this version before gets the deletion.
        assert_eq!(scene.cache.resume_after(ResourceVersion(9)), Ok(0));
        push(&feed, &[line("DELETED", "a/x", version)]).await;
        assert_eq!(scene.history().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_far_ahead_is_not_believed() {
    for frame in [bookmark(1 << 60), line("MODIFIED", "a/x", 1 << 60)] {
        let (mut scene, feed) = Scene::live().await;
        push(&feed, &[frame]).await;
        let feed = scene.request("watch 5").await.open();
        push(&feed, &[line("MODIFIED", "a/x", 6)]).await;
        scene.holds(&["a/x 6"], 6);
    }
}

#[tokio::test(start_paused = true)]
async fn frames_cut_anywhere_add_up() {
    let text = [
        line("MODIFIED", "a/x", 6),
        bookmark(7),
        line("DELETED", "a/x", 8),
    ]
    .concat();
    for at in 1..text.len() {
        let (scene, feed) = Scene::live().await;
        push(&feed, &[text[..at].to_owned()]).await;
        push(&feed, &[text[at..].to_owned()]).await;
        scene.holds(&[], 8);
        assert_eq!(scene.history(), ["MODIFIED a/x 6", "DELETED a/x 8"]);
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_ends_the_stream_and_thrice_leads_to_a_relist() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[line("MODIFIED", "a/x", 6), "<html>\n".into()]).await;
    drop(feed);
    scene.holds(&["a/x 6"], 6);
    for _ in 0..2 {
        let feed = scene.request("watch 6").await.open();
        let _ = feed.send(Ok(Bytes::from_static(b"garbage\n"))).await;
    }
    let feed = scene.request("stream 6").await.open();
    push(&feed, &[line("ADDED", "a/x", 7), marker(7)]).await;
    scene.holds(&["a/x 7"], 7);
    let rejected = scene.notes.take();
    let count = rejected
        .iter()
        .filter(|note| *note == "rejected Unparsable");
    assert_eq!(count.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_too_long_ends_the_stream_before_it_is_whole() {
    let (mut scene, feed) = Scene::live().await;
    push(
        &feed,
        &[line("MODIFIED", "a/x", 6), "x".repeat(FRAME_LEN_MAX + 1)],
    )
    .await;
    scene.holds(&["a/x 6"], 6);
    scene.request("watch 6").await;
    assert!(scene.notes.take().contains(&"rejected TooLong".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_asked_for_again_and_the_state_stays() {
    let (mut scene, feed) = Scene::live().await;
    drop(feed);
    for code in [429, 500, 503, 401, 504] {
        scene.request("watch 5").await.refuse(code).await;
    }
    scene.request("watch 5").await.fail();
    let feed = scene.request("watch 5").await.open();
    push(&feed, &[line("MODIFIED", "a/x", 6)]).await;
    scene.holds(&["a/x 6"], 6);
}

#[tokio::test(start_paused = true)]
async fn upstream_that_went_back_ends_the_driver() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[EXPIRED.into()]).await;
    let feed = scene.request("stream latest").await.open();
    push(&feed, &[line("ADDED", "a/x", 2), marker(3)]).await;
    scene.holds(&["a/x 3"], 5);
    assert_eq!(scene.driver.await.unwrap(), DriverEnd::WentBack);
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_not_found_five_times_is_gone() {
    let (mut scene, feed) = Scene::live().await;
    drop(feed);
    for _ in 0..5 {
        scene.request("watch 5").await.refuse(404).await;
    }
    assert_eq!(scene.driver.await.unwrap(), DriverEnd::Gone);
}

#[tokio::test(start_paused = true)]
async fn events_that_arrive_together_are_published_together() {
    let (scene, feed) = Scene::live().await;
    for version in 6..10 {
        let line = line("MODIFIED", "a/x", version);
        feed.send(Ok(Bytes::from(line))).await.unwrap();
    }
    settled().await;
    scene.holds(&["a/x 9"], 9);
    assert_eq!(scene.notes.take(), ["applied 4"]);
}

#[tokio::test(start_paused = true)]
async fn several_changes_of_one_version_are_all_kept_and_repetitions_left_out() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[line("ADDED", "a/y", 7), line("ADDED", "b/z", 7)]).await;
    push(&feed, &[line("ADDED", "a/y", 7), line("DELETED", "a/x", 7)]).await;
    drop(feed);
    let feed = scene.request("watch 7").await.open();
    push(&feed, &[line("ADDED", "b/z", 7), line("DELETED", "a/x", 7)]).await;
    scene.holds(&["a/y 7", "b/z 7"], 7);
    assert_eq!(
        scene.history(),
        ["ADDED a/y 7", "ADDED b/z 7", "DELETED a/x 7"]
    );
}

#[tokio::test(start_paused = true)]
async fn answers_of_another_form_than_json_are_not_taken_for_empty_ones() {
    let mut scene = Scene::new(StreamingLists::Preferred);
    let binary = "application/vnd.kubernetes.protobuf;stream=watch";
    let feed = scene.request("stream latest").await.answer(200, binary);
    let _ = feed.send(Ok(Bytes::from_static(b"k8s\0"))).await;
    let feed = scene.request("list latest").await.answer(200, "text/html");
    let _ = feed.send(Ok(Bytes::from(list(&[], 7, "")))).await;
    let table = list(&[], 7, "").replace("ConfigMapList", "Table");
    scene.request("list latest").await.whole(200, &table).await;
    let request = scene.request("list latest").await;
    assert_eq!(scene.state(), None);
    request.whole(200, &list(&[("a/x", 3)], 7, "")).await;
    scene.request("watch 7").await;
    scene.holds(&["a/x 3"], 7);
    let notes = scene.notes.take();
    let rejected = notes
        .iter()
        .filter(|note| *note == "rejected WrongContentType");
    assert_eq!(rejected.count(), 3, "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_with_one_bad_item_changes_nothing_and_is_asked_for_again() {
    let (mut scene, feed) = Scene::live().await;
    push(&feed, &[EXPIRED.into()]).await;
    scene.request("stream latest").await.refuse(422).await;
    let good = list(&[("a/y", 8), ("a/z", 8)], 9, "");
    let bad = good.replace("\"name\":\"z\"", "\"name\":\"\"");
    scene.request("list latest").await.whole(200, &bad).await;
    let cut = &good[..good.len() - 20];
    scene.request("list latest").await.whole(200, cut).await;
    let request = scene.request("list latest").await;
    scene.holds(&["a/x 3"], 5);
    request.whole(200, &list(&[("a/z", 8)], 9, "")).await;
    scene.request("watch 9").await;
    scene.holds(&["a/z 8"], 9);
}

/// Where a stream ends, and what follows it.
async fn gives_the_stream_up(
    lines: &[String],
    repeated: Option<&str>,
    seconds: std::ops::Range<u64>,
) {
    let mut scene = Scene::new(StreamingLists::Preferred);
    let feed = scene.request("stream latest").await.open();
    let started = tokio::time::Instant::now();
    let _ = feed.send(Ok(Bytes::from(lines.concat()))).await;
    let repeated = repeated.map(str::to_owned);
    let endless = tokio::spawn(async move {
        let mut version = 100;
        while !feed.is_closed() {
            version += 1;
            if let Some(kind) = &repeated {
                let _ = feed.try_send(Ok(Bytes::from(line(
                    kind,
                    &format!("a/{version}"),
                    version,
                ))));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let page = scene.request("list latest").await;
    let elapsed = started.elapsed().as_secs();
    assert!(seconds.contains(&elapsed), "after {elapsed} s");
    page.whole(200, &list(&[("a/x", 3)], 7, "")).await;
    scene.request("watch 7").await.refuse(410).await;
    // A stream is not tried again.
    scene.request("list latest").await;
    endless.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_whose_end_does_not_come_is_given_up_for_pages() {
    gives_the_stream_up(&[], None, 10..17).await;
    gives_the_stream_up(&[line("ADDED", "a/x", 3)], None, 10..17).await;
    gives_the_stream_up(&[line("ADDED", "a/x", 3), bookmark(5)], None, 0..2).await;
    gives_the_stream_up(&[line("ADDED", "a/x", 3)], Some("MODIFIED"), 10..17).await;
    gives_the_stream_up(&[line("ADDED", "a/x", 3)], Some("ADDED"), 60..67).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_gets_no_answer_is_sent_again() {
    let (mut scene, feed) = Scene::live().await;
    drop(feed);
    let unanswered = scene.request("watch 5").await;
    let feed = scene.request("watch 5").await.open();
    push(&feed, &[line("MODIFIED", "a/x", 6)]).await;
    scene.holds(&["a/x 6"], 6);
    drop(unanswered);
}

/// Answers the comparison of a silent watch.
async fn compared(scene: &mut Scene, items: &[(&str, u64)], version: u64) {
    for _ in 0..2 {
        let request = scene.request("list latest").await;
        assert_eq!(request.purpose, RequestPurpose::ReadVersions);
        request.whole(200, &list(items, version, "")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_compared_and_ended_when_it_lacks_something_twice() {
    let (mut scene, feed) = Scene::live().await;
    let started = tokio::time::Instant::now();
    for _ in 0..3 {
        compared(&mut scene, &[("a/x", 3)], 20).await;
    }
    assert!((192..216).contains(&started.elapsed().as_secs()));
    let started = tokio::time::Instant::now();
    compared(&mut scene, &[("a/x", 21)], 21).await;
    compared(&mut scene, &[("a/x", 21)], 21).await;
    let again = scene.request("watch 5").await.open();
    assert!((64..78).contains(&started.elapsed().as_secs()));
    push(&again, &[line("MODIFIED", "a/x", 21)]).await;
    scene.holds(&["a/x 21"], 21);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_silent_upstream_is_given_up_when_its_watch_should_long_be_over() {
    let (mut scene, feed) = Scene::live().await;
    let started = tokio::time::Instant::now();
    // Nothing is written meanwhile.
    let again = loop {
        let request = scene.requests.recv().await.unwrap();
        match sort_of(&request.path).as_str() {
            "list latest" => request.whole(200, &list(&[("a/x", 3)], 5, "")).await,
            _ => break request,
        }
    };
    assert_eq!(sort_of(&again.path), "watch 5");
    assert!(started.elapsed() >= Duration::from_secs(659));
    assert_eq!(scene.notes.take(), ["closed disconnected"]);
    drop(feed);
}
