//! The states of endpoints and the choice among them, without connections.

use super::*;

const UID: &str = "the cluster";

/// A table whose clock the test moves.
struct Clocked {
    table: EndpointTable,
    now: Instant,
}

impl Clocked {
    /// Three endpoints, of which the second is preferred, and nothing is known of them.
    fn new() -> Self {
        let now = Instant::now();
        Self {
            table: EndpointTable::new(3, 1, now),
            now,
        }
    }

    /// Three ready endpoints.
    fn ready() -> Self {
        let mut clocked = Self::new();
        for index in 0..3 {
            clocked.observe(index, identified(UID));
        }
        clocked.table.start(clocked.now, 0);
        clocked.table.take_changes();
        clocked
    }

    fn observe(&mut self, index: usize, outcome: ProbeOutcome) {
        self.table.observe(index, outcome, self.now, 0);
    }

    fn state(&self, index: usize) -> EndpointState {
        self.table.endpoints[index].state
    }

    fn next(&self) -> Option<usize> {
        self.table.choice().next(EndpointMask::default())
    }

    /// Moves the clock and checks every endpoint that is due, each of which answers as `answer` says.
    fn pass(&mut self, time: Duration, answer: impl Fn(usize) -> ProbeOutcome) -> usize {
        let end = self.now + time;
        let mut checks = 0;
        loop {
            let next = self.table.next_due(EndpointMask::default()).unwrap();
            if next > end {
                self.now = end;
                return checks;
            }
            self.now = self.now.max(next);
            let due = self.table.due(self.now);
            checks += due.len();
            for index in due {
                self.observe(index, answer(index));
            }
        }
    }
}

fn identified(uid: &str) -> ProbeOutcome {
    ProbeOutcome::Identified(Some(uid.to_owned()))
}

fn failed(failure: EndpointFailure) -> ProbeOutcome {
    ProbeOutcome::Failed {
        failure,
        reason: String::new(),
    }
}

fn unready(uid: Option<&str>) -> ProbeOutcome {
    ProbeOutcome::Unready {
        reason: String::new(),
        uid: uid.map(str::to_owned),
    }
}

#[test]
fn requests_go_to_the_preferred_endpoint_while_it_is_ready() {
    let clocked = Clocked::ready();
    assert_eq!(clocked.next(), Some(1));
    let mut failed = EndpointMask::default();
    failed.insert(1);
    assert_eq!(clocked.table.choice().next(failed), Some(2));
    failed.insert(2);
    assert_eq!(clocked.table.choice().next(failed), Some(0));
    failed.insert(0);
    assert_eq!(clocked.table.choice().next(failed), None);
}

#[test]
fn an_unchecked_endpoint_gets_no_requests() {
    let mut clocked = Clocked::new();
    assert_eq!(clocked.next(), None);
    clocked.observe(0, identified(UID));
    assert_eq!(clocked.next(), Some(0), "better than none");
    clocked.observe(1, identified(UID));
    assert_eq!(clocked.next(), Some(1), "the preferred one");
    clocked.table.start(clocked.now, 0);
    assert!(!clocked.table.choice().has_moved(clocked.now));
}

#[test]
fn a_refused_connection_counts_at_once_and_a_single_failed_check_does_not() {
    use EndpointFailure as Failure;
    for (failure, expected) in [
        (Failure::Connect, EndpointState::Unreachable),
        (Failure::Certificate, EndpointState::Unreachable),
        (Failure::Foreign, EndpointState::Foreign),
        (Failure::Timeout, EndpointState::Ready),
        (Failure::Broken, EndpointState::Ready),
    ] {
        let mut clocked = Clocked::ready();
        clocked.observe(1, failed(failure));
        assert_eq!(clocked.state(1), expected, "{failure:?}");
    }
    let mut clocked = Clocked::ready();
    clocked.observe(1, unready(None));
    assert_eq!(clocked.state(1), EndpointState::Ready);
    let mut clocked = Clocked::ready();
    clocked.table.refused(1, "", clocked.now, 0);
    assert_eq!(clocked.state(1), EndpointState::Unreachable);
    let mut clocked = Clocked::ready();
    clocked.observe(1, failed(Failure::Timeout));
    assert!(clocked.table.due(clocked.now) == [1], "asked again at once");
    clocked.observe(1, unready(None));
    assert_eq!(clocked.state(1), EndpointState::Unready);
    assert!(clocked.table.choice().is_abandoned(1));
    let mut clocked = Clocked::ready();
    for _ in 0..3 {
        clocked.observe(1, failed(Failure::Timeout));
        clocked.observe(1, ProbeOutcome::Ready);
    }
    assert_eq!(clocked.state(1), EndpointState::Ready, "not in a row");
}

