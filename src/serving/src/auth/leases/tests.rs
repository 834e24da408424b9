//! Leases, with times that the tests set.

use super::super::changes::RoleScope;
use super::super::decisions::tests::{namespace, payer, pods, question, user};
use super::super::lease::LeaseHold;
use super::*;

const TIMES: RecheckTimes = RecheckTimes {
    interval: Duration::from_secs(25),
    grace: Duration::from_secs(300),
    decides_by_roles: false,
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
    let lease = leases.lease(
        key(name, space),
        &verdict(),
        access_requirement(name, space, at),
        at,
    );
    let hold = lease.hold();
    (lease, hold)
}

/// How many leases a scan at this time revokes.
fn revoked(leases: &mut Leases, now: Instant) -> usize {
    leases.scan(AuthorizerState::Transparent, now).revoked
}

/// Scans the leases, and accepts all requirements that are due.
fn due(leases: &mut Leases, now: Instant) -> Vec<RequirementKey> {
    leases.scan(AuthorizerState::Transparent, now);
    let mut due = Vec::new();
    leases.offer_due(Coverage::default(), usize::MAX, now, |check| {
        due.push(check.requirement().key());
        true
    });
    due
}

fn verdict() -> Arc<AccessVerdict> {
    Arc::new(AccessVerdict {
        is_allowed: true,
        reason: String::new(),
    })
}

/// The number of the check in flight.
fn number(leases: &Leases, key: &RequirementKey) -> u64 {
    let record = &leases.requirements[key];
    record.in_flight.map_or(0, |check| check.number)
}

fn confirm(leases: &mut Leases, key: &RequirementKey, at: Instant, now: Instant) {
    let number = number(leases, key);
    leases.confirm(key, number, Confirmation::credential(at), now);
}

fn fail(leases: &mut Leases, key: &RequirementKey, began_at: Instant, now: Instant) {
    let number = number(leases, key);
    leases.fail(key, number, began_at, now);
}

fn access_key(name: &str, space: &str) -> QuestionKey {
    question(name, pods(space)).key
}

fn access(name: &str, space: &str) -> RequirementKey {
    RequirementKey::Access(access_key(name, space))
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
        let lease = leases.lease(key, &verdict(), Vec::new(), start);
        let hold = lease.hold();
        others.push((lease, hold));
    }
    assert!(others.iter().all(|(lease, _)| lease.stream_count() == 1));
    assert_eq!(leases.scan(AuthorizerState::Transparent, start).held, 5);
}

#[test]
fn requirements_are_due_at_most_once_in_the_interval_and_not_at_once() {
    let start = Instant::now();
    let times = RecheckTimes {
        interval: seconds(100),
        ..TIMES
    };
    let mut leases = Leases::new(times);
    let held: Vec<_> = (0..1000)
        .map(|n| held(&mut leases, "jane", &n.to_string(), start))
        .collect();
    let mut by_second = vec![0; 121];
    for second in 0..=120 {
        for key in due(&mut leases, start + seconds(second)) {
            by_second[usize::try_from(second).unwrap()] += 1;
            confirm(
                &mut leases,
                &key,
                start + seconds(second),
                start + seconds(second),
            );
        }
    }
    assert_eq!(by_second[..100].iter().sum::<i32>(), 0);
    let all = usize::try_from(by_second.iter().sum::<i32>()).unwrap();
    assert_eq!(all, held.len());
    assert!(by_second.iter().all(|count| *count < 150), "{by_second:?}");
}

