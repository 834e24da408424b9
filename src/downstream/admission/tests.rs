//! Places that are waited for, given up and given back, under a stopped clock.

use std::future::{Future, poll_fn};
use std::net::Ipv4Addr;
use std::task::Poll;

use super::*;
use crate::metrics::Metrics;

const WAIT: Duration = Duration::from_secs(30);

fn bounds(lists_max: usize, lists_waiting_max: usize) -> AdmissionLimits {
    AdmissionLimits {
        connections_max: 7,
        watches_max: 1,
        lists_max,
        lists_waiting_max,
        list_wait_max: WAIT,
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
    let (admission, metrics) = admission(bounds(1, 1));
    let place = admission.list(Peer::UNKNOWN).await.unwrap();
    let begun = Instant::now();
    check_refused(admission.list(Peer::UNKNOWN).await, "did not come in time");
    assert_eq!(begun.elapsed(), WAIT);
    assert_eq!(metrics.lists_waiting.get(), 0);

    let waiting = admission.list(Peer::UNKNOWN);
    let (waited, ()) = tokio::join!(waiting, async {
        assert_eq!(metrics.lists_waiting.get(), 1);
        check_refused(admission.list(Peer::UNKNOWN).await, "wait for their turn");
        drop(place);
    });
    let place = waited.unwrap();
    assert_eq!(
        (metrics.lists_running.get(), metrics.lists_waiting.get()),
        (1, 0)
    );
    drop(place);
    assert_eq!(metrics.lists_running.get(), 0);
    assert_eq!(metrics.refusals.count(Refused::Lists), 1);
    assert_eq!(metrics.refusals.count(Refused::ListWait), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_given_to_somebody_who_has_left_goes_to_the_next() {
    let (admission, metrics) = admission(bounds(1, 4));
    let place = admission.list(Peer::UNKNOWN).await.unwrap();
    let asks = || {
        let admission = admission.clone();
        Box::pin(async move { admission.list(Peer::UNKNOWN).await })
    };
    let (mut first, mut second, third) = (asks(), asks(), asks());
    // Each stands in line once it has been asked.
    for asking in [&mut first, &mut second] {
        let asked = poll_fn(|context| Poll::Ready(asking.as_mut().poll(context)));
        assert!(asked.await.is_pending());
    }
    drop(first);
    assert_eq!(metrics.lists_waiting.get(), 1);
    drop(place);
    // The second one's turn has come, but it never learns of it.
    assert_eq!(
        (metrics.lists_running.get(), metrics.lists_waiting.get()),
        (1, 0)
    );
    drop(second);
    assert_eq!(metrics.lists_running.get(), 0);
    third.await.unwrap();
}

#[test]
fn watches_are_counted_until_they_are_gone() {
    let (admission, metrics) = admission(bounds(1, 1));
    let place = admission.watch().unwrap();
    check_refused(admission.watch(), "too many watches are open");
    drop(place);
    drop(admission.watch().unwrap());
    assert_eq!(metrics.refusals.count(Refused::Watches), 1);
}

#[tokio::test]
async fn without_memory_one_list_goes_on_at_a_time() {
    let (admission, metrics) = admission(AdmissionLimits {
        memory_max: 1,
        ..bounds(5, 5)
    });
    check_refused(admission.watch(), "memory is short");
    let place = admission.list(Peer::UNKNOWN).await.unwrap();
    check_refused(admission.list(Peer::UNKNOWN).await, "memory is short");
    drop(place);
    drop(admission.list(Peer::UNKNOWN).await.unwrap());
    assert_eq!(metrics.refusals.count(Refused::Memory), 2);
}

#[test]
fn connections_are_bounded_as_set_or_by_open_files() {
    let (set, _) = admission(bounds(1, 1));
    assert_eq!(set.connections_max(), 7);
    let (unset, _) = admission(AdmissionLimits {
        connections_max: 0,
        ..bounds(1, 1)
    });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = unset.connections_max();
    assert!(
        connections > 0 && (connections as u64) < files,
        "{connections}"
    );
}

#[test]
fn hosts_of_one_network_are_one_peer() {
    let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
    assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
    assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    assert_eq!(
        peer("::ffff:10.0.0.1"),
        Peer::from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)))
    );
}