#[test]
fn nothing_is_abandoned_for_an_endpoint_that_is_not_ready() {
    let mut clocked = Clocked::ready();
    for index in 0..3 {
        clocked.table.refused(index, "", clocked.now, 0);
    }
    assert_eq!(clocked.next(), None);
    assert!((0..3).all(|index| !clocked.table.choice().is_abandoned(index)));
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.next(), Some(2));
    assert!(clocked.table.choice().is_abandoned(0));
    assert!(!clocked.table.choice().is_abandoned(2));
}

#[test]
fn requests_go_to_servers_that_are_not_ready_if_no_other_is() {
    let mut clocked = Clocked::ready();
    clocked.observe(0, identified("another"));
    clocked.observe(0, unready(None));
    for index in [1, 2, 1, 2] {
        clocked.observe(index, unready(None));
    }
    assert_eq!(clocked.states(), [EndpointState::Unready; 3]);
    assert!((0..3).all(|index| !clocked.table.choice().is_abandoned(index)));
    let (choice, mut failed_ones) = (clocked.table.choice(), EndpointMask::default());
    assert_eq!(
        choice.next(failed_ones),
        Some(2),
        "active since the other had failed"
    );
    failed_ones.insert(2);
    assert_eq!(choice.next(failed_ones), Some(1));
    failed_ones.insert(1);
    assert_eq!(choice.next(failed_ones), None, "of another cluster");
    // The active one is gone: another one becomes active, whose caches may be behind.
    clocked.now += LAG_MAX;
    clocked.table.refused(2, "", clocked.now, 0);
    assert_eq!(clocked.next(), Some(1));
    assert!(clocked.table.choice().has_moved(clocked.now));
    // One that is ready again is better.
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.next(), Some(2));
    assert!(clocked.table.choice().is_abandoned(1));
}

#[test]
fn a_server_that_was_never_identified_is_not_used_while_it_is_not_ready() {
    let mut clocked = Clocked::new();
    (0..3).for_each(|index| clocked.observe(index, unready(None)));
    clocked.table.start(clocked.now, 0);
    assert_eq!(clocked.next(), None);
}

#[test]
fn two_answers_that_a_server_is_not_ready_are_a_second_apart() {
    let mut clocked = Clocked::ready();
    clocked.observe(1, unready(None));
    assert!(!clocked.table.due(clocked.now).contains(&1));
    clocked.now += SUSPECT_INTERVAL;
    assert!(clocked.table.due(clocked.now).contains(&1));
}

#[test]
fn gateways_spread_over_the_endpoints_that_are_left() {
    let moved_to = |random| {
        let mut clocked = Clocked::ready();
        clocked.table.refused(1, "", clocked.now, random);
        clocked.next()
    };
    assert_eq!(moved_to(0), Some(0));
    assert_eq!(moved_to(1), Some(2));
}

#[test]
fn the_preferred_endpoint_is_used_again_only_after_minutes() {
    let mut clocked = Clocked::ready();
    clocked.table.refused(1, "", clocked.now, 1);
    assert_eq!(clocked.next(), Some(2));
    clocked.pass(RETURN_AFTER - Duration::from_secs(1), |_| identified(UID));
    assert_eq!(
        (clocked.state(1), clocked.next()),
        (EndpointState::Ready, Some(2))
    );
    // Another failure starts the time anew.
    clocked.table.refused(1, "", clocked.now, 1);
    clocked.pass(RETURN_AFTER - Duration::from_secs(1), |_| identified(UID));
    assert_eq!(clocked.next(), Some(2));
    clocked.pass(Duration::from_secs(10), |_| identified(UID));
    assert_eq!(clocked.next(), Some(1));
    assert!(clocked.table.choice().has_moved(clocked.now));
    clocked.pass(LAG_MAX, |_| identified(UID));
    assert!(!clocked.table.choice().has_moved(clocked.now));
}

