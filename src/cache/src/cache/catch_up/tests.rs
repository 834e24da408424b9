//! Which versions can catch up, and with which deletions.

use super::*;
use crate::cache::samples::{Recorder, Sample, World, keep, kind};
use crate::cache::{CacheWriter, ObjectMap};
use crate::cache::{Change, PastEvent, PriorState};
use crate::resource::Layout;
use std::time::Instant;

/// Enough for every deletion of a test.
const AMPLE: usize = 1 << 20;

fn world(bytes_max: usize) -> World {
    World::keeping_deletions(3, 8, bytes_max, Arc::new(Recorder::default()))
}

fn can_catch_up(world: &World, version: u64) -> bool {
    let version = ResourceVersion(version);
    world.writer.cache().catch_up(version).is_some()
}

/// The deletions that a client at `version` gets, as `key version`.
fn deletions(world: &World, version: u64) -> Vec<String> {
    let catch_up = world.writer.cache().catch_up(ResourceVersion(version));
    let (mut catch_up, mut seen) = (catch_up.unwrap(), Vec::new());
    // In steps of one.
    while catch_up
        .read_deletions(1, |object| {
            seen.push(format!("{} {}", object.key(), object.resource_version()));
        })
        .unwrap()
    {}
    seen
}

fn delete(world: &mut World, key: &str) -> String {
    let change = world.delete(key).unwrap();
    world.apply(vec![change]);
    format!("{key} {}", world.version)
}

fn put(world: &mut World, key: &str) {
    let change = world.write(key, None);
    world.apply(vec![change]);
}

#[test]
fn without_tombstones_no_client_catches_up() {
    let mut world = World::new(3, 8, Arc::new(Recorder::default()));
    put(&mut world, "a/x");
    assert!(!can_catch_up(&world, 10));
    assert!(!world.writer.cache().keeps_tombstones());
    assert_eq!(world.writer.tombstones_size(), (0, 0));
}

#[test]
fn deletions_are_known_since_the_first_list_though_the_history_is_not() {
    let mut world = world(AMPLE);
    let mut gone = Vec::new();
    for number in 0..50 {
        let key = format!("a/{number}");
        put(&mut world, &key);
        gone.push(delete(&mut world, &key));
    }
    let cache = world.writer.cache();
    assert!(cache.resume_after(ResourceVersion(10)).is_err());
    assert!(!can_catch_up(&world, 9), "before the first list");
    assert_eq!(deletions(&world, 10), gone);
    let middle: u64 = gone[20].split_once(' ').unwrap().1.parse().unwrap();
    assert_eq!(deletions(&world, middle), gone[21..]);
    assert_eq!(deletions(&world, world.version), [""; 0]);
    assert!(
        !can_catch_up(&world, world.version + 1),
        "ahead of the cache"
    );
}

#[test]
fn a_catch_up_ends_at_its_snapshot() {
    let mut world = world(AMPLE);
    put(&mut world, "a/x");
    let first = delete(&mut world, "a/x");
    let mut catch_up = world.writer.cache().catch_up(ResourceVersion(10)).unwrap();
    put(&mut world, "a/y");
    delete(&mut world, "a/y");
    let mut seen = Vec::new();
    let read = catch_up.read_deletions(9, |object| seen.push(object.key().to_string()));
    assert_eq!(read, Ok(false));
    assert!(first.starts_with(&seen.concat()) && seen.len() == 1);
}

#[test]
fn deletions_beyond_their_bound_are_evicted_and_then_old_clients_must_list() {
    let bytes_max = 64 << 10;
    let mut world = world(bytes_max);
    world.data_len = 500;
    let mut versions = vec![10];
    for number in 0..1000 {
        let key = format!("a/{number}");
        put(&mut world, &key);
        delete(&mut world, &key);
        versions.push(world.version);
        let (_, bytes) = world.writer.tombstones_size();
        assert!(bytes <= bytes_max, "{bytes}");
    }
    let (count, _) = world.writer.tombstones_size();
    assert!(count > 20 && count < 1000, "{count}");
    let reached: Vec<bool> = versions
        .iter()
        .map(|version| can_catch_up(&world, *version))
        .collect();
    assert!(!reached[0] && reached[1000]);
    let first = reached.iter().position(|reaches| *reaches).unwrap();
    assert!(reached[first..].iter().all(|reaches| *reaches));
    // All deletions after the oldest kept one are known for certain.
    assert_eq!(first, 1001 - count);
    for (at, version) in versions.iter().enumerate().take(1000).skip(first) {
        assert_eq!(deletions(&world, *version).len(), 1000 - at);
    }
}

