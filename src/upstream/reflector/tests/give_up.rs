//! When a reflector that may give up does so, and when it continues.

use super::*;

fn giving_up(mut table: Table) -> Table {
    table.reflector = table.reflector.giving_up();
    table
}

impl Table {
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
        for count in 0..100 {
            let input = match self.next() {
                Action::Stop(reason) => return (count, reason),
                Action::List { .. } => Input::ListFailed(failure.clone()),
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
fn check(table: Table, failure: &Failure, count: u32, reason: GiveUp) {
    let given_up = giving_up(table).fails_until_given_up(failure);
    assert_eq!(given_up, (count, StopReason::GivenUp(reason)));
}

#[test]
fn a_resource_that_cannot_be_had_is_given_up() {
    let new = || Table::new(STREAMED);
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
    let live = || Table::live_at(7);
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
    let mut table = giving_up(Table::live_at(7));
    for failure in [Failure::Transport, http(503), http(429), http(500)] {
        for _ in 0..50 {
            assert_eq!(table.next(), Action::Watch { after: rv(7) });
            table.observes(Input::WatchFailed(failure.clone()), Effect::None);
        }
    }
}

#[test]
fn answers_in_between_begin_the_count_anew() {
    let mut table = giving_up(Table::live_at(7));
    for version in 8..30 {
        for _ in 0..2 {
            table.next();
            table.observes(Input::WatchFailed(http(403)), Effect::None);
        }
        table.next();
        table.observes(Input::WatchOpened, Effect::None);
        table.observes(event(version), Effect::Live);
        table.observes(Input::WatchEnded, Effect::None);
    }
}

#[test]
fn what_asks_for_something_else_than_patience_is_no_reason() {
    for failure in [http(410), version_ahead()] {
        let mut table = giving_up(Table::new(PAGED));
        for _ in 0..20 {
            assert!(matches!(table.next(), Action::List { .. }));
            let failed = Input::ListFailed(failure.clone());
            table.reflector.observe(failed, table.now);
        }
    }
}

#[test]
fn an_answer_begins_the_count_of_all_but_what_cannot_be_read_anew() {
    let mut table = giving_up(Table::new(PAGED));
    for number in 0..5 {
        for _ in 0..4 {
            assert!(matches!(table.next(), Action::List { .. }));
            let failed = Input::ListFailed(Failure::Transport);
            table.reflector.observe(failed, table.now);
        }
        table.next();
        table.observes(page(9, &number.to_string()), Effect::InitialItem);
    }

    let mut table = giving_up(Table::new(STREAMED));
    for _ in 0..3 {
        assert!(!matches!(table.next(), Action::Stop(_)));
        table.observes(Input::WatchOpened, Effect::None);
        let failed = Input::WatchFailed(Failure::Protocol);
        table.reflector.observe(failed, table.now);
    }
    let reason = StopReason::GivenUp(GiveUp::Undecodable);
    assert_eq!(table.next(), Action::Stop(reason));
}

#[test]
fn a_list_that_can_be_read_begins_every_count_anew() {
    let mut table = giving_up(Table::new(PAGED));
    for _ in 0..2 {
        table.next();
        let failed = Input::ListFailed(Failure::Protocol);
        table.reflector.observe(failed, table.now);
    }
    table.next();
    table.observes(page(9, ""), done(9));
    for failure in [http(410), Failure::Protocol, Failure::Protocol] {
        assert!(!matches!(table.next(), Action::Stop(_)));
        let failed = match table.next() {
            Action::Watch { .. } => Input::WatchFailed(failure),
            Action::WatchList { .. }
            | Action::List { .. }
            | Action::WaitUntil(_)
            | Action::Stop(_) => Input::ListFailed(failure),
        };
        table.reflector.observe(failed, table.now);
    }
    assert!(!matches!(table.next(), Action::Stop(_)));
}

#[test]
fn strikes_count_within_ten_minutes() {
    let start = Instant::now();
    let strikes = |seconds: [u64; 3]| {
        let mut failures = Failures::default();
        let strike =
            |second| failures.strike(&Failure::TooLong, start + Duration::from_secs(second));
        seconds.map(strike)
    };
    assert_eq!(strikes([0, 600, 600]), [None, None, Some(GiveUp::TooLong)]);
    assert_eq!(strikes([0, 600, 601]), [None, None, None]);
}

#[test]
fn lost_history_is_no_strike() {
    let mut table = giving_up(Table::live_at(7));
    for version in 8..12 {
        table.next();
        let expired = Input::WatchFailed(http(410));
        table.observes(expired, relisting(Why::Expired));
        table.next();
        table.observes(marker(version), done(version));
    }
    unreadable_event(&mut table, 12);
    assert_eq!(table.next(), Action::Watch { after: rv(12) });
}

/// Plays one event that no watch can read although lists can.
fn unreadable_event(table: &mut Table, version: u64) {
    for _ in 0..3 {
        table.next();
        table.reflector.observe(Input::WatchOpened, table.now);
        let failed = Input::WatchFailed(Failure::TooLong);
        table.reflector.observe(failed, table.now);
    }
    if let Action::WatchList { .. } = table.next() {
        table.reflector.observe(marker(version), table.now);
    }
}

#[test]
fn events_that_only_lists_can_read_are_listed_around_a_few_times() {
    let mut table = giving_up(Table::live_at(7));
    unreadable_event(&mut table, 8);
    unreadable_event(&mut table, 9);
    assert_eq!(table.next(), Action::Watch { after: rv(9) });
    unreadable_event(&mut table, 10);
    let reason = StopReason::GivenUp(GiveUp::TooLong);
    assert_eq!(table.next(), Action::Stop(reason));

    // Such events do no harm if they are rare.
    let mut table = giving_up(Table::live_at(7));
    for version in 8..20 {
        table.now += Duration::from_secs(601);
        unreadable_event(&mut table, version);
        assert_eq!(table.next(), Action::Watch { after: rv(version) });
    }
}

#[test]
fn a_resource_that_can_be_listed_but_not_watched_is_given_up() {
    let mut table = giving_up(Table::live_at(7));
    let mut lists = 0;
    loop {
        match table.next() {
            Action::Watch { .. } => {
                let refused = Input::WatchFailed(http(405));
                table.reflector.observe(refused, table.now);
            }
            Action::WatchList { .. } => {
                table
                    .reflector
                    .observe(Input::WatchFailed(http(405)), table.now);
            }
            Action::List { .. } => {
                lists += 1;
                table.reflector.observe(page(7, ""), table.now);
            }
            Action::Stop(reason) => {
                assert_eq!(reason, StopReason::GivenUp(GiveUp::Refused));
                break;
            }
            Action::WaitUntil(at) => table.now = at,
        }
        assert!(lists < 3, "each list costs upstream a full read");
    }
    assert_eq!(lists, 2);
}
