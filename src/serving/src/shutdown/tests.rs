//! Tests of the drain's start and deadline as other parts observe them.

use super::*;

#[tokio::test]
async fn everybody_sees_that_it_has_begun() {
    let drain = Drain::new();
    let early = drain.clone().begun();
    assert!(!drain.is_begun());

    drain.clone().begin();

    assert!(drain.is_begun());
    early.await;
    drain.begun().await;
}

#[tokio::test]
async fn waiting_goes_on_when_every_other_handle_is_gone() {
    let drain = Drain::new();
    let begun = drain.begun();
    drop(drain);
    tokio::select! {
        biased;
        () = begun => panic!("the drain has not begun"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_counts_from_the_first_begin() {
    let drain = Drain::with_timeout(Duration::from_secs(25));
    assert_eq!(drain.deadline(), None);

    let start = Instant::now();
    drain.begin();
    tokio::time::advance(Duration::from_secs(10)).await;
    drain.begin();

    assert_eq!(drain.deadline(), Some(start + Duration::from_secs(25)));
    drain.expired().await;
    assert_eq!(Instant::now(), start + Duration::from_secs(25));
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_there_is_no_deadline() {
    let drain = Drain::new();
    drain.begin();
    assert_eq!(drain.deadline(), None);
    let waited = tokio::time::timeout(Duration::from_secs(86_400), drain.expired()).await;
    assert!(waited.is_err());
}

#[tokio::test(start_paused = true)]
async fn clients_are_served_for_the_delay_but_not_beyond_the_deadline() {
    for (delay, expected) in [(0, 0), (5, 5), (30, 25)] {
        let drain = Drain::with_timeout(Duration::from_secs(25));
        let drain = drain.with_delay(Duration::from_secs(delay));
        let closing = drain.closing();
        let start = Instant::now();
        drain.begin();
        assert!(drain.is_begun());
        assert_eq!(drain.is_closing(), delay == 0);
        closing.await;
        assert!(drain.is_closing());
        assert_eq!(start.elapsed(), Duration::from_secs(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_change_before_the_begin_are_those_of_every_clone() {
    let drain = Drain::with_timeout(Duration::from_secs(25));
    let other = drain.clone();
    drain.set_timeout(Duration::from_secs(60));
    drain.set_delay(Duration::from_secs(5));
    let start = Instant::now();
    other.begin();
    drain.set_timeout(Duration::from_secs(1));
    assert_eq!(other.deadline(), Some(start + Duration::from_secs(60)));
    other.closing().await;
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}
