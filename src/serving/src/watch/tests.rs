//! Watch bodies, polled directly, with a constructed history.

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Buf;
use http_body::Body;
use tokio::time::{Instant, advance};

use super::*;
use crate::auth::lease::Lease;
use crate::cache::samples::{Sample, World, kind, told};
use crate::metrics::WatchEnd;
use crate::resource::{Layout, ResourceVersion};
use crate::selector::{LabelSelector, Selector};
use crate::view::{Hub, Marker};

#[derive(Debug, Default)]
struct Tally(Mutex<Vec<WatchTotals>>, Mutex<Vec<Duration>>);

impl WatchRecorder for Tally {
    fn delayed(&self, by: Duration, _: u64) {
        self.1.lock().unwrap().push(by);
    }

    fn ended(&self, totals: WatchTotals) {
        self.0.lock().unwrap().push(totals);
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

mod blocks;
mod catch_up;
mod recall;
mod scheduled_end;
mod simulated_upstream;
mod slices;
mod table;
mod uncuttable;

/// The result of one poll.
#[derive(Debug, PartialEq, Eq)]
enum Polled {
    Lines(Vec<String>),
    Waits,
    Ended,
}

struct Client {
    body: Watch,
    wakes: Arc<Wakes>,
    recorder: Arc<Tally>,
    seen: Vec<String>,
}

impl Client {
    fn poll(&mut self) -> Polled {
        let waker = Waker::from(Arc::clone(&self.wakes));
        let mut context = Context::from_waker(&waker);
        match Pin::new(&mut self.body).poll_frame(&mut context) {
            Poll::Pending => Polled::Waits,
            Poll::Ready(None) => Polled::Ended,
            Poll::Ready(Some(Ok(frame))) => {
                let mut buf = frame.into_data().unwrap();
                let bytes = buf.copy_to_bytes(buf.remaining());
                let lines = told(&bytes);
                self.seen.extend(lines.iter().cloned());
                Polled::Lines(lines)
            }
        }
    }

    /// All lines that are available now.
    fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Polled::Lines(more) = self.poll() {
            lines.extend(more);
        }
        lines
    }

    fn wakes(&self) -> usize {
        self.wakes.0.load(Ordering::Relaxed)
    }

    /// The delays recorded since the last call, in whole seconds.
    fn delays(&self) -> Vec<u64> {
        let delays = std::mem::take(&mut *self.recorder.1.lock().unwrap());
        delays.iter().map(Duration::as_secs).collect()
    }

    fn end(self) -> WatchTotals {
        drop(self.body);
        let ended = self.recorder.0.lock().unwrap();
        assert_eq!(ended.len(), 1, "a stream must end once");
        ended[0]
    }
}

struct Scene {
    world: World,
    served: ServedResource,
}

const WIDE: usize = 1 << 20;
const HOUR: u64 = 3600;

impl Scene {
    fn new(events_max: usize) -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let world = World::new(7, events_max, Arc::clone(&hub) as _);
        let cache = Arc::clone(world.writer.cache());
        Self {
            world,
            served: ServedResource { cache, hub },
        }
    }

    fn client(&self, selector: &Selector, start: Start, timeout: u64) -> Client {
        let entry = self.served.hub.join(selector);
        self.enter(entry, start, timeout)
    }

    fn enter(&self, entry: ViewSubscription, start: Start, timeout: u64) -> Client {
        let timing = Timing {
            started: Instant::now(),
            timeout: Duration::from_secs(timeout),
            bookmarks: true,
        };
        let recorder = Arc::new(Tally::default());
        Client {
            body: Watch::new(
                self.served.clone(),
                entry,
                start,
                timing,
                Arc::clone(&recorder) as _,
            ),
            wakes: Arc::default(),
            recorder,
            seen: Vec::new(),
        }
    }

    fn initial(&self, marker: Marker) -> Start {
        let snapshot = self.served.cache.snapshot().unwrap();
        let version = snapshot.resource_version;
        Start::Initial {
            snapshot,
            version,
            marker,
        }
    }

    /// Like the service: joins the view, then determines where to resume.
    fn after(&self, selector: &Selector, version: u64) -> Client {
        let entry = self.served.hub.join(selector);
        let version = ResourceVersion(version);
        let sequence = self.served.cache.resume_after(version).unwrap();
        self.enter(entry, Start::After { sequence, version }, HOUR)
    }

