//! The rules as sequences of times, inputs and expected decisions. Random sequences are in `tests/simulation.rs`.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock only gives an origin; all times are computed from it"
)]

use super::*;
use crate::decode::UpstreamStatus;
use crate::resource::EventKind;

mod give_up;
mod simulation;

fn rv(version: u64) -> ResourceVersion {
    ResourceVersion(version)
}

fn http(code: u16) -> Failure {
    Failure::Status(UpstreamStatus::of_code(code))
}

fn busy(code: u16, seconds: u32) -> Failure {
    Failure::Status(UpstreamStatus::of_code(code).over_http(code, Some(seconds)))
}

fn version_ahead() -> Failure {
    Failure::Status(UpstreamStatus {
        version_too_large: true,
        ..UpstreamStatus::of_code(504)
    })
}

/// As the API server's watch cache says it.
fn version_ahead_for(seconds: u32) -> Failure {
    Failure::Status(UpstreamStatus {
        version_too_large: true,
        ..UpstreamStatus::of_code(504).over_http(504, Some(seconds))
    })
}

fn event(version: u64) -> Input {
    Input::Event {
        kind: EventKind::Modified,
        resource_version: rv(version),
    }
}

fn bookmark(version: u64) -> Input {
    Input::Bookmark {
        resource_version: rv(version),
        initial_events_end: false,
    }
}

fn marker(version: u64) -> Input {
    Input::Bookmark {
        resource_version: rv(version),
        initial_events_end: true,
    }
}

fn page(version: u64, token: &str) -> Input {
    Input::ListPage {
        resource_version: rv(version),
        continue_token: token.to_owned(),
    }
}

fn stream(resource_version: ListVersion, reason: RelistReason) -> Action {
    Action::WatchList {
        resource_version,
        reason,
    }
}

fn list(
    resource_version: ListVersion,
    token: Option<&str>,
    limit: Option<u32>,
    reason: RelistReason,
) -> Action {
    Action::List {
        resource_version,
        continue_token: token.map(str::to_owned),
        limit,
        reason,
    }
}

/// A reflector without jitter, and a clock that moves only when a test moves it.
struct Rig {
    reflector: ReflectorMachine,
    start: Instant,
    now: Instant,
}

const STREAMED: ReflectorOptions = ReflectorOptions {
    streaming: StreamingLists::Preferred,
    page_len: 500,
    start_from: None,
    initial: InitialVersion::Latest,
};
const PAGED: ReflectorOptions = ReflectorOptions {
    streaming: StreamingLists::Never,
    initial: InitialVersion::Any,
    ..STREAMED
};

impl Rig {
    fn new(options: ReflectorOptions) -> Self {
        let start = Instant::now();
        Self {
            reflector: ReflectorMachine::new(options),
            start,
            now: start,
        }
    }

    /// Live at `version` without a list, with an open watch.
    fn live_at(version: u64) -> Self {
        let mut rig = Self::new(ReflectorOptions {
            start_from: Some(rv(version)),
            ..STREAMED
        });
        rig.does(0, Action::Watch { after: rv(version) });
        rig.observes(Input::WatchOpened, Effect::None);
        rig
    }

    /// Checks that the reflector waits until `at_ms` after the start, and that its action is then `expected`.
    #[track_caller]
    fn does(&mut self, at_ms: u64, expected: Action) {
        let at = self.start + Duration::from_millis(at_ms);
        if at > self.now {
            assert_eq!(
                self.reflector.next_action(self.now, 0),
                Action::WaitUntil(at)
            );
            self.now = at;
        }
        assert_eq!(self.reflector.next_action(self.now, 0), expected);
        assert_eq!(
            self.reflector.next_action(self.now, 0),
            expected,
            "called a second time"
        );
    }

    /// Reports `input`, and checks the effect.
    #[track_caller]
    fn observes(&mut self, input: Input, expected: Effect) {
        assert_eq!(self.reflector.observe(input, self.now), expected);
    }

    /// Moves the clock while a request is under way.
    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Checks how many lists were counted for `reason`.
    #[track_caller]
    fn relisted(&self, reason: RelistReason, expected: u64) {
        assert_eq!(
            self.reflector.counters().relists(reason),
            expected,
            "{reason:?}"
        );
    }
}

const fn done(version: u64) -> Effect {
    Effect::InitialDone {
        resource_version: ResourceVersion(version),
    }
}

const fn relisting(reason: RelistReason) -> Effect {
    Effect::Relisting { reason }
}

