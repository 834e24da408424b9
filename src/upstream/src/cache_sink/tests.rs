//! A sink with expensive views yields to other tasks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::cache::PastEvent;
use crate::cache::samples::{Sample, keep, kind};
use crate::resource::Layout;
use crate::selector::{EVALUATED, LabelSelector, Selector};
use crate::view::Hub;

/// Runs `fill`, then polls the sink until it is ready. Returns the number of selector terms evaluated by `fill` and by each
/// poll.
fn turns(sink: &mut CacheSink, fill: impl FnOnce(&mut CacheSink)) -> Vec<usize> {
    EVALUATED.set(0);
    fill(sink);
    let mut turns = vec![EVALUATED.take()];
    let mut ready = pin!(sink.ready());
    let mut context = Context::from_waker(Waker::noop());
    while ready.as_mut().poll(&mut context).is_pending() {
        turns.push(EVALUATED.take());
    }
    turns.push(EVALUATED.take());
    turns
}

#[test]
fn batches_and_relists_are_dispatched_in_turns_of_bounded_work() {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::new(()));
    let at = ResourceVersion;
    sink.replace(at(10)).unwrap();
    let selector = |index: usize| {
        let terms: Vec<_> = (0..50).map(|term| format!("!k{index}x{term}")).collect();
        Selector {
            labels: LabelSelector::parse(&terms.join(",")).unwrap(),
            ..Selector::default()
        }
    };
    let entries: Vec<_> = (0..50).map(|index| hub.join(&selector(index))).collect();
    let samples = |from: u64| (from..from + 200).map(|version| (format!("a/{version}"), version));
    let live = |sink: &mut CacheSink| {
        for (key, version) in samples(20) {
            sink.live(EventKind::Added, Sample::new(&key, version).object());
        }
        sink.publish();
        sink.progress(at(300));
    };
    let relist = |sink: &mut CacheSink| {
        sink.restart();
        for (key, version) in samples(400) {
            sink.initial(EventKind::Added, Sample::new(&key, version).object());
        }
        sink.replace(at(700)).unwrap();
    };
    // Each event adds or deletes an object, so the terms of each view are evaluated for one state. The relist deletes the
    // first 200 objects.
    for (turns, events) in [
        (turns(&mut sink, live), 200),
        (turns(&mut sink, relist), 400),
    ] {
        assert!(turns.len() > 10, "{turns:?}");
        assert!(turns.iter().all(|terms| *terms < 40_000), "{turns:?}");
        assert_eq!(turns.iter().sum::<usize>(), events * 50 * 50);
    }
    assert_eq!(
        (hub.reached().version, hub.reached().through),
        (at(700), 600)
    );
    drop(entries);
}

#[test]
fn a_state_from_before_is_restored_in_turns_and_what_a_list_leaves_is_freed_in_turns() {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let cache = Arc::clone(writer.cache());
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::new(()));
    let state = PriorState {
        base: ObjectMap::default(),
        base_version: ResourceVersion(10),
        forgotten: ResourceVersion(0),
        proven: ResourceVersion(0),
        lost: ResourceVersion(0),
        gaps: Vec::new(),
        events: (11..2_011)
            .map(|version| PastEvent {
                change: Change::Put(Sample::new(&format!("a/{version}"), version).object()),
                arrived_at: now(),
            })
            .collect(),
        version: ResourceVersion(2_010),
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 1;
    {
        let mut restored = pin!(sink.restore(state));
        while restored.as_mut().poll(&mut context) == Poll::Pending {
            assert!(cache.snapshot().is_none(), "it is not complete");
            polls += 1;
        }
    }
    assert!(polls >= 2_000 / RESTORED_PER_SLICE);
    assert_eq!(cache.snapshot().unwrap().objects.len(), 2_000);
    let relist = |sink: &mut CacheSink| {
        sink.restart();
        for version in 11..2_011 {
            let object = Sample::new(&format!("a/{version}"), version).object();
            sink.initial(EventKind::Added, object);
        }
        sink.replace(ResourceVersion(3_000)).unwrap();
    };
    assert!(turns(&mut sink, relist).len() > 2);
    assert!(sink.spare.is_empty());
    assert_eq!(cache.snapshot().unwrap().objects.len(), 2_000);
}

#[test]
fn the_changes_of_a_long_list_are_published_in_turns_and_what_follows_comes_after_them() {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let cache = Arc::clone(writer.cache());
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::new(()));
    sink.replace(ResourceVersion(10)).unwrap();
    let put = |version: u64| Sample::new(&format!("a/{version}"), version).object();
    let relist = |sink: &mut CacheSink| {
        sink.restart();
        (11..2_011).for_each(|version| sink.initial(EventKind::Added, put(version)));
        sink.replace(ResourceVersion(3_000)).unwrap();
        // The same chunk goes on.
        sink.live(EventKind::Added, put(3_001));
        sink.publish();
        sink.progress(ResourceVersion(3_002));
        sink.live(EventKind::Added, put(3_003));
        sink.publish();
        let snapshot = cache.snapshot().unwrap();
        assert_eq!(snapshot.resource_version, ResourceVersion(10));
    };
    assert!(turns(&mut sink, relist).len() > 2_000 / LISTED_PER_SLICE);
    let snapshot = cache.snapshot().unwrap();
    assert_eq!(snapshot.resource_version, ResourceVersion(3_003));
    assert_eq!(snapshot.objects.len(), 2_002);
    assert_eq!(hub.reached().version, ResourceVersion(3_003));
}

