//! Which threads the scheduler orders, and that no ready handler is ever forgotten.

use proptest::prelude::*;

use super::*;

/// The next handler for a worker that is done with one.
fn next(scheduler: &mut Scheduler<u32>, worker: WorkerId) -> Option<u32> {
    scheduler.next(worker, None).0
}

#[test]
fn one_ready_handler_calls_one_worker_which_ends_when_nothing_is_left() {
    let mut scheduler = Scheduler::new(2);
    assert_eq!(scheduler.push([7]), StartOrder::Worker);
    let worker = scheduler.begin();
    assert_eq!(scheduler.next(worker, None), (Some(7), StartOrder::Nothing));
    assert_eq!(scheduler.next(worker, None), (None, StartOrder::Nothing));
    assert!(scheduler.is_idle());
}

#[test]
fn a_worker_that_ends_twice_takes_no_other_worker_s_place() {
    let mut scheduler = Scheduler::new(2);
    scheduler.push([1]);
    let first = scheduler.begin();
    assert_eq!(next(&mut scheduler, first), Some(1));
    assert_eq!(next(&mut scheduler, first), None);
    // A second worker begins before the thread of the first one has ended.
    scheduler.push([2]);
    let second = scheduler.begin();
    assert_eq!(next(&mut scheduler, second), Some(2));
    scheduler.end(first);
    assert!(!scheduler.is_idle(), "a handler is being served");
    assert_eq!(next(&mut scheduler, second), None);
    assert!(scheduler.is_idle());
}

#[test]
fn a_thousand_ready_handlers_call_two_workers_and_a_standby() {
    let mut scheduler = Scheduler::new(2);
    assert_eq!(scheduler.push(0..1_000), StartOrder::Worker);
    let first = scheduler.begin();
    assert_eq!(scheduler.next(first, None), (Some(0), StartOrder::Worker));
    let second = scheduler.begin();
    assert_eq!(
        scheduler.next(second, None),
        (Some(1), StartOrder::Watchdog)
    );
    let mut served = 2;
    while let (Some(_), order) = scheduler.next([first, second][served % 2], None) {
        assert_eq!(order, StartOrder::Nothing);
        served += 1;
    }
    assert_eq!(served, 1_000);
    assert_eq!(scheduler.check_workers(), WatchdogAction::End);
}

#[test]
fn a_handler_with_more_waiting_goes_to_the_end() {
    let mut scheduler = Scheduler::new(1);
    scheduler.push([1, 2]);
    let worker = scheduler.begin();
    assert_eq!(next(&mut scheduler, worker), Some(1));
    assert_eq!(scheduler.next(worker, Some(1)).0, Some(2));
    assert_eq!(next(&mut scheduler, worker), Some(1));
}

#[test]
fn a_worker_found_with_its_handler_twice_is_replaced() {
    let mut scheduler = Scheduler::new(1);
    scheduler.push(0..3);
    let stuck = scheduler.begin();
    assert_eq!(scheduler.next(stuck, None), (Some(0), StartOrder::Watchdog));
    assert_eq!(scheduler.check_workers(), WatchdogAction::Start(0));
    assert_eq!(scheduler.check_workers(), WatchdogAction::Start(2));
    let other = scheduler.begin();
    assert_eq!(next(&mut scheduler, other), Some(1));
}

#[test]
fn a_worker_that_was_overdue_ends_if_enough_others_work() {
    let mut scheduler = Scheduler::new(1);
    scheduler.push(0..9);
    let stuck = scheduler.begin();
    next(&mut scheduler, stuck);
    scheduler.check_workers();
    // One worker became overdue, so two are wanted now.
    assert_eq!(scheduler.check_workers(), WatchdogAction::Start(2));
    let others = [scheduler.begin(), scheduler.begin()];
    for other in others {
        assert!(next(&mut scheduler, other).is_some());
    }
    assert_eq!(next(&mut scheduler, stuck), None);
    assert!(next(&mut scheduler, others[0]).is_some());
}

#[test]
fn many_that_block_at_once_double_the_workers_up_to_a_bound() {
    let mut scheduler = Scheduler::new(2);
    scheduler.push(0..10_000);
    let mut started = 1;
    for _ in 0..100 {
        while scheduler.starting > 0 {
            let worker = scheduler.begin();
            next(&mut scheduler, worker);
        }
        if let WatchdogAction::Start(count) = scheduler.check_workers() {
            started += count;
        }
    }
    assert!(started > 1_000, "{started}");
    assert_eq!(scheduler.width, WIDTH_MAX);
    assert!(scheduler.active() <= WIDTH_MAX);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Begin,
    Next(usize, bool),
    Check,
    Panic(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..6_u32).prop_map(Step::Push),
        3 => Just(Step::Begin),
        6 => (0..8_usize, any::<bool>()).prop_map(|(worker, again)| Step::Next(worker, again)),
        3 => Just(Step::Check),
        1 => (0..8_usize).prop_map(Step::Panic),
    ]
}

proptest! {
    #[test]
    fn while_anybody_is_ready_somebody_is_coming(
        width in 1..4_usize,
        steps in proptest::collection::vec(step(), 0..300),
    ) {
        let mut scheduler = Scheduler::new(width);
        let mut workers: Vec<(WorkerId, u32)> = Vec::new();
        let (mut pushed, mut served) = (0, 0);
        let mut has_watchdog = false;
        for step in steps {
            let order = match step {
                Step::Push(count) => {
                    pushed += count;
                    scheduler.push(0..count)
                }
                Step::Begin if scheduler.starting > 0 => {
                    let worker = scheduler.begin();
                    let (next, order) = scheduler.next(worker, None);
                    workers.extend(next.map(|next| (worker, next)));
                    order
                }
                Step::Next(index, again) if index < workers.len() => {
                    let (worker, current) = workers[index];
                    let more = again.then_some(current);
                    served += u32::from(more.is_none());
                    let (next, order) = scheduler.next(worker, more);
                    match next {
                        Some(next) => workers[index].1 = next,
                        None => drop(workers.remove(index)),
                    }
                    order
                }
                Step::Panic(index) if index < workers.len() => {
                    scheduler.end(workers.remove(index).0);
                    served += 1;
                    StartOrder::Nothing
                }
                Step::Check if has_watchdog => {
                    has_watchdog = scheduler.check_workers() != WatchdogAction::End;
                    StartOrder::Nothing
                }
                Step::Begin | Step::Next(..) | Step::Check | Step::Panic(_) => StartOrder::Nothing,
            };
            has_watchdog |= order == StartOrder::Watchdog;
            prop_assert_eq!(has_watchdog, scheduler.has_watchdog);
            prop_assert!(scheduler.ready.is_empty() || scheduler.starting > 0 || has_watchdog);
            prop_assert_eq!(scheduler.workers.len(), workers.len());
            let overdue = scheduler.workers.iter().filter(|(_, age)| **age == WorkerAge::Overdue);
            prop_assert_eq!(scheduler.overdue, overdue.count());
            prop_assert_eq!(pushed as usize, served as usize + workers.len() + scheduler.ready.len());
        }
    }
}