use ListVersion::{Any, AtLeast, Latest};
use RelistReason as Reason;

#[test]
fn a_streamed_list_becomes_a_watch() {
    let mut rig = Rig::new(STREAMED);
    rig.does(0, stream(Latest, Reason::Start));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(9), Effect::InitialItem);
    rig.observes(event(4), Effect::InitialItem);
    assert_eq!(
        (rig.reflector.is_live(), rig.reflector.version()),
        (false, None)
    );
    rig.observes(marker(9), done(9));
    assert_eq!(
        (rig.reflector.is_live(), rig.reflector.version()),
        (true, Some(rv(9)))
    );
    rig.observes(event(8), Effect::Late);
    rig.observes(event(10), Effect::Live);
    rig.observes(bookmark(10), Effect::None);
    rig.observes(
        bookmark(12),
        Effect::Progress {
            resource_version: rv(12),
        },
    );
    rig.observes(event(11), Effect::Late);
    rig.observes(bookmark(11), Effect::Ignored);
    assert_eq!(rig.reflector.counters().ignored, 3);
    rig.observes(Input::WatchEnded, Effect::None);
    rig.does(0, Action::Watch { after: rv(12) });
    rig.relisted(Reason::Start, 1);
}

#[test]
fn pages_follow_their_tokens_and_lead_to_a_watch() {
    let mut rig = Rig::new(PAGED);
    rig.does(0, list(Any, None, Some(500), Reason::Start));
    rig.observes(page(9, "a"), Effect::InitialItem);
    rig.does(0, list(Any, Some("a"), Some(500), Reason::Start));
    rig.observes(page(9, ""), done(9));
    rig.does(0, Action::Watch { after: rv(9) });
}

#[test]
fn the_request_after_a_page_is_known_before_the_page_is_observed() {
    let mut rig = Rig::new(PAGED);
    let ahead = |rig: &Rig, version, token: &str| rig.reflector.next_page(rv(version), token);
    for (token, next, last) in [
        ("a", "b", None),
        ("b", "c", Some("a")),
        ("c", "a", Some("b")),
    ] {
        rig.does(0, list(Any, last, Some(500), Reason::Start));
        let expected = list(Any, Some(token), Some(500), Reason::Start);
        assert_eq!(ahead(&rig, 9, token), Some(expected.clone()));
        assert_eq!(ahead(&rig, 9, ""), None);
        if let Some(last) = last {
            assert_eq!(ahead(&rig, 9, last), None);
            assert_eq!(ahead(&rig, 8, token), None);
        }
        rig.observes(page(9, token), Effect::InitialItem);
        rig.does(0, expected);
        assert!(ahead(&rig, 9, next).is_some());
    }
    rig.observes(page(9, ""), done(9));
    assert_eq!(ahead(&rig, 9, "d"), None);
}

#[test]
fn held_state_is_resumed_without_a_list() {
    let mut rig = Rig::live_at(7);
    rig.observes(event(6), Effect::Late);
    rig.observes(event(8), Effect::Live);
    for &reason in Reason::VARIANTS {
        rig.relisted(reason, 0);
    }
}

#[test]
fn a_refused_stream_falls_back_to_pages_at_once_and_is_tried_again_next_time() {
    for code in [400, 405, 406, 415, 422] {
        let mut rig = Rig::new(STREAMED);
        rig.does(0, stream(Latest, Reason::Start));
        rig.observes(Input::WatchFailed(http(code)), Effect::Restarted);
        rig.does(0, list(Latest, None, Some(500), Reason::StreamRefused));
        rig.observes(page(5, ""), done(5));
        rig.does(0, Action::Watch { after: rv(5) });
        rig.observes(Input::WatchFailed(http(410)), relisting(Reason::Expired));
        rig.does(800, stream(Latest, Reason::Expired));
    }
}

#[test]
fn a_stream_that_upstream_cannot_do_falls_back_to_pages_after_a_wait() {
    for failure in [http(500), Failure::Protocol, http(404)] {
        let reason = if failure == http(404) {
            Reason::Start
        } else {
            Reason::StreamRefused
        };
        let mut rig = Rig::new(STREAMED);
        rig.does(0, stream(Latest, Reason::Start));
        rig.observes(Input::WatchFailed(failure), Effect::Restarted);
        rig.does(800, list(Latest, None, Some(500), reason));
    }
    let mut rig = Rig::new(STREAMED);
    rig.does(0, stream(Latest, Reason::Start));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(
        Input::WatchError(UpstreamStatus::of_code(500)),
        Effect::Restarted,
    );
    rig.does(800, list(Latest, None, Some(500), Reason::StreamRefused));
}

