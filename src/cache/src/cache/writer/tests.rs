//! The writer compared with a plain model, and what readers see of its changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::cache::event::EVENT_LEN;
use crate::cache::samples::{Recorder, World, keep, kind};
use crate::cache::{RewindError, Sequence, VersionTooOld};
use crate::resource::{ByteSpan, Encoding, Gvr, Layout, ObjectParts};

fn writer(events_max: usize) -> CacheWriter {
    let kind = ResourceKind {
        gvr: Gvr::new("", "v1", "configmaps"),
        kind: "ConfigMap".into(),
        list_kind: "ConfigMapList".into(),
        namespaced: true,
        layout: Layout::Typed,
        encoding: Encoding::Json,
        warnings: Vec::new(),
    };
    let keep = Retention {
        segment_slots: 4,
        events_min: 0,
        events_max,
        bytes_max: usize::MAX,
        age_max: Duration::MAX,
    };
    CacheWriter::new(kind, keep, Arc::new(Recorder::default()))
}

fn object(name: &str, uid: &str, version: u64) -> Object {
    let bytes = format!("{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}");
    let start = 32;
    let parts = ObjectParts {
        namespace: "ns".into(),
        name: name.into(),
        uid: uid.into(),
        resource_version: ResourceVersion(version),
        version_span: ByteSpan {
            start,
            end: start + u32::try_from(version.to_string().len()).unwrap(),
        },
        ..ObjectParts::default()
    };
    Object::new(parts, bytes.as_bytes())
}

#[test]
fn a_version_is_too_old_once_a_part_of_it_was_evicted() {
    let mut writer = writer(4);
    let now = Instant::now();
    writer.replace(Vec::new(), ResourceVersion(1), now).unwrap();
    let resumes = |writer: &CacheWriter, version| {
        writer
            .cache()
            .resume_after(ResourceVersion(version))
            .is_ok()
    };
    for name in ["a", "b", "c"] {
        writer.apply([Change::Put(object(name, name, 7))], now);
    }
    let first = writer.cache().resume_after(ResourceVersion(7));
    assert_eq!(first, Ok(1), "all but the first");
    let mut version = 7;
    while writer.cache().history().oldest() == 0 {
        version += 1;
        writer.apply([Change::Put(object("d", "d", version))], now);
    }
    let oldest = writer.cache().history().oldest();
    assert!(!resumes(&writer, 6), "from {oldest}");
    for version in 8..=version {
        let sequence = writer.cache().resume_after(ResourceVersion(version));
        assert!(sequence.is_err() || sequence.is_ok_and(|sequence| sequence >= oldest));
    }
}

#[test]
fn the_length_of_the_objects_follows_every_change() {
    let mut writer = writer(100);
    let now = Instant::now();
    let check = |writer: &CacheWriter| {
        let snapshot = writer.cache().snapshot().unwrap();
        let lines = snapshot.objects.iter().map(|object| object.frame_len());
        assert_eq!(writer.objects_len(), lines.sum::<usize>());
    };
    writer
        .replace(
            vec![object("a", "1", 1), object("b", "2", 2)],
            ResourceVersion(2),
            now,
        )
        .unwrap();
    check(&writer);
    writer.apply(
        [
            Change::Put(object("a", "1", 1_000)),
            Change::Put(object("c", "3", 1_001)),
            Change::Delete(object("b", "2", 1_002)),
            Change::Delete(object("d", "4", 1_003)),
        ],
        now,
    );
    check(&writer);
    writer
        .replace(vec![object("c", "9", 2_000)], ResourceVersion(2_000), now)
        .unwrap();
    check(&writer);
}

#[test]
fn the_history_is_charged_for_objects_that_only_it_holds() {
    let mut writer = writer(100);
    let now = Instant::now();
    let held = [object("a", "1", 1), object("b", "2", 2)];
    let [a, b] = held.each_ref().map(Object::allocated_len);
    writer
        .replace(held.to_vec(), ResourceVersion(2), now)
        .unwrap();
    let mut bytes = 0;
    let mut weighs = |change: Change, states: usize| {
        writer.apply([change], now);
        let before = std::mem::replace(&mut bytes, writer.history_size().1);
        assert_eq!(bytes - before, EVENT_LEN + states);
    };
    // New and changed states are in the snapshot, so only the state that a change replaces counts.
    weighs(Change::Put(object("c", "3", 3)), 0);
    weighs(Change::Put(object("a", "1", 4)), a);
    let last = object("b", "2", 5);
    let last_len = last.allocated_len();
    weighs(Change::Delete(last), b + last_len);
}

