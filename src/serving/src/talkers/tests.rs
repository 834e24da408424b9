//! The error of the sketch, the windows, and what is counted of a request.

use std::time::Duration;

use proptest::prelude::*;

use super::heavy_hitters::HELD;
use super::*;

const JANE: TalkerName<'static> = TalkerName {
    user: "jane",
    user_agent: "kubectl",
};

proptest! {
    #[test]
    fn a_count_is_too_low_by_the_error_at_most_and_never_too_high(
        // Many rare names, and a few that come again and again.
        adds in prop::collection::vec((prop_oneof![0..400_u32, 0..8_u32], 1..1000_u64), 0..2000),
    ) {
        let mut sketch = HeavyHitters::default();
        let mut exact = std::collections::HashMap::<String, u64>::new();
        for (name, weight) in adds {
            let name = name.to_string();
            sketch.add(&name, weight);
            *exact.entry(name).or_default() += weight;
        }
        let total: u64 = exact.values().sum();
        prop_assert!(sketch.error() <= total / (HELD as u64 + 1));
        prop_assert!(sketch.counts().count() <= 2 * HELD);
        for (name, count) in exact {
            let counted = sketch.count(&name);
            prop_assert!(counted <= count && count - counted <= sketch.error(), "{name}");
        }
    }
}

#[test]
fn names_that_come_once_do_not_hide_the_one_that_comes_often() {
    let mut sketch = HeavyHitters::default();
    for number in 0..10_000 {
        sketch.add(&format!("stranger-{number}"), 1);
        if number % 10 == 0 {
            sketch.add("jane", 1);
        }
    }
    let top = sketch.counts().max_by_key(|(_, count)| *count);
    assert_eq!(top.unwrap().0, "jane");
    assert!(sketch.count("jane") >= 1_000 - 11_000 / 65);
}

#[track_caller]
fn check_requests(windows: &mut TalkWindows, now: Instant, expected: u64, covered: u64) {
    let top = windows.top(&HeavyHitters::default(), now);
    let requests: u64 = top.iter().map(|talker| talker.counts.requests).sum();
    assert_eq!(
        (requests, windows.covered(now).as_secs()),
        (expected, covered)
    );
}

#[test]
fn what_was_counted_is_shown_for_ten_to_twenty_minutes() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let one = TalkCounts {
        requests: 1,
        ..TalkCounts::default()
    };
    let mut windows = TalkWindows::default();
    windows.add("jane", one, at(0));
    check_requests(&mut windows, at(599), 1, 599);
    windows.add("jane", one, at(700));
    check_requests(&mut windows, at(1_199), 2, 1_199);
    check_requests(&mut windows, at(1_200), 1, 600);
    check_requests(&mut windows, at(1_800), 0, 600);
    // Nothing was counted for long; what comes now begins a window.
    windows.add("jane", one, at(9_000));
    check_requests(&mut windows, at(9_001), 1, 1);
}

fn talker(talkers: &Talkers, name: &str) -> Option<(u64, TalkCounts)> {
    let top = talkers.top(OpenWatches::default());
    let all = top.users.into_iter().chain(top.agents);
    let mut found = all.filter(|talker| talker.name == name);
    found.next().map(|talker| (talker.watches, talker.counts))
}

#[test]
fn a_request_counts_for_its_user_and_its_agent_with_all_that_was_sent() {
    let talkers = Arc::<Talkers>::default();
    let mut talk = talkers.begin(JANE, TalkKind::List);
    talk.sent(300);
    talk.sent(200);
    drop(talk);
    let counts = TalkCounts {
        requests: 1,
        lists: 1,
        bytes: 500,
    };
    for name in ["jane", "kubectl"] {
        assert_eq!(talker(&talkers, name), Some((0, counts)));
    }
}

#[test]
fn a_watch_is_open_until_it_ends_and_its_bytes_count_before() {
    let talkers = Arc::<Talkers>::default();
    let mut watch = talkers.begin(JANE, TalkKind::OpenWatch);
    let other = talkers.begin(JANE, TalkKind::OpenWatch);
    watch.sent(1 << 20);
    let (open, counts) = talker(&talkers, "jane").unwrap();
    assert_eq!((open, counts.bytes), (2, 1 << 20));
    drop((watch, other));
    assert_eq!(talker(&talkers, "jane").unwrap().0, 0);
    assert!(talkers.users.lock().open.is_empty());
}

#[test]
fn watches_that_are_counted_together_are_added_to_those_counted_one_by_one() {
    let talkers = Arc::<Talkers>::default();
    let _watch = talkers.begin(JANE, TalkKind::OpenWatch);
    let mut open = OpenWatches::default();
    open.add(JANE);
    let top = talkers.top(open);
    assert_eq!(top.users[0].watches, 2);
}

#[test]
fn so_many_names_are_shown_however_many_there_are() {
    let talkers = Arc::<Talkers>::default();
    for number in 0..5_000 {
        let name = number.to_string();
        let name = TalkerName {
            user: &name,
            user_agent: &name,
        };
        let mut talk = talkers.begin(name, TalkKind::List);
        talk.sent(number);
    }
    let top = talkers.top(OpenWatches::default());
    assert!(top.users.len() <= 32 && top.agents.len() <= 32);
}