#[tokio::test]
async fn a_list_of_many_objects_is_compared_beside_other_tasks() {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let cache = Arc::clone(writer.cache());
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::new(()));
    let count = COMPARED_INLINE_MAX as u64;
    let list = |sink: &mut CacheSink, changed: u64| {
        sink.restart();
        for index in 1..=count {
            let version = if index == 1 { changed } else { index };
            let object = Sample::new(&format!("a/{index:05}"), version).object();
            sink.initial(EventKind::Added, object);
        }
    };
    let at = |version| ResourceVersion(count + version);
    list(&mut sink, 1);
    sink.replace(at(1)).unwrap();
    list(&mut sink, at(2).0);
    sink.replace(at(3)).unwrap();
    assert_eq!(cache.snapshot().unwrap().resource_version, at(1));
    sink.ready().await.unwrap();
    assert_eq!(cache.snapshot().unwrap().resource_version, at(3));
    assert_eq!(hub.reached().version, at(3));
    // The object was last written at another version, before the state's.
    list(&mut sink, at(1).0);
    sink.replace(at(4)).unwrap();
    assert_eq!(sink.ready().await, Err(UpstreamWentBack));
    assert_eq!(cache.snapshot().unwrap().resource_version, at(3));
}

/// The ages that were read.
#[derive(Debug, Default)]
struct Ages(parking_lot::Mutex<Vec<SignedDuration>>);

impl FillRecorder for Ages {
    fn write_age(&self, age: SignedDuration) {
        self.0.lock().push(age);
    }
}

/// A config map that was last written `ago`, in whole seconds as upstream writes them.
fn written(name: &str, version: u64, ago: SignedDuration) -> Object {
    let at = jiff::Timestamp::now() - ago;
    let line = format!(
        r#"{{"type":"MODIFIED","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"u","resourceVersion":"{version}","managedFields":[{{"time":"{at:.0}"}}]}}}}}}"#
    ) + "\n";
    let frame = line.as_bytes();
    let fields = crate::resource::FieldTable::default();
    let scanned = crate::decode::scan_watch(crate::resource::Encoding::Json, frame, fields);
    let Ok(crate::decode::WatchLine::Event { object, parts, .. }) = scanned else {
        panic!("{scanned:?}");
    };
    crate::decode::object_in(crate::resource::Encoding::Json, frame, object, parts).unwrap()
}

/// A sink whose events a view shows.
fn watched() -> (CacheSink, Arc<Ages>, Arc<crate::view::View>) {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let ages = Arc::new(Ages::default());
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::clone(&ages) as _);
    sink.replace(ResourceVersion(10)).unwrap();
    let view = hub.join(&Selector::default()).view;
    (sink, ages, view)
}

/// The arrivals of the view's batches.
fn arrivals(view: &crate::view::View) -> Vec<crate::cache::Arrival> {
    let mut arrivals = Vec::new();
    view.read(0, |batch| {
        arrivals.push(batch.arrival);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    arrivals
}

#[tokio::test(start_paused = true)]
async fn a_batch_counts_from_the_arrival_of_its_first_bytes() {
    let (mut sink, _, view) = watched();
    let arrived_at = now();
    sink.arrived(arrived_at);
    sink.live(EventKind::Added, Sample::new("a/x", 11).object());
    // More chunks join the batch.
    tokio::time::advance(Duration::from_millis(30)).await;
    sink.live(EventKind::Added, Sample::new("a/y", 12).object());
    sink.publish();
    let arrivals = arrivals(&view);
    assert_eq!(arrivals.len(), 1);
    assert_eq!((arrivals[0].at, arrivals[0].age), (arrived_at, None));
}

#[tokio::test(start_paused = true)]
async fn the_age_of_one_event_is_read_in_a_tenth_of_a_second() {
    let (mut sink, ages, view) = watched();
    let mut put = async |version: u64, ago: i64, pause: u64| {
        tokio::time::advance(Duration::from_millis(pause)).await;
        sink.arrived(now());
        let ago = SignedDuration::from_secs(ago);
        sink.live(EventKind::Modified, written("x", version, ago));
        sink.publish();
    };
    put(11, 1000, 0).await;
    put(12, 500, 99).await;
    put(13, 200, 1).await;
    // The object bears the same time as before, or an earlier one: when it was written is not known.
    put(14, 900, 100).await;
    put(15, -200, 100).await;
    let seconds: Vec<_> = ages.0.lock().iter().map(|age| age.as_secs()).collect();
    let near = |age: i64, expected: i64| (age - expected).abs() <= 60;
    assert_eq!(seconds.len(), 3, "{seconds:?}");
    for (age, expected) in seconds.iter().zip([1000, 200, -200]) {
        assert!(near(*age, expected), "{seconds:?}");
    }
    let delivered: Vec<_> = arrivals(&view)
        .iter()
        .map(|arrival| arrival.age.map(|age| Duration::from(age).as_secs()))
        .collect();
    let [Some(first), None, Some(third), None, Some(0)] = delivered[..] else {
        panic!("{delivered:?}");
    };
    assert!(first.abs_diff(1000) <= 60 && third.abs_diff(200) <= 60);
}
