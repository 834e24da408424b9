//! The steps come in their order, each only when memory asks for it, and go when memory is back.

use proptest::prelude::*;

use super::*;

const MAX: usize = 1_000;

const HISTORY_MAX: usize = 256;

const AGE_MIN: Duration = Duration::from_secs(75);

/// A reading of memory that is all in use, and of a history that has everything it may have.
const fn all(resident: usize) -> MemoryReading {
    MemoryReading {
        resident,
        held: resident,
        derived: 0,
        history: HISTORY_MAX,
        oldest: Duration::ZERO,
    }
}

fn fresh() -> PressureMachine {
    PressureMachine::new(MAX, HISTORY_MAX, AGE_MIN)
}

fn levels(machine: &mut PressureMachine, readings: &[usize]) -> Vec<usize> {
    readings
        .iter()
        .map(|resident| machine.decide(all(*resident)).level.number())
        .collect()
}

#[test]
fn steps_are_taken_one_after_the_other_and_all_at_once_above_the_bound() {
    let mut machine = fresh();
    let rising = [799, 800, 879, 880, 939, 940, 1_000, 1_001];
    assert_eq!(levels(&mut machine, &rising), [0, 1, 1, 2, 2, 3, 3, 4]);
    let mut machine = fresh();
    assert_eq!(levels(&mut machine, &[999; 4]), [1, 2, 3, 3]);
    let mut machine = fresh();
    assert_eq!(levels(&mut machine, &[0, 1_001]), [0, 4]);
}

#[test]
fn a_step_is_taken_back_only_well_below_the_point_where_it_was_taken() {
    let mut machine = fresh();
    let falling = [1_001, 1_000, 940, 939, 880, 879, 820, 819, 740, 739];
    let expected = [4, 4, 4, 3, 3, 2, 2, 1, 1, 0];
    assert_eq!(levels(&mut machine, &falling), expected);
}

#[test]
fn histories_are_cut_again_while_memory_stays_short_and_whole_when_it_is_back() {
    let mut machine = fresh();
    let mut cuts = |resident| machine.decide(all(resident)).history.cuts;
    assert_eq!([cuts(900), cuts(900)], [0, 1]);
    let later: Vec<_> = (0..6).map(|_| cuts(900)).collect();
    assert_eq!(later, [1, 1, 1, 1, 1, 2]);
    // What was given back was enough: the step stays, but nothing more is given back.
    assert_eq!((0..20).map(|_| cuts(860)).max(), Some(2));
    assert_eq!((0..100).map(|_| cuts(900)).max(), Some(CUTS_MAX));
    assert_eq!([cuts(819), cuts(740), cuts(739)], [CUTS_MAX, CUTS_MAX, 0]);
}

#[test]
fn a_cut_shortens_the_longest_history_however_short_it_is_but_only_to_a_sixteenth() {
    for (longest, expected) in [
        (256, 1),
        (200, 1),
        (150, 2),
        (88, 2),
        (50, 3),
        (20, 4),
        (0, 4),
    ] {
        let mut machine = fresh();
        let reading = MemoryReading {
            history: longest,
            ..all(900)
        };
        let cuts = (0..2).map(|_| machine.decide(reading).history.cuts).last();
        assert_eq!(cuts, Some(expected), "{longest}");
    }
}

#[test]
fn readings_on_both_sides_of_the_bound_give_no_more_back_than_one_that_stays() {
    let mut machine = fresh();
    let decisions: Vec<_> = [1_001, 999]
        .into_iter()
        .cycle()
        .take(18)
        .map(|resident| {
            machine.decide(MemoryReading {
                derived: MAX,
                ..all(resident)
            })
        })
        .collect();
    assert!(
        decisions
            .iter()
            .all(|decision| decision.level == PressureLevel::HIGHEST)
    );
    let cuts: Vec<_> = decisions
        .iter()
        .map(|decision| decision.history.cuts)
        .collect();
    assert_eq!(cuts, [[1; 6], [2; 6], [3; 6]].concat());
    let drops = decisions.iter().filter(|decision| decision.drops_frames);
    assert_eq!(drops.count(), 3);
}

#[test]
fn histories_are_not_cut_for_memory_that_is_free() {
    let mut machine = fresh();
    let reading = MemoryReading {
        held: 700,
        ..all(1_001)
    };
    for _ in 0..20 {
        assert_eq!(machine.decide(reading).history, HistoryBound::WHOLE);
    }
}