#[test]
fn initial_data_that_stops_before_its_end_begins_again() {
    let mut rig = Rig::new(STREAMED);
    rig.does(0, stream(Latest, Reason::Start));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(4), Effect::InitialItem);
    rig.observes(Input::WatchEnded, Effect::Restarted);
    rig.does(800, stream(Latest, Reason::Interrupted));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(Input::WatchFailed(Failure::Transport), Effect::Restarted);
    // After two cut streams, pages are requested, because they keep what has arrived.
    rig.does(2_400, list(Latest, None, Some(500), Reason::Interrupted));
}

#[test]
fn a_busy_or_unreachable_upstream_is_asked_the_same_again() {
    let mut rig = Rig::new(STREAMED);
    let same = stream(Latest, Reason::Start);
    rig.does(0, same.clone());
    rig.observes(Input::WatchFailed(Failure::Transport), Effect::Restarted);
    rig.does(800, same.clone());
    rig.observes(Input::WatchFailed(busy(429, 5)), Effect::Restarted);
    rig.does(5_800, same.clone());
    rig.observes(Input::WatchFailed(http(503)), Effect::Restarted);
    rig.does(9_000, same.clone());
    rig.observes(Input::WatchFailed(http(401)), Effect::Restarted);
    rig.does(15_400, same);
    rig.relisted(Reason::Start, 1);
}

#[test]
fn other_pauses_can_be_chosen() {
    let mut rig = Rig::new(PAGED);
    rig.reflector = rig.reflector.with_backoff(Backoff::brisk());
    for at_ms in [200, 600] {
        rig.reflector.next_action(rig.now, 0);
        rig.observes(Input::ListFailed(Failure::Transport), Effect::None);
        rig.does(at_ms, list(Any, None, Some(500), Reason::Start));
    }
}

#[test]
fn a_first_page_that_fails_is_requested_again() {
    let mut rig = Rig::new(PAGED);
    let first = list(Any, None, Some(500), Reason::Start);
    rig.does(0, first.clone());
    let failures = [http(400), Failure::Protocol, Failure::TooLong];
    for (failure, at_ms) in failures.into_iter().zip([800, 2_400, 5_600]) {
        rig.observes(Input::ListFailed(failure), Effect::None);
        rig.does(at_ms, first.clone());
    }
}

#[test]
fn a_stream_is_given_up_for_an_internal_error_unless_it_has_a_retry_after() {
    for (failure, next) in [
        (
            http(500),
            list(Latest, None, Some(500), Reason::StreamRefused),
        ),
        (busy(500, 0), stream(Latest, Reason::Start)),
    ] {
        let mut rig = Rig::new(STREAMED);
        rig.does(0, stream(Latest, Reason::Start));
        rig.observes(Input::WatchFailed(failure), Effect::Restarted);
        rig.does(800, next);
    }
}

#[test]
fn a_page_that_fails_is_asked_for_again_and_the_pages_before_stay() {
    let mut rig = Rig::new(PAGED);
    rig.does(0, list(Any, None, Some(500), Reason::Start));
    rig.observes(page(9, "a"), Effect::InitialItem);
    let second = list(Any, Some("a"), Some(500), Reason::Start);
    let failures = [busy(429, 2), http(500), Failure::Transport, http(403)];
    for (failure, at_ms) in failures.into_iter().zip([2_000, 3_600, 6_800, 13_200]) {
        rig.observes(Input::ListFailed(failure), Effect::None);
        rig.does(at_ms, second.clone());
    }
    rig.observes(page(9, ""), done(9));
}

#[test]
fn pages_that_no_longer_belong_together_are_asked_for_whole() {
    let expired = || Input::ListFailed(http(410));
    for odd in [
        expired(),
        page(8, "b"),
        page(9, "a"),
        Input::ListFailed(http(400)),
    ] {
        let mut rig = Rig::new(PAGED);
        rig.does(0, list(Any, None, Some(500), Reason::Start));
        rig.observes(page(9, "a"), Effect::InitialItem);
        rig.observes(odd, Effect::Restarted);
        rig.does(800, list(Any, None, None, Reason::PagesExpired));
        rig.observes(page(10, ""), done(10));
    }
}

