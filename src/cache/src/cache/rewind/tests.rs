//! Which older states are available, and how far back a state can be reached.

use std::time::Instant;

use super::*;
use crate::cache::samples::{Recorder, Sample, World};
use crate::cache::{CacheWriter, Change};

/// A cache that is empty at version 10 and has one object more at each version after that.
fn written_to(version: u64, events_max: usize) -> CacheWriter {
    let mut writer = World::new(1, events_max, Arc::new(Recorder::default())).writer;
    write(&mut writer, 11, version);
    writer
}

fn write(writer: &mut CacheWriter, from: u64, to: u64) {
    writer.apply(
        (from..=to)
            .map(|version| Sample::new(&format!("a/{version:06}"), version).object())
            .map(Change::Put),
        Instant::now(),
    );
}

/// The state at this version, rewound from the nearest newer one.
fn state(writer: &CacheWriter, version: u64) -> Arc<Snapshot> {
    let rewind = writer.cache().rewind(ResourceVersion(version)).unwrap();
    Arc::new(rewind.finish())
}

fn is_at_hand(writer: &CacheWriter, version: u64) -> bool {
    let found = writer.cache().state_at(ResourceVersion(version));
    assert!(
        found
            .iter()
            .all(|state| state.resource_version.0 == version)
    );
    found.is_some()
}

#[test]
fn kept_states_are_evicted_least_recently_used_first() {
    let writer = written_to(40, 100);
    assert!(is_at_hand(&writer, 40), "the newest state is available");
    let kept = 20..20 + KEPT_MAX as u64;
    for version in kept.clone() {
        assert!(!is_at_hand(&writer, version));
        writer.cache().keep(&state(&writer, version));
        assert!(is_at_hand(&writer, version));
    }
    assert!(!is_at_hand(&writer, 19) && !is_at_hand(&writer, 41));
    // Keeping a state again evicts no other one.
    writer.cache().keep(&state(&writer, 27));
    assert!(kept.clone().all(|version| is_at_hand(&writer, version)));
    // State 20 is used again, so state 21 is now the least recently used one.
    assert!(is_at_hand(&writer, 20));
    writer.cache().keep(&state(&writer, 35));
    let left: Vec<_> = kept
        .filter(|version| is_at_hand(&writer, *version))
        .collect();
    assert_eq!(left, [20, 22, 23, 24, 25, 26, 27]);
}

#[test]
fn an_older_state_is_reached_from_the_nearest_one_kept() {
    let writer = written_to(40, 100);
    let undone = |version| {
        let rewind = writer.cache().rewind(ResourceVersion(version)).unwrap();
        rewind.events.len()
    };
    assert_eq!([undone(12), undone(40)], [28, 0]);
    for version in [30, 20, 25] {
        writer.cache().keep(&state(&writer, version));
    }
    assert_eq!(
        [12, 19, 20, 21, 26, 30, 31].map(undone),
        [8, 1, 0, 4, 4, 0, 9]
    );
    let state = state(&writer, 12);
    assert_eq!((state.resource_version.0, state.sequence), (12, 2));
    assert_eq!(state.objects.len(), 2);
}

#[test]
fn kept_states_go_with_the_history_that_reaches_them() {
    let mut writer = written_to(20, 8);
    for version in [15, 17] {
        writer.cache().keep(&state(&writer, version));
    }
    let floor = |writer: &CacheWriter| {
        let cache = writer.cache();
        floor(&cache.snapshot().unwrap(), cache.history()).0
    };
    let mut version = 20;
    while floor(&writer) <= 15 {
        assert!(is_at_hand(&writer, 15));
        version += 1;
        write(&mut writer, version, version);
    }
    assert!(!is_at_hand(&writer, 15));
    assert_eq!(is_at_hand(&writer, 17), floor(&writer) <= 17);
    write(&mut writer, version + 1, 40);
    assert!(!is_at_hand(&writer, 17));
    writer.expire(Instant::now());
    assert_eq!(
        writer.cache().past_states.states().len(),
        0,
        "no state is kept"
    );
}

#[test]
fn a_rewind_undoes_a_bounded_number_of_events() {
    let most = UNDONE_MAX as u64;
    let writer = written_to(10 + most + 1, usize::MAX);
    let rewind = |version| writer.cache().rewind(ResourceVersion(version));
    assert_eq!(rewind(11).unwrap().finish().objects.len(), 1);
    assert_eq!(rewind(10).unwrap_err(), RewindError::TooFar);
    assert_eq!(rewind(9).unwrap_err(), RewindError::Evicted);
    assert_eq!(rewind(10 + most + 2).unwrap_err(), RewindError::Future);
}
