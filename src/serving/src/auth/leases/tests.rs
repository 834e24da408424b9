//! Leases, with times that the tests set.

use super::super::changes::RoleScope;
use super::super::decisions::tests::{namespace, payer, pods, question, user};
use super::super::lease::LeaseHold;
use super::*;

const TIMES: RecheckTimes = RecheckTimes {
    interval: Duration::from_secs(30),
    grace: Duration::from_secs(300),
};

fn key(name: &str, space: &str) -> LeaseKey {
    LeaseKey {
        credential: None,
        impersonator: None,
        question: question(name, pods(space)).key,
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A lease that depends on one access, confirmed at `at`, with a stream that holds it.
fn held(leases: &mut Leases, name: &str, space: &str, at: Instant) -> (Lease, LeaseHold) {
    let lease = leases.lease(key(name, space), || access_requirement(name, space, at), at);
    let hold = lease.hold();
    (lease, hold)
}

/// Scans the leases, and accepts all requirements that are due.
fn due(leases: &mut Leases, now: Instant) -> Vec<RequirementKey> {
    leases.scan(now);
    let mut due = Vec::new();
    leases.offer_due(now, |requirement| {
        due.push(requirement.key());
        true
    });
    due
}

fn access(name: &str, space: &str) -> RequirementKey {
    RequirementKey::Access(question(name, pods(space)).key)
}

#[test]
fn streams_that_ask_alike_share_a_lease_and_others_do_not() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (first, _hold) = held(&mut leases, "jane", "a", start);
    let (_, _second) = held(&mut leases, "jane", "a", start);
    assert_eq!(first.stream_count(), 2);
    let mut others = Vec::new();
    others.push(held(&mut leases, "jane", "b", start));
    others.push(held(&mut leases, "joe", "a", start));
    let mut keys = vec![key("jane", "a"), key("jane", "a")];
    keys[0].impersonator = Some(user("root"));
    let hasher = super::super::digest::CredentialHasher::new(&[7; 32]);
    let token = BearerToken::from_authorization(http::HeaderValue::from_static("Bearer x"));
    keys[1].credential = Some(hasher.token(&token));
    for key in keys {
        let lease = leases.lease(key, Vec::new, start);
        let hold = lease.hold();
        others.push((lease, hold));
    }
    assert!(others.iter().all(|(lease, _)| lease.stream_count() == 1));
    assert_eq!(leases.scan(start).held, 5);
}

#[test]
fn each_requirement_is_due_once_within_the_interval_and_not_at_once() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let held: Vec<_> = (0..1000)
        .map(|n| held(&mut leases, "jane", &n.to_string(), start))
        .collect();
    let mut by_second = vec![0; 30];
    for second in 0..30 {
        for key in due(&mut leases, start + seconds(second)) {
            by_second[usize::try_from(second).unwrap()] += 1;
            leases.confirm(&key, start + seconds(second), start + seconds(second));
        }
    }
    assert_eq!(by_second[..15].iter().sum::<i32>(), 0);
    let all = usize::try_from(by_second.iter().sum::<i32>()).unwrap();
    assert_eq!(all, held.len());
    assert!(by_second.iter().all(|count| *count < 200), "{by_second:?}");
}

#[test]
fn a_check_in_flight_is_not_due_again() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held = held(&mut leases, "jane", "a", start);
    assert_eq!(due(&mut leases, start + seconds(30)), [access("jane", "a")]);
    assert!(due(&mut leases, start + seconds(60)).is_empty());
    leases.confirm(
        &access("jane", "a"),
        start + seconds(30),
        start + seconds(61),
    );
    assert_eq!(due(&mut leases, start + seconds(61)), [access("jane", "a")]);
}

#[test]
fn a_refusal_revokes_exactly_its_dependent_leases() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    let (other, _other) = held(&mut leases, "joe", "a", start);
    assert_eq!(leases.refuse(&access("jane", "a")), 1);
    assert!(lease.is_revoked() && !other.is_revoked());
    assert_eq!(leases.refuse(&access("jane", "a")), 0);
    // If the access is allowed again, a new stream gets a new lease.
    let (again, _again) = held(&mut leases, "jane", "a", start);
    assert!(!again.is_revoked());
}

