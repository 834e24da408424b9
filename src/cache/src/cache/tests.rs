//! What readers of a cache can rely on while its writer continues.

use std::ops::ControlFlow;

use super::samples::{Recorder, Sample, World, keep, kind};
use super::*;
use crate::resource::{EventKind, Layout};

#[test]
fn deleting_an_unknown_object_only_advances_the_version() {
    let recorder = Arc::new(Recorder::default());
    let mut writer = CacheWriter::new(kind(Layout::Typed), keep(100), Arc::clone(&recorder) as _);
    let now = Instant::now();
    writer
        .replace(Vec::new(), ResourceVersion(10), now)
        .unwrap();
    let unknown = Change::Delete(Sample::new("a/x", 12).object());
    writer.apply([unknown], now);
    let dispatches = recorder.take();
    let versions: Vec<_> = dispatches
        .iter()
        .map(|(events, at)| (events.len(), at.0))
        .collect();
    assert_eq!(versions, [(0, 10), (0, 12)]);
    let snapshot = writer.cache().snapshot().unwrap();
    assert_eq!(snapshot.resource_version, ResourceVersion(12));
}

#[test]
fn an_object_that_leaves_a_selector_is_deleted_in_its_previous_state() {
    let mut before = Sample::new("a/x", 11);
    before.tier = Some("x");
    let after = Sample::new("a/x", 12);
    let event = |kind, previous: Option<&Sample>| {
        let previous = previous.map(Sample::object);
        let arrival = Arrival {
            at: Instant::now(),
            age: None,
        };
        Event::new(0, kind, after.object(), previous, arrival)
    };
    let text = |event: &Event, kind| {
        let frame = event.frame(kind);
        assert_eq!(event.frame(kind).as_ptr(), frame.as_ptr(), "made once");
        String::from_utf8(frame.to_vec()).unwrap()
    };
    let changed = event(EventKind::Modified, Some(&before));
    let left = text(&changed, EventKind::Deleted);
    assert!(left.starts_with(r#"{"type":"DELETED""#), "{left}");
    assert!(left.contains(r#""tier":"x""#) && left.contains(r#""resourceVersion":"12""#));
    let entered = text(&changed, EventKind::Added);
    assert!(entered.starts_with(r#"{"type":"ADDED""#), "{entered}");
    assert!(!entered.contains("tier"));
    // A deletion always carries the last state, also for a watch that has seen another one before.
    let deleted = text(
        &event(EventKind::Deleted, Some(&before)),
        EventKind::Deleted,
    );
    assert!(!deleted.contains("tier"), "{deleted}");
}

/// Resuming reads the floor and the ring, and the writer may evict in between.
#[test]
fn a_resumed_reader_is_never_shown_a_history_with_a_hole() {
    let mut world = World::new(3, 8, Arc::new(Recorder::default()));
    let cache = Arc::clone(world.writer.cache());
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut resumed = 0;
            while resumed < 20_000 {
                let snapshot = cache.snapshot().unwrap();
                let floor = floor(&snapshot, &cache.history);
                let Ok(first) = cache.resume_after(floor) else {
                    continue;
                };
                resumed += 1;
                // Here versions rise by one: version 11 has sequence 0.
                assert_eq!(first + 10, floor.0, "a hole after {floor}");
                let _ = cache.history.read(first, |sequence, event| {
                    assert_eq!(sequence + 11, event.resource_version().0);
                    ControlFlow::Break(())
                });
            }
        });
        while !reader.is_finished() {
            let version = world.version + 1;
            world.version = version;
            world.apply(vec![Change::Put(Sample::new("a/x", version).object())]);
        }
        reader.join().unwrap();
    });
}

/// Checks the events of a relist at `version` that finds `found` (key, uid, version), after a list at 10 with `a/1` to `a/4`.
#[track_caller]
fn check_relist(found: &[(&str, u64, u64)], version: u64, expected: &[&str]) {
    let mut writer = CacheWriter::new(
        kind(Layout::Typed),
        keep(100),
        Arc::new(Recorder::default()),
    );
    let now = Instant::now();
    let sample = |key: &str, uid, version| {
        let mut sample = Sample::new(key, version);
        sample.uid = uid;
        sample.object()
    };
    let before = (1..5)
        .map(|at| sample(&format!("a/{at}"), at, at))
        .collect();
    writer.replace(before, ResourceVersion(10), now).unwrap();
    let found = found
        .iter()
        .map(|(key, uid, at)| sample(key, *uid, *at))
        .collect();
    writer
        .replace(found, ResourceVersion(version), now)
        .unwrap();
    let mut seen = Vec::new();
    let read = writer.cache().history().read(0, |_, event| {
        let (kind, key) = (event.kind().as_str(), event.object().key());
        seen.push(format!("{kind} {key} {}", event.resource_version()));
        ControlFlow::Continue(())
    });
    read.unwrap();
    assert_eq!(seen, expected);
}

#[test]
fn deletions_found_by_a_relist_have_versions_of_their_own() {
    check_relist(
        &[("a/1", 1, 19), ("a/5", 5, 20)],
        20,
        &[
            "DELETED a/2 11",
            "DELETED a/3 12",
            "DELETED a/4 13",
            "MODIFIED a/1 19",
            "ADDED a/5 20",
        ],
    );
    // No deletion gets a version at which something was written.
    check_relist(
        &[("a/1", 1, 11), ("a/5", 5, 13)],
        20,
        &[
            "MODIFIED a/1 11",
            "DELETED a/2 12",
            "ADDED a/5 13",
            "DELETED a/3 14",
            "DELETED a/4 15",
        ],
    );
    // A recreated object was deleted before it was created again.
    check_relist(
        &[("a/1", 1, 13), ("a/2", 9, 14), ("a/3", 3, 3)],
        20,
        &[
            "DELETED a/2 11",
            "DELETED a/4 12",
            "MODIFIED a/1 13",
            "ADDED a/2 14",
        ],
    );
    // More deletions than unused versions: only a writer other than the API server can cause that.
    check_relist(
        &[("a/1", 1, 1), ("a/2", 9, 11)],
        11,
        &[
            "DELETED a/2 11",
            "DELETED a/3 11",
            "DELETED a/4 11",
            "ADDED a/2 11",
        ],
    );
}

#[test]
fn lists_of_neighbouring_versions_leave_no_gap() {
    let recorder = Arc::new(Recorder::default());
    let mut writer = CacheWriter::new(kind(Layout::Typed), keep(100), recorder);
    for version in (10..40).chain(39..60) {
        let version = ResourceVersion(version);
        writer.replace(Vec::new(), version, Instant::now()).unwrap();
    }
    let snapshot = writer.cache().snapshot().unwrap();
    assert_eq!(snapshot.gaps, []);
    assert_eq!(writer.cache().resume_after(ResourceVersion(10)), Ok(0));
}

#[test]
fn observers_are_called_only_for_new_events() {
    let recorder = Arc::new(Recorder::default());
    let mut writer = World::new(1, 100, Arc::clone(&recorder) as _).writer;
    let now = Instant::now();
    let put = |key: &str, version| Change::Put(Sample::new(key, version).object());
    writer.apply([put("a/x", 12)], now);
    recorder.take();
    // A repeated version, or an older one.
    for repeated in [put("a/x", 12), put("a/y", 11)] {
        assert_eq!(writer.apply([repeated], now).ignored, 1);
    }
    writer.progress(ResourceVersion(12), now);
    assert!(recorder.take().is_empty());
    // Another object of the same transaction is new.
    assert_eq!(writer.apply([put("a/y", 12)], now).events, 1);
    assert_eq!(recorder.take().len(), 1);
    assert!(
        writer
            .cache()
            .snapshot()
            .unwrap()
            .objects
            .object("a/y")
            .is_some()
    );
    writer.progress(ResourceVersion(13), now);
    assert_eq!(recorder.take().len(), 1);
}

#[test]
fn a_flag_stays_set() {
    let flag = Flag::default();
    assert!(!flag.is_set());
    for _ in 0..2 {
        flag.set();
        assert!(flag.is_set());
    }
}

/// An observer that processes one event at a time and wakes two watches for it.
#[derive(Debug)]
struct OneByOne;

impl Observer for OneByOne {
    fn dispatch(
        &self,
        events: &[Arc<Event>],
        _: Sequence,
        _: ResourceVersion,
        _: Instant,
    ) -> DispatchOutcome {
        let events = events.len().min(1);
        DispatchOutcome {
            events,
            woken: 2 * events,
            frames: 0,
        }
    }
}

#[test]
fn a_dispatch_in_parts_is_counted_once() {
    let mut writer = World::new(1, 100, Arc::new(OneByOne)).writer;
    let now = Instant::now();
    let puts = |versions: std::ops::Range<u64>| {
        versions.map(|version| Change::Put(Sample::new(&format!("a/{version}"), version).object()))
    };
    assert_eq!(writer.apply(puts(11..14), now).woken, 6);
    writer.publish_changes(puts(14..16), now);
    assert!(writer.is_behind());
    // The bookmark is dispatched with the last event before it.
    writer.progress(ResourceVersion(20), now);
    let mut woken = || writer.dispatch(now).woken;
    assert_eq!([woken(), woken()], [2, 2]);
    assert!(!writer.is_behind());
    assert_eq!(writer.dispatch(now).woken, 0);
}

#[test]
fn versions_of_a_lost_history_are_too_old_until_they_have_been_reached() {
    let recorder = Arc::new(Recorder::default());
    let lost = ResourceVersion(100);
    let mut writer = CacheWriter::after_loss(kind(Layout::Typed), keep(100), recorder, lost);
    let now = Instant::now();
    writer
        .replace(Vec::new(), ResourceVersion(50), now)
        .unwrap();
    let cache = Arc::clone(writer.cache());
    let resumes = |version: u64| cache.resume_after(ResourceVersion(version)).is_ok();
    assert!(resumes(50) && !resumes(51) && !resumes(100));
    let may_be_lost = |version: u64| cache.may_be_lost(ResourceVersion(version));
    assert!(may_be_lost(40) && may_be_lost(100) && !may_be_lost(101));
    assert!(resumes(101), "a version from an API server that is ahead");
    let snapshot = cache.snapshot().unwrap();
    assert!(cache.prove(&snapshot, ResourceVersion(60)));
    assert!(resumes(60) && !resumes(61));
    writer.progress(ResourceVersion(70), now);
    assert!(resumes(70) && !resumes(71));
    assert_eq!(cache.newest_given(), ResourceVersion(70));
}
