//! What others act on is known when the first request can be served, and follows the cache.

use std::time::Duration;

use super::*;
use crate::cache::samples::{Sample, World, keep, kind};
use crate::cache::{
    CacheWriter, DispatchOutcome, Event, Observer, PriorState, Retention, Sequence, WatchCache,
};
use crate::config::HandoverSettings;
use crate::drain_flag::DrainFlag;
use crate::handover::{CacheHandover, Handover};
use crate::metrics::Metrics;
use crate::pressure::{HistoryBound, HistoryCuts};
use crate::resource::Layout;
use crate::slot::prior_state::{PriorStates, StateOrigin};
use crate::slot::state::SlotState;
use crate::upstream::driver::samples::scripted::{
    Asked, EXPIRED, Feed, Script, bookmark, marker, push, settled, sort_of,
};
use crate::upstream::driver::{Driver, ReadSpec};
use crate::upstream::reflector::{
    InitialVersion, ReflectorMachine, ReflectorOptions, StreamingLists,
};
use crate::view::Hub;

/// What was known when the views received a batch.
#[derive(Clone, Debug)]
struct KnownAtDispatch {
    is_published: bool,
    is_ready: bool,
    bookmark: BookmarkTemplate,
}

/// Passes batches on to the views, and notes what is known at that moment.
#[derive(Debug)]
struct Witness {
    hub: Arc<Hub>,
    slot_state: SlotStateMachine,
    cache: Mutex<Option<Arc<WatchCache>>>,
    notes: Mutex<Vec<KnownAtDispatch>>,
}

impl Observer for Witness {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        through: Sequence,
        version: ResourceVersion,
        now: Instant,
    ) -> DispatchOutcome {
        let cache = self.cache.lock();
        self.notes.lock().push(KnownAtDispatch {
            is_published: cache.as_ref().unwrap().snapshot().is_some(),
            is_ready: matches!(&*self.slot_state.borrow(), SlotState::Ready(_)),
            bookmark: self.hub.bookmark(),
        });
        self.hub.dispatch(events, through, version, now)
    }
}

type DriverTask = tokio::task::JoinHandle<crate::upstream::driver::DriverEnd>;

struct Scene {
    metrics: Metrics,
    witness: Arc<Witness>,
    served: ServedResource,
    cache_len: CacheLen,
    connected: watch::Receiver<u64>,
}

/// Bounded in bytes, so that there is something to cut.
fn retention() -> Retention {
    Retention {
        bytes_max: 1 << 20,
        ..keep(10_000)
    }
}

impl Scene {
    fn new() -> (Self, SlotSink) {
        let kind = kind(Layout::Typed);
        let metrics = Metrics::new().unwrap();
        let key = kind.cache_key();
        let recorder = Arc::new(ResourceRecorder::new(&metrics, &key, DrainFlag::default()));
        let slot_state = SlotStateMachine::new(Arc::default());
        let hub = Arc::new(Hub::new(&kind));
        let witness = Arc::new(Witness {
            hub: Arc::clone(&hub),
            slot_state: slot_state.clone(),
            cache: Mutex::default(),
            notes: Mutex::default(),
        });
        let writer = CacheWriter::new(kind, retention(), Arc::clone(&witness) as _);
        let cache = Arc::clone(writer.cache());
        *witness.cache.lock() = Some(Arc::clone(&cache));
        let served = ServedResource { cache, hub };
        let cache_len = CacheLen::default();
        let (connections, connected) = watch::channel(0);
        let counts = Arc::clone(&recorder).for_cache();
        let sink = SlotSink {
            cache_sink: CacheSink::new(writer, Duration::ZERO, counts),
            served: served.clone(),
            slot_state,
            recorder,
            cache_len: cache_len.clone(),
            connections,
            contradicted: Arc::default(),
            lag: Arc::default(),
            unproven: None,
            is_listed: false,
            is_watched: true,
            cuts: CutFollower::default(),
        };
        let scene = Self {
            metrics,
            witness,
            served,
            cache_len,
            connected,
        };
        (scene, sink)
    }

    /// What was known when the views received their only batch.
    fn at_dispatch(&self) -> KnownAtDispatch {
        let notes = self.witness.notes.lock();
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes[0].clone()
    }

    fn is_ready(&self) -> bool {
        matches!(&*self.witness.slot_state.borrow(), SlotState::Ready(_))
    }

    /// Times that the cache was filled, as metrics show it.
    fn filled(&self) -> u64 {
        let key = self.served.cache.kind().cache_key();
        self.metrics.cache((&key).into()).initializations.get()
    }

    /// Bytes of the cache, as metrics show them.
    fn shown_len(&self) -> usize {
        let key = self.served.cache.kind().cache_key();
        let metrics = self.metrics.cache((&key).into());
        let len = metrics.snapshot_bytes.get() + metrics.ring_bytes.get();
        usize::try_from(len).unwrap()
    }

