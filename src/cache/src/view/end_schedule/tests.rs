//! Tests of how evenly the ends are spread.

use super::*;

#[test]
fn every_part_of_the_time_gets_its_share() {
    for count in [10, 37, 1_000, 10_000] {
        let begin = Instant::now();
        let schedule = EndSchedule::new(begin, Duration::from_secs(10), 0.3);
        let mut per_second = [0_usize; 10];
        for _ in 0..count {
            let after = schedule.draw().duration_since(begin);
            per_second[usize::try_from(after.as_secs()).unwrap()] += 1;
        }
        let share = count / 10;
        let is_near = |ends: &usize| ends.abs_diff(share) <= 2;
        assert!(per_second.iter().all(is_near), "{count}: {per_second:?}");
    }
}

#[test]
fn without_a_length_all_end_at_once() {
    let begin = Instant::now();
    let schedule = EndSchedule::new(begin, Duration::ZERO, 0.9);
    assert_eq!([schedule.draw(), schedule.draw()], [begin, begin]);
    assert_eq!(schedule.end(), begin);
}