#[test]
fn a_history_that_is_cut_gives_its_memory_back_and_grows_again_later() {
    const LEN_MAX: usize = 1 << 20;
    let retention = Retention {
        bytes_max: LEN_MAX,
        ..keep(10_000)
    };
    let recorder = Arc::new(Recorder::default());
    let writer = CacheWriter::new(kind(Layout::Typed), retention, recorder);
    let mut world = World::over(writer.keeping_deletions(LEN_MAX), 1);
    world.data_len = 1_000;
    let fill = |world: &mut World| {
        for _ in 0..1_500 {
            let changes = [world.write("a/x", None), world.delete("a/x").unwrap()];
            world.apply(changes.into());
        }
    };
    let sizes = |world: &World| {
        (
            world.writer.history_size().1,
            world.writer.tombstones_size().1,
        )
    };
    fill(&mut world);
    let full = sizes(&world);
    assert!(full.0 > LEN_MAX / 2 && full.1 > LEN_MAX / 2, "{full:?}");
    let cache = Arc::clone(world.writer.cache());
    let newest = ResourceVersion(world.version);
    let oldest = floor(&cache.snapshot().unwrap(), cache.history());
    for cuts in 1..=4 {
        world.writer.cut_history(cuts, 0, Duration::MAX, world.now);
        let now = sizes(&world);
        // The newest segment stays.
        let may_have = |slots: usize| (LEN_MAX >> cuts).max(slots * 2_048);
        assert!(now.0 <= may_have(8), "{now:?} after {cuts}");
        assert!(now.1 <= may_have(256), "{now:?} after {cuts}");
        assert!(now.0 >= (LEN_MAX >> cuts) / 8 * 7, "{now:?} after {cuts}");
    }
    assert!(
        cache.resume_after(newest).is_ok(),
        "who is up to date continues"
    );
    assert!(cache.resume_after(oldest).is_err());
    fill(&mut world);
    assert!(sizes(&world).0 < full.0 / 8, "it stays short");
    world.writer.cut_history(0, 0, Duration::MAX, world.now);
    fill(&mut world);
    let again = sizes(&world);
    assert!(
        again.0 > full.0 / 8 * 7 && again.1 > full.1 / 8 * 7,
        "{again:?}"
    );
}

#[test]
fn a_cut_keeps_short_histories_and_recent_events() {
    const LEN_MAX: usize = 1 << 20;
    let retention = Retention {
        bytes_max: LEN_MAX,
        ..keep(10_000)
    };
    let recorder = Arc::new(Recorder::default());
    let mut world = World::over(
        CacheWriter::new(kind(Layout::Typed), retention, recorder),
        1,
    );
    world.data_len = 1_000;
    let size = |world: &World| world.writer.history_size().1;
    let fill = |world: &mut World, len: usize| {
        while size(world) < len {
            let change = world.write("a/x", None);
            world.apply(vec![change]);
        }
    };
    // A new cache, in which nothing is held yet, and then one that holds less than the cut leaves.
    world.writer.cut_history(2, 0, Duration::MAX, world.now);
    fill(&mut world, LEN_MAX / 16);
    let held = size(&world);
    for cuts in [1, 2, 3, 4] {
        world.writer.cut_history(cuts, 0, Duration::MAX, world.now);
        assert!(size(&world) >= held.min(LEN_MAX >> cuts) / 8 * 7);
    }
    world.writer.cut_history(2, 0, Duration::MAX, world.now);
    fill(&mut world, LEN_MAX / 5);
    world.writer.cut_history(0, 0, Duration::MAX, world.now);
    fill(&mut world, LEN_MAX / 2);
    let held = size(&world);
    world
        .writer
        .cut_history(4, LEN_MAX, Duration::MAX, world.now);
    assert_eq!(size(&world), held, "recent events stay");
    world
        .writer
        .cut_history(4, LEN_MAX / 4, Duration::MAX, world.now);
    assert!((LEN_MAX / 5..=LEN_MAX / 4).contains(&size(&world)));
}