    /// Fills the sink from a scripted upstream.
    fn drive(
        &self,
        sink: SlotSink,
        start_from: Option<ResourceVersion>,
    ) -> (DriverTask, tokio::sync::mpsc::Receiver<Asked>) {
        let options = ReflectorOptions {
            streaming: StreamingLists::Preferred,
            page_len: 2,
            start_from,
            initial: InitialVersion::Latest,
        };
        let spec = ReadSpec::all(&self.served.cache.kind().gvr, 1 << 20);
        let counts = Arc::clone(&sink.recorder).for_cache();
        let (script, requests) = Script::new();
        let reflector = ReflectorMachine::new(options);
        let driver = Driver::new(Arc::new(script), spec, reflector, sink, counts);
        (tokio::spawn(driver.run()), requests)
    }
}

#[tokio::test]
async fn a_slot_is_ready_after_its_first_list_was_published_and_dispatched() {
    let (scene, mut sink) = Scene::new();
    sink.restart();
    sink.initial(EventKind::Added, Sample::new("a/x", 3).object());
    sink.publish();
    sink.tick();
    assert!(!scene.is_ready());
    assert_eq!((scene.filled(), scene.cache_len.load()), (0, 0));

    sink.replace(ResourceVersion(5)).unwrap();
    assert!(scene.is_ready());
    let first = scene.at_dispatch();
    assert!(first.is_published && !first.is_ready);
    assert_eq!(scene.filled(), 1);
    assert!(scene.cache_len.load() > 0);
}

#[tokio::test]
async fn the_size_of_a_cache_is_the_one_that_metrics_show() {
    let (scene, mut sink) = Scene::new();
    sink.replace(ResourceVersion(5)).unwrap();
    let mut lens = vec![scene.cache_len.load()];
    sink.live(EventKind::Added, Sample::new("a/x", 6).object());
    sink.publish();
    lens.push(scene.cache_len.load());
    assert_eq!(scene.cache_len.load(), scene.shown_len());
    sink.live(EventKind::Modified, Sample::new("a/x", 7).object());
    sink.publish();
    lens.push(scene.cache_len.load());
    assert_eq!(scene.cache_len.load(), scene.shown_len());
    assert!(lens.is_sorted_by(|one, next| one < next), "{lens:?}");
    sink.tick();
    assert_eq!(scene.cache_len.load(), scene.shown_len());
    // A later list fills no new cache.
    sink.restart();
    sink.replace(ResourceVersion(9)).unwrap();
    assert_eq!(scene.cache_len.load(), scene.shown_len());
    assert_eq!(scene.filled(), 1);
}

#[tokio::test]
async fn a_list_that_is_being_read_is_counted_until_it_is_the_cache() {
    let (scene, mut sink) = Scene::new();
    let initial = || scene.cache_len.history().initial;
    for _ in 0..2 {
        sink.restart();
        assert_eq!(initial(), 0);
        sink.initial(EventKind::Added, Sample::new("a/x", 3).object());
        assert!(initial() > 0);
        assert_eq!(scene.cache_len.needed(), initial());
    }
    sink.replace(ResourceVersion(5)).unwrap();
    assert_eq!(initial(), 0);
    let objects = scene.cache_len.load();
    sink.live(EventKind::Modified, Sample::new("a/x", 6).object());
    sink.publish();
    assert!(scene.cache_len.load() > objects);
    // What can be given back needs no room.
    assert_eq!(scene.cache_len.needed(), objects);
}

