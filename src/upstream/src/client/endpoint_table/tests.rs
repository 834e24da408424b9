//! The states of endpoints and the choice among them, without connections.

use super::*;

const UID: &str = "the cluster";
const READY: EndpointState = EndpointState::Ready;
const UNREADY: EndpointState = EndpointState::Unready;
const UNREACHABLE: EndpointState = EndpointState::Unreachable;
const FOREIGN: EndpointState = EndpointState::Foreign;

/// A table of three endpoints, of which the second is preferred, and a clock that the test moves.
struct Clocked {
    table: EndpointTable,
    now: Instant,
}

impl Clocked {
    /// The first round of checks ends like this.
    fn new(outcomes: [ProbeOutcome; 3]) -> Self {
        let now = Instant::now();
        let mut table = EndpointTable::new(3, 1, RETURN_AFTER, now);
        table.observe_all(outcomes.to_vec(), now, now);
        Self { table, now }
    }

    fn ready() -> Self {
        let mut clocked = Self::new([told(UID), told(UID), told(UID)]);
        clocked.table.take_changes();
        clocked
    }

    /// Three ready endpoints whose uids the gateway may not read.
    fn unreadable() -> Self {
        let clocked = Self::new([denied(), denied(), denied()]);
        assert_eq!(clocked.states(), [READY; 3]);
        clocked
    }

    fn observe(&mut self, index: usize, outcome: ProbeOutcome) {
        self.now += Duration::from_millis(1);
        self.table.observe(index, outcome, self.now, self.now);
    }

    fn refused(&mut self, index: usize) {
        self.table.refused(index, "", self.now);
    }

    fn all_refused(&mut self) {
        (0..3).for_each(|index| self.refused(index));
    }

    fn states(&self) -> [EndpointState; 3] {
        [0, 1, 2].map(|index| self.table.endpoints[index].state)
    }

    fn next(&self) -> Option<usize> {
        self.table.choice().next(&[])
    }

    fn abandoned(&self) -> [bool; 3] {
        [0, 1, 2].map(|index| self.table.choice().is_abandoned(index))
    }

    fn has_moved(&self) -> bool {
        self.table.choice().has_moved(self.now)
    }

    /// Checks every endpoint once a second, each of which answers as `answer` says.
    fn pass(&mut self, time: Duration, answer: impl Fn(usize) -> ProbeOutcome) {
        for _ in 0..time.as_secs() {
            self.now += Duration::from_secs(1);
            for index in 0..3 {
                self.observe(index, answer(index));
            }
        }
    }
}

fn answered(uid: ClusterUid) -> ProbeAnswer {
    ProbeAnswer {
        unready: None,
        is_authorized: true,
        uid,
    }
}

fn told(uid: &str) -> ProbeOutcome {
    ProbeOutcome::Answered(answered(ClusterUid::Told(uid.to_owned())))
}

fn denied() -> ProbeOutcome {
    ProbeOutcome::Answered(answered(ClusterUid::Denied))
}

fn untold() -> ProbeOutcome {
    ProbeOutcome::Answered(answered(ClusterUid::Untold))
}

fn unauthorized() -> ProbeOutcome {
    ProbeOutcome::Answered(ProbeAnswer {
        is_authorized: false,
        ..answered(ClusterUid::Denied)
    })
}

fn unready(uid: ClusterUid) -> ProbeOutcome {
    ProbeOutcome::Answered(ProbeAnswer {
        unready: Some(String::new()),
        ..answered(uid)
    })
}

fn failed(failure: EndpointFailure) -> ProbeOutcome {
    ProbeOutcome::Failed {
        failure,
        reason: String::new(),
    }
}

#[test]
fn requests_go_to_the_preferred_endpoint_and_then_to_the_others_in_order() {
    let mut clocked = Clocked::ready();
    let choice = clocked.table.choice();
    assert_eq!(choice.next(&[]), Some(1));
    assert_eq!(choice.next(&[1]), Some(2));
    assert_eq!(choice.next(&[1, 2]), Some(0));
    assert_eq!(choice.next(&[1, 2, 0]), None);
    assert!(!clocked.has_moved());
    clocked.refused(1);
    assert_eq!(clocked.next(), Some(2));
    clocked.refused(2);
    assert_eq!(clocked.next(), Some(0));
}

#[test]
fn an_endpoint_gets_no_requests_before_its_first_check() {
    let table = EndpointTable::new(3, 1, RETURN_AFTER, Instant::now());
    assert_eq!(table.choice().next(&[]), None);
    // Nor if the check could not be made.
    let clocked = Clocked::new([told(UID), ProbeOutcome::Undecided, told(UID)]);
    assert_eq!(clocked.next(), Some(2));
}