fn events_from(writer: &CacheWriter, from: Sequence) -> Vec<String> {
    let mut seen = Vec::new();
    let read = writer.cache().history().read(from, |_, event| {
        seen.push(format!(
            "{} {} {}",
            event.kind().as_str(),
            event.object().key().name(),
            event.resource_version()
        ));
        ControlFlow::Continue(())
    });
    assert!(read.is_ok(), "{read:?}");
    seen
}

#[test]
fn a_cache_is_not_ready_before_its_first_list() {
    let mut writer = writer(100);
    assert!(writer.cache().snapshot().is_none());
    writer
        .replace(
            vec![object("a", "1", 3)],
            ResourceVersion(7),
            Instant::now(),
        )
        .unwrap();
    let snapshot = writer.cache().snapshot().unwrap();
    assert_eq!(
        (
            snapshot.resource_version,
            snapshot.objects.len(),
            snapshot.sequence
        ),
        (ResourceVersion(7), 1, 0)
    );
}

#[test]
fn evicted_versions_are_too_old_and_later_ones_are_not() {
    let mut writer = writer(100);
    let now = Instant::now();
    writer
        .replace(vec![object("a", "1", 3)], ResourceVersion(3), now)
        .unwrap();
    for version in 4..8 {
        writer.apply([Change::Put(object("a", "1", version))], now);
    }
    writer.forget(ResourceVersion(6));
    let cache = writer.cache();
    let floor = ResourceVersion(6);
    assert_eq!(
        cache.resume_after(ResourceVersion(5)),
        Err(VersionTooOld { floor })
    );
    assert_eq!(cache.resume_after(floor), Ok(3));
    let rewound = |version| cache.rewind(ResourceVersion(version));
    assert_eq!(rewound(5).unwrap_err(), RewindError::Evicted);
    assert!(rewound(6).is_ok());
    writer.forget(ResourceVersion(100));
    let floor = ResourceVersion(7);
    assert_eq!(
        writer.cache().resume_after(ResourceVersion(6)),
        Err(VersionTooOld { floor })
    );
}

#[test]
fn changes_have_the_previous_state_and_repeated_ones_are_ignored() {
    let mut writer = writer(100);
    let now = Instant::now();
    writer
        .replace(vec![object("a", "1", 3)], ResourceVersion(7), now)
        .unwrap();
    let changes = [
        Change::Put(object("a", "1", 3)),
        Change::Put(object("b", "2", 8)),
        Change::Put(object("a", "1", 9)),
        Change::Put(object("a", "1", 9)),
        Change::Delete(object("b", "2", 10)),
        Change::Put(object("c", "3", 5)),
    ];
    assert_eq!(
        writer.apply(changes, now),
        ApplyOutcome {
            events: 3,
            ignored: 3,
            ..ApplyOutcome::default()
        }
    );
    assert_eq!(
        events_from(&writer, 0),
        ["ADDED b 8", "MODIFIED a 9", "DELETED b 10"]
    );
}

#[test]
fn a_relist_publishes_the_difference_in_version_order() {
    let mut writer = writer(100);
    let now = Instant::now();
    let first = vec![
        object("gone", "1", 1),
        object("kept", "2", 2),
        object("moved", "3", 3),
        object("reborn", "4", 4),
    ];
    writer.replace(first, ResourceVersion(10), now).unwrap();
    let second = vec![
        object("kept", "2", 2),
        object("moved", "3", 15),
        object("new", "5", 12),
        object("reborn", "6", 18),
    ];
    assert_eq!(
        writer
            .replace(second, ResourceVersion(20), now)
            .map(|a| a.events),
        Ok(5)
    );
    assert_eq!(
        events_from(&writer, 0),
        [
            "DELETED reborn 11",
            "ADDED new 12",
            "DELETED gone 13",
            "MODIFIED moved 15",
            "ADDED reborn 18"
        ]
    );
    let deleted = writer.cache().history();
    deleted
        .read(2, |_, event| {
            assert_eq!(
                &*event.frame(EventKind::Deleted),
                b"{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"13\"}}}\n"
            );
            ControlFlow::Break(())
        })
        .unwrap();
}