#[test]
fn a_check_in_flight_is_not_due_again() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held = held(&mut leases, "jane", "a", start);
    assert_eq!(due(&mut leases, start + seconds(30)), [access("jane", "a")]);
    assert!(due(&mut leases, start + seconds(60)).is_empty());
    confirm(
        &mut leases,
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
            let confirmation = Confirmation::credential(start);
            (
                Requirement::Access(question("jane", pods(space))),
                confirmation,
            )
        });
        let lease = leases.lease(key("joe", "a"), &verdict(), requirements.into(), start);
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
            fail(&mut leases, &key, now, now);
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
        fail(&mut leases, &access("jane", "a"), now, now);
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
    fail(&mut leases, &access("jane", "a"), fails, fails);
    let later = start + seconds(299);
    assert_eq!(due(&mut leases, later).len(), 1);
    confirm(&mut leases, &access("jane", "a"), later, later);
    let again = later + seconds(30);
    assert_eq!(due(&mut leases, again).len(), 1);
    fail(&mut leases, &access("jane", "a"), again, again);
    assert_eq!(revoked(&mut leases, again + seconds(299)), 0);
    assert_eq!(revoked(&mut leases, again + seconds(300)), 1);
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
        assert_eq!(revoked(&mut leases, now), 0, "after {second} s");
        let mut accepted = None;
        leases.offer_due(Coverage::default(), 1, now, |check| {
            accepted = Some(check.requirement().key());
            true
        });
        if let Some(key) = accepted {
            confirm(&mut leases, &key, now, now);
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
    assert_eq!(revoked(&mut leases, start + seconds(3_000)), 0);
    assert_eq!(revoked(&mut leases, end), 1);
    assert!(lease.is_revoked());
    // Never asked.
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    assert_eq!(revoked(&mut leases, start + seconds(3_000)), 0);
    assert_eq!(revoked(&mut leases, end), 1);
    assert!(lease.is_revoked());
    // Answered, but as of a time long ago.
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    for second in (30..3_900).step_by(30) {
        due(&mut leases, start + seconds(second));
        confirm(
            &mut leases,
            &access("jane", "a"),
            start,
            start + seconds(second),
        );
    }
    leases.scan(AuthorizerState::Transparent, end);
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
    let now = asked_at + seconds(3_600);
    let mut leases = Leases::new(times);
    let requirement = || access_requirement("jane", "a", asked_at);
    let lease = leases.lease(key("jane", "a"), &verdict(), requirement(), now);
    let _hold = lease.hold();
    assert_eq!(revoked(&mut leases, now), 0);
    assert_eq!(due(&mut leases, now).len(), 1);
    assert_eq!(revoked(&mut leases, now + seconds(29)), 0);
    assert_eq!(revoked(&mut leases, now + seconds(30)), 1);
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
        &verdict(),
        access_requirement("jane", "a", asked_at),
        asked_at,
    );
    let _hold = lease.hold();
    assert!(due(&mut leases, asked_at + seconds(24)).is_empty());
    assert_eq!(due(&mut leases, asked_at + seconds(30)).len(), 1);
    // What is due stays due: roles may have changed after the question.
    confirm(&mut leases, &access("jane", "a"), asked_at, asked_at);
    leases.expect_access(access_key("jane", "a"), asked_at + seconds(1));
    let later = asked_at + seconds(2);
    leases.lease(
        key("ann", "a"),
        &verdict(),
        access_requirement("jane", "a", later),
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
        let confirmation = Confirmation::credential(start);
        vec![(
            Requirement::Access(question("jane", pods("a"))),
            confirmation,
        )]
    };
    let lease = leases.lease(key("jane", "a"), &verdict(), requirements(), now);
    let _hold = lease.hold();
    assert_eq!(revoked(&mut leases, now), 0);
    assert_eq!(due(&mut leases, now).len(), 1);
}

#[test]
fn what_an_event_may_have_ended_is_checked_twice() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _a = held(&mut leases, "jane", "a", start);
    let _b = held(&mut leases, "jane", "b", start);
    leases.expect_access(access_key("jane", "a"), start);
    assert_eq!(due(&mut leases, start), [access("jane", "a")]);
    // Another event while the check is in flight: its result may be outdated.
    leases.expect_access(access_key("jane", "a"), start);
    confirm(&mut leases, &access("jane", "a"), start, start);
    assert_eq!(due(&mut leases, start), [access("jane", "a")]);
    confirm(&mut leases, &access("jane", "a"), start, start);
    assert!(due(&mut leases, start + seconds(9)).is_empty());
    assert_eq!(due(&mut leases, start + seconds(10)).len(), 1);
    confirm(
        &mut leases,
        &access("jane", "a"),
        start + seconds(10),
        start,
    );
    assert!(due(&mut leases, start + seconds(24)).is_empty());
    leases.expect_users(&[UserHash::of(&user("jane"))].into(), start);
    assert_eq!(due(&mut leases, start + seconds(24)).len(), 2);
}

#[test]
fn a_change_of_roles_concerns_its_namespace() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _a = held(&mut leases, "jane", "a", start);
    let _b = held(&mut leases, "jane", "b", start);
    let changed = leases.changed_accesses(&namespace("a"));
    let keys: Vec<_> = changed.into_iter().map(|access| access.key).collect();
    assert_eq!(keys, [access_key("jane", "a")]);
    let mut everything = ScopeSet::default();
    everything.insert(RoleScope::Cluster);
    assert_eq!(leases.changed_accesses(&everything).len(), 2);
}