    fn put(&mut self, key: &str, tier: Option<&'static str>) -> u64 {
        let change = self.world.write(key, tier);
        self.world.apply(vec![change]);
        self.world.version
    }

    fn progress(&mut self, version: u64) {
        self.world.version = version;
        self.world
            .writer
            .progress(ResourceVersion(version), self.world.now);
    }

    /// A relist that returns exactly these objects.
    fn relist(&mut self, objects: &[Sample], version: u64) {
        let listed = objects.iter().map(Sample::object).collect();
        let version = ResourceVersion(version);
        let now = self.world.now;
        self.world.writer.replace(listed, version, now).unwrap();
    }
}

fn everything() -> Selector {
    Selector::default()
}

fn tier(value: &str) -> Selector {
    Selector {
        labels: LabelSelector::parse(&format!("tier={value}")).unwrap(),
        ..Selector::default()
    }
}

fn in_namespace(namespace: &str) -> Selector {
    Selector {
        namespace: Some(namespace.into()),
        ..Selector::default()
    }
}

/// The predicate that corresponds to the selectors above.
fn sees(selector: &Selector) -> impl Fn(&Sample) -> bool {
    let namespace = selector.namespace.as_ref().map(|name| format!("{name}/"));
    let tier_value = ["x", "rare"]
        .into_iter()
        .find(|value| selector.labels == tier(value).labels);
    move |sample| {
        namespace
            .as_ref()
            .is_none_or(|prefix| sample.key.starts_with(prefix))
            && (tier_value.is_none() || tier_value == sample.tier)
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_come_in_list_order_then_the_marker_then_live_events() {
    let mut scene = Scene::new(WIDE);
    let first = scene.put("a/two", None);
    let second = scene.put("a-b/one", Some("x"));
    let marker = scene.world.version;
    let mut client = scene.client(&everything(), scene.initial(Marker::InitialEventsEnd), HOUR);
    assert_eq!(
        client.drain(),
        [
            format!("ADDED a-b/one {second} x"),
            format!("ADDED a/two {first} -"),
            format!("MARKER {marker}"),
        ]
    );
    assert_eq!(client.wakes(), 0);
    let third = scene.put("a/two", Some("y"));
    assert_eq!(client.wakes(), 1, "a batch wakes a waiting client once");
    scene.put("a/two", Some("y"));
    assert_eq!(client.wakes(), 1);
    let fourth = scene.world.version;
    assert_eq!(
        client.drain(),
        [
            format!("MODIFIED a/two {third} y"),
            format!("MODIFIED a/two {fourth} y"),
        ]
    );
    assert_eq!(client.end().end, WatchEnd::ClientGone);
}

#[tokio::test(start_paused = true)]
async fn an_empty_resource_sends_only_the_marker_if_requested() {
    let scene = Scene::new(WIDE);
    let mut marked = scene.client(&everything(), scene.initial(Marker::InitialEventsEnd), HOUR);
    assert_eq!(marked.drain(), ["MARKER 10"]);
    let mut plain = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    assert_eq!(plain.poll(), Polled::Waits);
}

#[tokio::test(start_paused = true)]
async fn initial_events_keep_to_the_namespace_and_the_selector() {
    let mut scene = Scene::new(WIDE);
    for key in ["a/x", "a-b/x", "a.b/x", "b/x"] {
        scene.put(key, Some("x"));
    }
    let y = scene.put("a/y", Some("y"));
    let selector = Selector {
        namespace: Some("a".into()),
        ..tier("y")
    };
    let mut client = scene.client(&selector, scene.initial(Marker::None), HOUR);
    assert_eq!(client.drain(), [format!("ADDED a/y {y} y")]);
    let mut client = scene.client(&in_namespace("a"), scene.initial(Marker::None), HOUR);
    assert_eq!(client.drain().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_state_proven_at_a_later_version_is_marked_with_that_version() {
    let mut scene = Scene::new(WIDE);
    scene.put("a/x", None);
    let snapshot = scene.served.cache.snapshot().unwrap();
    let proven = scene.world.version + 10;
    let start = Start::Initial {
        snapshot,
        version: ResourceVersion(proven),
        marker: Marker::InitialEventsEnd,
    };
    let mut client = scene.client(&everything(), start, HOUR);
    assert_eq!(client.drain()[1], format!("MARKER {proven}"));
    // Events before the proven version are not sent: an object is created and deleted in between.
    scene.put("a/y", None);
    let gone = scene.world.delete("a/y").unwrap();
    scene.world.apply(vec![gone]);
    assert!(scene.world.version < proven);
    assert_eq!(client.poll(), Polled::Waits);
    scene.world.version = proven;
    let later = scene.put("a/z", None);
    assert_eq!(client.drain(), [format!("ADDED a/z {later} -")]);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_repeats_and_skips_nothing() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..80 {
        scene.world.step();
    }
    for selector in [everything(), tier("x"), in_namespace("a-b")] {
        let sees = sees(&selector);
        for version in 10..=scene.world.version {
            let mut client = scene.after(&selector, version);
            assert_eq!(
                client.drain(),
                scene.world.told(version, &sees),
                "{version}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_that_share_a_version_reach_clients_that_have_that_version() {
    let mut scene = Scene::new(WIDE);
    for key in ["a/x", "a/y", "a/z"] {
        scene.put(key, None);
    }
    let version = scene.world.version;
    let mut open = scene.after(&everything(), version);
    assert_eq!(open.poll(), Polled::Waits);
    for key in ["a/x", "a/y"] {
        let deleted = scene.world.state[key].object();
        let change = crate::cache::Change::Delete(deleted.at_version(ResourceVersion(version)));
        scene.world.apply(vec![change]);
    }
    let expected = [
        format!("DELETED a/x {version} -"),
        format!("DELETED a/y {version} -"),
    ];
    assert_eq!(open.drain(), expected);
    // One that left between the two, or before them, has the same version.
    let mut resumed = scene.after(&everything(), version);
    assert_eq!(resumed.drain(), expected);
    scene.put("a/z", None);
    let version = scene.world.version;
    assert!(scene.after(&everything(), version).drain().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_is_silent_until_its_version_has_passed() {
    let mut scene = Scene::new(WIDE);
    scene.put("a/x", None);
    let future = scene.world.version + 50;
    let mut client = scene.after(&everything(), future);
    while scene.world.version + 4 < future {
        scene.put("a/x", None);
        assert_eq!(client.poll(), Polled::Waits);
    }
    // Neither events nor a bookmark, even a minute later.
    advance(Duration::from_secs(61)).await;
    assert_eq!(client.poll(), Polled::Waits);
    scene.world.version = future - 1;
    let mut batch = Vec::new();
    scene.world.version -= 3;
    batch.push(scene.world.write("a/x", None));
    scene.world.version = future;
    batch.push(scene.world.write("a/y", None));
    scene.world.apply(batch);
    let after = scene.world.version;
    assert_eq!(client.drain(), [format!("ADDED a/y {after} -")]);
    advance(Duration::from_secs(61)).await;
    assert_eq!(client.drain(), [format!("BOOKMARK {after}")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_the_future_survives_any_number_of_events_before_its_version() {
    let mut scene = Scene::new(16);
    scene.put("a/x", None);
    let future = 10_000;
    let mut client = scene.after(&everything(), future);
    assert_eq!(client.poll(), Polled::Waits);
    for _ in 0..1500 {
        scene.put("a/x", None);
    }
    assert_eq!(client.poll(), Polled::Waits);
    scene.world.version = future;
    let after = scene.put("a/x", None);
    assert_eq!(client.drain(), [format!("MODIFIED a/x {after} -")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_a_relist_passed_over_must_list_again() {
    let mut scene = Scene::new(WIDE);
    let kept = Sample::new("a/x", scene.put("a/x", None));
    let from = scene.world.version;
    // At another replica, the client saw an object created after `from` that was deleted again before the relist.
    let mut client = scene.after(&everything(), from + 10);
    assert_eq!(client.poll(), Polled::Waits);
    scene.relist(&[kept, Sample::new("a/y", from + 15)], from + 20);
    assert_eq!(client.drain(), ["ERROR 410"]);
    assert_eq!(client.end().end, WatchEnd::Lagged);
}

#[tokio::test(start_paused = true)]
async fn open_watches_go_on_over_a_relist() {
    let mut scene = Scene::new(WIDE);
    let old = scene.put("a/x", None);
    scene.put("a/y", None);
    let from = scene.world.version;
    let mut client = scene.after(&everything(), from);
    assert_eq!(client.poll(), Polled::Waits);
    let mut recreated = Sample::new("a/x", from + 7);
    recreated.uid = old + 1000;
    scene.relist(&[recreated, Sample::new("b/z", from + 3)], from + 9);
    assert_eq!(
        client.drain(),
        [
            format!("DELETED a/x {} -", from + 1),
            format!("DELETED a/y {} -", from + 2),
            format!("ADDED b/z {} -", from + 3),
            format!("ADDED a/x {} -", from + 7),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_every_minute_and_before_the_deadline_and_then_it_ends() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.client(&tier("x"), scene.initial(Marker::InitialEventsEnd), 150);
    client.drain();
    let started = Instant::now();
    let mut at = Vec::new();
    for second in 1..=150_u64 {
        scene.progress(1000 + second);
        advance(started + Duration::from_secs(second) - Instant::now()).await;
        match client.poll() {
            Polled::Lines(lines) => {
                assert_eq!(lines, [format!("BOOKMARK {}", 1000 + second)]);
                at.push(second);
                assert_eq!(client.poll(), Polled::Waits);
            }
            Polled::Waits => {}
            Polled::Ended => assert_eq!(second, 150),
        }
    }
    assert_eq!(at, [60, 120, 148]);
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_has_one_bookmark_and_a_very_short_one_none() {
    for (timeout, expected) in [(20, vec![18]), (2, vec![]), (1, vec![])] {
        let mut scene = Scene::new(WIDE);
        let mut client = scene.client(&everything(), scene.initial(Marker::None), timeout);
        scene.progress(100);
        let mut at = Vec::new();
        for second in 0..timeout {
            if let Polled::Lines(_) = client.poll() {
                at.push(second);
            }
            advance(Duration::from_secs(1)).await;
        }
        assert_eq!(at, expected, "{timeout}");
        assert_eq!(client.poll(), Polled::Ended);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_that_tells_nothing_new_is_left_out() {
    let scene = Scene::new(WIDE);
    let mut client = scene.after(&everything(), 10);
    for _ in 0..3 {
        advance(Duration::from_secs(60)).await;
        assert_eq!(client.poll(), Polled::Waits);
    }
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_never_runs_ahead_of_an_event_that_is_still_to_be_delivered() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.after(&everything(), 10);
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(60)).await;
    for _ in 0..200 {
        scene.put("a/x", None);
    }
    let last = scene.world.version;
    let lines = client.drain();
    assert_eq!(lines.len(), 201);
    assert_eq!(lines[199], format!("MODIFIED a/x {last} -"));
    assert_eq!(lines[200], format!("BOOKMARK {last}"));
}

/// An event can be published after the view was last read and before the timer is checked.
#[tokio::test(start_paused = true)]
async fn a_bookmark_waits_for_an_event_that_came_since_the_last_look() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.after(&everything(), 10);
    let mut version = 10;
    for _ in 0..2 {
        assert_eq!(client.poll(), Polled::Waits);
        advance(Duration::from_secs(60)).await;
        let cursor = &mut client.body.cursor;
        assert!(matches!(cursor.next(), CursorStep::Nothing));
        let kind = if version == 10 { "ADDED" } else { "MODIFIED" };
        version = scene.put("a/x", None);
        assert!(matches!(
            cursor.on_timer(Instant::now()),
            TimerAction::Nothing
        ));
        let expected = [
            format!("{kind} a/x {version} -"),
            format!("BOOKMARK {version}"),
        ];
        assert_eq!(client.drain(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_bookmarks_gets_none() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.after(&everything(), 10);
    client.body.cursor.lifetime.bookmarks = None;
    scene.progress(100);
    advance(Duration::from_secs(HOUR - 1)).await;
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(1)).await;
    assert_eq!(client.poll(), Polled::Ended);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_stream_that_is_always_behind() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.client(&everything(), scene.initial(Marker::None), 10);
    let mut polls = 0;
    loop {
        scene.put("a/x", None);
        match client.poll() {
            Polled::Lines(_) => polls += 1,
            Polled::Waits => unreachable!("there is always another event"),
            Polled::Ended => break,
        }
        assert!(polls < 100, "the stream does not end");
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(client.end().end, WatchEnd::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_client_behind_its_view_reads_the_history() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.after(&tier("x"), 10);
    assert_eq!(client.poll(), Polled::Waits);
    for _ in 0..300 {
        scene.world.step();
    }
    let sees = |sample: &Sample| sample.tier == Some("x");
    assert_eq!(client.drain(), scene.world.told(10, sees));
    let before = scene.world.version;
    scene.put("a/x", Some("x"));
    assert_eq!(client.wakes(), 2, "it still waits for the same view");
    assert_eq!(client.drain(), scene.world.told(before, sees));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_rare_events_does_not_lag() {
    let mut scene = Scene::new(400);
    let mut client = scene.after(&tier("x"), 10);
    client.body.cursor.lifetime.bookmarks = None;
    assert_eq!(client.poll(), Polled::Waits);
    for _ in 0..1000 {
        scene.put("a/other", None);
    }
    let before = scene.world.version;
    // More batches than a view keeps, but all are still in the history.
    for _ in 0..150 {
        scene.put("a/mine", Some("x"));
    }
    let expected = scene.world.told(before, |sample| sample.tier == Some("x"));
    assert_eq!(client.drain(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_batch_known_in_part_is_not_looked_for_in_lost_history() {
    let mut scene = Scene::new(16);
    let mut client = scene.after(&tier("x"), 10);
    client.body.cursor.lifetime.bookmarks = None;
    for _ in 0..100 {
        scene.put("a/other", None);
    }
    let first = scene.world.write("a/mine", Some("x"));
    let version = scene.world.version;
    let second = scene.world.write("a/mine", Some("x"));
    client.body.cursor.known = ResourceVersion(version);
    scene.world.apply(vec![first, second]);
    let expected = format!("MODIFIED a/mine {} x", scene.world.version);
    assert_eq!(client.drain(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_client_who_fell_out_of_the_history_is_told_once_and_the_stream_ends() {
    let mut scene = Scene::new(100);
    let mut client = scene.after(&everything(), 10);
    assert_eq!(client.poll(), Polled::Waits);
    for _ in 0..400 {
        scene.put("a/x", None);
    }
    assert_eq!(client.poll(), Polled::Lines(vec!["ERROR 410".into()]));
    assert!(client.body.is_end_stream());
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Lagged);
}

#[tokio::test(start_paused = true)]
async fn closing_wakes_and_ends_after_pending_events() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.after(&everything(), 10);
    assert_eq!(client.poll(), Polled::Waits);
    let version = scene.put("a/x", None);
    scene.served.hub.close();
    assert_eq!(client.wakes(), 1);
    assert_eq!(client.drain(), [format!("ADDED a/x {version} -")]);
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::CacheGone);
    let mut late = scene.after(&everything(), version);
    assert_eq!(late.poll(), Polled::Ended);
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_replaced_history_get_410() {
    let scene = Scene::new(WIDE);
    let (current, future) = (
        scene.after(&everything(), 10),
        scene.after(&everything(), 9_999),
    );
    scene.served.hub.expire();
    for mut client in [current, future] {
        assert_eq!(client.poll(), Polled::Lines(vec!["ERROR 410".into()]));
        assert_eq!(client.poll(), Polled::Ended);
        assert_eq!(client.end().end, WatchEnd::CacheGone);
    }
}

/// A client of the randomized run: the version it starts from, and the number of its initial events.
struct RandomClient {
    client: Client,
    selector: Selector,
    from: u64,
    initial: usize,
}

impl RandomClient {
    fn check(&self, world: &World, seed: u64) {
        let sees = sees(&self.selector);
        let promised = world.told(self.from, &sees);
        let live = &self.client.seen[self.initial..];
        let mut events = Vec::new();
        for line in live {
            if let Some(version) = line.strip_prefix("BOOKMARK ") {
                let version: u64 = version.parse().unwrap();
                let past = world.past.iter().rev();
                let mut due =
                    past.filter(|past| self.from < past.version && past.version <= version);
                let last = due.find_map(|past| past.seen(&sees));
                assert_eq!(
                    events.last(),
                    last.as_ref(),
                    "seed {seed}: bookmark {version}"
                );
            } else if line != "ERROR 410" {
                events.push(line.clone());
            }
        }
        assert_eq!(
            events,
            promised[..events.len().min(promised.len())],
            "seed {seed}"
        );
        if !self.client.body.cursor.is_over() {
            assert_eq!(
                events.len(),
                promised.len(),
                "seed {seed}: events are missing"
            );
        } else {
            assert_eq!(
                live.last().map(String::as_str),
                Some("ERROR 410"),
                "seed {seed}"
            );
        }
    }
}

fn random_client(scene: &mut Scene) -> RandomClient {
    let selector = match scene.world.dice.below(4) {
        0 => everything(),
        1 => tier("x"),
        2 => tier("rare"),
        _ => in_namespace("a"),
    };
    let entry = scene.served.hub.join(&selector);
    // Events happen between joining the view and determining the start.
    while scene.world.dice.once_in(2) {
        scene.world.step();
    }
    let now = scene.world.version;
    let (start, from, initial) = if scene.world.dice.once_in(2) {
        (scene.initial(Marker::InitialEventsEnd), now, true)
    } else {
        let back = scene.world.dice.below(20);
        let from = (now + 5).saturating_sub(back).max(10);
        match scene.served.cache.resume_after(ResourceVersion(from)) {
            Ok(sequence) => {
                let version = ResourceVersion(from);
                (Start::After { sequence, version }, from, false)
            }
            Err(_) => (scene.initial(Marker::InitialEventsEnd), now, true),
        }
    };
    let matching = scene
        .world
        .state
        .values()
        .filter(|sample| sees(&selector)(sample));
    let initial = if initial { matching.count() + 1 } else { 0 };
    RandomClient {
        client: scene.enter(entry, start, 100 * HOUR),
        selector,
        from,
        initial,
    }
}

#[tokio::test(start_paused = true)]
async fn polling_at_any_time_yields_the_exact_history_or_410() {
    let mut lagged = 0;
    for seed in 0..60 {
        let mut scene = Scene::new(64);
        scene.world.dice.0 = seed;
        let mut subjects: Vec<RandomClient> = Vec::new();
        let mut woken = Vec::new();
        for _ in 0..400 {
            scene.world.step();
            if scene.world.dice.once_in(20) {
                let subject = random_client(&mut scene);
                woken.push(None);
                subjects.push(subject);
            }
            if scene.world.dice.once_in(30) {
                advance(Duration::from_secs(scene.world.dice.below(50))).await;
            }
            for (at, subject) in subjects.iter_mut().enumerate() {
                // Some clients read immediately, some rarely.
                if scene.world.dice.once_in(1 + (at as u64 % 4) * 20) {
                    let waits = subject.client.poll() == Polled::Waits;
                    woken[at] = waits.then(|| subject.client.wakes());
                }
            }
        }
        for (subject, waits) in subjects.iter_mut().zip(woken) {
            let before = subject.client.wakes();
            let lines = subject.client.drain();
            let events = lines.iter().any(|line| !line.starts_with("BOOKMARK"));
            if waits == Some(before) {
                assert!(
                    !events,
                    "seed {seed}: a client that waited was not woken for {lines:?}"
                );
            }
            subject.check(&scene.world, seed);
            lagged += usize::from(subject.client.body.cursor.is_over());
        }
    }
    assert!(lagged > 0, "some clients must fall out of the history");
}

/// Watches everything, reconnecting after every `breaks_after` events; versions are consecutive. Returns how often it had to list
/// again.
async fn follow(served: ServedResource, last: u64, breaks_after: u64) -> usize {
    let (mut known, mut lists) = (10, 0);
    while known < last {
        let entry = served.hub.join(&everything());
        let version = ResourceVersion(known);
        let Ok(sequence) = served.cache.resume_after(version) else {
            known = served.cache.snapshot().unwrap().resource_version.0;
            lists += 1;
            continue;
        };
        let timing = Timing {
            started: Instant::now(),
            timeout: Duration::from_secs(HOUR),
            bookmarks: false,
        };
        let start = Start::After { sequence, version };
        let recorder = Arc::new(Tally::default());
        let mut body = Watch::new(served.clone(), entry, start, timing, recorder);
        let stop_at = (known + breaks_after).min(last);
        while known < stop_at {
            let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context));
            let waited = tokio::time::timeout(Duration::from_secs(60), frame).await;
            let frame = waited.expect("a waiting client was not woken");
            let Some(Ok(frame)) = frame else { break };
            let mut buf = frame.into_data().unwrap();
            for line in told(&buf.copy_to_bytes(buf.remaining())) {
                let fields: Vec<_> = line.split(' ').collect();
                if fields[0] == "ERROR" {
                    break;
                }
                known += 1;
                assert_eq!(fields[2], known.to_string(), "{line}");
            }
        }
    }
    lists
}

/// The same guarantee with real threads, a short history and many joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn clients_on_other_threads_miss_and_repeat_nothing() {
    let mut scene = Scene::new(256);
    let last = 20_000;
    let subjects: Vec<_> = [1, 7, 90, 1000, u64::MAX / 2]
        .into_iter()
        .map(|breaks| tokio::spawn(follow(scene.served.clone(), last, breaks)))
        .collect();
    let writer = tokio::task::spawn_blocking(move || {
        let mut version = 10;
        while version < last {
            let count = (1 + scene.world.dice.below(3)).min(last - version);
            let put = |version| crate::cache::Change::Put(Sample::new("a/x", version).object());
            let changes = (1..=count).map(|more| put(version + more)).collect();
            version += count;
            scene.world.apply(changes);
            if version.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
    });
    writer.await.unwrap();
    for subject in subjects {
        subject.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn delays_are_recorded_once_per_batch_for_events_since_the_stream_opened() {
    let mut scene = Scene::new(WIDE);
    let second = Duration::from_secs(1);
    let before = scene.world.version;
    let put = async |scene: &mut Scene| {
        scene.world.now = Instant::now().into_std();
        scene.put("a/one", None);
        advance(second).await;
    };
    put(&mut scene).await;
    let mut client = scene.after(&everything(), before);
    assert_eq!(client.drain().len(), 1);
    assert!(
        client.delays().is_empty(),
        "events from before the stream do not count"
    );
    for _ in 0..3 {
        put(&mut scene).await;
    }
    assert_eq!(client.drain().len(), 3);
    assert_eq!(client.delays(), [3, 2, 1]);
    // More batches than a view keeps, so the client reads the history.
    for _ in 0..100 {
        put(&mut scene).await;
    }
    assert_eq!(client.drain().len(), 101, "a bookmark is among them");
    assert_eq!(
        client.delays(),
        [100, 40],
        "one delay per frame, of its oldest event"
    );
}

#[tokio::test(start_paused = true)]
async fn a_revoked_stream_ends_wherever_it_is() {
    let mut scene = Scene::new(WIDE);
    scene.put("a/x", None);
    let selector = everything();
    let starts = |scene: &Scene| {
        let entry = scene.served.hub.join(&selector);
        let (reached, version) = (entry.reached.through, entry.reached.version);
        let after = |version| Start::After {
            sequence: reached,
            version,
        };
        [
            after(version),
            after(ResourceVersion(version.0 + 100)),
            scene.initial(Marker::InitialEventsEnd),
        ]
    };
    for has_started in [false, true] {
        for start in starts(&scene) {
            let text = format!("{start:?}, started: {has_started}");
            let lease = Lease::new();
            let mut client = scene.client(&selector, start, HOUR);
            client.body.cursor.guards.lease = Some(lease.hold());
            if has_started {
                client.drain();
            }
            let wakes = client.wakes();
            lease.revoke();
            assert_eq!(client.wakes() - wakes, usize::from(has_started), "{text}");
            scene.put("a/y", None);
            assert_eq!(client.poll(), Polled::Ended, "{text}");
            assert!(client.body.is_end_stream());
            assert_eq!(client.end().end, WatchEnd::Revoked, "{text}");
            assert_eq!(lease.stream_count(), 0);
        }
    }
}
