//! When a reflector that may give up does so, and when it continues.

use super::*;

fn giving_up(mut rig: Rig) -> Rig {
    rig.reflector = rig.reflector.giving_up();
    rig
}

impl Rig {
    /// The next action, after any wait.
    fn next(&mut self) -> Action {
        let action = self.reflector.next_action(self.now, 0);
        let Action::WaitUntil(at) = action else {
            return action;
        };
        self.now = at;
        self.reflector.next_action(self.now, 0)
    }

    /// Fails every request until the reflector gives up. Returns the number of failures and the reason.
    fn fails_until_given_up(&mut self, failure: &Failure) -> (u32, StopReason) {
        let mut count = 0;
        for _ in 0..100 {
            let action = self.next();
            count += u32::from(action != Action::Compare);
            let input = match action {
                Action::Stop(reason) => return (count - 1, reason),
                Action::List { .. } => Input::ListFailed(failure.clone()),
                Action::Compare => Input::Compared(Comparison::Unknown(0)),
                Action::WatchList { .. } | Action::Watch { .. } | Action::WaitUntil(_) => {
                    Input::WatchFailed(failure.clone())
                }
            };
            self.reflector.observe(input, self.now);
        }
        panic!("never given up: {failure:?}");
    }
}

#[track_caller]
fn check(rig: Rig, failure: &Failure, count: u32, reason: GiveUp) {
    let given_up = giving_up(rig).fails_until_given_up(failure);
    assert_eq!(given_up, (count, StopReason::GivenUp(reason)));
}

#[test]
fn a_resource_that_cannot_be_had_is_given_up() {
    let new = || Rig::new(STREAMED);
    check(new(), &http(403), 1, GiveUp::Forbidden);
    check(new(), &http(401), 2, GiveUp::Unauthorized);
    check(new(), &Failure::Saturated, 2, GiveUp::Saturated);
    check(new(), &Failure::Protocol, 3, GiveUp::Undecodable);
    check(new(), &Failure::TooLong, 3, GiveUp::TooLong);
    check(new(), &http(400), 3, GiveUp::Refused);
    check(new(), &http(405), 3, GiveUp::Refused);
    check(new(), &Failure::Transport, 5, GiveUp::Unavailable);
    check(new(), &http(429), 5, GiveUp::Unavailable);
}

#[test]
fn state_that_is_held_outlasts_a_hiccup_but_not_the_loss_of_rights() {
    let live = || Rig::live_at(7);
    check(live(), &http(403), 3, GiveUp::Forbidden);
    check(live(), &http(401), 10, GiveUp::Unauthorized);
    check(live(), &Failure::Saturated, 5, GiveUp::Saturated);
    // Three watches, then the relist: streamed, in pages, and once more.
    check(live(), &Failure::Protocol, 6, GiveUp::Undecodable);
    check(live(), &Failure::TooLong, 6, GiveUp::TooLong);
    check(live(), &http(400), 8, GiveUp::Refused);
}

#[test]
fn an_upstream_that_is_away_takes_no_state_with_it() {
    let mut rig = giving_up(Rig::live_at(7));
    for failure in [Failure::Transport, http(503), http(429), http(500)] {
        for _ in 0..50 {
            let failed = match rig.next() {
                Action::Watch { after } if after == rv(7) => Input::WatchFailed(failure.clone()),
                Action::Compare => Input::Compared(Comparison::Unknown(0)),
                Action::List { .. } => Input::ListFailed(failure.clone()),
                action @ (Action::WatchList { .. }
                | Action::Watch { .. }
                | Action::WaitUntil(_)
                | Action::Stop(_)) => unreachable!("{action:?}"),
            };
            rig.reflector.observe(failed, rig.now);
            assert_eq!(rig.reflector.version(), Some(rv(7)));
        }
    }
}

#[test]
fn answers_in_between_begin_the_count_anew() {
    let mut rig = giving_up(Rig::live_at(7));
    for version in 8..30 {
        for _ in 0..2 {
            rig.next();
            rig.observes(Input::WatchFailed(http(403)), Effect::None);
        }
        rig.next();
        rig.observes(Input::WatchOpened, Effect::None);
        rig.observes(event(version), Effect::Live);
        rig.observes(Input::WatchEnded, Effect::None);
    }
}

#[test]
fn failures_with_another_remedy_do_not_count_for_giving_up() {
    for failure in [http(410), version_ahead()] {
        let mut rig = giving_up(Rig::new(PAGED));
        for _ in 0..20 {
            assert!(matches!(rig.next(), Action::List { .. }));
            let failed = Input::ListFailed(failure.clone());
            rig.reflector.observe(failed, rig.now);
        }
    }
}

#[test]
fn an_answer_begins_the_count_of_all_but_what_cannot_be_read_anew() {
    let mut rig = giving_up(Rig::new(PAGED));
    for number in 0..5 {
        for _ in 0..4 {
            assert!(matches!(rig.next(), Action::List { .. }));
            let failed = Input::ListFailed(Failure::Transport);
            rig.reflector.observe(failed, rig.now);
        }
        rig.next();
        rig.observes(page(9, &number.to_string()), Effect::InitialItem);
    }

    let mut rig = giving_up(Rig::new(STREAMED));
    for _ in 0..3 {
        assert!(!matches!(rig.next(), Action::Stop(_)));
        rig.observes(Input::WatchOpened, Effect::None);
        let failed = Input::WatchFailed(Failure::Protocol);
        rig.reflector.observe(failed, rig.now);
    }
    let reason = StopReason::GivenUp(GiveUp::Undecodable);
    assert_eq!(rig.next(), Action::Stop(reason));
}

