//! The numbers, and the bounds of the document, whatever clients there are.

use super::*;
use crate::status::{ResourceStatus, StatusDocument, TalkerStatus, TalkersStatus};

/// Drops an event for each new one.
const FULL: HistoryLimits = HistoryLimits { fill: 1.0 };

fn lag(position: f64, seconds: f64) -> WatchLag {
    WatchLag {
        position,
        seconds,
        is_lost: false,
        is_initial: false,
    }
}

fn client(lag_seconds: f64) -> ClientStatus {
    ClientStatus {
        resource: "pods.v1".to_owned(),
        user: "u".repeat(160),
        user_agent: "a".repeat(160),
        address: "10.0.0.1".to_owned(),
        lag_events: 7,
        lag_seconds,
        state: LagState::Slow,
        position: 0.5,
        open_seconds: 1.0,
    }
}

#[test]
fn watches_in_their_initial_events_are_behind_and_counted_apart() {
    let mut cursors = CursorSummary::default();
    for seconds in [1.0, 6.0] {
        let lag = WatchLag {
            is_initial: true,
            ..lag(1.0, seconds)
        };
        cursors.add_behind(FULL, lag);
    }
    let CursorSummary {
        current,
        behind,
        slow,
        initial,
        ..
    } = cursors;
    assert_eq!((current, behind, slow, initial), (0, 1, 1, 2));
}

#[test]
fn watches_are_counted_where_they_are() {
    let mut cursors = CursorSummary::default();
    (0..3).for_each(|_| cursors.add_current());
    for (position, seconds, expected) in [
        (0.999, 0.1, LagState::Behind),
        (0.5, 6.0, LagState::Slow),
        (0.0, 60.0, LagState::Endangered),
        // Beyond the edges is at the edges.
        (-1.0, 0.0, LagState::Behind),
        (2.0, 0.0, LagState::Behind),
    ] {
        assert_eq!(cursors.add_behind(FULL, lag(position, seconds)), expected);
    }
    let counts = (
        cursors.watches,
        cursors.current,
        cursors.behind,
        cursors.slow,
    );
    assert_eq!(counts, (8, 3, 3, 2));
    assert_eq!(cursors.endangered, 1);
    let column = |at: usize| cursors.columns[at];
    assert_eq!((column(0), column(32), column(63)), (2, 1, 5));
}

#[test]
fn nobody_is_in_danger_before_the_history_drops_events() {
    let roomy = HistoryLimits { fill: 0.1 };
    let mut cursors = CursorSummary::default();
    cursors.add_behind(roomy, lag(0.0, 60.0));
    assert_eq!((cursors.slow, cursors.endangered), (1, 0));
}

#[test]
fn a_watch_out_of_the_history_is_slow_and_at_no_place_of_it() {
    let lost = WatchLag {
        is_lost: true,
        ..lag(0.0, 1.0)
    };
    let mut cursors = CursorSummary::default();
    assert_eq!(cursors.add_behind(FULL, lost), LagState::Lost);
    let counts = (
        cursors.watches,
        cursors.slow,
        cursors.lost,
        cursors.endangered,
    );
    assert_eq!(counts, (1, 1, 1, 0));
    assert_eq!(cursors.columns.iter().sum::<u32>(), 0);
}

#[test]
fn a_watch_of_a_future_version_has_everything() {
    let mut cursors = CursorSummary::default();
    cursors.add_future();
    let counts = (
        cursors.watches,
        cursors.current,
        cursors.future,
        cursors.slow,
    );
    assert_eq!(counts, (1, 1, 1, 0));
}

#[test]
fn positions_are_relative_to_the_history() {
    let history = HistoryRange {
        oldest: 100,
        head: 200,
    };
    assert_eq!(history.locate(100), (100, 0.0));
    assert_eq!(history.locate(150), (50, 0.5));
    assert_eq!(history.locate(200), (0, 1.0));
    // Already dropped, or not published yet.
    assert_eq!(history.locate(3), (197, 0.0));
    assert_eq!(history.locate(300), (0, 1.0));
    let empty = HistoryRange { oldest: 5, head: 5 };
    assert_eq!(empty.locate(5), (0, 1.0));
}

#[test]
fn the_slowest_are_named_first_and_no_resource_crowds_the_others_out() {
    let mut names = NamedCursors::default();
    for resource in 0..2 {
        names.begin_resource();
        for lag in 0..5_000_u32 {
            let lag = f64::from(lag) + if resource == 0 { 10_000.0 } else { 0.0 };
            names.add(lag, || client(lag));
        }
    }
    let (clients, _) = names.finish();
    let lags: Vec<_> = clients.iter().map(|one| one.lag_seconds).collect();
    let expected = (14_992..15_000).rev().chain((4_992..5_000).rev());
    assert_eq!(lags, expected.map(f64::from).collect::<Vec<_>>());
}

#[test]
fn the_document_is_bounded() {
    let mut names = NamedCursors::default();
    let mut resources = Vec::new();
    for resource in 0..100 {
        names.begin_resource();
        let mut cursors = CursorSummary::default();
        for number in 0..500 {
            let user = format!("{resource}-{number}-{}", "u".repeat(150));
            cursors.add_behind(FULL, lag(0.1, 9.0));
            names.add_slow(&user, &"a".repeat(160), 9.0);
            names.add(9.0, || client(9.0));
        }
        resources.push(ResourceStatus {
            cursors,
            ..ResourceStatus::default()
        });
    }
    assert!(names.groups.len() <= GROUPS_COUNTED_MAX + 1);
    let (slowest, slow_groups) = names.finish();
    assert_eq!((slowest.len(), slow_groups.len()), (NAMES_MAX, GROUPS_MAX));
    assert_eq!(slow_groups[0].user_agent, "(others)");
    let talker = TalkerStatus {
        name: "n".repeat(160),
        watches: u64::MAX,
        requests: u64::MAX,
        lists: u64::MAX,
        bytes: u64::MAX,
    };
    let document = StatusDocument {
        resources,
        slowest,
        slow_groups,
        // Eight names for each of four numbers.
        talkers: TalkersStatus {
            seconds: 0.0,
            users: vec![talker.clone(); 32],
            agents: vec![talker; 32],
        },
        ..StatusDocument::default()
    };
    let len = serde_json::to_vec(&document).unwrap().len();
    assert!(len < 200_000, "{len} bytes");
}