#[test]
fn a_lease_depends_on_all_of_its_requirements() {
    let start = Instant::now();
    for refused in ["impersonate", "list"] {
        let mut leases = Leases::new(TIMES);
        let requirements = ["impersonate", "list"].map(|space| {
            let confirmation = Confirmation {
                at: start,
                is_doubtful: false,
            };
            (
                Requirement::Access(question("jane", pods(space))),
                confirmation,
            )
        });
        let lease = leases.lease(key("joe", "a"), || requirements.into(), start);
        let _hold = lease.hold();
        assert_eq!(leases.refuse(&access("jane", refused)), 1);
        assert!(lease.is_revoked());
    }
}

#[test]
fn failed_checks_revoke_nothing_within_the_grace_period() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    let mut failing_since = None;
    let mut checks = 0;
    for second in 0..400 {
        let now = start + seconds(second);
        let is_over = failing_since.is_some_and(|since| now >= since + TIMES.grace);
        for key in due(&mut leases, now) {
            failing_since.get_or_insert(now);
            checks += 1;
            leases.fail(&key, now, now);
        }
        assert_eq!(lease.is_revoked(), is_over, "after {second} s");
    }
    assert!(checks > 10, "{checks}");
}

#[test]
fn failed_checks_are_repeated_soon_and_then_less_often() {
    let start = Instant::now();
    let mut leases = Leases::new(RecheckTimes {
        interval: seconds(600),
        ..TIMES
    });
    let (_lease, _hold) = held(&mut leases, "jane", "a", start);
    let mut now = start + seconds(720);
    for delay in [5, 10, 20, 40, 60, 60] {
        assert_eq!(due(&mut leases, now).len(), 1);
        leases.fail(&access("jane", "a"), now, now);
        assert!(due(&mut leases, now + seconds(delay - 1)).is_empty());
        now += seconds(delay);
    }
}

#[test]
fn a_confirmation_begins_the_grace_anew() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    let fails = start + seconds(30);
    assert_eq!(due(&mut leases, fails).len(), 1);
    leases.fail(&access("jane", "a"), fails, fails);
    let later = start + seconds(299);
    assert_eq!(due(&mut leases, later).len(), 1);
    leases.confirm(&access("jane", "a"), later, later);
    let again = later + seconds(30);
    assert_eq!(due(&mut leases, again).len(), 1);
    leases.fail(&access("jane", "a"), again, again);
    assert_eq!(leases.scan(again + seconds(299)).revoked, 0);
    assert_eq!(leases.scan(again + seconds(300)).revoked, 1);
    assert!(lease.is_revoked());
}

/// Many streams and a slow upstream: checks wait, none fails.
#[test]
fn a_check_that_is_late_has_not_failed() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held: Vec<_> = (0..1_000)
        .map(|n| held(&mut leases, "jane", &n.to_string(), start))
        .collect();
    for second in 0..5 * 300 {
        let now = start + seconds(second);
        assert_eq!(leases.scan(now).revoked, 0, "after {second} s");
        let mut accepted = None;
        leases.offer_due(now, |requirement| {
            accepted.is_none() && accepted.insert(requirement.key()) == &requirement.key()
        });
        if let Some(key) = accepted {
            leases.confirm(&key, now, now);
        }
    }
}

#[test]
fn nothing_continues_for_longer_than_an_hour_and_the_grace_without_confirmation() {
    let start = Instant::now();
    let end = start + seconds(3_600) + TIMES.grace;
    // Never answered.
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    assert_eq!(due(&mut leases, start + seconds(30)).len(), 1);
    assert_eq!(leases.scan(start + seconds(3_000)).revoked, 0);
    assert_eq!(leases.scan(end).revoked, 1);
    assert!(lease.is_revoked());
    // Never asked.
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    assert_eq!(leases.scan(start + seconds(3_000)).revoked, 0);
    assert_eq!(leases.scan(end).revoked, 1);
    assert!(lease.is_revoked());
    // Answered, but as of a time long ago.
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    for second in (30..3_900).step_by(30) {
        due(&mut leases, start + seconds(second));
        leases.confirm(&access("jane", "a"), start, start + seconds(second));
    }
    leases.scan(end);
    assert!(lease.is_revoked());
}