#[test]
fn a_list_that_can_be_read_begins_every_count_anew() {
    let mut rig = giving_up(Rig::new(PAGED));
    for _ in 0..2 {
        rig.next();
        let failed = Input::ListFailed(Failure::Protocol);
        rig.reflector.observe(failed, rig.now);
    }
    rig.next();
    rig.observes(page(9, ""), done(9));
    for failure in [http(410), Failure::Protocol, Failure::Protocol] {
        assert!(!matches!(rig.next(), Action::Stop(_)));
        let failed = match rig.next() {
            Action::Watch { .. } => Input::WatchFailed(failure),
            Action::WatchList { .. }
            | Action::List { .. }
            | Action::Compare
            | Action::WaitUntil(_)
            | Action::Stop(_) => Input::ListFailed(failure),
        };
        rig.reflector.observe(failed, rig.now);
    }
    assert!(!matches!(rig.next(), Action::Stop(_)));
}

#[test]
fn strikes_count_within_ten_minutes() {
    let start = Instant::now();
    let strikes = |seconds: [u64; 3]| {
        let mut failures = Failures::default();
        seconds
            .map(|second| failures.strike(&Failure::TooLong, start + Duration::from_secs(second)))
    };
    assert_eq!(strikes([0, 600, 600]), [None, None, Some(GiveUp::TooLong)]);
    assert_eq!(strikes([0, 600, 601]), [None, None, None]);
}

#[test]
fn disorder_and_refusals_are_counted_apart() {
    let now = Instant::now();
    let mut failures = Failures::default();
    assert_eq!(failures.strike(&http(400), now), None);
    assert_eq!(failures.strike(&Failure::Unordered, now), None);
    assert_eq!(failures.strike(&http(400), now), None);
    assert_eq!(
        failures.strike(&Failure::Unordered, now),
        Some(GiveUp::Unordered)
    );
    assert_eq!(failures.strike(&http(400), now), Some(GiveUp::Refused));
}

#[test]
fn lost_history_is_no_strike() {
    let mut rig = giving_up(Rig::live_at(7));
    for version in 8..12 {
        rig.next();
        let expired = Input::WatchFailed(http(410));
        rig.observes(expired, relisting(Reason::Expired));
        rig.next();
        rig.observes(marker(version), done(version));
    }
    unreadable_event(&mut rig, 12);
    assert_eq!(rig.next(), Action::Watch { after: rv(12) });
}

/// Plays one event that no watch can read although lists can.
fn unreadable_event(rig: &mut Rig, version: u64) {
    for _ in 0..3 {
        rig.next();
        rig.reflector.observe(Input::WatchOpened, rig.now);
        let failed = Input::WatchFailed(Failure::TooLong);
        rig.reflector.observe(failed, rig.now);
    }
    if let Action::WatchList { .. } = rig.next() {
        rig.reflector.observe(marker(version), rig.now);
    }
}

#[test]
fn events_that_only_lists_can_read_are_listed_around_a_few_times() {
    let mut rig = giving_up(Rig::live_at(7));
    unreadable_event(&mut rig, 8);
    unreadable_event(&mut rig, 9);
    assert_eq!(rig.next(), Action::Watch { after: rv(9) });
    unreadable_event(&mut rig, 10);
    let reason = StopReason::GivenUp(GiveUp::TooLong);
    assert_eq!(rig.next(), Action::Stop(reason));

    // Such events do no harm if they are rare.
    let mut rig = giving_up(Rig::live_at(7));
    for version in 8..20 {
        rig.now += Duration::from_secs(601);
        rig.next();
        rig.observes(Input::WatchOpened, Effect::None);
        rig.observes(Input::Compared(Comparison::Equal), Effect::Proven);
        unreadable_event(&mut rig, version);
        assert_eq!(rig.next(), Action::Watch { after: rv(version) });
    }
}

#[test]
fn a_resource_that_can_be_listed_but_not_watched_is_given_up() {
    let mut rig = giving_up(Rig::live_at(7));
    let mut lists = 0;
    loop {
        match rig.next() {
            Action::Watch { .. } => {
                let refused = Input::WatchFailed(http(405));
                rig.reflector.observe(refused, rig.now);
            }
            Action::WatchList { .. } => {
                rig.reflector
                    .observe(Input::WatchFailed(http(405)), rig.now);
            }
            Action::List { .. } => {
                lists += 1;
                rig.reflector.observe(page(7, ""), rig.now);
            }
            Action::Stop(reason) => {
                assert_eq!(reason, StopReason::GivenUp(GiveUp::Refused));
                break;
            }
            Action::WaitUntil(at) => rig.now = at,
            Action::Compare => unreachable!("the version may be the cause"),
        }
        assert!(lists < 3, "each list costs upstream a full read");
    }
    assert_eq!(lists, 2);
}