#[test]
fn a_catch_up_that_loses_its_deletions_fails() {
    let mut world = world(64 << 10);
    world.data_len = 500;
    put(&mut world, "a/x");
    delete(&mut world, "a/x");
    let mut catch_up = world.writer.cache().catch_up(ResourceVersion(10)).unwrap();
    for _ in 0..1000 {
        put(&mut world, "a/x");
        delete(&mut world, "a/x");
    }
    assert!(catch_up.read_deletions(9, |_| {}).is_err());
}

#[test]
fn versions_in_a_gap_before_a_compaction_and_of_a_lost_history_are_refused() {
    let mut world = world(AMPLE);
    put(&mut world, "a/x");
    put(&mut world, "a/y");
    let from = world.version;
    // The cache sees neither the deletion nor that it happened late in the gap.
    world.version += 10;
    world.delete("a/x").unwrap();
    let to = world.version + 5;
    let left: Vec<_> = world.state.values().map(Sample::object).collect();
    world
        .writer
        .replace(left, ResourceVersion(to), world.now)
        .unwrap();
    world.version = to;
    assert_eq!(deletions(&world, from), [format!("a/x {}", from + 1)]);
    assert!((from + 1..to).all(|version| !can_catch_up(&world, version)));
    assert!(can_catch_up(&world, to));
    world.writer.forget(ResourceVersion(from));
    assert!(!can_catch_up(&world, from - 1) && can_catch_up(&world, from));

    let recorder = Arc::new(Recorder::default());
    let lost = ResourceVersion(100);
    let writer = CacheWriter::after_loss(kind(Layout::Typed), keep(8), recorder, lost);
    let mut writer = writer.keeping_deletions(AMPLE);
    let now = Instant::now();
    writer
        .replace(Vec::new(), ResourceVersion(50), now)
        .unwrap();
    writer.progress(ResourceVersion(200), now);
    let catches_up = |version| writer.cache().catch_up(ResourceVersion(version)).is_some();
    assert!(!catches_up(50) && !catches_up(100) && catches_up(101));
}

/// A checkpoint has no tombstones of its own, only the events of its journal.
#[test]
fn deletions_of_a_restored_history_are_known_since_its_base() {
    let recorder = Arc::new(Recorder::default());
    let writer = CacheWriter::new(kind(Layout::Typed), keep(8), recorder);
    let mut writer = writer.keeping_deletions(AMPLE);
    let now = Instant::now();
    let base = ["a/x", "a/y"].map(|key| Sample::new(key, 20).object());
    let past = |key, version| PastEvent {
        change: Change::Delete(Sample::new(key, version).object()),
        arrived_at: now,
    };
    writer.publish_restored(PriorState {
        base: ObjectMap::from_objects(base.into()),
        base_version: ResourceVersion(30),
        forgotten: ResourceVersion(0),
        proven: ResourceVersion(0),
        lost: ResourceVersion(0),
        gaps: Vec::new(),
        events: vec![past("a/x", 31), past("a/y", 35)],
        version: ResourceVersion(40),
    });
    let cache = writer.cache();
    assert!(cache.catch_up(ResourceVersion(29)).is_none());
    let mut catch_up = cache.catch_up(ResourceVersion(31)).unwrap();
    let mut seen = Vec::new();
    let read = catch_up.read_deletions(9, |object| seen.push(object.key().to_string()));
    assert_eq!((read, &*seen), (Ok(false), &["a/y".to_owned()][..]));
}