#[test]
fn an_endpoint_of_another_cluster_is_not_used_until_it_belongs_to_this_one() {
    let mut clocked = Clocked::ready();
    clocked.table.refused(0, "", clocked.now, 0);
    clocked.observe(0, identified("another"));
    assert_eq!(clocked.state(0), EndpointState::Foreign);
    let changes = clocked.table.take_changes();
    let reason = changes.iter().find_map(|change| match change {
        EndpointChange::State {
            reason,
            state: EndpointState::Foreign,
            ..
        } => Some(reason),
        EndpointChange::State { .. } | EndpointChange::Active { .. } => None,
    });
    let expected =
        "its namespace kube-system has the uid another, that of the other API servers the cluster";
    assert_eq!(reason.unwrap(), expected);
    clocked.observe(0, identified(UID));
    assert_eq!(clocked.state(0), EndpointState::Ready);
    // A ready endpoint's address may come to name another cluster, too.
    assert!(
        clocked.table.needs_identity(1) || clocked.table.endpoints[1].checks_until_identity > 0
    );
    clocked.observe(1, identified("another"));
    assert_eq!(clocked.state(1), EndpointState::Foreign);
    assert_ne!(clocked.next(), Some(1));
}

#[test]
fn an_answer_that_does_not_tell_the_cluster_changes_nothing() {
    let mut clocked = Clocked::ready();
    for _ in 0..5 {
        (0..3).for_each(|index| clocked.observe(index, ProbeOutcome::Unidentified));
    }
    assert_eq!(
        [0, 1, 2].map(|index| clocked.state(index)),
        [EndpointState::Ready; 3]
    );
    assert_eq!(clocked.table.take_changes(), []);
    // It belonged to another cluster.
    clocked.observe(1, identified("another"));
    for outcome in [ProbeOutcome::Unidentified, ProbeOutcome::Identified(None)] {
        clocked.observe(1, outcome);
        assert_eq!(clocked.state(1), EndpointState::Foreign);
    }
    // It was never identified.
    let mut clocked = Clocked::new();
    clocked.observe(0, ProbeOutcome::Unidentified);
    assert_eq!(clocked.state(0), EndpointState::Unchecked);
    assert!(!clocked.table.has_cluster());
}

const READY: EndpointState = EndpointState::Ready;
const FOREIGN: EndpointState = EndpointState::Foreign;
const UNREADABLE: ProbeOutcome = ProbeOutcome::Identified(None);

impl Clocked {
    fn states(&self) -> [EndpointState; 3] {
        [0, 1, 2].map(|index| self.state(index))
    }

    /// Three ready endpoints whose uids cannot be read.
    fn unreadable() -> Self {
        let mut clocked = Self::new();
        (0..3).for_each(|index| clocked.observe(index, UNREADABLE));
        clocked.table.start(clocked.now, 0);
        assert_eq!(clocked.states(), [READY; 3]);
        clocked
    }
}

#[test]
fn an_identity_that_cannot_be_read_decides_only_after_all_were_asked() {
    let mut clocked = Clocked::new();
    clocked.observe(0, UNREADABLE);
    clocked.observe(1, failed(EndpointFailure::Timeout));
    assert_eq!((clocked.next(), clocked.table.has_cluster()), (None, false));
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.next(), Some(2));
    clocked.observe(0, UNREADABLE);
    assert_eq!(clocked.state(0), FOREIGN, "cannot be compared");

    let mut clocked = Clocked::new();
    clocked.observe(0, UNREADABLE);
    clocked.observe(1, UNREADABLE);
    assert!(!clocked.table.has_cluster());
    clocked.observe(2, failed(EndpointFailure::Connect));
    clocked.observe(1, UNREADABLE);
    assert_eq!(clocked.states(), [READY, READY, EndpointState::Unreachable]);
    clocked.table.start(clocked.now, 0);
    assert_eq!(clocked.next(), Some(1));
    assert!(!clocked.table.choice().has_moved(clocked.now));
}