#[test]
fn a_refused_connection_counts_at_once_and_other_failures_twice_in_a_row() {
    use EndpointFailure as Failure;
    let rows = [
        (failed(Failure::Connect), UNREACHABLE, UNREACHABLE),
        (failed(Failure::Certificate), UNREACHABLE, UNREACHABLE),
        (failed(Failure::Timeout), READY, UNREACHABLE),
        (failed(Failure::Broken), READY, UNREACHABLE),
        (unready(ClusterUid::Told(UID.to_owned())), READY, UNREADY),
        (unready(ClusterUid::Untold), READY, UNREADY),
    ];
    for (outcome, once, twice) in rows {
        let mut clocked = Clocked::ready();
        clocked.observe(1, outcome.clone());
        assert_eq!(clocked.states()[1], once, "{outcome:?}");
        assert!(clocked.table.pause(1) < CHECK_INTERVAL, "asked again soon");
        clocked.observe(1, outcome.clone());
        assert_eq!(clocked.states()[1], twice, "{outcome:?}");
        assert_eq!(clocked.abandoned(), [false, true, false]);
        let mut clocked = Clocked::ready();
        clocked.observe(0, outcome);
        clocked.observe(0, told(UID));
        assert_eq!(clocked.states(), [READY; 3], "not in a row");
    }
    let mut clocked = Clocked::ready();
    clocked.refused(1);
    assert_eq!(clocked.states()[1], UNREACHABLE);
}

#[test]
fn nothing_is_abandoned_while_no_endpoint_is_ready() {
    let mut clocked = Clocked::ready();
    clocked.all_refused();
    assert_eq!((clocked.next(), clocked.abandoned()), (None, [false; 3]));
    clocked.observe(2, told(UID));
    assert_eq!(clocked.next(), Some(2));
    assert_eq!(clocked.abandoned(), [true, true, false]);
    // Only what another cluster sends is not wanted in any case.
    clocked.all_refused();
    clocked.observe(1, told("another"));
    assert_eq!(clocked.abandoned(), [false, true, false]);
}

#[test]
fn requests_go_to_members_that_are_not_ready_if_no_endpoint_is() {
    let mut clocked = Clocked::ready();
    clocked.observe(0, told("another"));
    clocked.observe(0, unready(ClusterUid::Untold));
    for index in [1, 2, 1, 2] {
        clocked.observe(index, unready(ClusterUid::Untold));
    }
    assert_eq!(clocked.states(), [UNREADY; 3]);
    assert_eq!(clocked.abandoned(), [false; 3]);
    let choice = clocked.table.choice();
    assert_eq!(
        choice.next(&[]),
        Some(2),
        "active since the other had failed"
    );
    assert_eq!(choice.next(&[2]), Some(1));
    assert_eq!(choice.next(&[2, 1]), None, "of another cluster");
    // The active one is gone: another one becomes active, whose caches may be behind.
    clocked.now += LAG_MAX;
    clocked.refused(2);
    assert_eq!((clocked.next(), clocked.has_moved()), (Some(1), true));
    // One that is ready again is better.
    clocked.observe(2, told(UID));
    assert_eq!(clocked.next(), Some(2));
    assert_eq!(clocked.abandoned(), [true, true, false]);
    // One that never told its uid is not used.
    let mut clocked = Clocked::new([told(UID), unready(ClusterUid::Untold), told("another")]);
    clocked.refused(0);
    assert_eq!(clocked.next(), None);
}

#[test]
fn the_preferred_endpoint_is_used_again_only_after_minutes() {
    let mut clocked = Clocked::ready();
    let almost = RETURN_AFTER - Duration::from_secs(2);
    // Another failure starts the time anew.
    for _ in 0..2 {
        clocked.refused(1);
        clocked.pass(almost, |_| told(UID));
        assert_eq!((clocked.states()[1], clocked.next()), (READY, Some(2)));
    }
    clocked.pass(Duration::from_secs(10), |_| told(UID));
    assert_eq!((clocked.next(), clocked.has_moved()), (Some(1), true));
    clocked.pass(LAG_MAX, |_| told(UID));
    assert!(!clocked.has_moved());
}