#[tokio::test]
async fn the_history_shrinks_while_memory_is_short() {
    let (scene, mut sink) = Scene::new();
    let cuts = HistoryCuts::default();
    sink.cuts = CutFollower::new(cuts.clone());
    sink.replace(ResourceVersion(5)).unwrap();
    let mut version = 5;
    let mut write = |sink: &mut SlotSink| {
        for _ in 0..500 {
            version += 1;
            sink.live(EventKind::Modified, Sample::new("a/x", version).object());
        }
        sink.publish();
        scene.cache_len.history().events
    };
    let order = |count| {
        cuts.set(HistoryBound {
            cuts: count,
            recent_max: 0,
            ..HistoryBound::default()
        });
    };
    let full = write(&mut sink);
    let bytes_max = retention().bytes_max;
    order(4);
    assert!(full > bytes_max >> 4, "there is something to cut");
    sink.tick();
    let cut = scene.cache_len.history().events;
    assert!(cut <= bytes_max >> 4 && cut > bytes_max >> 5, "{cut}");
    // A second order and new events; the next batch is enough, a quiet moment is not needed.
    order(5);
    let shorter = write(&mut sink);
    assert!(shorter <= bytes_max >> 5, "{shorter}");
    cuts.set(HistoryBound::default());
    sink.tick();
    assert!(write(&mut sink) > full / 2, "it grows again");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_look_like_upstreams_before_the_first_request_and_connections_are_counted() {
    let (scene, sink) = Scene::new();
    let guessed = scene.served.hub.bookmark();
    let (driver, mut requests) = scene.drive(sink, None);

    let feed = requests.recv().await.unwrap().open();
    settled().await;
    assert_eq!(*scene.connected.borrow(), 1);
    assert!(!scene.is_ready());
    let seen = marker(5).replace("}}}\n", "},\"data\":null}}\n");
    push(&feed, &[seen]).await;
    assert!(scene.is_ready());
    let first = scene.at_dispatch();
    assert_ne!(first.bookmark, guessed);
    assert_eq!(first.bookmark, scene.served.hub.bookmark());

    drop(feed);
    let again = requests.recv().await.unwrap();
    assert_eq!(sort_of(&again.path), "watch 5");
    let _feed = again.open();
    settled().await;
    assert_eq!(*scene.connected.borrow(), 2);

    // Checks of the cache end with the driver.
    driver.abort();
    assert!(driver.await.unwrap_err().is_cancelled());
    assert!(scene.connected.has_changed().is_err());
}

/// The version of the state from before, and of an event that follows it.
const PRIOR: u64 = 30;
const NEXT: u64 = 31;

/// A driver that continues a state from before, and the requests that it sends.
struct Continued {
    scene: Scene,
    requests: tokio::sync::mpsc::Receiver<Asked>,
    feed: Feed,
    driver: DriverTask,
}

impl Continued {
    /// Upstream has accepted the watch, and has sent nothing.
    async fn new() -> Self {
        let (scene, mut sink) = Scene::new();
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut before = World::new(7, 100, hub as _);
        let first = before.write("a/x", None);
        before.apply(vec![first]);
        let snapshot = before.writer.cache().snapshot().unwrap();
        let state = PriorState {
            base: snapshot.objects.clone(),
            base_version: ResourceVersion(PRIOR),
            forgotten: ResourceVersion(0),
            proven: ResourceVersion(0),
            lost: ResourceVersion(0),
            gaps: Vec::new(),
            events: Vec::new(),
            version: ResourceVersion(PRIOR),
        };
        sink.cache_sink.restore(state).await;
        sink.serve_when_continued(StateCounter::default());
        let (driver, mut requests) = scene.drive(sink, Some(ResourceVersion(PRIOR)));
        let first = requests.recv().await.unwrap();
        assert_eq!(sort_of(&first.path), format!("watch {PRIOR}"));
        let feed = first.open();
        settled().await;
        assert!(!scene.is_ready(), "upstream may still refuse the version");
        Self {
            scene,
            requests,
            feed,
            driver,
        }
    }

    fn ended(self) {
        self.driver.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_from_before_is_served_with_the_first_event_or_bookmark() {
    let (object, _) = Sample::new("a/y", NEXT).json();
    let event = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
    for line in [event, bookmark(NEXT)] {
        let continued = Continued::new().await;
        push(&continued.feed, &[line]).await;
        assert!(continued.scene.is_ready());
        continued.ended();
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_from_before_is_served_if_upstream_is_quiet() {
    let continued = Continued::new().await;
    tokio::time::sleep(QUIET_TIME).await;
    assert!(continued.scene.is_ready());
    continued.ended();
}

/// Otherwise clients would read a state that may be days old.
#[tokio::test(start_paused = true)]
async fn a_state_that_upstream_no_longer_continues_is_not_served_before_the_list() {
    let mut continued = Continued::new().await;
    push(&continued.feed, &[EXPIRED.to_owned()]).await;
    let list = continued.requests.recv().await.unwrap();
    assert_eq!(sort_of(&list.path), "stream latest");
    let feed = list.open();
    tokio::time::sleep(2 * QUIET_TIME).await;
    assert!(!continued.scene.is_ready());
    push(&feed, &[marker(50)]).await;
    assert!(continued.scene.is_ready());
    continued.ended();
}

/// A handover that counts in these metrics; there is no other gateway.
fn handover(metrics: &Metrics, kind: &ResourceKind) -> CacheHandover {
    let settings = HandoverSettings::without_files("http://127.0.0.1:1");
    Handover::new(settings, 1).of(&kind.cache_key(), metrics)
}

#[tokio::test]
async fn a_state_that_upstream_never_continued_is_counted() {
    let (scene, mut sink) = Scene::new();
    let kind = kind(Layout::Typed);
    let prior = PriorStates::new(None, Some(handover(&scene.metrics, &kind)));
    sink.serve_when_continued(prior.counter(StateOrigin::Peer));
    drop(sink);
    let page = scene.metrics.page().unwrap();
    let counted = |outcome: &str| {
        page.lines().any(|line| {
            line.starts_with("kube_fanout_handovers_taken_total{")
                && line.contains(&format!("outcome=\"{outcome}\""))
                && line.ends_with(" 1")
        })
    };
    assert!(counted("abandoned") && !counted("taken"), "{page}");
}