#[test]
fn servers_whose_uid_can_be_read_are_not_locked_out_by_one_that_is_gone() {
    let mut clocked = Clocked::unreadable();
    for index in [0, 2] {
        clocked.table.refused(index, "", clocked.now, 0);
        clocked.observe(index, identified(UID));
        assert_eq!(clocked.state(index), FOREIGN);
    }
    clocked.table.refused(1, "", clocked.now, 0);
    assert_eq!(clocked.next(), None);
    clocked.observe(0, identified(UID));
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.states(), [READY, EndpointState::Unreachable, READY]);
    clocked.observe(1, identified("another"));
    assert_eq!(clocked.state(1), FOREIGN);
}

#[test]
fn an_endpoint_that_is_used_is_asked_for_its_uid_once_another_tells_one() {
    let mut clocked = Clocked::unreadable();
    clocked.table.refused(2, "", clocked.now, 0);
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.state(2), FOREIGN);
    clocked.now += SUSPECT_INTERVAL;
    for index in [0, 1] {
        assert!(clocked.table.due(clocked.now).contains(&index));
        assert!(clocked.table.needs_identity(index));
    }
    clocked.observe(0, identified(UID));
    clocked.observe(1, identified(UID));
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.states(), [READY; 3]);
}

#[test]
fn a_server_that_refuses_the_credentials_is_left_only_if_another_accepts_them() {
    let mut clocked = Clocked::ready();
    let checks = clocked.pass(Duration::from_secs(60), |_| ProbeOutcome::Unauthorized);
    assert!(checks <= 40, "{checks}");
    assert_eq!((clocked.states(), clocked.next()), ([READY; 3], Some(1)));
    clocked.pass(Duration::from_secs(10), |_| identified(UID));
    assert_eq!(clocked.table.take_changes(), []);
    let refuses_one = |index| match index {
        1 => ProbeOutcome::Unauthorized,
        _ => identified(UID),
    };
    clocked.pass(Duration::from_secs(10), refuses_one);
    assert_eq!(clocked.states(), [READY, EndpointState::Unready, READY]);
    assert_ne!(clocked.next(), Some(1));
    // It stays away as long as it refuses them, and returns when it accepts them.
    clocked.pass(Duration::from_secs(60), refuses_one);
    assert_eq!(clocked.state(1), EndpointState::Unready);
    clocked.pass(Duration::from_secs(10), |_| identified(UID));
    assert_eq!(clocked.states(), [READY; 3]);
}

#[test]
fn credentials_that_no_server_accepts_do_not_stop_the_gateway() {
    // Only requests renew credentials.
    let mut clocked = Clocked::new();
    (0..3).for_each(|index| clocked.observe(index, ProbeOutcome::Unauthorized));
    clocked.table.start(clocked.now, 0);
    assert_eq!(clocked.states(), [READY; 3]);
    clocked.pass(Duration::from_secs(10), |_| identified(UID));
    clocked.table.refused(1, "", clocked.now, 0);
    clocked.observe(1, identified("another"));
    assert_eq!(clocked.states(), [READY, FOREIGN, READY]);
}

#[test]
fn a_permission_to_read_the_cluster_may_come_and_go() {
    let mut clocked = Clocked::unreadable();
    clocked.observe(0, identified(UID));
    clocked.observe(2, identified(UID));
    assert_eq!(clocked.states(), [READY; 3]);
    // It was revoked again: endpoints that were compared and have been there since stay, others cannot be compared.
    clocked.observe(0, UNREADABLE);
    clocked.table.refused(1, "", clocked.now, 0);
    clocked.observe(1, UNREADABLE);
    assert_eq!(clocked.states(), [READY, FOREIGN, READY]);
}

#[test]
fn an_endpoint_that_comes_back_must_belong_to_the_cluster_again() {
    let answers = [
        identified("another"),
        UNREADABLE,
        ProbeOutcome::Unidentified,
        unready(Some("another")),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let mut clocked = Clocked::ready();
        clocked.table.refused(1, "", clocked.now, 0);
        clocked.observe(1, answer);
        assert_ne!(clocked.state(1), READY, "answer {number}");
        assert!(clocked.table.needs_identity(1), "asked again");
        // If no other is there, it is used as long as it does not tell another uid.
        for index in [0, 2] {
            clocked.table.refused(index, "", clocked.now, 0);
        }
        let is_told = [true, false, false, true][number];
        clocked.observe(1, unready(None));
        assert_eq!(clocked.next().is_none(), is_told, "answer {number}");
        clocked.observe(1, identified(UID));
        assert_eq!(clocked.next(), Some(1), "answer {number}");
    }
}

