//! What is held of older states is counted, once, and no longer than it is held.

use std::time::Instant;

use super::*;
use crate::cache::samples::{Recorder, Sample, keep, kind};
use crate::cache::{CacheWriter, Change};
use crate::resource::{Layout, Object, ResourceVersion};

const OBJECTS: u64 = 2_000;

/// A cache of objects of the same length.
struct Written {
    writer: CacheWriter,
    version: u64,
}

fn object(number: u64, version: u64) -> Object {
    let mut sample = Sample::new(&format!("a/{number:04}"), version);
    sample.data_len = 1_000;
    sample.object()
}

impl Written {
    fn new(events_max: usize) -> Self {
        let kind = kind(Layout::Typed);
        let writer = CacheWriter::new(kind, keep(events_max), Arc::<Recorder>::default());
        Self::over(writer)
    }

    fn over(mut writer: CacheWriter) -> Self {
        let objects = (0..OBJECTS).map(|number| object(number, number + 1));
        let version = ResourceVersion(OBJECTS);
        writer
            .replace(objects.collect(), version, Instant::now())
            .unwrap();
        Self {
            writer,
            version: OBJECTS,
        }
    }

    fn change(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.version += 1;
            let change = Change::Put(object(number, self.version));
            self.writer.apply([change], Instant::now());
        }
    }

    fn delete(&mut self, number: u64) {
        self.version += 1;
        let change = Change::Delete(object(number, self.version));
        self.writer.apply([change], Instant::now());
    }

    fn newest(&self) -> Arc<Snapshot> {
        self.writer.cache().snapshot().unwrap()
    }

    /// What is held, in hundredths of what all objects take.
    fn held(&self) -> usize {
        let all = self.newest().objects.memory().total();
        self.writer.cache().tracker().memory() * 100 / all
    }
}

#[test]
fn an_older_state_is_counted_beyond_the_newest_and_the_history() {
    let mut written = Written::new(8);
    assert_eq!(written.held(), 0);
    let first = written.newest();
    written.change(0..OBJECTS);
    assert!((95..=105).contains(&written.held()), "{}", written.held());
    drop(first);
    assert_eq!(written.held(), 0);
    // What the history has is counted there.
    let mut written = Written::new(10_000);
    let _first = written.newest();
    written.change(0..OBJECTS);
    assert!(written.held() <= 2, "{}", written.held());
}

#[test]
fn few_changes_leave_most_objects_to_the_newest_state() {
    // Far apart, and one object again and again.
    let apart = (0..OBJECTS).step_by(100).collect::<Vec<_>>();
    for numbers in [apart, vec![7; 1_000]] {
        let mut written = Written::new(8);
        let _first = written.newest();
        written.change(numbers);
        assert!((0..=12).contains(&written.held()), "{}", written.held());
    }
}

#[test]
fn few_objects_that_change_again_and_again_are_counted_once() {
    let mut written = Written::new(8);
    let _first = written.newest();
    // One in each chunk, so that no chunk is shared.
    for _ in 0..100 {
        written.change((0..OBJECTS).step_by(50));
    }
    assert!((1..=8).contains(&written.held()), "{}", written.held());
}

#[test]
fn a_rewound_state_is_counted_beyond_the_history_as_long_as_it_is_held() {
    let events_max = usize::try_from(OBJECTS).unwrap();
    let mut written = Written::new(events_max);
    let first = written.newest().resource_version;
    written.change(0..OBJECTS - 100);
    let rewound = Arc::new(written.writer.cache().rewind(first).unwrap().finish());
    written.writer.cache().keep(&rewound);
    assert!(written.held() <= 5, "{}", written.held());
    // From now on only the rewound state has the objects of the first one.
    written.change(0..OBJECTS);
    written.change(0..100);
    assert!((90..=105).contains(&written.held()), "{}", written.held());
    drop(rewound);
    written.writer.expire(Instant::now());
    assert_eq!(written.held(), 0);
}

#[test]
fn memory_shared_by_states_is_counted_once() {
    let mut written = Written::new(8);
    let first = written.newest();
    written.change(0..OBJECTS / 2);
    let second = written.newest();
    written.change(0..OBJECTS);
    let many: Vec<_> = (0..200).map(|_| (first.clone(), second.clone())).collect();
    assert!((145..=155).contains(&written.held()), "{}", written.held());
    drop((first, many));
    assert!((95..=105).contains(&written.held()), "{}", written.held());
    drop(second);
    assert_eq!(written.held(), 0);
}

#[test]
fn more_states_than_are_compared_are_counted_about_right() {
    let mut written = Written::new(8);
    let mut states = Vec::new();
    for number in 0..OBJECTS {
        states.push(written.newest());
        written.change([number]);
    }
    assert!((90..=115).contains(&written.held()), "{}", written.held());
}

#[test]
fn states_outlive_their_cache() {
    let mut written = Written::new(8);
    written.change([1, 2, 3]);
    let tracker = Arc::clone(written.writer.cache().tracker());
    let state = written.newest();
    let len = state.objects.memory().total();
    assert!(!tracker.is_empty());
    drop(written);
    assert_eq!(tracker.memory(), len);
    assert!(!tracker.is_empty());
    drop(state);
    assert_eq!(tracker.memory(), 0);
    assert!(tracker.is_empty());
}

#[test]
fn a_cache_that_has_ended_is_counted_with_its_history_as_long_as_it_is_read() {
    let kind = kind(Layout::Typed);
    let writer = CacheWriter::new(kind, keep(100), Arc::<Recorder>::default());
    let mut written = Written::over(writer.keeping_deletions(1 << 20));
    written.change(0..OBJECTS);
    (0..10).for_each(|number| written.delete(number));
    let objects = written.newest().objects.memory().total();
    let (_, history) = written.writer.history_size();
    let (_, deletions) = written.writer.tombstones_size();
    assert!(history > 0 && deletions > 0);
    // As a watch does.
    let cache = Arc::clone(written.writer.cache());
    let tracker = Arc::clone(cache.tracker());
    assert_eq!(tracker.memory(), 0);
    drop(written);
    assert_eq!(tracker.memory(), objects + history + deletions);
    assert!(!tracker.is_empty());
    drop(cache);
    assert_eq!(tracker.memory(), 0);
    assert!(tracker.is_empty());
}

#[test]
fn dropped_states_are_forgotten() {
    let mut written = Written::new(8);
    written.change((0..1_000).map(|number| number % 10));
    let tracker = written.writer.cache().tracker();
    assert!(tracker.published.lock().states.len() <= FORGET_LEN);
}
