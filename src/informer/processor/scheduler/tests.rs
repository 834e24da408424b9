//! Who is called, and that nobody who is ready is ever forgotten.

use proptest::prelude::*;

use super::*;

/// The next handler for a worker that is done with one.
fn next(roster: &mut Scheduler<u32>, worker: WorkerId) -> Option<u32> {
    roster.next(worker, None).0
}

#[test]
fn one_ready_handler_calls_one_worker_which_ends_when_nothing_is_left() {
    let mut roster = Scheduler::new(2);
    assert_eq!(roster.push([7]), StartOrder::Worker);
    let worker = roster.begin();
    assert_eq!(roster.next(worker, None), (Some(7), StartOrder::Nobody));
    assert_eq!(roster.next(worker, None), (None, StartOrder::Nobody));
    assert!(roster.is_idle());
}

#[test]
fn a_worker_that_ends_twice_takes_no_other_worker_s_place() {
    let mut roster = Scheduler::new(2);
    roster.push([1]);
    let first = roster.begin();
    assert_eq!(next(&mut roster, first), Some(1));
    assert_eq!(next(&mut roster, first), None);
    // Called before the thread of the first one is through with leaving.
    roster.push([2]);
    let second = roster.begin();
    assert_eq!(next(&mut roster, second), Some(2));
    roster.end(first);
    assert!(!roster.is_idle(), "a handler is being served");
    assert_eq!(next(&mut roster, second), None);
    assert!(roster.is_idle());
}

#[test]
fn a_thousand_ready_handlers_call_two_workers_and_a_standby() {
    let mut roster = Scheduler::new(2);
    assert_eq!(roster.push(0..1_000), StartOrder::Worker);
    let first = roster.begin();
    assert_eq!(roster.next(first, None), (Some(0), StartOrder::Worker));
    let second = roster.begin();
    assert_eq!(roster.next(second, None), (Some(1), StartOrder::Standby));
    let mut served = 2;
    while let (Some(_), call) = roster.next([first, second][served % 2], None) {
        assert_eq!(call, StartOrder::Nobody);
        served += 1;
    }
    assert_eq!(served, 1_000);
    assert_eq!(roster.look(), WatchdogAction::End);
}

#[test]
fn a_handler_with_more_waiting_goes_to_the_end() {
    let mut roster = Scheduler::new(1);
    roster.push([1, 2]);
    let worker = roster.begin();
    assert_eq!(next(&mut roster, worker), Some(1));
    assert_eq!(roster.next(worker, Some(1)).0, Some(2));
    assert_eq!(next(&mut roster, worker), Some(1));
}

#[test]
fn a_worker_found_with_its_handler_twice_is_replaced() {
    let mut roster = Scheduler::new(1);
    roster.push(0..3);
    let stuck = roster.begin();
    assert_eq!(roster.next(stuck, None), (Some(0), StartOrder::Standby));
    assert_eq!(roster.look(), WatchdogAction::Start(0));
    assert_eq!(roster.look(), WatchdogAction::Start(2));
    let other = roster.begin();
    assert_eq!(next(&mut roster, other), Some(1));
}

#[test]
fn a_worker_that_was_overdue_ends_if_enough_others_work() {
    let mut roster = Scheduler::new(1);
    roster.push(0..9);
    let stuck = roster.begin();
    next(&mut roster, stuck);
    roster.look();
    // One was newly overdue, so two are wanted now.
    assert_eq!(roster.look(), WatchdogAction::Start(2));
    let others = [roster.begin(), roster.begin()];
    for other in others {
        assert!(next(&mut roster, other).is_some());
    }
    assert_eq!(next(&mut roster, stuck), None);
    assert!(next(&mut roster, others[0]).is_some());
}

#[test]
fn many_that_block_at_once_double_the_workers_up_to_a_bound() {
    let mut roster = Scheduler::new(2);
    roster.push(0..10_000);
    let mut started = 1;
    for _ in 0..100 {
        while roster.starting > 0 {
            let worker = roster.begin();
            next(&mut roster, worker);
        }
        if let WatchdogAction::Start(count) = roster.look() {
            started += count;
        }
    }
    assert!(started > 1_000, "{started}");
    assert_eq!(roster.width, WIDTH_MAX);
    assert!(roster.active() <= WIDTH_MAX);
}

#[derive(Clone, Debug)]
enum Step {
    Push(u32),
    Begin,
    Next(usize, bool),
    Look,
    Panic(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..6_u32).prop_map(Step::Push),
        3 => Just(Step::Begin),
        6 => (0..8_usize, any::<bool>()).prop_map(|(worker, again)| Step::Next(worker, again)),
        3 => Just(Step::Look),
        1 => (0..8_usize).prop_map(Step::Panic),
    ]
}

proptest! {
    #[test]
    fn while_anybody_is_ready_somebody_is_coming(
        width in 1..4_usize,
        steps in proptest::collection::vec(step(), 0..300),
    ) {
        let mut roster = Scheduler::new(width);
        let mut workers: Vec<(WorkerId, u32)> = Vec::new();
        let (mut pushed, mut served) = (0, 0);
        let mut standby = false;
        for step in steps {
            let call = match step {
                Step::Push(count) => {
                    pushed += count;
                    roster.push(0..count)
                }
                Step::Begin if roster.starting > 0 => {
                    let worker = roster.begin();
                    let (next, call) = roster.next(worker, None);
                    workers.extend(next.map(|next| (worker, next)));
                    call
                }
                Step::Next(place, again) if place < workers.len() => {
                    let (worker, with) = workers[place];
                    let more = again.then_some(with);
                    served += u32::from(more.is_none());
                    let (next, call) = roster.next(worker, more);
                    match next {
                        Some(next) => workers[place].1 = next,
                        None => drop(workers.remove(place)),
                    }
                    call
                }
                Step::Panic(place) if place < workers.len() => {
                    roster.end(workers.remove(place).0);
                    served += 1;
                    StartOrder::Nobody
                }
                Step::Look if standby => {
                    standby = roster.look() != WatchdogAction::End;
                    StartOrder::Nobody
                }
                Step::Begin | Step::Next(..) | Step::Look | Step::Panic(_) => StartOrder::Nobody,
            };
            standby |= call == StartOrder::Standby;
            prop_assert_eq!(standby, roster.standby);
            prop_assert!(roster.ready.is_empty() || roster.starting > 0 || standby);
            prop_assert_eq!(roster.workers.len(), workers.len());
            let overdue = roster.workers.iter().filter(|(_, stay)| **stay == WorkerAge::Overdue);
            prop_assert_eq!(roster.overdue, overdue.count());
            prop_assert_eq!(pushed as usize, served as usize + workers.len() + roster.ready.len());
        }
    }
}