#[test]
fn an_endpoint_that_comes_back_alone_is_used_unless_it_belongs_to_another_cluster() {
    let gone = || {
        let mut clocked = Clocked::ready();
        (0..3).for_each(|index| clocked.table.refused(index, "", clocked.now, 0));
        clocked
    };
    for outcome in [UNREADABLE, ProbeOutcome::Unidentified] {
        let mut clocked = gone();
        clocked.observe(0, outcome.clone());
        clocked.observe(0, outcome.clone());
        assert_eq!((clocked.state(0), clocked.next()), (READY, Some(0)));
        // As soon as there is one that shows its uid, the others must do so, too.
        clocked.now += SUSPECT_INTERVAL;
        clocked.observe(1, identified(UID));
        assert!(clocked.table.due(clocked.now).contains(&0));
        assert!(clocked.table.needs_identity(0));
        clocked.observe(2, outcome.clone());
        assert_ne!(clocked.state(2), READY);
        assert_eq!(clocked.next(), Some(0), "until it was asked");
        for _ in 0..FAILURES_MAX {
            clocked.observe(0, outcome.clone());
        }
        assert_ne!(clocked.state(0), READY);
        assert_eq!(clocked.next(), Some(1));
        // It is as good as the others once it shows its uid, and as before if they are gone.
        clocked.observe(0, identified(UID));
        clocked.observe(0, outcome.clone());
        assert_eq!(clocked.state(0), READY);
        clocked.table.refused(0, "", clocked.now, 0);
        clocked.table.refused(1, "", clocked.now, 0);
        clocked.observe(0, outcome);
        assert_eq!((clocked.state(0), clocked.next()), (READY, Some(0)));
    }
    let mut clocked = gone();
    clocked.observe(0, identified("another"));
    assert_eq!((clocked.state(0), clocked.next()), (FOREIGN, None));
}

#[test]
fn an_endpoint_that_is_believed_while_alone_stays_a_former_one() {
    let refuses = [UNREADABLE, ProbeOutcome::Unauthorized];
    for outcome in refuses {
        let mut clocked = Clocked::ready();
        (0..3).for_each(|index| clocked.table.refused(index, "", clocked.now, 0));
        clocked.pass(Duration::from_secs(600), |index| match index {
            0 => outcome.clone(),
            _ => failed(EndpointFailure::Connect),
        });
        assert_eq!((clocked.state(0), clocked.next()), (READY, Some(0)));
        assert!(!clocked.table.is_proven(0));
        clocked.pass(Duration::from_secs(20), |index| match index {
            0 => outcome.clone(),
            _ => identified(UID),
        });
        assert_ne!(clocked.state(0), READY, "{outcome:?}");
        assert_ne!(clocked.next(), Some(0));
    }
}

#[test]
fn an_endpoint_whose_check_failed_shows_its_uid_with_the_next_one() {
    use EndpointFailure as Failure;
    for outcome in [
        failed(Failure::Timeout),
        failed(Failure::Broken),
        unready(None),
    ] {
        let mut clocked = Clocked::ready();
        assert!(!clocked.table.needs_identity(1));
        clocked.observe(1, outcome);
        assert_eq!(clocked.state(1), READY);
        assert!(clocked.table.needs_identity(1));
        clocked.observe(1, identified(UID));
        assert!(!clocked.table.needs_identity(1));
    }
}

#[test]
fn a_check_that_began_before_an_endpoint_failed_does_not_make_it_ready() {
    let refused = |clocked: &mut Clocked| clocked.table.refused(1, "", clocked.now, 0);
    let foreign = |clocked: &mut Clocked| clocked.observe(1, identified("another"));
    let unready =
        |clocked: &mut Clocked| (0..FAILURES_MAX).for_each(|_| clocked.observe(1, unready(None)));
    let failures: [&dyn Fn(&mut Clocked); 3] = [&refused, &foreign, &unready];
    for fail in failures {
        let mut clocked = Clocked::ready();
        fail(&mut clocked);
        let state = clocked.state(1);
        assert_ne!(state, READY);
        clocked.observe(1, ProbeOutcome::Ready);
        assert_eq!(clocked.state(1), state);
        assert_ne!(clocked.next(), Some(1));
        // It is asked at once, and used when it belongs to the cluster.
        assert!(clocked.table.due(clocked.now).contains(&1));
        assert!(clocked.table.needs_identity(1));
        clocked.observe(1, identified(UID));
        assert_eq!(clocked.state(1), READY);
    }
}