/// Each page has a token of its own, so that none repeats.
#[test]
fn pages_that_never_end_are_asked_for_whole() {
    let mut rig = Rig::new(PAGED);
    for number in 0..PAGES_MAX {
        rig.observes(page(9, &number.to_string()), Effect::InitialItem);
    }
    rig.observes(page(9, "one more"), Effect::Restarted);
    rig.does(800, list(Any, None, None, Reason::PagesExpired));
}

#[test]
fn lost_history_leads_to_a_paced_relist_of_the_latest() {
    let expired = UpstreamStatus::of_code(410);
    let failures = [
        Input::WatchFailed(Failure::Status(expired.clone())),
        Input::WatchError(expired),
    ];
    for failure in failures {
        let mut rig = Rig::live_at(7);
        rig.observes(failure, relisting(Reason::Expired));
        assert_eq!(rig.reflector.version(), Some(rv(7)));
        rig.does(800, stream(Latest, Reason::Expired));
        rig.observes(Input::WatchOpened, Effect::None);
        rig.observes(marker(70), done(70));
        rig.relisted(Reason::Expired, 1);
    }
}

#[test]
fn a_list_not_older_than_held_state_gives_way_to_the_latest_when_history_is_lost() {
    let mut rig = Rig::live_at(7);
    for at_ms in [800, 2_400] {
        rig.observes(Input::WatchFailed(http(400)), Effect::None);
        rig.does(at_ms, Action::Watch { after: rv(7) });
    }
    rig.observes(
        Input::WatchFailed(http(400)),
        relisting(Reason::WatchRefused),
    );
    rig.does(3_200, stream(AtLeast(rv(7)), Reason::WatchRefused));
    rig.observes(Input::WatchFailed(http(410)), Effect::Restarted);
    rig.does(3_200, stream(Latest, Reason::Expired));
    rig.observes(Input::WatchFailed(http(410)), Effect::Restarted);
    rig.does(6_400, list(Latest, None, Some(500), Reason::Expired));
}

#[test]
fn a_version_ahead_of_upstream_leads_to_a_relist_of_the_latest() {
    let mut rig = Rig::live_at(7);
    rig.observes(
        Input::WatchFailed(version_ahead()),
        relisting(Reason::VersionAhead),
    );
    rig.does(800, stream(Latest, Reason::VersionAhead));
}

#[test]
fn a_list_not_older_than_held_state_gives_way_to_the_latest_when_upstream_is_behind() {
    let odd = [
        (Input::WatchFailed(version_ahead()), 3_200),
        (Input::WatchFailed(version_ahead_for(1)), 3_200),
        (marker(6), 6_400),
    ];
    for (odd, at_ms) in odd {
        let mut rig = Rig::live_at(7);
        rig.observes(Input::WatchFailed(Failure::Protocol), Effect::None);
        rig.does(800, Action::Watch { after: rv(7) });
        rig.observes(Input::WatchFailed(Failure::Protocol), Effect::None);
        rig.does(2_400, Action::Watch { after: rv(7) });
        rig.observes(
            Input::WatchFailed(Failure::Protocol),
            relisting(Reason::Unparsable),
        );
        rig.does(3_200, stream(AtLeast(rv(7)), Reason::Unparsable));
        rig.observes(odd, Effect::Restarted);
        rig.does(at_ms, stream(Latest, Reason::VersionAhead));
        // Upstream itself went back: the data is accepted, and counted.
        rig.observes(marker(5), done(5));
        assert_eq!(rig.reflector.counters().went_back, 1);
    }
}

#[test]
fn a_list_at_the_held_version_is_not_counted_as_going_back() {
    let mut rig = Rig::live_at(7);
    let expired = Input::WatchFailed(http(410));
    rig.observes(expired, relisting(Reason::Expired));
    rig.does(800, stream(Latest, Reason::Expired));
    rig.observes(marker(7), done(7));
    assert_eq!(rig.reflector.counters().went_back, 0);
}

/// The reasons are labels of metrics.
#[test]
fn each_reason_for_a_list_has_its_label() {
    let labels = [
        "start",
        "expired",
        "version_ahead",
        "pages_expired",
        "interrupted",
        "stream_refused",
        "watch_refused",
        "unparsable",
        "watch_failed",
        "unordered",
    ];
    let texts: Vec<&str> = RelistReason::VARIANTS.iter().map(Into::into).collect();
    assert_eq!(texts, labels);
}

