//! The waits as tables of expected durations.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock only gives an origin; all times are computed from it"
)]

use super::*;

const NO_JITTER: u64 = 0;

#[track_caller]
fn check(backoff: &mut Backoff, now: Instant, random: u64, floor_s: u64, expected_ms: u64) {
    let delay = backoff.next_at_least(now, random, Duration::from_secs(floor_s));
    assert_eq!(delay, Duration::from_millis(expected_ms));
}

#[test]
fn steps_double_up_to_the_longest() {
    let (mut backoff, mut now) = (Backoff::new(), Instant::now());
    for expected_ms in [800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
        check(&mut backoff, now, NO_JITTER, 0, expected_ms);
        now += Duration::from_millis(expected_ms);
    }
}

#[test]
fn jitter_adds_up_to_one_step() {
    let now = Instant::now();
    check(&mut Backoff::new(), now, 1 << 63, 0, 1_200);
    let most = Backoff::new().next(now, u64::MAX);
    assert!(most < STEP_FIRST * 2 && most > STEP_FIRST * 2 - Duration::from_micros(1));
}

#[test]
fn two_minutes_of_health_begin_anew() {
    let (mut backoff, start) = (Backoff::new(), Instant::now());
    check(&mut backoff, start, NO_JITTER, 0, 800);
    let wait_end = start + STEP_FIRST;
    check(&mut backoff, wait_end + RESET_AFTER, NO_JITTER, 0, 1_600);
    let wait_end = wait_end + RESET_AFTER + STEP_FIRST * 2;
    let later = wait_end + RESET_AFTER + Duration::from_nanos(1);
    check(&mut backoff, later, NO_JITTER, 0, 800);
}

#[test]
fn what_is_given_up_again_within_ten_minutes_is_tried_more_and_more_rarely() {
    for (mut backoff, first_s) in [(Backoff::patient(), 1), (Backoff::reluctant(), 150)] {
        let mut now = Instant::now();
        for expected_s in [first_s, 2 * first_s, 4 * first_s] {
            check(&mut backoff, now, NO_JITTER, 0, expected_s * 1_000);
            now += Duration::from_secs(expected_s + 600);
        }
    }
}

#[test]
fn a_wait_that_upstream_asked_for_is_no_health() {
    let (mut backoff, start) = (Backoff::new(), Instant::now());
    check(&mut backoff, start, NO_JITTER, 60, 60_000);
    check(
        &mut backoff,
        start + Duration::from_secs(180),
        NO_JITTER,
        0,
        1_600,
    );
}

#[test]
fn retry_after_is_a_floor_with_jitter_on_top_and_a_limit() {
    let now = Instant::now();
    check(&mut Backoff::new(), now, NO_JITTER, 10, 10_000);
    check(&mut Backoff::new(), now, 1 << 63, 10, 10_400);
    check(&mut Backoff::new(), now, NO_JITTER, 86_400, 60_000);
}