/// With a short grace, and answers that are remembered for an hour.
#[test]
fn a_stream_on_a_very_old_answer_lives_until_its_check() {
    let times = RecheckTimes {
        grace: seconds(30),
        ..TIMES
    };
    let asked_at = Instant::now();
    let now = asked_at + seconds(3_599);
    let mut leases = Leases::new(times);
    let requirement = || access_requirement("jane", "a", asked_at);
    let lease = leases.lease(key("jane", "a"), requirement, now);
    let _hold = lease.hold();
    assert_eq!(leases.scan(now).revoked, 0);
    assert_eq!(due(&mut leases, now).len(), 1);
    assert_eq!(leases.scan(now + seconds(29)).revoked, 0);
    assert_eq!(leases.scan(now + seconds(30)).revoked, 1);
}

#[test]
fn a_newer_answer_confirms_what_streams_depend_on() {
    let start = Instant::now();
    let asked_at = start + seconds(14);
    let mut leases = Leases::new(TIMES);
    let _first = held(&mut leases, "jane", "a", start);
    // Another lease that depends on the same access.
    let lease = leases.lease(
        key("joe", "a"),
        || access_requirement("jane", "a", asked_at),
        asked_at,
    );
    let _hold = lease.hold();
    assert!(due(&mut leases, asked_at + seconds(14)).is_empty());
    assert_eq!(due(&mut leases, asked_at + seconds(30)).len(), 1);
    // What is due stays due: roles may have changed after the question.
    leases.confirm(&access("jane", "a"), asked_at, asked_at);
    leases.mark_doubtful(&namespace("a"), asked_at + seconds(1));
    let later = asked_at + seconds(2);
    leases.lease(
        key("ann", "a"),
        || access_requirement("jane", "a", later),
        later,
    );
    assert_eq!(due(&mut leases, later).len(), 1);
}

#[test]
fn an_old_decision_is_asked_again_before_its_age_counts() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let now = start + seconds(320);
    let requirements = || {
        let confirmation = Confirmation {
            at: start,
            is_doubtful: false,
        };
        vec![(
            Requirement::Access(question("jane", pods("a"))),
            confirmation,
        )]
    };
    let lease = leases.lease(key("jane", "a"), requirements, now);
    let _hold = lease.hold();
    assert_eq!(leases.scan(now).revoked, 0);
    assert_eq!(due(&mut leases, now).len(), 1);
}

#[test]
fn a_change_of_roles_makes_due_what_it_may_matter_to() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _a = held(&mut leases, "jane", "a", start);
    let _b = held(&mut leases, "jane", "b", start);
    leases.mark_doubtful(&namespace("a"), start);
    assert_eq!(due(&mut leases, start), [access("jane", "a")]);
    // Another change while the check is in flight: its result may be outdated.
    leases.mark_doubtful(&namespace("a"), start);
    leases.confirm(&access("jane", "a"), start, start);
    assert_eq!(due(&mut leases, start), [access("jane", "a")]);
    leases.confirm(&access("jane", "a"), start, start);
    assert!(due(&mut leases, start).is_empty());
    let mut everything = ScopeSet::default();
    everything.insert(RoleScope::Cluster);
    leases.mark_doubtful(&everything, start);
    assert_eq!(due(&mut leases, start).len(), 2);
}

#[test]
fn leases_without_streams_are_not_asked_about_and_take_no_memory() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, hold) = held(&mut leases, "jane", "a", start);
    drop(hold);
    // The lease is kept, because its stream may be about to start.
    assert!(due(&mut leases, start + seconds(30)).is_empty());
    let hold = lease.hold();
    assert_eq!(due(&mut leases, start + seconds(31)).len(), 1);
    leases.confirm(&access("jane", "a"), start, start);
    drop((lease, hold));
    due(&mut leases, start + seconds(31));
    assert!(leases.is_empty());
    for number in 0..100_000 {
        held(&mut leases, "jane", &number.to_string(), start);
        assert!(leases.len() <= 2 * SWEEP_LEN_MIN);
    }
}