#[test]
fn an_older_list_changes_nothing() {
    let mut writer = writer(100);
    writer
        .replace(
            vec![object("a", "1", 3)],
            ResourceVersion(7),
            Instant::now(),
        )
        .unwrap();
    let went_back = VersionWentBack {
        listed: ResourceVersion(6),
        current: ResourceVersion(7),
    };
    assert_eq!(
        writer.replace(vec![], ResourceVersion(6), Instant::now()),
        Err(went_back)
    );
    assert_eq!(writer.cache().snapshot().unwrap().objects.len(), 1);
}

#[test]
fn a_list_of_another_history_changes_nothing() {
    let listed = |objects: Vec<Object>, version: u64| {
        let mut writer = writer(100);
        let now = Instant::now();
        let held = vec![object("a", "1", 3), object("b", "2", 9)];
        writer.replace(held, ResourceVersion(10), now).unwrap();
        let replaced = writer.replace(objects, ResourceVersion(version), now);
        let sequence = writer.cache().snapshot().unwrap().sequence;
        assert!(replaced.is_ok() || sequence == 0, "nothing was published");
        replaced.is_ok()
    };
    let (a, b) = (object("a", "1", 3), object("b", "2", 9));
    assert!(listed(vec![a.clone(), b.clone()], 10));
    assert!(listed(vec![a.clone(), object("b", "2", 12)], 20));
    assert!(listed(vec![a.clone()], 11));
    // The watch may have received only a part of a transaction.
    assert!(listed(vec![a.clone(), b.clone(), object("c", "4", 10)], 20));
    // Before version 10 there was no such object, or it was a different one.
    assert!(!listed(vec![a.clone(), b.clone(), object("c", "4", 8)], 20));
    assert!(!listed(vec![object("a", "1", 4), b.clone()], 20));
    assert!(!listed(vec![object("a", "7", 3), b], 20));
    // The object existed at that version.
    assert!(!listed(vec![a], 10));
}

#[test]
fn a_watch_resumes_where_history_is_certain() {
    let mut writer = writer(100);
    let now = Instant::now();
    writer
        .replace(vec![object("a", "1", 3)], ResourceVersion(10), now)
        .unwrap();
    writer.apply([Change::Put(object("a", "1", 12))], now);
    writer
        .replace(vec![object("a", "1", 15)], ResourceVersion(20), now)
        .unwrap();
    let resume = |version| writer.cache().resume_after(ResourceVersion(version));
    let too_old = |floor| {
        Err(VersionTooOld {
            floor: ResourceVersion(floor),
        })
    };
    assert_eq!(resume(9), too_old(10), "older than the first list");
    assert_eq!(resume(10), Ok(0));
    assert_eq!(resume(11), Ok(0));
    assert_eq!(resume(12), Ok(1), "where the watch ended");
    assert_eq!(resume(13), too_old(20), "inside the gap");
    assert_eq!(
        resume(15),
        too_old(20),
        "inside the gap, although an event carries this version"
    );
    assert_eq!(resume(16), too_old(20));
    assert_eq!(resume(20), Ok(2));
    assert_eq!(
        resume(99),
        Ok(2),
        "a future version waits and is not refused"
    );
}

/// A list after a proof: deletions get versions above the proven one, and versions inside the gaps cannot be resumed from.
#[test]
fn deletions_found_after_a_proof_lie_above_the_proven_version() {
    let mut writer = writer(100);
    let now = Instant::now();
    let listed = vec![object("gone", "1", 3), object("kept", "2", 4)];
    writer.replace(listed, ResourceVersion(10), now).unwrap();
    let cache = Arc::clone(writer.cache());
    let snapshot = cache.snapshot().unwrap();
    assert!(cache.prove(&snapshot, ResourceVersion(15)));
    let listed = vec![object("kept", "2", 4)];
    writer.replace(listed, ResourceVersion(20), now).unwrap();
    assert_eq!(events_from(&writer, 0), ["DELETED gone 16"]);
    let resume = |version| cache.resume_after(ResourceVersion(version));
    let too_old = |floor| {
        Err(VersionTooOld {
            floor: ResourceVersion(floor),
        })
    };
    assert_eq!(resume(10), Ok(0));
    assert_eq!(resume(12), too_old(15));
    assert_eq!(resume(15), Ok(0), "the state there is known");
    assert_eq!(
        resume(16),
        too_old(20),
        "an invented version does not resume"
    );
    assert_eq!(resume(20), Ok(1));
    let rewound = cache.rewind(ResourceVersion(15)).unwrap().finish();
    assert_eq!(rewound.objects.len(), 2);
    assert!(
        !cache.prove(&snapshot, ResourceVersion(30)),
        "another list replaced the state"
    );
}

