//! Tests of two streams of events.

use super::*;

/// An event of the object `a` with this version.
fn event(version: u64) -> ComparedObject {
    ComparedObject {
        key: "a".into(),
        version: ResourceVersion(version),
        digest: version,
    }
}

/// What is found once both sides have sent these versions, in order: `u1` is upstream's, `m1` memory's, `u1'` one of another object, `ub1` a
/// bookmark of upstream.
#[track_caller]
fn check(sent: &str, expected: &str) {
    let mut comparison = SequenceComparison::after(ResourceVersion(0));
    let now = Instant::now();
    let mut found = Vec::new();
    for word in sent.split_whitespace() {
        let (side, rest) = match word.split_at(1) {
            ("u", rest) => (ComparedSide::Upstream, rest),
            (_, rest) => (ComparedSide::Memory, rest),
        };
        match rest.strip_prefix('b') {
            Some(version) => comparison.mark(side, ResourceVersion(version.parse().unwrap())),
            None => {
                let version = rest.trim_end_matches('\'');
                let key = if version == rest { "a" } else { "b" };
                let object = ComparedObject {
                    key: key.into(),
                    ..event(version.parse().unwrap())
                };
                comparison.push(side, EventKind::Modified, object, now);
            }
        }
        while let Some(compared) = comparison.next() {
            found.push(word_of(&compared));
        }
    }
    assert_eq!(found.join(" "), expected, "{sent}");
}

fn word_of(compared: &Result<(), Difference>) -> String {
    match compared {
        Ok(()) => "equal".to_owned(),
        Err(difference) => {
            let version = difference.upstream.or(difference.memory).unwrap().0;
            format!("{:?}{version}", difference.outcome).to_lowercase()
        }
    }
}

#[test]
fn each_event_is_compared_once_whichever_side_is_first() {
    check("u1 m1 u2 m2", "equal equal");
    check("m1 m2 u1 u2", "equal equal");
    check("u1 u2 u3 m1", "equal");
    check("", "");
}

#[test]
fn what_the_other_side_has_passed_is_only_on_one_side() {
    check("u1 u2 m2", "missing1 equal");
    check("m1 m2 u2", "extra1 equal");
    check("u1 mb1", "missing1");
    check("m1 ub1", "extra1");
    check("u1 m1 u1", "equal missing1");
    check("u2 u1 m1 m2", "extra1 equal missing1");
    // Nobody knows yet.
    check("u2 mb1 ", "");
}

#[test]
fn events_differ_by_type_and_bytes() {
    let now = Instant::now();
    for (kind, digest) in [(EventKind::Added, 7), (EventKind::Modified, 8)] {
        let mut comparison = SequenceComparison::after(ResourceVersion(0));
        comparison.push(ComparedSide::Upstream, EventKind::Modified, event(7), now);
        let other = ComparedObject { digest, ..event(7) };
        comparison.push(ComparedSide::Memory, kind, other, now);
        let found = comparison.next().unwrap();
        assert_eq!(word_of(&found), "content7");
    }
}

#[test]
fn events_before_the_start_are_not_compared() {
    let mut comparison = SequenceComparison::after(ResourceVersion(5));
    let now = Instant::now();
    for version in [3, 5] {
        comparison.push(
            ComparedSide::Upstream,
            EventKind::Added,
            event(version),
            now,
        );
    }
    assert!(!comparison.waits_for_memory());
}

#[test]
fn a_silent_upstream_is_not_waited_for_and_nothing_is_extra() {
    let mut comparison = SequenceComparison::after(ResourceVersion(0));
    let now = Instant::now();
    comparison.push(ComparedSide::Memory, EventKind::Added, event(7), now);
    assert!(!comparison.is_hopeless(Some(now), now + SILENCE / 2));
    // A client that does not read, or gets bookmarks, may still get it.
    assert!(!comparison.is_hopeless(None, now + SILENCE));
    // Upstream is behind, but sends events.
    let lately = Some(now + SILENCE / 2);
    assert!(!comparison.is_hopeless(lately, now + SILENCE));
    assert!(comparison.is_hopeless(Some(now), now + SILENCE));
    assert_eq!(comparison.next(), None);
}

#[test]
fn an_event_of_memory_behind_what_it_has_sent_is_extra() {
    check("m2 m1", "extra1");
    check("m2 mb2 m2 u2", "extra2 equal");
    check("mb3 m3", "extra3");
    check("m0", "extra0");
    check("m1 u1 m1", "equal extra1");
}

#[test]
fn a_transaction_has_several_events_of_one_version() {
    check("m1 m1' u1 u1'", "equal equal");
    check("u1 m1 u1' m1'", "equal equal");
    check("m1 m1' u1 u2", "equal extra1");
    check("u1 u1' m1 mb1", "equal missing1");
}

#[test]
fn a_side_that_is_far_behind_is_given_up() {
    let mut comparison = SequenceComparison::after(ResourceVersion(0));
    let now = Instant::now();
    comparison.push(ComparedSide::Upstream, EventKind::Added, event(7), now);
    assert!(!comparison.is_hopeless(None, now + BEHIND_MAX));
    assert!(comparison.is_hopeless(None, now + 2 * BEHIND_MAX));
    for version in 8..8 + WAITING_MAX as u64 {
        comparison.push(
            ComparedSide::Upstream,
            EventKind::Added,
            event(version),
            now,
        );
    }
    assert!(comparison.is_hopeless(None, now));
}