#[test]
fn trouble_on_a_watch_for_less_than_a_minute_never_leads_to_a_relist() {
    let mut rig = Rig::live_at(7);
    let again = Action::Watch { after: rv(7) };
    let failures = [
        busy(429, 1),
        http(500),
        http(503),
        http(504),
        http(401),
        http(403),
    ];
    let waits_ms = [1_000, 1_600, 3_200, 6_400, 12_800, 25_600];
    // A watch that was open and broke off; its successors are refused.
    rig.observes(Input::WatchFailed(Failure::Transport), Effect::None);
    rig.does(800, again.clone());
    rig = Rig::live_at(7);
    let mut at_ms = 0;
    for (failure, wait_ms) in failures.into_iter().zip(waits_ms) {
        rig.observes(Input::WatchFailed(failure), Effect::None);
        at_ms += wait_ms;
        rig.does(at_ms, again.clone());
    }
    for &reason in Reason::VARIANTS {
        rig.relisted(reason, 0);
    }
}

#[test]
fn a_clean_end_is_followed_by_the_next_watch_at_once_unless_it_came_at_once() {
    let mut rig = Rig::live_at(7);
    rig.advance(1_000);
    rig.observes(Input::WatchEnded, Effect::None);
    rig.does(1_000, Action::Watch { after: rv(7) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(8), Effect::Live);
    rig.observes(Input::WatchEnded, Effect::None);
    rig.does(1_000, Action::Watch { after: rv(8) });
    rig.observes(Input::WatchOpened, Effect::None);
    // A repeated event is no progress, although only the sink can tell that it is a repetition.
    rig.observes(event(8), Effect::Live);
    rig.advance(999);
    rig.observes(Input::WatchEnded, Effect::None);
    rig.does(2_799, Action::Watch { after: rv(8) });
}

#[test]
fn a_watch_that_stays_refused_leads_to_a_relist_and_progress_starts_the_count_anew() {
    let mut rig = Rig::live_at(7);
    rig.observes(Input::WatchFailed(http(422)), Effect::None);
    rig.does(800, Action::Watch { after: rv(7) });
    rig.observes(Input::WatchFailed(http(422)), Effect::None);
    rig.does(2_400, Action::Watch { after: rv(7) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(8), Effect::Live);
    for at_ms in [3_200, 4_800] {
        rig.observes(Input::WatchFailed(http(422)), Effect::None);
        rig.does(at_ms, Action::Watch { after: rv(8) });
    }
    rig.observes(
        Input::WatchFailed(http(422)),
        relisting(Reason::WatchRefused),
    );
    rig.does(5_600, stream(AtLeast(rv(8)), Reason::WatchRefused));
}

#[test]
fn a_resource_that_stays_unknown_is_given_up() {
    let mut rig = Rig::new(ReflectorOptions {
        start_from: Some(rv(7)),
        ..STREAMED
    });
    rig.does(0, Action::Watch { after: rv(7) });
    for at_ms in [800, 2_400, 5_600, 12_000] {
        rig.observes(Input::WatchFailed(http(404)), Effect::None);
        rig.does(at_ms, Action::Watch { after: rv(7) });
    }
    rig.observes(Input::WatchFailed(http(404)), Effect::None);
    rig.does(12_000, Action::Stop(StopReason::Gone));
    rig.observes(event(8), Effect::Ignored);
}

#[test]
fn several_changes_of_one_version_are_all_passed_on() {
    let mut rig = Rig::live_at(7);
    for _ in 0..3 {
        rig.observes(event(8), Effect::Live);
    }
    rig.observes(event(7), Effect::Late);
    assert_eq!(rig.reflector.version(), Some(rv(8)));
    assert_eq!(rig.reflector.counters().ignored, 1);
}

#[test]
fn one_that_never_gives_up_lists_a_resource_that_comes_back() {
    let mut rig = Rig::live_at(7);
    rig.reflector = rig.reflector.never_giving_up();
    for at_ms in [800, 2_400] {
        rig.observes(Input::WatchFailed(http(404)), Effect::None);
        rig.does(at_ms, Action::Watch { after: rv(7) });
    }
    rig.observes(
        Input::WatchFailed(http(404)),
        relisting(Reason::WatchRefused),
    );
    rig.does(3_200, stream(AtLeast(rv(7)), Reason::WatchRefused));
    let mut at_ms = 3_200;
    for wait_ms in [3_200, 6_400, 12_800, 25_600] {
        at_ms += wait_ms;
        rig.observes(Input::WatchFailed(http(404)), Effect::Restarted);
        rig.does(
            at_ms,
            list(AtLeast(rv(7)), None, Some(500), Reason::WatchRefused),
        );
    }
    assert_eq!(rig.reflector.version(), Some(rv(7)), "the held state stays");
    rig.observes(page(30, ""), done(30));
    rig.does(at_ms, Action::Watch { after: rv(30) });
}

#[test]
fn a_resource_that_appears_late_is_not_given_up() {
    let mut rig = Rig::new(PAGED);
    for at_ms in [800, 2_400, 5_600, 12_000] {
        rig.reflector.next_action(rig.now, 0);
        rig.observes(Input::ListFailed(http(404)), Effect::Restarted);
        rig.does(at_ms, list(Any, None, Some(500), Reason::Start));
    }
    rig.observes(page(3, ""), done(3));
    rig.does(12_000, Action::Watch { after: rv(3) });
    rig.observes(Input::WatchFailed(http(404)), Effect::None);
    // Progress has reset the back-off.
    rig.does(12_800, Action::Watch { after: rv(3) });
}

/// Reports how the open watch ended, and returns what is done next, after any pause.
fn after_watch(rig: &mut Rig, end: Input) -> Action {
    rig.observes(Input::WatchOpened, Effect::None);
    rig.reflector.observe(end, rig.now);
    next(rig)
}

fn next(rig: &mut Rig) -> Action {
    loop {
        let action = rig.reflector.next_action(rig.now, 0);
        let Action::WaitUntil(at) = action else {
            return action;
        };
        rig.now = at;
    }
}

#[test]
fn after_three_watches_that_bring_nothing_the_state_is_compared_and_listed_if_it_differs() {
    let ends = [
        Input::WatchError(UpstreamStatus::of_code(500)),
        Input::WatchError(UpstreamStatus::of_code(503)),
        Input::WatchEnded,
        Input::WatchFailed(Failure::Transport),
    ];
    for end in ends {
        let mut rig = Rig::live_at(7);
        for _ in 0..2 {
            assert_eq!(
                after_watch(&mut rig, end.clone()),
                Action::Watch { after: rv(7) }
            );
        }
        assert_eq!(after_watch(&mut rig, end.clone()), Action::Compare);
        rig.observes(Input::Compared(Comparison::Different), Effect::None);
        // Upstream answers, so a watch is tried first, which costs it no list.
        assert_eq!(
            rig.reflector.next_action(rig.now, 0),
            Action::Watch { after: rv(7) }
        );
        rig.reflector.observe(end, rig.now);
        // A streamed list is a watch, so pages are requested, without another pause.
        assert_eq!(
            rig.reflector.next_action(rig.now, 0),
            list(Latest, None, Some(500), Reason::WatchFailed)
        );
    }
}

#[test]
fn a_list_that_a_proof_has_overtaken_is_not_needed_and_an_older_one_is_believed() {
    for (listed, is_overtaken) in [(20, true), (10, true), (30, false), (31, false), (9, false)] {
        let mut rig = Rig::new(PAGED);
        rig.does(0, list(Any, None, Some(500), Reason::Start));
        rig.observes(page(7, ""), done(7));
        rig.does(0, Action::Watch { after: rv(7) });
        rig.observes(Input::WatchFailed(http(410)), relisting(Reason::Expired));
        rig.reflector.note_given(Some(rv(10)));
        next(&mut rig);
        rig.reflector.note_given(Some(rv(30)));
        if is_overtaken {
            rig.observes(page(listed, ""), Effect::Restarted);
            assert_eq!(next(&mut rig), Action::Watch { after: rv(30) });
        } else {
            // Below 10, upstream's history is another one.
            rig.observes(page(listed, ""), done(listed));
        }
    }
}

/// Watches have failed, upstream has another state, and one more watch is tried before a list.
fn at_the_last_watch() -> Rig {
    let mut rig = Rig::live_at(7);
    rig.observes(Input::WatchFailed(Failure::Transport), Effect::None);
    while next(&mut rig) != Action::Compare {
        rig.observes(Input::WatchFailed(Failure::Transport), Effect::None);
    }
    rig.observes(Input::Compared(Comparison::Different), Effect::None);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(7) });
    rig
}