/// An event may come while a check at the interval waits for its turn behind thousands.
#[test]
fn an_event_does_not_wait_for_a_check_that_waits() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let (lease, _hold) = held(&mut leases, "jane", "a", start);
    let key = access("jane", "a");
    let now = start + seconds(30);
    assert_eq!(due(&mut leases, now).len(), 1);
    let routine = number(&leases, &key);
    leases.expect_access(access_key("jane", "a"), now);
    assert_eq!(due(&mut leases, now).len(), 1);
    assert!(!leases.is_wanted(&key, routine), "it has been replaced");
    let event = number(&leases, &key);
    // The earlier one ends later, and says nothing about the event.
    leases.confirm(&key, routine, Confirmation::credential(start), now);
    assert!(leases.is_wanted(&key, event));
    assert_eq!(leases.refuse(&key), 1);
    assert!(lease.is_revoked());
}

#[test]
fn no_more_is_swept_than_the_budget_allows_and_events_need_none() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let _held: Vec<_> = (0..100)
        .map(|n| held(&mut leases, "jane", &n.to_string(), start + seconds(n)))
        .collect();
    let now = start + seconds(200);
    leases.expect_access(access_key("jane", "99"), now);
    let mut offered = Vec::new();
    let swept = leases.offer_due(Coverage::default(), 3, now, |due| {
        offered.push((due.cause, due.requirement().key()));
        true
    });
    assert_eq!(swept, 3);
    let expected = [
        (CheckCause::Event, access("jane", "99")),
        (CheckCause::Sweep, access("jane", "0")),
        (CheckCause::Sweep, access("jane", "1")),
        (CheckCause::Sweep, access("jane", "2")),
    ];
    assert_eq!(offered, expected);
    // After an hour the budget is no reason any more.
    let offered = leases.offer_due(Coverage::default(), 0, start + seconds(3_700), |_| true);
    assert_eq!(offered, 0);
    assert!(
        leases
            .requirements
            .values()
            .all(|one| one.in_flight.is_some())
    );
}

#[test]
fn what_an_event_would_tell_is_not_asked_for_an_hour() {
    let start = Instant::now();
    let full = Coverage {
        is_transparent: true,
        has_roles: true,
        has_bound_objects: true,
    };
    let rows = [
        (Explanation::Roles, full, false),
        (Explanation::NodeRules, full, false),
        (Explanation::None, full, true),
        (
            Explanation::Roles,
            Coverage {
                is_transparent: false,
                ..full
            },
            true,
        ),
        (
            Explanation::Roles,
            Coverage {
                has_roles: false,
                ..full
            },
            true,
        ),
        (
            Explanation::NodeRules,
            Coverage {
                is_transparent: false,
                ..full
            },
            true,
        ),
    ];
    for (explanation, coverage, is_swept) in rows {
        let mut leases = Leases::new(TIMES);
        let mut requirements = access_requirement("jane", "a", start);
        requirements[0].1.explanation = explanation;
        let lease = leases.lease(key("jane", "a"), &verdict(), requirements, start);
        let _hold = lease.hold();
        let swept = leases.offer_due(coverage, 9, start + seconds(2_600), |_| true);
        assert_eq!(swept == 1, is_swept, "{explanation:?} {coverage:?}");
        if !is_swept {
            let mut causes = Vec::new();
            leases.offer_due(coverage, 9, start + seconds(3_540), |due| {
                causes.push(due.cause);
                true
            });
            assert_eq!(causes, [CheckCause::Expired]);
        }
    }
}

fn bound(pod: Option<&str>) -> Requirement {
    let secret = format!("Bearer {}", pod.unwrap_or("none"));
    let token = BearerToken::from_authorization(http::HeaderValue::from_str(&secret).unwrap());
    let extra = pod.map(|uid| {
        let key = "authentication.kubernetes.io/pod-uid".to_owned();
        (key, vec![uid.to_owned()])
    });
    let user = User {
        uid: "account".to_owned(),
        extra: extra.into_iter().collect(),
        ..(*user("jane")).clone()
    };
    Requirement::Token {
        digest: super::super::digest::CredentialHasher::new(&[7; 32]).token(&token),
        token,
        user: Arc::new(user),
        payer: payer("jane"),
    }
}