#[test]
fn servers_that_are_not_ready_show_that_they_belong_to_the_cluster() {
    let mut clocked = Clocked::ready();
    (0..3).for_each(|index| clocked.table.refused(index, "", clocked.now, 0));
    clocked.observe(0, unready(Some("another")));
    clocked.observe(1, unready(Some(UID)));
    assert_eq!(clocked.state(0), FOREIGN);
    assert_eq!(
        (clocked.state(1), clocked.next()),
        (EndpointState::Unready, Some(1))
    );
    // One that was not there before, too.
    let mut clocked = Clocked::new();
    clocked.observe(0, identified(UID));
    clocked.observe(1, unready(Some(UID)));
    clocked.table.start(clocked.now, 0);
    clocked.table.refused(0, "", clocked.now, 0);
    assert_eq!(clocked.next(), Some(1));
}

#[test]
fn what_another_cluster_sends_is_abandoned_also_if_no_endpoint_is_ready() {
    let mut clocked = Clocked::ready();
    (0..3).for_each(|index| clocked.table.refused(index, "", clocked.now, 0));
    clocked.observe(1, identified("another"));
    let abandoned = [0, 1, 2].map(|index| clocked.table.choice().is_abandoned(index));
    assert_eq!(abandoned, [false, true, false]);
}

#[test]
fn silent_servers_do_not_keep_others_from_being_checked() {
    // Until the cluster is known, one is checked at a time, each for longer than the first pauses.
    let mut clocked = Clocked::new();
    let mut checked = Vec::new();
    for _ in 0..6 {
        let index = clocked.table.due(clocked.now)[0];
        checked.push(index);
        clocked.now += Duration::from_secs(20);
        clocked.observe(index, failed(EndpointFailure::Timeout));
        clocked.now += Duration::from_secs(20);
    }
    assert_eq!(checked, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn checks_are_rare() {
    let mut clocked = Clocked::ready();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let checks = clocked.pass(minutes(10), |_| ProbeOutcome::Ready);
    assert!((300..=360).contains(&checks), "{checks}");
    // Requests that fail ask for more of them, at most one a second.
    let mut checks = 0;
    for _ in 0..1_000 {
        clocked.table.suspect(1, clocked.now);
        checks += clocked.pass(Duration::from_millis(10), |_| ProbeOutcome::Ready);
    }
    assert!((9..=15).contains(&checks), "{checks}");
    // An endpoint that is gone is asked with growing pauses.
    clocked.table.refused(1, "", clocked.now, 0);
    let gone = |index| match index {
        1 => failed(EndpointFailure::Connect),
        _ => ProbeOutcome::Ready,
    };
    let checks = clocked.pass(minutes(10), gone);
    assert!((400..=700).contains(&checks), "{checks}");
}

#[test]
fn a_watch_that_lags_moves_requests_once_and_the_endpoint_is_returned_to_later() {
    let mut clocked = Clocked::ready();
    assert_eq!(clocked.next(), Some(1));
    for _ in 0..3 {
        clocked.table.lagging(clocked.now, 0);
    }
    assert_eq!(clocked.next(), Some(0));
    clocked.pass(Duration::from_secs(60), |_| ProbeOutcome::Ready);
    assert_eq!(clocked.next(), Some(0));
    clocked.pass(2 * RETURN_AFTER, |_| ProbeOutcome::Ready);
    assert_eq!(clocked.next(), Some(1));
}

#[test]
fn a_watch_that_lags_moves_nothing_where_no_other_endpoint_is_ready() {
    let mut clocked = Clocked::new();
    clocked.observe(1, identified(UID));
    clocked.table.start(clocked.now, 0);
    clocked.table.lagging(clocked.now, 0);
    assert_eq!(clocked.next(), Some(1));
}