#[test]
fn after_a_black_hole_the_watch_is_resumed_although_upstream_has_moved_on() {
    let mut rig = at_the_last_watch();
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(8), Effect::Live);
    rig.observes(Input::WatchFailed(Failure::Transport), Effect::None);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(8) });
    rig.relisted(Reason::WatchFailed, 0);
}

#[test]
fn a_minute_without_an_accepted_watch_is_enough_for_a_comparison() {
    for failure in [http(503), http(429), http(401), Failure::Transport] {
        let mut rig = Rig::live_at(7);
        let begin = rig.now;
        let failed = Input::WatchFailed(failure);
        loop {
            rig.reflector.observe(failed.clone(), rig.now);
            if next(&mut rig) == Action::Compare {
                break;
            }
        }
        assert!((50..=60).contains(&(rig.now - begin).as_secs()));
    }
}

#[test]
fn while_watches_bring_nothing_the_state_is_compared_every_minute() {
    let mut rig = Rig::live_at(7);
    let begin = rig.now;
    let mut compared_at = Vec::new();
    while rig.now < begin + Duration::from_secs(600) {
        let action = next(&mut rig);
        if action == Action::Compare {
            compared_at.push(rig.now - begin);
            rig.observes(Input::Compared(Comparison::Equal), Effect::Proven);
        } else {
            assert_eq!(action, Action::Watch { after: rv(7) });
            rig.observes(Input::WatchOpened, Effect::None);
            rig.observes(Input::WatchEnded, Effect::None);
        }
    }
    assert!((10..40).contains(&compared_at.len()), "{compared_at:?}");
    let apart = compared_at.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(apart.max().unwrap() <= Duration::from_secs(60));
    for &reason in Reason::VARIANTS {
        rig.relisted(reason, 0);
    }
}