#[test]
fn requirements_forget_dropped_leases() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held = held(&mut leases, "jane", "a", start);
    for number in 0..10_000 {
        leases.lease(
            key("joe", &number.to_string()),
            || access_requirement("jane", "a", start),
            start,
        );
    }
    let record = &leases.requirements[&access("jane", "a")];
    assert!(record.leases.len() < 100, "{}", record.leases.len());
}

/// One access as the only requirement, confirmed at `at`.
fn access_requirement(name: &str, space: &str, at: Instant) -> Vec<(Requirement, Confirmation)> {
    let confirmation = Confirmation {
        at,
        is_doubtful: false,
    };
    let requirement = Requirement::Access(question(name, pods(space)));
    vec![(requirement, confirmation)]
}

#[test]
fn a_refusal_revokes_all_leases_that_share_the_requirement() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let shared = ["a", "b", "c"].map(|space| {
        let lease = leases.lease(
            key("joe", space),
            || access_requirement("jane", "shared", start),
            start,
        );
        (lease.hold(), lease)
    });
    assert_eq!(leases.refuse(&access("jane", "shared")), 3);
    assert!(shared.iter().all(|(_, lease)| lease.is_revoked()));
}

#[test]
fn the_grace_begins_when_a_failed_check_began_not_when_it_ended() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    let began_at = start + seconds(30);
    assert_eq!(due(&mut leases, began_at).len(), 1);
    leases.fail(&access("jane", "a"), began_at, began_at + seconds(30));
    assert_eq!(leases.scan(began_at + seconds(299)).revoked, 0);
    assert_eq!(leases.scan(began_at + seconds(300)).revoked, 1);
    assert!(lease.is_revoked());
}

#[test]
fn a_doubtful_confirmation_makes_due_what_others_stand_on_already() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held = held(&mut leases, "jane", "a", start);
    assert!(due(&mut leases, start).is_empty());
    let requirements = || {
        let mut requirements = access_requirement("jane", "a", start);
        requirements[0].1.is_doubtful = true;
        requirements
    };
    let lease = leases.lease(key("joe", "a"), requirements, start);
    let _hold = lease.hold();
    assert_eq!(due(&mut leases, start), [access("jane", "a")]);
}

#[test]
fn the_longest_unconfirmed_requirement_is_checked_first() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let ages = [40, 10, 90, 0, 60, 30, 80, 20, 70, 50];
    let _held = ages.map(|age| {
        let at = start + seconds(100 - age);
        held(&mut leases, "jane", &age.to_string(), at)
    });
    let mut ages: Vec<_> = ages.into();
    ages.sort_unstable_by_key(|age| std::cmp::Reverse(*age));
    let expected: Vec<_> = ages
        .iter()
        .map(|age| access("jane", &age.to_string()))
        .collect();
    assert_eq!(due(&mut leases, start + seconds(200)), expected);
}

/// An impersonator may have a long queue of checks, which must not delay the checks of the user's own streams.
#[test]
fn checks_of_a_users_own_streams_take_its_own_places() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let mut hold_for = |impersonator: Option<&str>| {
        let mut own = question("jane", pods("a"));
        own.payer = payer(impersonator.unwrap_or("jane"));
        let confirmation = Confirmation {
            at: start,
            is_doubtful: false,
        };
        let key = LeaseKey {
            impersonator: impersonator.map(user),
            ..key("jane", "a")
        };
        let lease = leases.lease(
            key,
            || vec![(Requirement::Access(own), confirmation)],
            start,
        );
        let hold = lease.hold();
        (lease, hold)
    };
    let _held = [Some("admin"), None, Some("root")].map(&mut hold_for);
    let mut payers = Vec::new();
    leases.offer_due(start + seconds(30), |requirement| {
        payers.push(requirement.payer());
        true
    });
    assert_eq!(payers, [payer("jane")]);
}