#[test]
fn tokens_of_what_is_gone_are_reviewed_when_upstream_has_forgotten_them() {
    let start = Instant::now();
    for (uid, expected) in [("pod-1", 1), ("account", 3), ("other", 0)] {
        let mut leases = Leases::new(TIMES);
        let _held: Vec<_> = [Some("pod-1"), Some("pod-2"), None]
            .map(|pod| {
                let requirement = bound(pod);
                let mut key = key("jane", "a");
                key.credential = requirement.credential();
                let confirmed = Confirmation::credential(start);
                let lease = leases.lease(key, &verdict(), vec![(requirement, confirmed)], start);
                (lease.hold(), lease)
            })
            .into();
        leases.delete_bound_objects(vec![uid.into()], start);
        let coverage = Coverage {
            has_bound_objects: true,
            ..Coverage::default()
        };
        let mut at = |second: u64| {
            let now = start + seconds(second);
            leases.scan(AuthorizerState::Transparent, now);
            let mut due = Vec::new();
            leases.offer_due(coverage, 0, now, |one| {
                due.push(one.requirement().key());
                true
            });
            for key in &due {
                confirm(&mut leases, key, now, now);
            }
            due.len()
        };
        assert_eq!(at(10), 0, "upstream still remembers them");
        assert_eq!(at(11), expected, "{uid}");
        assert_eq!(at(12), 0, "once");
    }
}

#[test]
fn a_stream_that_resumes_soon_has_the_lease_of_the_one_before() {
    let start = Instant::now();
    let resume = |leases: &Leases, second: u64| {
        let now = start + seconds(second);
        leases.resumed(&key("jane", "a"), None, now).is_some()
    };
    let mut leases = Leases::new(TIMES);
    let (lease, hold) = held(&mut leases, "jane", "a", start);
    assert!(!resume(&leases, 0), "no scan has seen the stream yet");
    leases.scan(AuthorizerState::Transparent, start);
    assert!(resume(&leases, 1));
    drop((lease, hold));
    leases.scan(AuthorizerState::Transparent, start + seconds(30));
    assert!(resume(&leases, 30));
    assert!(!resume(&leases, 31));
    leases.scan(AuthorizerState::Transparent, start + seconds(31));
    assert!(leases.is_empty());

    // Whatever makes it doubtful makes it a new request.
    type Spoil = fn(&mut Leases, Instant);
    let spoil: [(&str, Spoil); 4] = [
        ("event", |leases, now| {
            leases.expect_access(access_key("jane", "a"), now);
        }),
        ("failure", |leases, now| {
            due(leases, now + seconds(30));
            fail(leases, &access("jane", "a"), now, now);
        }),
        ("refusal", |leases, _| {
            leases.refuse(&access("jane", "a"));
        }),
        ("nothing", |_, _| {}),
    ];
    for (what, spoil) in spoil {
        let mut leases = Leases::new(TIMES);
        let (_lease, _hold) = held(&mut leases, "jane", "a", start);
        leases.scan(AuthorizerState::Transparent, start);
        spoil(&mut leases, start);
        assert_eq!(resume(&leases, 1), what == "nothing", "{what}");
    }

    // Not for longer than an hour after the last confirmation.
    let mut leases = Leases::new(TIMES);
    let (_lease, _hold) = held(&mut leases, "jane", "a", start);
    leases.scan(AuthorizerState::Transparent, start + seconds(3_540));
    assert!(!resume(&leases, 3_541));

    // Nor for an impersonator, whose own rights are other requirements.
    let mut leases = Leases::new(TIMES);
    let key = LeaseKey {
        impersonator: Some(user("root")),
        ..key("jane", "a")
    };
    let requirements = access_requirement("jane", "a", start);
    let lease = leases.lease(key.clone(), &verdict(), requirements, start);
    let _hold = lease.hold();
    leases.scan(AuthorizerState::Transparent, start);
    assert!(leases.resumed(&key, None, start).is_none());
}