#[test]
fn objects_that_are_too_many_to_be_compared_are_not_listed_for_a_suspicion() {
    let mut rig = Rig::live_at(7);
    let begin = rig.now;
    let mut comparisons = 0;
    while rig.now < begin + Duration::from_secs(600) {
        if next(&mut rig) == Action::Compare {
            comparisons += 1;
            rig.observes(Input::Compared(Comparison::Unrefuted), Effect::None);
        } else {
            rig.observes(Input::WatchOpened, Effect::None);
            rig.observes(Input::WatchEnded, Effect::None);
        }
    }
    assert!((10..40).contains(&comparisons), "{comparisons}");
    rig.relisted(Reason::WatchFailed, 0);
}

#[test]
fn a_state_that_was_not_refuted_is_not_proven_by_a_watch_just_opened() {
    let mut rig = Rig::live_at(7);
    let unrefuted = || Input::Compared(Comparison::Unrefuted);
    rig.advance(45_000);
    rig.observes(unrefuted(), Effect::EndWatch);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(7) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.advance(44_999);
    rig.observes(unrefuted(), Effect::None);
}

#[test]
fn the_list_after_the_last_watch_keeps_to_the_wait_that_upstream_asks_for() {
    let mut rig = at_the_last_watch();
    let busy = UpstreamStatus::of_code(429).over_http(429, Some(30));
    rig.observes(
        Input::WatchFailed(Failure::Status(busy)),
        relisting(Reason::WatchFailed),
    );
    let asked_at = rig.now;
    next(&mut rig);
    assert!(rig.now >= asked_at + Duration::from_secs(30));
}

#[test]
fn lists_between_which_no_watch_brings_anything_are_further_and_further_apart() {
    let mut rig = Rig::live_at(7);
    let begin = rig.now;
    let mut lists = 0;
    while rig.now < begin + Duration::from_secs(600) {
        match next(&mut rig) {
            Action::Watch { .. } => {
                rig.reflector
                    .observe(Input::WatchFailed(http(410)), rig.now);
            }
            Action::WatchList { .. } => {
                lists += 1;
                rig.observes(Input::WatchOpened, Effect::None);
                rig.observes(marker(7 + lists), done(7 + lists));
                rig.observes(Input::WatchEnded, Effect::None);
            }
            action @ (Action::List { .. }
            | Action::Compare
            | Action::WaitUntil(_)
            | Action::Stop(_)) => unreachable!("{action:?}"),
        }
    }
    assert!((25..45).contains(&lists), "{lists} lists");
}

#[test]
fn a_list_that_cannot_be_had_gives_way_to_the_next_watch() {
    let mut rig = Rig::live_at(7);
    for _ in 0..3 {
        after_watch(&mut rig, Input::WatchEnded);
    }
    rig.observes(Input::Compared(Comparison::Unknown(0)), Effect::None);
    rig.observes(Input::WatchEnded, relisting(Reason::WatchFailed));
    assert_eq!(rig.reflector.version(), Some(rv(7)));
    next(&mut rig);
    rig.observes(Input::ListFailed(http(503)), Effect::Restarted);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(7) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(8), Effect::Live);
}

