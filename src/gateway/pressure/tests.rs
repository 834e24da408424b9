//! The steps come in their order, each only when memory asks for it, and go when memory is back.

use proptest::prelude::*;

use super::*;

const MAX: usize = 1_000;

/// A reading of memory that is all in use.
const fn all(resident: usize) -> MemoryReading {
    MemoryReading {
        resident,
        held: resident,
    }
}

fn levels(machine: &mut PressureMachine, readings: &[usize]) -> Vec<usize> {
    let level = |resident: &usize| machine.decide(all(*resident)).level.number();
    readings.iter().map(level).collect()
}

#[test]
fn steps_are_taken_one_after_the_other_and_all_at_once_above_the_bound() {
    let mut machine = PressureMachine::new(MAX);
    let rising = [799, 800, 879, 880, 939, 940, 1_000, 1_001];
    assert_eq!(levels(&mut machine, &rising), [0, 1, 1, 2, 2, 3, 3, 4]);
    let mut machine = PressureMachine::new(MAX);
    assert_eq!(levels(&mut machine, &[999; 4]), [1, 2, 3, 3]);
    let mut machine = PressureMachine::new(MAX);
    assert_eq!(levels(&mut machine, &[0, 1_001]), [0, 4]);
}

#[test]
fn a_step_is_taken_back_only_well_below_the_point_where_it_was_taken() {
    let mut machine = PressureMachine::new(MAX);
    let falling = [1_001, 1_000, 940, 939, 880, 879, 820, 819, 740, 739];
    let expected = [4, 4, 4, 3, 3, 2, 2, 1, 1, 0];
    assert_eq!(levels(&mut machine, &falling), expected);
}

#[test]
fn histories_are_halved_again_while_memory_stays_short_and_whole_when_it_is_back() {
    let mut machine = PressureMachine::new(MAX);
    let mut cuts = |resident| machine.decide(all(resident)).cuts;
    assert_eq!([cuts(900), cuts(900)], [0, 1]);
    let later: Vec<_> = (0..6).map(|_| cuts(900)).collect();
    assert_eq!(later, [1, 1, 1, 1, 1, 2]);
    // What was given back was enough: the step stays, but nothing more is given back.
    assert_eq!((0..20).map(|_| cuts(860)).max(), Some(2));
    assert_eq!((0..100).map(|_| cuts(900)).max(), Some(CUTS_MAX));
    assert_eq!([cuts(819), cuts(740), cuts(739)], [CUTS_MAX, CUTS_MAX, 0]);
}

#[test]
fn without_a_bound_nothing_is_given_up() {
    let mut machine = PressureMachine::new(0);
    let decision = machine.decide(all(usize::MAX));
    assert_eq!(decision.level, PressureLevel::default());
    assert!(!decision.drops_frames && decision.cuts == 0);
}

#[test]
fn a_cache_follows_the_cuts_since_it_last_looked() {
    let cuts = HistoryCuts::default();
    let mut follower = CutFollower::new(cuts.clone());
    let mut next = |count| {
        cuts.set(count);
        let change = follower.next();
        (change.is_restored, change.halvings)
    };
    assert_eq!(
        [next(0), next(2), next(2)],
        [(false, 0), (false, 2), (false, 0)]
    );
    assert_eq!(
        [next(3), next(0), next(0)],
        [(false, 1), (true, 0), (false, 0)]
    );
    // Memory was back and is short again.
    assert_eq!([next(4), next(1)], [(false, 4), (true, 1)]);
}

fn at(step: PressureStep) -> usize {
    MAX / 100 * step.percent()
}

#[test]
fn memory_that_was_freed_but_stays_resident_is_not_in_use() {
    let mut machine = PressureMachine::new(MAX);
    assert_eq!(levels(&mut machine, &[950; 3]), [1, 2, 3]);
    let mut decide = |resident, held| machine.decide(MemoryReading { resident, held });
    // Half of it was given back, to no effect on what is resident.
    let falling: Vec<_> = (0..4).map(|_| decide(950, 500)).collect();
    assert_eq!(
        falling.last().map(|last| (last.level.number(), last.cuts)),
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
        let mut machine = PressureMachine::new(MAX);
        let mut before = 0;
        for (resident, held) in readings {
            let reading = MemoryReading { resident, held };
            let (used, decision) = (reading.used(), machine.decide(reading));
            prop_assert!(used <= resident);
            let (level, last) = (decision.level.number(), decision.level.last_step());
            prop_assert_eq!(decision.before.number(), before);
            if resident > MAX {
                prop_assert_eq!(last, Some(PressureStep::Eviction));
            } else if level > before {
                prop_assert_eq!(level, before + 1);
                prop_assert!(used >= at(last.unwrap()));
                prop_assert!(decision.drops_frames);
            } else if level < before {
                prop_assert_eq!(level, before - 1);
                prop_assert!(used < at(decision.before.last_step().unwrap()) - MARGIN_PERCENT * MAX / 100);
            }
            prop_assert!(level > 0 || decision.cuts == 0);
            prop_assert!(decision.cuts > 0 || !decision.level.includes(PressureStep::History));
            prop_assert!(decision.cuts <= CUTS_MAX);
            before = level;
        }
        // A reading that stays leads to a level that stays, and one that stays low to none.
        let settled = (0..4).map(|_| machine.decide(all(900)).level).last();
        prop_assert_eq!(Some(machine.decide(all(900)).level), settled);
        let low = (0..4).map(|_| machine.decide(all(0))).last().unwrap();
        prop_assert_eq!((low.level.number(), low.cuts), (0, 0));
        prop_assert!(!low.drops_frames);
    }
}
