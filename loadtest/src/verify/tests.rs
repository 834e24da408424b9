//! Planted faults are found and named; correct streams pass.

use super::*;
use reference::ReferenceEvent;

const START: u64 = 100;

fn reference() -> Reference {
    let mut reference = Reference::default();
    for i in 1..=500u64 {
        // Uneven steps, some of more than one byte.
        let version = START + i * 3 + if i > 250 { 1_000 } else { 0 };
        assert!(reference.push(ReferenceEvent {
            version,
            kind: EventKind::Modified,
            body_hash: version * 7,
            object: 0,
        }));
    }
    reference
}

fn versions(reference: &Reference) -> Vec<u64> {
    reference
        .after(START, u64::MAX)
        .iter()
        .map(|entry| entry.version)
        .collect()
}

fn verdict_of(versions: &[u64]) -> Option<Fault> {
    let reference = reference();
    let mut track = Track::begin(START);
    for version in versions {
        track.event(EventKind::Modified, *version);
    }
    track.verdict(&reference, reference.last())
}

#[test]
fn the_whole_sequence_passes() {
    assert_eq!(verdict_of(&versions(&reference())), None);
}

#[test]
fn every_single_loss_is_named() {
    let all = versions(&reference());
    for gone in 0..all.len() {
        let mut some = all.clone();
        let version = some.remove(gone);
        let after = if gone == 0 { START } else { all[gone - 1] };
        let expected = if gone + 1 == all.len() {
            Fault::Behind
        } else {
            Fault::Lost { version, after }
        };
        assert_eq!(verdict_of(&some), Some(expected));
    }
}

#[test]
fn every_doubling_is_named() {
    let all = versions(&reference());
    for twice in 0..all.len() {
        for later in [twice, all.len() - 1] {
            let mut more = all.clone();
            more.insert(later + 1, all[twice]);
            assert_eq!(
                verdict_of(&more),
                Some(Fault::Doubled {
                    version: all[twice],
                    after: all[later]
                })
            );
        }
    }
}

#[test]
fn every_swap_is_named() {
    let all = versions(&reference());
    for i in 1..all.len() {
        let mut swapped = all.clone();
        swapped.swap(i - 1, i);
        assert_eq!(
            verdict_of(&swapped),
            Some(Fault::OutOfOrder {
                version: all[i - 1],
                after: all[i]
            })
        );
    }
}

#[test]
fn versions_that_never_were_are_named() {
    let mut more = versions(&reference());
    more.insert(10, more[9] + 1);
    assert_eq!(
        verdict_of(&more),
        Some(Fault::Foreign { version: more[10] })
    );
}

#[test]
fn event_types_and_sampled_bodies_count() {
    let reference = reference();
    let mut track = Track::begin(START);
    for (i, version) in versions(&reference).into_iter().enumerate() {
        track.event(
            if i == 7 {
                EventKind::Added
            } else {
                EventKind::Modified
            },
            version,
        );
    }
    assert_eq!(
        track.verdict(&reference, reference.last()),
        Some(Fault::KindsDiffer)
    );

    let mut track = Track::begin(START);
    for version in versions(&reference) {
        track.event(EventKind::Modified, version);
        track.body_hash(
            version,
            if version == START + 30 {
                1
            } else {
                version * 7
            },
        );
    }
    assert_eq!(
        track.verdict(&reference, reference.last()),
        Some(Fault::BodyDiffers {
            version: START + 30
        })
    );
}

#[test]
fn bookmarks_may_not_run_ahead_nor_fall_behind() {
    let reference = reference();
    let all = versions(&reference);
    let mut honest = Track::begin(START);
    let mut ahead = Track::begin(START);
    let mut behind = Track::begin(START);
    for version in &all {
        honest.event(EventKind::Modified, *version);
        honest.event(EventKind::Bookmark, *version);
        ahead.event(EventKind::Bookmark, *version);
        ahead.event(EventKind::Modified, *version);
        behind.event(EventKind::Modified, *version);
        behind.event(EventKind::Bookmark, *version - 1);
    }
    assert_eq!(honest.verdict(&reference, reference.last()), None);
    assert_eq!(honest.resume_version(), reference.last());
    assert_eq!(
        ahead.verdict(&reference, reference.last()),
        Some(Fault::BookmarkAhead {
            version: all[0],
            bookmark: all[0]
        })
    );
    assert_eq!(
        behind.verdict(&reference, reference.last()),
        Some(Fault::BookmarkBehind {
            bookmark: all[0] - 1,
            after: all[0]
        })
    );
}

#[test]
fn a_relist_may_skip_history_but_not_what_follows_it() {
    let reference = reference();
    let all = versions(&reference);
    for (skip, fault) in [
        (0, None),
        (
            1,
            Some(Fault::Lost {
                version: all[300],
                after: all[299],
            }),
        ),
    ] {
        let mut track = Track::begin(START);
        all[..100]
            .iter()
            .for_each(|version| track.event(EventKind::Modified, *version));
        track.relist(all[299]);
        all[300 + skip..]
            .iter()
            .for_each(|version| track.event(EventKind::Modified, *version));
        assert_eq!(track.verdict(&reference, reference.last()), fault);
        assert_eq!(track.count(), 300 - skip as u64);
    }
}

#[test]
fn a_stream_that_stops_early_is_behind_what_is_due() {
    let reference = reference();
    let all = versions(&reference);
    let mut track = Track::begin(START);
    all[..100]
        .iter()
        .for_each(|version| track.event(EventKind::Modified, *version));
    assert_eq!(track.verdict(&reference, all[99]), None);
    assert_eq!(track.verdict(&reference, all[100]), Some(Fault::Behind));
}

#[test]
fn steps_give_back_the_versions() {
    let mut steps = Steps::default();
    let wanted = [1, 2, 129, 130, 20_000, u64::MAX / 2];
    let mut last = 0;
    for version in wanted {
        steps.push(version - last);
        last = version;
    }
    assert_eq!(steps.versions(0).collect::<Vec<_>>(), wanted);
}

#[test]
fn the_state_at_a_version_follows_from_the_events() {
    let state = |objects: &[(&str, u64)]| -> reference::ObjectVersions {
        objects
            .iter()
            .map(|(name, version)| ((*name).to_owned(), *version))
            .collect()
    };
    let mut reference = Reference::begin(state(&[("a", 1), ("b", 2)]));
    for (version, kind, name) in [
        (5, EventKind::Modified, "a"),
        (6, EventKind::Deleted, "b"),
        (7, EventKind::Added, "c"),
        (8, EventKind::Added, "b"),
    ] {
        let object = reference.object(name);
        assert!(reference.push(ReferenceEvent {
            version,
            kind,
            body_hash: 0,
            object
        }));
    }
    assert_eq!(reference.state_at(4), state(&[("a", 1), ("b", 2)]));
    assert_eq!(reference.state_at(6), state(&[("a", 5)]));
    assert_eq!(
        reference.state_at(8),
        state(&[("a", 5), ("b", 8), ("c", 7)])
    );
    assert_eq!(reference.first_missing(&[3, 5, 9], 4), Some(9));
}