#[test]
fn an_open_watch_that_lacks_what_upstream_has_twice_is_ended() {
    let mut rig = Rig::live_at(7);
    let different = || Input::Compared(Comparison::Different);
    rig.observes(different(), Effect::None);
    rig.observes(Input::Compared(Comparison::Unknown(0)), Effect::None);
    // An event that was on its way.
    rig.observes(event(8), Effect::Live);
    rig.observes(different(), Effect::None);
    rig.observes(different(), Effect::EndWatch);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(8) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(different(), Effect::None);
    rig.observes(different(), Effect::EndWatch);
    assert_eq!(next(&mut rig), Action::Compare);
    rig.observes(different(), Effect::None);
    assert_eq!(next(&mut rig), Action::Watch { after: rv(8) });
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(different(), Effect::None);
    rig.observes(different(), Effect::EndWatch);
    assert_eq!(
        next(&mut rig),
        list(Latest, None, Some(500), Reason::WatchFailed)
    );
}

#[test]
fn a_quiet_watch_that_was_compared_is_as_good_as_one_with_events() {
    let mut rig = Rig::live_at(7);
    for _ in 0..10 {
        rig.observes(Input::WatchOpened, Effect::None);
        rig.advance(50_000);
        rig.observes(Input::Compared(Comparison::Equal), Effect::Proven);
        rig.observes(Input::WatchEnded, Effect::None);
        assert_eq!(
            rig.reflector.next_action(rig.now, 0),
            Action::Watch { after: rv(7) }
        );
    }
}

#[test]
fn a_watch_that_lives_for_longer_than_the_pause_before_it_is_followed_by_a_short_one() {
    let mut rig = Rig::live_at(7);
    rig.reflector = rig.reflector.with_backoff(Backoff::brisk());
    for _ in 0..20 {
        rig.observes(Input::WatchOpened, Effect::None);
        rig.advance(3_000);
        rig.observes(Input::Compared(Comparison::Equal), Effect::Proven);
        rig.observes(Input::WatchFailed(Failure::Transport), Effect::None);
        let before = rig.now;
        next(&mut rig);
        assert!(rig.now - before <= Duration::from_millis(200));
    }
}

#[test]
fn an_event_out_of_order_leads_to_a_list_and_the_second_one_to_giving_up() {
    let mut rig = Rig::live_at(7);
    rig.reflector = rig.reflector.giving_up();
    rig.observes(event(6), Effect::Late);
    let unordered = || Input::WatchFailed(Failure::Unordered);
    rig.observes(unordered(), relisting(Reason::Unordered));
    assert_eq!(next(&mut rig), stream(Latest, Reason::Unordered));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(marker(9), done(9));
    rig.observes(event(8), Effect::Late);
    rig.observes(unordered(), relisting(Reason::Unordered));
    assert_eq!(
        next(&mut rig),
        Action::Stop(StopReason::GivenUp(GiveUp::Unordered))
    );
}

#[test]
fn a_version_that_is_absurdly_far_ahead_does_not_follow() {
    let rig = Rig::live_at(7);
    assert!(rig.reflector.may_follow(rv(7 + VERSION_AHEAD_MAX)));
    assert!(!rig.reflector.may_follow(rv(8 + VERSION_AHEAD_MAX)));
    assert!(rig.reflector.may_follow(rv(1)), "lists may go back");
    assert!(Rig::new(STREAMED).reflector.may_follow(rv(u64::MAX)));
}

#[test]
fn a_stream_that_sends_a_bookmark_before_its_end_is_given_up_for_good() {
    let mut rig = Rig::new(STREAMED);
    rig.does(0, stream(Latest, Reason::Start));
    rig.observes(Input::WatchOpened, Effect::None);
    rig.observes(event(4), Effect::InitialItem);
    rig.observes(bookmark(9), Effect::EndWatch);
    rig.observes(Input::WatchFailed(Failure::Protocol), Effect::Restarted);
    rig.does(800, list(Latest, None, Some(500), Reason::StreamRefused));
    rig.observes(page(9, ""), done(9));
    rig.does(800, Action::Watch { after: rv(9) });
    rig.observes(Input::WatchFailed(http(410)), relisting(Reason::Expired));
    assert_eq!(
        next(&mut rig),
        list(Latest, None, Some(500), Reason::Expired)
    );
}