/// Two tokens of one user share an access.
fn shared(
    leases: &mut Leases,
    secrets: [&'static str; 2],
    start: Instant,
) -> [(Lease, LeaseHold); 2] {
    secrets.map(|secret| {
        let token = BearerToken::from_authorization(http::HeaderValue::from_static(secret));
        let mut asked = question("jane", pods("a"));
        asked.subject = user(secret);
        let hasher = super::super::digest::CredentialHasher::new(&[7; 32]);
        asked.identity = QuestionIdentity::Caller {
            token: token.clone(),
            owner: user(secret),
            impersonation: Arc::default(),
            digest: hasher.token(&token),
        };
        asked.key.authorizers = AuthorizerState::Transparent;
        let key = LeaseKey {
            credential: Some(hasher.token(&token)),
            impersonator: None,
            question: asked.key.clone(),
        };
        let requirements = vec![(Requirement::Access(asked), Confirmation::credential(start))];
        let lease = leases.lease(key, &verdict(), requirements, start);
        (lease.clone(), lease.hold())
    })
}

/// The access of these two.
fn shared_access() -> RequirementKey {
    RequirementKey::Access(QuestionKey {
        authorizers: AuthorizerState::Transparent,
        ..access_key("jane", "a")
    })
}

#[test]
fn a_shared_access_is_asked_about_with_a_token_that_is_in_use() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let [(_, kept), (ended, hold)] = shared(&mut leases, ["Bearer one", "Bearer two"], start);
    let secret = |leases: &mut Leases, second: u64| {
        let mut secrets = Vec::new();
        leases.offer_due(Coverage::default(), 9, start + seconds(second), |due| {
            if let Requirement::Access(question) = due.requirement()
                && let QuestionIdentity::Caller { token, .. } = &question.identity
            {
                secrets.push(token.secret().to_owned());
            }
            true
        });
        secrets
    };
    assert_eq!(secret(&mut leases, 30), ["two"]);
    confirm(&mut leases, &shared_access(), start + seconds(30), start);
    drop((ended, hold));
    assert_eq!(secret(&mut leases, 60), ["one"]);
    drop(kept);
}

#[test]
fn a_token_that_is_rejected_ends_its_own_streams_and_another_one_asks() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let [(one, _one), (two, _two)] = shared(&mut leases, ["Bearer one", "Bearer two"], start);
    let now = start + seconds(30);
    let key = shared_access();
    assert_eq!(due(&mut leases, now), [shared_access()]);
    let rejected = BearerToken::from_authorization(http::HeaderValue::from_static("Bearer two"));
    let number = number(&leases, &key);
    assert_eq!(leases.reject_asker(&key, number, &rejected, now), 1);
    assert!(two.is_revoked() && !one.is_revoked());
    assert_eq!(due(&mut leases, now), [key]);
}

#[test]
fn when_upstream_becomes_opaque_each_token_is_asked_about_by_itself() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    let [(one, _one), (two, _two)] = shared(&mut leases, ["Bearer one", "Bearer two"], start);
    let (other, _other) = held(&mut leases, "joe", "b", start);
    assert!(leases.shared_question(0.0).is_some());
    leases.scan(AuthorizerState::Transparent, start);
    assert_eq!(leases.requirements.len(), 2);
    assert_eq!(leases.scan(AuthorizerState::Opaque, start).held, 3);
    assert!(leases.shared_question(0.0).is_none());
    // Each is swept as everything else is.
    let now = start + seconds(31);
    let mut asked = Vec::new();
    let swept = leases.offer_due(Coverage::default(), 9, now, |due| {
        asked.push(due.requirement());
        true
    });
    assert_eq!(swept, 3);
    let of_two = asked.iter().find_map(|requirement| match requirement {
        Requirement::Access(question) if *question.subject == *user("Bearer two") => {
            assert!(question.key.credentials.is_some());
            Some(requirement.key())
        }
        Requirement::Access(_) | Requirement::Token { .. } | Requirement::Certificate { .. } => {
            None
        }
    });
    assert_eq!(leases.refuse(&of_two.unwrap()), 1);
    assert!(two.is_revoked() && !one.is_revoked() && !other.is_revoked());
}

#[test]
fn a_rejected_token_makes_all_due_that_depends_on_it_and_nothing_else() {
    let start = Instant::now();
    let times = RecheckTimes {
        interval: seconds(3_000),
        ..TIMES
    };
    let mut leases = Leases::new(times);
    let _held: Vec<_> = ["pod-1", "pod-2"]
        .map(|pod| {
            let requirement = bound(Some(pod));
            let mut key = key("jane", "a");
            key.credential = requirement.credential();
            let confirmed = Confirmation::credential(start);
            let lease = leases.lease(key, &verdict(), vec![(requirement, confirmed)], start);
            (lease.hold(), lease)
        })
        .into();
    let token = |text| BearerToken::from_authorization(http::HeaderValue::from_static(text));
    leases.reject_token(&token("Bearer unknown"));
    leases.reject_token(&token("Bearer pod-2"));
    leases.reject_token(&token("Bearer pod-2"));
    let now = start + seconds(1);
    assert_eq!(due(&mut leases, now), [bound(Some("pod-2")).key()]);
    assert!(due(&mut leases, now + seconds(1)).is_empty());
    assert!(leases.may_depend_on(&token("Bearer pod-1")));
    assert!(!leases.may_depend_on(&token("Bearer unknown")));
}

