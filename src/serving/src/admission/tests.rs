//! Permits that lists wait for, give up and release, with paused time.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr};
use std::task::Poll;

use super::lists::SLOW_LISTS_PER_PERMIT;
use super::*;
use crate::metrics::Metrics;

const WAIT: Duration = Duration::from_secs(30);
const STALL: Duration = Duration::from_secs(2);

fn peer(number: u8) -> Peer {
    Peer::from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number)))
}

fn limits(lists_max: usize, lists_waiting_max: usize) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: 7,
        watches_max: 1,
        lists_max,
        lists_waiting_max,
        list_wait_max: WAIT,
        list_stall_max: STALL,
        memory_max: 0,
    }
}

fn admission(limits: AdmissionLimits) -> (Admission, AdmissionMetrics) {
    let metrics = Metrics::new().unwrap().admission();
    (Admission::new(limits, Some(metrics.clone())), metrics)
}

#[track_caller]
fn check_refused<T: std::fmt::Debug>(refused: Result<T, Status>, words: &str) {
    let status = refused.unwrap_err();
    assert_eq!((status.code, status.reason), (429, "TooManyRequests"));
    assert!(status.message.ends_with(words), "{status:?}");
    assert!((1..15).contains(&status.retry_after().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_its_turn_and_no_longer_than_it_may() {
    let (admission, metrics) = admission(limits(1, 1));
    let permit = admission.list(Peer::UNKNOWN).await.unwrap();
    let start = Instant::now();
    check_refused(admission.list(Peer::UNKNOWN).await, "did not come in time");
    assert_eq!(start.elapsed(), WAIT);
    assert_eq!(metrics.lists_waiting.get(), 0);

    let waiting = admission.list(Peer::UNKNOWN);
    let (waited, ()) = tokio::join!(waiting, async {
        assert_eq!(metrics.lists_waiting.get(), 1);
        check_refused(admission.list(Peer::UNKNOWN).await, "wait for their turn");
        drop(permit);
    });
    let permit = waited.unwrap();
    assert_eq!(
        (metrics.lists_running.get(), metrics.lists_waiting.get()),
        (1, 0)
    );
    drop(permit);
    assert_eq!(metrics.lists_running.get(), 0);
    assert_eq!(metrics.refusals.count(LimitLabel::Lists), 1);
    assert_eq!(metrics.refusals.count(LimitLabel::ListWait), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_given_to_somebody_who_has_left_goes_to_the_next() {
    let (admission, metrics) = admission(limits(1, 4));
    let permit = admission.list(Peer::UNKNOWN).await.unwrap();
    let new_list = || {
        let admission = admission.clone();
        Box::pin(async move { admission.list(Peer::UNKNOWN).await })
    };
    let (mut first, mut second, third) = (new_list(), new_list(), new_list());
    // A list joins the queue when it is first polled.
    for list in [&mut first, &mut second] {
        let polled = poll_fn(|context| Poll::Ready(list.as_mut().poll(context)));
        assert!(polled.await.is_pending());
    }
    drop(first);
    assert_eq!(metrics.lists_waiting.get(), 1);
    drop(permit);
    // The second list is admitted, but dropped before it is polled.
    assert_eq!(
        (metrics.lists_running.get(), metrics.lists_waiting.get()),
        (1, 0)
    );
    drop(second);
    assert_eq!(metrics.lists_running.get(), 0);
    third.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn places_of_operators_are_not_in_the_gauges_of_those_that_all_share() {
    for (is_for_operators, gauge) in [(false, 1), (true, 0)] {
        let (mut admission, metrics) = admission(limits(1, 1));
        if is_for_operators {
            admission = admission.for_operators();
        }
        assert_eq!(admission.is_for_operators(), is_for_operators);
        let _permit = admission.list(Peer::UNKNOWN).await.unwrap();
        assert_eq!(metrics.lists_running.get(), gauge);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_were_sent_away_together_do_not_come_back_together() {
    let (admission, _metrics) = admission(limits(1, 0));
    let _list = admission.list(Peer::UNKNOWN).await.unwrap();
    let _watch = admission.watch(Peer::UNKNOWN).unwrap();
    let (mut lists, mut watches) = (BTreeSet::new(), BTreeSet::new());
    // Enough attempts for every possible second to occur.
    for _ in 0..500 {
        let list = admission.list(Peer::UNKNOWN).await.unwrap_err();
        lists.extend(list.retry_after());
        let watch = admission.watch(Peer::UNKNOWN).unwrap_err();
        watches.extend(watch.retry_after());
    }
    assert!(lists.into_iter().eq(1..5));
    assert!(watches.into_iter().eq(5..15));
}

#[test]
fn watches_are_counted_until_they_are_gone() {
    let (admission, metrics) = admission(limits(1, 1));
    let permit = admission.watch(Peer::UNKNOWN).unwrap();
    check_refused(admission.watch(Peer::UNKNOWN), "too many watches are open");
    drop(permit);
    drop(admission.watch(Peer::UNKNOWN).unwrap());
    assert_eq!(metrics.refusals.count(LimitLabel::Watches), 1);
}

#[tokio::test]
async fn without_memory_one_list_goes_on_at_a_time() {
    let (admission, metrics) = admission(AdmissionLimits {
        memory_max: 1,
        ..limits(5, 5)
    });
    check_refused(admission.watch(Peer::UNKNOWN), "memory is short");
    let permit = admission.list(Peer::UNKNOWN).await.unwrap();
    check_refused(admission.list(Peer::UNKNOWN).await, "memory is short");
    drop(permit);
    drop(admission.list(Peer::UNKNOWN).await.unwrap());
    assert_eq!(metrics.refusals.count(LimitLabel::Memory), 2);
}

#[test]
fn a_watch_that_continues_is_refused_only_above_the_limit() {
    let (admission, metrics) = admission(AdmissionLimits {
        memory_max: usize::MAX,
        ..limits(1, 1)
    });
    admission.set_memory_short(true);
    check_refused(admission.watch(Peer::UNKNOWN), "memory is short");
    let permit = admission.resuming_watch(Peer::UNKNOWN).unwrap();
    check_refused(
        admission.resuming_watch(Peer::UNKNOWN),
        "too many watches are open",
    );
    drop(permit);
    assert_eq!(metrics.refusals.count(LimitLabel::Memory), 1);
    let (above, _) = self::admission(AdmissionLimits {
        memory_max: 1,
        ..limits(1, 1)
    });
    check_refused(above.resuming_watch(Peer::UNKNOWN), "memory is short");
}

#[test]
fn one_peers_watches_leave_places_for_another() {
    let (admission, _) = admission(AdmissionLimits {
        watches_max: 100,
        ..limits(1, 1)
    });
    let held: Vec<_> = std::iter::from_fn(|| admission.watch(peer(1)).ok()).collect();
    assert_eq!(held.len(), 80);
    admission.watch(peer(2)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_list_that_its_client_does_not_take_gives_its_place_to_one_who_waits() {
    let (admission, metrics) = admission(limits(2, 4));
    let stalled = admission.list(peer(1)).await.unwrap();
    stalled.gave_frame();
    let busy = admission.list(peer(1)).await.unwrap();
    let start = Instant::now();
    let next = admission.list(peer(1)).await.unwrap();
    assert!(start.elapsed() >= STALL && start.elapsed() < WAIT);
    assert_eq!(metrics.lists_slow.get(), 1);
    // A list whose next frame is being made keeps its permit, however long that takes.
    let refused = admission.list(peer(1)).await;
    check_refused(refused, "the list's turn did not come in time");
    drop(stalled);
    assert_eq!(metrics.lists_slow.get(), 0);
    drop(busy);
    drop(admission.list(peer(1)).await.unwrap());
    drop(next);
    assert_eq!(metrics.lists_running.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_due_is_taken_back_before_anybody_is_sent_away() {
    let (admission, _metrics) = admission(limits(1, 0));
    let stalled = admission.list(peer(1)).await.unwrap();
    stalled.gave_frame();
    tokio::time::advance(STALL).await;
    let start = Instant::now();
    let _permit = admission.list(peer(2)).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    check_refused(admission.list(peer(3)).await, "wait for their turn");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_taken_frame_by_frame_keeps_its_place() {
    let (admission, _) = admission(limits(1, 1));
    let list = admission.list(peer(1)).await.unwrap();
    let taken = async {
        for _ in 0..2 * WAIT.as_secs() {
            list.gave_frame();
            tokio::time::sleep(STALL / 2).await;
            list.resume_work();
        }
    };
    let (refused, ()) = tokio::join!(admission.list(peer(1)), taken);
    check_refused(refused, "the list's turn did not come in time");
}

/// How long a list takes for this many frames while its client waits for them.
async fn frames(list: &mut ListPermit, count: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..count {
        let ready = poll_fn(|context| list.poll_work(context)).await;
        ready.unwrap();
        list.gave_frame();
    }
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lost_its_place_is_slow_until_there_is_one_for_it() {
    const COUNT: u32 = 100;
    let (admission, metrics) = admission(limits(1, 4));
    let mut list = admission.list(peer(1)).await.unwrap();
    assert_eq!(frames(&mut list, COUNT).await, Duration::ZERO);
    let other = admission.list(peer(2)).await.unwrap();
    assert_eq!(metrics.lists_slow.get(), 1);
    // The pause before the first frame has passed already.
    let slow = frames(&mut list, COUNT).await;
    assert!(slow >= SLOW_FRAME_PERIOD * (COUNT - 1), "{slow:?}");
    drop(other);
    assert_eq!(frames(&mut list, COUNT).await, Duration::ZERO);
    let taken =
        |metrics: &AdmissionMetrics| (metrics.lists_running.get(), metrics.lists_slow.get());
    assert_eq!(taken(&metrics), (1, 0));
    drop(list);
    assert_eq!(taken(&metrics), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_goes_on_takes_the_place_of_one_that_does_not() {
    let (admission, metrics) = admission(limits(1, 4));
    let mut list = admission.list(peer(1)).await.unwrap();
    list.gave_frame();
    let idle = admission.list(peer(2)).await.unwrap();
    idle.gave_frame();
    tokio::time::sleep(STALL).await;
    frames(&mut list, 2).await;
    assert_eq!(frames(&mut list, 100).await, Duration::ZERO);
    drop((list, idle));
    assert_eq!(
        (metrics.lists_running.get(), metrics.lists_slow.get()),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn lists_that_go_on_without_a_place_are_bounded() {
    let (admission, metrics) = admission(limits(2, 4));
    let slow_max = 2 * SLOW_LISTS_PER_PERMIT;
    let mut stalled = Vec::new();
    for _ in 0..2 * slow_max {
        for number in 1..3 {
            let permit = admission.list(peer(number)).await.unwrap();
            permit.gave_frame();
            stalled.push(permit);
        }
        tokio::time::sleep(STALL).await;
    }
    let newcomer = admission.list(peer(3)).await.unwrap();
    let slow = metrics.lists_slow.get();
    assert!(slow > 0 && slow <= slow_max as i64, "{slow}");
    let mut lost = 0;
    for permit in &mut stalled {
        let work = poll_fn(|context| Poll::Ready(permit.poll_work(context))).await;
        lost += usize::from(matches!(work, Poll::Ready(Err(_))));
    }
    assert!(lost > slow_max, "{lost}");
    drop((stalled, newcomer));
    assert_eq!(
        (metrics.lists_slow.get(), metrics.lists_running.get()),
        (0, 0)
    );
}

#[test]
fn connections_are_bounded_as_set_or_by_open_files() {
    let (set, _) = admission(limits(1, 1));
    assert_eq!(set.connections_max(), 7);
    let (unset, _) = admission(AdmissionLimits {
        connections_max: 0,
        ..limits(1, 1)
    });
    assert_eq!(unset.connections_max(), OpenFiles::of_process(0).clients);
}

#[tokio::test(start_paused = true)]
async fn raised_limits_admit_those_who_wait_and_lowered_ones_end_nothing() {
    let (admission, _) = admission(limits(1, 1));
    let permit = admission.list(Peer::UNKNOWN).await.unwrap();
    let waiting = admission.list(Peer::UNKNOWN);
    let (second, ()) = tokio::join!(waiting, async {
        admission.change_limits(AdmissionLimits {
            watches_max: 2,
            ..limits(2, 1)
        });
    });
    second.as_ref().unwrap();
    let watches = [(); 2].map(|()| admission.watch(Peer::UNKNOWN).unwrap());
    check_refused(admission.watch(Peer::UNKNOWN), "watches are open");

    let wait = Duration::from_secs(1);
    admission.change_limits(AdmissionLimits {
        list_wait_max: wait,
        ..limits(1, 1)
    });
    assert_eq!(admission.connections_max(), limits(1, 1).connections_max);
    drop(permit);
    let start = Instant::now();
    check_refused(admission.list(Peer::UNKNOWN).await, "did not come in time");
    assert_eq!(start.elapsed(), wait);
    drop(second);
    drop(admission.list(Peer::UNKNOWN).await.unwrap());
    let [first, _second] = watches;
    drop(first);
    check_refused(admission.watch(Peer::UNKNOWN), "watches are open");
}

#[test]
fn a_memory_limit_that_is_set_later_holds_at_once() {
    let (admission, _) = admission(limits(1, 1));
    drop(admission.watch(Peer::UNKNOWN).unwrap());
    admission.change_limits(AdmissionLimits {
        memory_max: 1,
        ..limits(1, 1)
    });
    check_refused(admission.watch(Peer::UNKNOWN), "memory is short");
    admission.change_limits(limits(1, 1));
    drop(admission.watch(Peer::UNKNOWN).unwrap());
}