#[test]
fn an_older_state_is_reached_in_steps_that_say_whether_more_are_left() {
    let mut writer = writer(100);
    let now = Instant::now();
    writer.replace(vec![], ResourceVersion(10), now).unwrap();
    for version in 11..=15 {
        let name = format!("object-{version}");
        writer.apply([Change::Put(object(&name, "1", version))], now);
    }
    let mut rewind = writer.cache().rewind(ResourceVersion(10)).unwrap();
    for is_more_left in [true, true, false, false] {
        assert_eq!(rewind.step(2), is_more_left);
    }
    assert_eq!(rewind.finish().objects.len(), 0);
}

#[test]
fn a_list_below_a_proven_version_went_back() {
    let mut writer = writer(100);
    let now = Instant::now();
    writer
        .replace(vec![object("a", "1", 3)], ResourceVersion(10), now)
        .unwrap();
    let cache = Arc::clone(writer.cache());
    assert!(cache.prove(&cache.snapshot().unwrap(), ResourceVersion(15)));
    let went_back = VersionWentBack {
        listed: ResourceVersion(14),
        current: ResourceVersion(15),
    };
    assert_eq!(
        writer.replace(vec![], ResourceVersion(14), now),
        Err(went_back)
    );
}

#[test]
fn a_gap_that_is_no_longer_remembered_stays_closed() {
    let mut writer = writer(100);
    let now = Instant::now();
    let mut version = 10;
    for _ in 0..=18 {
        writer
            .replace(
                vec![object("a", "1", version)],
                ResourceVersion(version),
                now,
            )
            .unwrap();
        version += 10;
    }
    let cache = writer.cache();
    let snapshot = cache.snapshot().unwrap();
    for version in [15, 25, 35] {
        let version = ResourceVersion(version);
        assert!(cache.resume_after(version).is_err(), "{version}");
        assert!(cache.rewind(version).is_err(), "{version}");
    }
    assert_eq!(
        cache.resume_after(snapshot.resource_version),
        Ok(snapshot.sequence)
    );
}

#[test]
fn eviction_raises_the_floor() {
    let mut writer = writer(4);
    let now = Instant::now();
    writer.replace(vec![], ResourceVersion(10), now).unwrap();
    for version in 11..=30 {
        writer.apply(
            [Change::Put(object("a", "1", version))],
            now + Duration::from_secs(version),
        );
    }
    let oldest = writer.cache().history().oldest();
    let floor = 10 + oldest;
    assert!(oldest > 0);
    assert_eq!(
        writer.cache().resume_after(ResourceVersion(floor)),
        Ok(oldest)
    );
    assert_eq!(
        writer.cache().resume_after(ResourceVersion(floor - 1)),
        Err(VersionTooOld {
            floor: ResourceVersion(floor)
        })
    );
}

proptest! {
    /// A snapshot rewound to any version that the history reaches equals the model at that version.
    #[test]
    fn any_version_in_the_history_can_be_told_again(
        steps in prop::collection::vec((0_u8..4, 0_u8..6), 1..80),
        events_max in 8_usize..40,
    ) {
        let mut writer = writer(events_max);
        let now = Instant::now();
        writer.replace(vec![], ResourceVersion(1), now).unwrap();
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        let mut past = vec![(1, model.clone())];
        for (version, (choice, name)) in (2..).zip(steps) {
            let name = format!("n{name}");
            let change = if choice == 0 { Change::Delete(object(&name, "u", version)) } else { Change::Put(object(&name, "u", version)) };
            writer.apply([change], now + Duration::from_nanos(version));
            if choice == 0 { model.remove(&name); } else { model.insert(name, version); }
            past.push((version, model.clone()));
        }
        let cache = writer.cache();
        let snapshot = cache.snapshot().unwrap();
        let floor = floor(&snapshot, cache.history());
        // From new to old, so that kept states serve as the base for older ones.
        for (version, expected) in past.into_iter().rev() {
            let rewound = cache.rewind(ResourceVersion(version));
            if version > snapshot.resource_version.0 {
                prop_assert!(matches!(rewound, Err(RewindError::Future)));
            } else if ResourceVersion(version) < floor {
                prop_assert!(matches!(rewound, Err(RewindError::Evicted)));
            } else {
                let rewound = Arc::new(rewound.unwrap().finish());
                cache.keep(&rewound);
                let rewound: BTreeMap<_, _> = rewound.objects.iter().map(|o| (o.key().name().to_owned(), o.resource_version().0)).collect();
                prop_assert_eq!(rewound, expected);
            }
        }
    }
}

