//! Who shares a running flight, and what ends it.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use super::*;

/// Joins or begins a call that ends when `end` is notified, and returns how many were begun before it.
fn join(
    flights: &Flights<&'static str, usize>,
    begun: &Arc<AtomicUsize>,
    end: &Arc<Notify>,
) -> FlightWaiter<usize> {
    let (begun, end) = (Arc::clone(begun), Arc::clone(end));
    flights
        .join_or_begin("key", move || {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(async move {
                end.notified().await;
                number
            })
        })
        .unwrap()
}

#[tokio::test]
async fn one_call_serves_all_waiters_and_outlives_them() {
    let (flights, begun, end) = (Flights::default(), Arc::default(), Arc::default());
    drop(join(&flights, &begun, &end));
    let waiters = [join(&flights, &begun, &end), flights.join(&"key").unwrap()];
    end.notify_one();
    for waiter in waiters {
        assert_eq!(waiter.outcome().await, Some(0));
    }
    assert!(flights.join(&"key").is_none() && flights.is_empty());
    end.notify_one();
    assert_eq!(join(&flights, &begun, &end).outcome().await, Some(1));
}

#[tokio::test]
async fn waiters_of_a_call_that_panics_get_an_error_and_the_next_call_starts() {
    let flights = Flights::<_, usize>::default();
    let waiter = flights
        .join_or_begin("key", || {
            Ok::<_, Infallible>(async { panic!("the call fails") })
        })
        .unwrap();
    assert_eq!(waiter.outcome().await, None);
    let next = flights.join_or_begin("key", || Ok::<_, Infallible>(async { 1 }));
    assert_eq!(next.unwrap().outcome().await, Some(1));
}

#[tokio::test]
async fn a_call_that_cannot_begin_leaves_nothing() {
    let flights = Flights::<_, usize>::default();
    let begin = || Err::<std::future::Ready<usize>, _>("busy");
    assert_eq!(flights.join_or_begin("key", begin).unwrap_err(), "busy");
    assert!(flights.is_empty());
}

#[tokio::test]
async fn calls_are_aborted_with_their_owner() {
    let flights = Flights::default();
    let waiter = join(&flights, &Arc::default(), &Arc::default());
    drop(flights);
    assert_eq!(waiter.outcome().await, None);
}