#[test]
fn tokens_without_a_requirement_are_forgotten() {
    let start = Instant::now();
    let mut leases = Leases::new(TIMES);
    for number in 0..5_000 {
        let requirement = bound(Some(&number.to_string()));
        let mut key = key("jane", "a");
        key.credential = requirement.credential();
        let confirmed = Confirmation::credential(start);
        leases.lease(key, &verdict(), vec![(requirement, confirmed)], start);
    }
    leases.scan(AuthorizerState::Transparent, start);
    let first = BearerToken::from_authorization(http::HeaderValue::from_static("Bearer 0"));
    assert!(leases.is_empty() && !leases.may_depend_on(&first));
}

/// A pod that came and went before its uid was ever listed is in no event.
#[test]
fn a_token_that_is_bound_to_nothing_listed_is_reviewed_again() {
    let start = Instant::now();
    let coverage = Coverage {
        has_bound_objects: true,
        ..Coverage::default()
    };
    // When the token was reviewed before or after the list, and when it is reviewed again.
    let rows = [
        ("pod-1", 0, 100, None),
        ("pod-2", 0, 100, Some(100)),
        ("pod-2", 95, 100, Some(106)),
        ("pod-2", 105, 100, Some(116)),
        ("pod-2", 112, 100, None),
    ];
    for (pod, reviewed, listed, expected) in rows {
        let mut leases = Leases::new(TIMES);
        let at = |second: u64| start + seconds(second);
        let requirement = bound(Some(pod));
        let requirements = vec![(requirement, Confirmation::credential(at(reviewed)))];
        let lease = leases.lease(key("jane", "a"), &verdict(), requirements, at(reviewed));
        let _hold = lease.hold();
        let mut due = Vec::new();
        for second in reviewed.max(listed)..500 {
            if second == reviewed.max(listed) {
                let is_live: LivenessCheck = Arc::new(|user| user.pod_uid() == Some("pod-1"));
                leases.list_bound_objects(is_live, at(listed));
            }
            leases.scan(AuthorizerState::Transparent, at(second));
            let mut checks = Vec::new();
            leases.offer_due(coverage, 0, at(second), |one| {
                checks.push(one.requirement().key());
                true
            });
            for check in checks {
                confirm(&mut leases, &check, at(second), at(second));
                due.push(second);
            }
        }
        // Upstream may have remembered the token when it was reviewed at once.
        let again = expected
            .filter(|second| *second < 111)
            .map(|second| second + 11);
        let expected: Vec<u64> = expected.into_iter().chain(again).collect();
        assert_eq!(due, expected, "{pod}, reviewed at {reviewed}");
    }
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
    confirm(&mut leases, &access("jane", "a"), start, start);
    drop((lease, hold));
    due(&mut leases, start + seconds(62));
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
            &verdict(),
            access_requirement("jane", "a", start),
            start,
        );
    }
    let record = &leases.requirements[&access("jane", "a")];
    assert!(record.leases.len() < 100, "{}", record.leases.len());
}

/// One access as the only requirement, confirmed at `at`.
fn access_requirement(name: &str, space: &str, at: Instant) -> Vec<(Requirement, Confirmation)> {
    let confirmation = Confirmation::credential(at);
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
            &verdict(),
            access_requirement("jane", "shared", start),
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
    fail(
        &mut leases,
        &access("jane", "a"),
        began_at,
        began_at + seconds(30),
    );
    assert_eq!(revoked(&mut leases, began_at + seconds(299)), 0);
    assert_eq!(revoked(&mut leases, began_at + seconds(300)), 1);
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
    let lease = leases.lease(key("joe", "a"), &verdict(), requirements(), start);
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
        let confirmation = Confirmation::credential(start);
        let key = LeaseKey {
            impersonator: impersonator.map(user),
            ..key("jane", "a")
        };
        let lease = leases.lease(
            key,
            &verdict(),
            vec![(Requirement::Access(own), confirmation)],
            start,
        );
        let hold = lease.hold();
        (lease, hold)
    };
    let _held = [Some("admin"), None, Some("root")].map(&mut hold_for);
    let mut payers = Vec::new();
    leases.offer_due(Coverage::default(), 9, start + seconds(30), |due| {
        payers.push(due.payer);
        true
    });
    assert_eq!(payers, [payer("jane")]);
}