#[test]
fn the_first_uid_in_the_order_of_the_configuration_decides_which_cluster_it_is() {
    let silent = || failed(EndpointFailure::Timeout);
    let rows = [
        ([told(UID), told("b"), told(UID)], [READY, FOREIGN, READY]),
        (
            [silent(), told("b"), told(UID)],
            [UNREACHABLE, READY, FOREIGN],
        ),
        // It cannot be compared with one that can.
        ([denied(), told(UID), told(UID)], [FOREIGN, READY, READY]),
        ([denied(), silent(), denied()], [READY, UNREACHABLE, READY]),
        (
            [untold(), untold(), silent()],
            [UNREADY, UNREADY, UNREACHABLE],
        ),
        (
            [
                unready(ClusterUid::Told(UID.to_owned())),
                told("b"),
                told(UID),
            ],
            [FOREIGN, READY, FOREIGN],
        ),
    ];
    for (outcomes, expected) in rows {
        let clocked = Clocked::new(outcomes.clone());
        assert_eq!(clocked.states(), expected, "{outcomes:?}");
        let is_known = outcomes[0] != untold();
        assert_eq!(clocked.table.has_cluster(), is_known);
        assert_eq!(clocked.next().is_some(), is_known);
    }
}

#[test]
fn a_server_that_is_not_ready_does_not_decide_which_cluster_it_is() {
    let another = || unready(ClusterUid::Told("another".to_owned()));
    let clocked = Clocked::new([another(), told(UID), told(UID)]);
    assert_eq!(clocked.states(), [FOREIGN, READY, READY]);
    let clocked = Clocked::new([unready(ClusterUid::Denied), told(UID), told(UID)]);
    assert_eq!(clocked.states(), [UNREADY, READY, READY]);
}

#[test]
fn a_server_that_cannot_tell_its_cluster_yet_is_not_called_foreign() {
    let mut clocked = Clocked::new([told(UID), told(UID), unauthorized()]);
    assert_eq!(clocked.states(), [READY, READY, UNREADY]);
    clocked.observe(2, unready(ClusterUid::Denied));
    assert_eq!(clocked.states(), [READY, READY, UNREADY]);
    clocked.observe(2, denied());
    assert_eq!(clocked.states(), [READY, READY, FOREIGN]);
    clocked.observe(2, told(UID));
    assert_eq!(clocked.states(), [READY, READY, READY]);
}

#[test]
fn an_endpoint_of_another_cluster_is_not_used_until_it_belongs_to_this_one() {
    let mut clocked = Clocked::ready();
    // Also one that was ready, whose address names another cluster now.
    clocked.observe(1, told("another"));
    assert_eq!(clocked.states(), [READY, FOREIGN, READY]);
    assert_ne!(clocked.next(), Some(1));
    let reason =
        "its namespace kube-system has the uid another, that of the other API servers the cluster";
    let expected = EndpointChange::State {
        index: 1,
        state: FOREIGN,
        reason: reason.to_owned(),
    };
    assert_eq!(clocked.table.take_changes()[0], expected);
    for outcome in [denied(), unready(ClusterUid::Told("another".to_owned()))] {
        clocked.observe(1, outcome);
        assert_eq!(clocked.states()[1], FOREIGN);
    }
    clocked.observe(1, untold());
    clocked.refused(0);
    clocked.refused(2);
    assert_eq!(clocked.next(), None);
    clocked.observe(1, told(UID));
    assert_eq!((clocked.states()[1], clocked.next()), (READY, Some(1)));
}

#[test]
fn an_answer_that_does_not_tell_the_cluster_changes_nothing() {
    let mut clocked = Clocked::ready();
    for _ in 0..5 {
        for index in 0..3 {
            clocked.observe(index, untold());
            clocked.observe(index, denied());
            clocked.observe(index, ProbeOutcome::Undecided);
        }
    }
    assert_eq!(clocked.states(), [READY; 3]);
    assert_eq!(clocked.table.take_changes(), []);
}

#[test]
fn an_endpoint_that_comes_back_must_belong_to_the_cluster_again() {
    let foreign = ClusterUid::Told("another".to_owned());
    let rows = [
        (told("another"), FOREIGN),
        (unready(foreign), FOREIGN),
        (denied(), UNREADY),
        (untold(), UNREADY),
        (unauthorized(), UNREADY),
        (unready(ClusterUid::Untold), UNREADY),
    ];
    for (outcome, expected) in rows {
        let mut clocked = Clocked::ready();
        clocked.refused(1);
        for _ in 0..3 {
            clocked.observe(1, outcome.clone());
            assert_eq!(clocked.states()[1], expected, "{outcome:?}");
        }
        // If no other is there, it is used as long as it does not tell another uid.
        clocked.refused(0);
        clocked.refused(2);
        assert_eq!(clocked.next().is_none(), expected == FOREIGN, "{outcome:?}");
        clocked.observe(0, told(UID));
        assert_eq!(clocked.next(), Some(0), "{outcome:?}");
        clocked.observe(1, told(UID));
        assert_eq!(clocked.states()[1], READY);
    }
}