/// A state of `x`, listed at 20, that was proven to be upstream's at 42 for a client that watches from there.
fn proven_at_42() -> CacheWriter {
    let mut writer = writer(100);
    let listed = vec![object("x", "1", 20)];
    let now = Instant::now();
    writer.replace(listed, ResourceVersion(20), now).unwrap();
    let snapshot = writer.cache().snapshot().unwrap();
    assert!(writer.cache().prove(&snapshot, ResourceVersion(42)));
    writer
}

#[test]
fn an_event_that_a_proof_excludes_shows_that_upstream_has_another_history() {
    let (put, delete) = (Change::Put, Change::Delete);
    let y = |version| object("y", "2", version);
    let x = |version| object("x", "1", version);
    let cases = [
        (vec![put(x(30))], 0, true),
        (vec![put(x(42))], 0, true),
        (vec![put(x(43))], 0, false),
        (vec![delete(x(30))], 0, true),
        (vec![put(y(30))], 0, false),
        (vec![put(y(30))], 41, false),
        (vec![put(y(30))], 42, true),
        (vec![put(y(30)), put(x(50))], 0, true),
        (vec![put(y(42))], 0, true),
        (vec![put(y(43))], 50, false),
        // It came and went before the proof.
        (
            vec![put(y(30)), put(y(31)), delete(y(35)), put(x(50))],
            0,
            false,
        ),
    ];
    for (index, (changes, bookmark, expected)) in cases.into_iter().enumerate() {
        let mut writer = proven_at_42();
        let now = Instant::now();
        for change in changes {
            writer.apply([change], now);
        }
        writer.progress(ResourceVersion(bookmark), now);
        assert_eq!(writer.is_contradicted(), expected, "{index}");
    }
}

#[test]
fn a_list_that_a_proof_excludes_shows_that_upstream_has_another_history() {
    let now = Instant::now();
    for (listed, is_other) in [(30, true), (42, true), (43, false), (20, false)] {
        let mut writer = proven_at_42();
        let listed = vec![object("x", "1", listed)];
        let replaced = writer.replace(listed, ResourceVersion(50), now);
        assert_eq!(replaced.is_err(), is_other);
    }
    // An object that came after the proof was taken, and that the proof does not have.
    let mut writer = proven_at_42();
    writer.apply([Change::Put(object("y", "2", 30))], now);
    let listed = vec![object("x", "1", 20), object("y", "2", 30)];
    assert!(writer.replace(listed, ResourceVersion(50), now).is_err());
}

/// Otherwise they would push out those that still matter, and with them history that clients could resume from.
#[test]
fn gaps_below_the_floor_are_forgotten_first() {
    let mut writer = writer(4);
    let now = Instant::now();
    writer.replace(vec![], ResourceVersion(10), now).unwrap();
    for round in 1..=2 * crate::cache::GAPS_MAX as u64 {
        let version = round * 100;
        let listed = vec![object("x", "1", version)];
        writer
            .replace(listed, ResourceVersion(version), now)
            .unwrap();
        for next in version + 1..version + 9 {
            writer.apply([Change::Put(object("x", "1", next))], now);
        }
        let snapshot = writer.cache().snapshot().unwrap();
        assert_eq!(snapshot.forgotten, ResourceVersion(0));
        assert!(snapshot.gaps.len() <= 2, "{:?}", snapshot.gaps);
    }
}