#[test]
fn history_stays_whatever_its_age_and_the_oldest_goes_first_before_memory_is_short() {
    let mut machine = fresh();
    let mut age_max = |used, minutes: u64| {
        let decision = machine.decide(MemoryReading {
            oldest: Duration::from_secs(minutes * 60),
            ..all(used)
        });
        assert_eq!(decision.level.number(), 0);
        decision.history.age_max
    };
    let minutes = |count: u64| Duration::from_secs(count * 60);
    assert_eq!(age_max(699, 600), Duration::MAX);
    assert_eq!(age_max(700, 600), minutes(450));
    // Not all caches have followed yet.
    assert_eq!(
        [age_max(720, 600), age_max(720, 500)],
        [minutes(450), minutes(375)]
    );
    assert_eq!(age_max(720, 400), minutes(300));
    // It was enough.
    assert_eq!([age_max(699, 300), age_max(640, 300)], [minutes(300); 2]);
    assert_eq!(age_max(639, 300), Duration::MAX);
    // What is younger than the minimum stays.
    assert_eq!([age_max(799, 1), age_max(799, 1)], [Duration::MAX; 2]);
    assert_eq!(age_max(799, 2), minutes(2) / 4 * 3);
    assert_eq!([age_max(799, 2), age_max(799, 1)], [minutes(2) / 4 * 3; 2]);
}

#[test]
fn recent_events_stay_until_new_watches_would_have_to_be_refused() {
    let mut machine = fresh();
    let mut recent = |resident| machine.decide(all(resident)).history.recent_max;
    assert_eq!(recent(900), usize::MAX);
    assert_eq!([recent(900), recent(900)], [MAX / RECENT_SHARE; 2]);
    assert_eq!([recent(940), recent(860), recent(890)], [0; 3]);
    assert_eq!([recent(819), recent(739)], [0, usize::MAX]);
}

#[test]
fn derived_data_is_dropped_again_only_if_that_helps() {
    for (derived, expected) in [(20, 1), (21, 4)] {
        let mut machine = fresh();
        let reading = MemoryReading {
            derived,
            ..all(850)
        };
        let drops = (0..24).filter(|_| machine.decide(reading).drops_frames);
        assert_eq!(drops.count(), expected);
    }
}

#[test]
fn caches_go_when_new_watches_are_refused_for_long() {
    let mut machine = fresh();
    let mut excess = |resident| machine.decide(all(resident)).excess;
    let waiting: Vec<_> = (0..6).map(|_| excess(950)).collect();
    assert_eq!(waiting, [0; 6]);
    assert_eq!([excess(950), excess(950)], [70; 2]);
    assert_eq!([excess(879), excess(950), excess(950)], [0; 3]);
}

#[test]
fn new_watches_are_not_refused_for_memory_that_the_allocator_has_not_returned() {
    let mut machine = fresh();
    let mut refuses = |resident, held| {
        let decision = machine.decide(MemoryReading {
            held,
            ..all(resident)
        });
        (decision.level.number(), decision.refuses)
    };
    assert_eq!(refuses(1_001, 1_001), (4, true));
    // Everything that can be given back is free now, and stays resident.
    assert_eq!(refuses(1_001, 760), (4, false));
    assert_eq!(refuses(1_001, 780), (4, true));
    assert_eq!(refuses(900, 900), (3, true));
    assert_eq!(refuses(870, 870), (2, false));
}

#[test]
fn new_caches_may_take_what_is_left_until_histories_are_cut() {
    let room = |resident, held| {
        let reading = MemoryReading {
            held,
            ..all(resident)
        };
        fresh().decide(reading).room
    };
    assert_eq!([room(0, 0), room(500, 500), room(879, 879)], [880, 380, 1]);
    assert_eq!([room(880, 880), room(1_000, 1_000), room(1_001, 0)], [0; 3]);
    // What is free may be used again.
    assert_eq!(room(1_000, 500), 880 - 575);
    let mut unbounded = PressureMachine::new(0, HISTORY_MAX, AGE_MIN);
    assert_eq!(unbounded.decide(all(usize::MAX)).room, usize::MAX);
    let told = MemoryRoom::default();
    assert!(told.is_for(1 << 40));
    told.set(room(500, 500));
    assert!(told.clone().is_for(379) && !told.is_for(380));
}