#[test]
fn a_check_that_began_before_an_endpoint_refused_a_connection_does_not_make_it_ready() {
    let mut clocked = Clocked::ready();
    let began = clocked.now;
    clocked.now += Duration::from_secs(1);
    clocked.refused(1);
    clocked.now += Duration::from_secs(1);
    clocked.table.observe(1, told(UID), began, clocked.now);
    assert_eq!(
        (clocked.states()[1], clocked.next()),
        (UNREACHABLE, Some(2))
    );
    clocked.observe(1, told(UID));
    assert_eq!(clocked.states()[1], READY);
}

#[test]
fn servers_whose_uid_can_be_read_are_not_locked_out_by_one_that_is_gone() {
    let mut clocked = Clocked::unreadable();
    for index in [0, 2] {
        clocked.refused(index);
        clocked.observe(index, told(UID));
    }
    assert_eq!(clocked.states(), [FOREIGN, READY, FOREIGN]);
    clocked.refused(1);
    assert_eq!(clocked.next(), None);
    clocked.observe(0, told(UID));
    clocked.observe(2, told(UID));
    assert_eq!(clocked.states(), [READY, UNREACHABLE, READY]);
    clocked.observe(1, told("another"));
    assert_eq!(clocked.states()[1], FOREIGN);
}

#[test]
fn an_endpoint_that_is_used_may_tell_its_uid_later_and_the_others_are_compared() {
    let mut clocked = Clocked::unreadable();
    clocked.observe(0, told(UID));
    clocked.observe(1, denied());
    clocked.observe(2, told(UID));
    assert_eq!(clocked.states(), [READY, FOREIGN, READY]);
    clocked.observe(1, told(UID));
    // A permission that is revoked again says nothing about those that were compared.
    clocked.pass(Duration::from_secs(60), |_| denied());
    assert_eq!(clocked.states(), [READY; 3]);
}

#[test]
fn a_server_that_refuses_the_credentials_is_left_only_if_another_accepts_them() {
    let mut clocked = Clocked::ready();
    clocked.pass(Duration::from_secs(60), |_| unauthorized());
    clocked.pass(Duration::from_secs(10), |_| told(UID));
    assert_eq!(clocked.table.take_changes(), []);
    clocked.pass(Duration::from_secs(60), |index| match index {
        1 => unauthorized(),
        _ => told(UID),
    });
    assert_eq!(clocked.states(), [READY, UNREADY, READY]);
    assert_eq!(clocked.next(), Some(2));
    clocked.pass(Duration::from_secs(10), |_| told(UID));
    assert_eq!(clocked.states(), [READY; 3]);
}

#[test]
fn credentials_that_no_server_accepts_do_not_stop_the_gateway() {
    // Only requests renew credentials.
    let mut clocked = Clocked::new([unauthorized(), unauthorized(), unauthorized()]);
    assert_eq!(clocked.states(), [READY; 3]);
    clocked.pass(Duration::from_secs(10), |_| told(UID));
    clocked.observe(1, told("another"));
    assert_eq!(clocked.states(), [READY, FOREIGN, READY]);
}

#[test]
fn a_watch_that_lags_moves_requests_once_and_the_endpoint_is_returned_to_later() {
    let mut clocked = Clocked::ready();
    clocked.pass(2 * RETURN_AFTER, |_| told(UID));
    for _ in 0..3 {
        clocked.table.lagging(clocked.now);
    }
    assert_eq!(clocked.next(), Some(2));
    clocked.pass(RETURN_AFTER / 2, |_| told(UID));
    assert_eq!(clocked.next(), Some(2));
    clocked.pass(RETURN_AFTER, |_| told(UID));
    assert_eq!(clocked.next(), Some(1));
}

#[test]
fn a_watch_that_lags_moves_nothing_where_no_other_endpoint_is_ready() {
    let gone = failed(EndpointFailure::Connect);
    let mut clocked = Clocked::new([gone.clone(), told(UID), gone]);
    clocked.table.lagging(clocked.now);
    assert_eq!(clocked.next(), Some(1));
}
