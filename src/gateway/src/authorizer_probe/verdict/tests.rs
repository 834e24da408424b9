//! What a series of answers and failures makes of the verdict, and when the next probe is due.

use AuthorizerAnswer::{Complete, Incomplete};
use AuthorizerState::{Opaque, Transparent};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A schedule at a time of its own.
struct Stage {
    schedule: ProbeSchedule,
    start: Instant,
    now: Instant,
}

impl Stage {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            schedule: ProbeSchedule::default(),
            start: now,
            now,
        }
    }

    fn answer(&mut self, answer: AuthorizerAnswer) {
        self.schedule.observe(Ok(answer), self.now);
    }

    fn fail(&mut self, error: &str) {
        self.schedule.observe(Err(error.to_owned()), self.now);
    }

    /// Waits for the next probe, without jitter; returns the seconds since the start.
    fn wait(&mut self) -> u64 {
        self.now = self.schedule.next_wake(self.now, 0.0);
        self.schedule.expire(self.now);
        (self.now - self.start).as_secs()
    }

    #[track_caller]
    fn expect(&self, state: AuthorizerState, reason: &str) {
        let verdict = self.schedule.verdict();
        assert_eq!(verdict.state(), state, "{verdict}");
        assert!(verdict.to_string().contains(reason), "{verdict}");
    }
}

fn groups(names: &[&str]) -> BTreeSet<String> {
    names.iter().copied().map(str::to_owned).collect()
}

#[test]
fn upstream_is_transparent_from_the_first_complete_answer_to_the_first_other_one() {
    let mut stage = Stage::new();
    stage.expect(Opaque, "not been asked");
    stage.answer(Complete);
    stage.expect(Transparent, "have named their rules");
    assert_eq!(stage.wait(), 60);
    stage.answer(Incomplete);
    stage.expect(Opaque, "webhook");
    assert_eq!(stage.wait(), 120);
    stage.answer(Complete);
    stage.expect(Transparent, "");
}

#[test]
fn a_group_of_openshift_has_authorizers_that_name_no_rules() {
    let kubernetes = groups(&[
        "apps",
        "example.com",
        "openshift.io",
        "config.openshift.io.example.com",
    ]);
    assert_eq!(AuthorizerAnswer::of_groups(kubernetes), Complete);
    let openshift = groups(&["apps", "config.openshift.io"]);
    let answer = AuthorizerAnswer::of_groups(openshift);
    let mut stage = Stage::new();
    stage.answer(Complete);
    stage.answer(answer);
    stage.expect(Opaque, "config.openshift.io");
}

#[test]
fn failures_for_three_minutes_make_it_opaque_and_an_answer_transparent_again() {
    let mut stage = Stage::new();
    stage.answer(Complete);
    let mut wakes = Vec::new();
    loop {
        wakes.push(stage.wait());
        if stage.schedule.verdict().state() == Opaque {
            break;
        }
        stage.fail("no route");
        stage.expect(
            match stage.now - stage.start < 180 * SECOND {
                true => Transparent,
                false => Opaque,
            },
            "",
        );
    }
    assert_eq!(wakes, [60, 65, 75, 95, 135, 180]);
    stage.expect(Opaque, "no route");
    stage.fail("refused");
    stage.expect(Opaque, "refused");
    assert_eq!(stage.wait(), 240);
    stage.answer(Complete);
    stage.expect(Transparent, "");
    assert_eq!(stage.wait(), 300);
}

#[test]
fn one_failure_in_three_minutes_changes_nothing() {
    let mut stage = Stage::new();
    stage.answer(Complete);
    for _ in 0..20 {
        stage.wait();
        stage.fail("late");
        stage.expect(Transparent, "");
        stage.wait();
        stage.answer(Complete);
    }
}

#[test]
fn without_an_answer_upstream_stays_opaque_and_is_asked_again_soon() {
    let mut stage = Stage::new();
    let mut wakes = Vec::new();
    for _ in 0..6 {
        stage.fail("forbidden");
        stage.expect(Opaque, "forbidden");
        wakes.push(stage.wait());
    }
    assert_eq!(wakes, [5, 15, 35, 75, 135, 195]);
    stage.schedule.failures = u32::MAX - 1;
    stage.fail("forbidden");
    stage.fail("forbidden");
    assert_eq!(stage.wait(), 255);
}

#[test]
fn pauses_are_up_to_a_fifth_shorter() {
    let mut stage = Stage::new();
    stage.answer(Complete);
    let wait = |random| stage.schedule.next_wake(stage.now, random) - stage.now;
    assert_eq!((wait(0.0), wait(0.5)), (60 * SECOND, 54 * SECOND));
    assert!(wait(0.999_999) >= 48 * SECOND);
}

#[test]
fn the_same_verdict_and_another_error_are_no_news() {
    let complete = AuthorizerVerdict::Answered(Complete);
    let incomplete = AuthorizerVerdict::Answered(Incomplete);
    let unanswered = |error: &str| AuthorizerVerdict::Unanswered(error.to_owned());
    for (last, next, is_news) in [
        (
            &AuthorizerVerdict::Unasked,
            &AuthorizerVerdict::Unasked,
            false,
        ),
        (&AuthorizerVerdict::Unasked, &complete, true),
        (
            &AuthorizerVerdict::Unasked,
            &AuthorizerVerdict::Declared,
            true,
        ),
        (&complete, &complete, false),
        (&complete, &incomplete, true),
        (&complete, &unanswered("late"), true),
        (&unanswered("late"), &unanswered("refused"), false),
        (&unanswered("late"), &incomplete, true),
    ] {
        assert_eq!(last.is_news(next), is_news, "{last:?} {next:?}");
    }
}