#[test]
fn another_bound_keeps_what_is_given_up_and_the_level_follows() {
    let mut machine = fresh();
    assert_eq!(levels(&mut machine, &[999; 4]), [1, 2, 3, 3]);
    let cuts = machine.decide(all(999)).history.cuts;
    machine.set_max(MAX + 10);
    let decision = machine.decide(all(999));
    assert_eq!((decision.level.number(), decision.before.number()), (3, 3));
    assert!(cuts > 0 && decision.history.cuts >= cuts);
    machine.set_max(2 * MAX);
    assert_eq!(levels(&mut machine, &[999; 4]), [2, 1, 0, 0]);
    machine.set_max(MAX / 2);
    assert_eq!(levels(&mut machine, &[999]), [4]);
    machine.set_max(0);
    let decision = machine.decide(all(999));
    assert_eq!(decision.level, PressureLevel::default());
    assert_eq!(decision.history, HistoryBound::WHOLE);
}

#[test]
fn without_a_bound_nothing_is_given_up() {
    let mut machine = PressureMachine::new(0, HISTORY_MAX, AGE_MIN);
    let decision = machine.decide(all(usize::MAX));
    assert_eq!(decision.level, PressureLevel::default());
    assert!(!decision.drops_frames && decision.history == HistoryBound::WHOLE);
}

#[test]
fn a_cache_follows_the_cuts_since_it_last_looked() {
    let cuts = HistoryCuts::default();
    let mut follower = CutFollower::new(cuts.clone());
    let mut next = |bound| {
        cuts.set(bound);
        follower.next()
    };
    let bound = |cuts| HistoryBound {
        cuts,
        recent_max: 0,
        ..HistoryBound::WHOLE
    };
    assert_eq!(next(HistoryBound::WHOLE), None);
    assert_eq!([next(bound(2)), next(bound(2))], [Some(bound(2)), None]);
    let whole = HistoryBound::WHOLE;
    assert_eq!([next(whole), next(whole)], [Some(whole), None]);
}

fn at(step: PressureStep) -> usize {
    MAX / 100 * percent(step)
}

#[test]
fn memory_that_was_freed_but_stays_resident_is_not_in_use() {
    let mut machine = fresh();
    assert_eq!(levels(&mut machine, &[950; 3]), [1, 2, 3]);
    let mut decide = |resident, held| {
        machine.decide(MemoryReading {
            held,
            ..all(resident)
        })
    };
    // Half of it was given back, to no effect on what is resident.
    let falling: Vec<_> = (0..4).map(|_| decide(950, 500)).collect();
    assert_eq!(
        falling
            .last()
            .map(|last| (last.level.number(), last.history.cuts)),
        Some((0, 0))
    );
    assert_eq!(decide(1_000, 500).level.number(), 0);
    // But the kernel counts it.
    assert_eq!(decide(1_001, 500).level, PressureLevel::HIGHEST);
    assert_eq!(decide(1_000, 500).level.number(), 3);
    // What is held may be known only to 15 in a hundred.
    assert_eq!(decide(940, 850).level.number(), 3);
}

proptest! {
    #[test]
    fn every_change_is_asked_for_by_memory(
        readings in prop::collection::vec((0..1_200_usize, 0..1_200_usize), 1..200),
    ) {
        let mut machine = fresh();
        let (mut before, mut before_cuts) = (0, 0);
        for (resident, held) in readings {
            let reading = MemoryReading { held, ..all(resident) };
            let (used, decision) = (reading.used(), machine.decide(reading));
            prop_assert!(used <= resident);
            let (level, last) = (decision.level.number(), decision.level.last_step());
            prop_assert_eq!(decision.before.number(), before);
            if resident > MAX {
                prop_assert_eq!(last, Some(PressureStep::Eviction));
            } else if level > before {
                prop_assert_eq!(level, before + 1);
                prop_assert!(used >= at(last.unwrap()));
            } else if level < before {
                prop_assert_eq!(level, before - 1);
                let step = decision.before.last_step().unwrap();
                let is_below = |len: usize, step| len < at(step) - MARGIN_PERCENT * MAX / 100;
                prop_assert!(
                    is_below(used, step.min(PressureStep::Admission)) || is_below(resident, step)
                );
            }
            let cuts = decision.history.cuts;
            prop_assert!(level > 0 || decision.history == HistoryBound::WHOLE);
            prop_assert!(cuts <= before_cuts || used >= at(PressureStep::History));
            prop_assert!(cuts <= CUTS_MAX);
            before_cuts = cuts;
            before = level;
        }
        // A reading that stays leads to a level that stays, and one that stays low to none.
        let settled = (0..4).map(|_| machine.decide(all(900)).level).last();
        prop_assert_eq!(Some(machine.decide(all(900)).level), settled);
        let low = (0..4).map(|_| machine.decide(all(0))).last().unwrap();
        prop_assert_eq!((low.level.number(), low.history.cuts), (0, 0));
        prop_assert!(!low.drops_frames);
    }
}
