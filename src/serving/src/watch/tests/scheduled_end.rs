//! Watches that end at a time of their view's schedule.

use super::*;
use crate::view::EndSchedule;

const LENGTH: Duration = Duration::from_secs(10);
/// The first watch ends after half of the time.
const FIRST: f64 = 0.5;
const HALF: Duration = Duration::from_secs(5);

impl Scene {
    fn schedule_end(&self) {
        let schedule = EndSchedule::new(Instant::now().into_std(), LENGTH, FIRST);
        self.served.hub.schedule_end(&Arc::new(schedule));
    }
}

#[tokio::test(start_paused = true)]
async fn events_come_until_the_end_and_then_a_bookmark_of_the_newest_version() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    assert_eq!(client.poll(), Polled::Waits);
    let wakes = client.wakes();
    scene.schedule_end();
    assert_eq!(client.wakes(), wakes + 1);
    assert_eq!(client.poll(), Polled::Waits);
    advance(HALF - Duration::from_millis(1)).await;
    let version = scene.put("a/x", None);
    assert_eq!(client.drain(), [format!("ADDED a/x {version} -")]);
    assert_eq!(client.poll(), Polled::Waits);
    scene.progress(1_000);
    advance(Duration::from_millis(1)).await;
    assert_eq!(
        client.poll(),
        Polled::Lines(vec!["BOOKMARK 1000".to_owned()])
    );
    assert!(client.body.is_end_stream());
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::CacheGone);
}

#[tokio::test(start_paused = true)]
async fn events_that_the_client_lacks_at_its_end_come_before_the_bookmark() {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    assert_eq!(client.poll(), Polled::Waits);
    scene.schedule_end();
    assert_eq!(client.poll(), Polled::Waits);
    let first = scene.put("a/x", None);
    advance(LENGTH).await;
    let second = scene.put("a/y", None);
    assert_eq!(
        client.drain(),
        [
            format!("ADDED a/x {first} -"),
            format!("ADDED a/y {second} -"),
            format!("BOOKMARK {second}"),
        ]
    );
    assert_eq!(client.poll(), Polled::Ended);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_learnt_no_version_gets_no_bookmark() {
    let scene = Scene::new(WIDE);
    let mut known = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    let mut future = scene.after(&everything(), 10_000);
    scene.schedule_end();
    assert_eq!(known.poll(), Polled::Waits);
    assert_eq!(future.poll(), Polled::Waits);
    advance(LENGTH).await;
    assert_eq!(known.poll(), Polled::Ended);
    assert_eq!(future.poll(), Polled::Ended);
}

#[tokio::test(start_paused = true)]
async fn watches_that_join_later_end_too_and_each_at_another_time() {
    let scene = Scene::new(WIDE);
    scene.schedule_end();
    let started = Instant::now();
    let starts = || scene.initial(Marker::None);
    let mut clients: Vec<_> = [everything(), everything(), tier("x"), in_namespace("a")]
        .iter()
        .map(|selector| scene.client(selector, starts(), HOUR))
        .collect();
    let mut ends = Vec::new();
    for second in 1..=10 {
        let open = clients.len();
        clients.retain_mut(|client| client.poll() != Polled::Ended);
        ends.extend((clients.len()..open).map(|_| second - 1));
        advance(started + Duration::from_secs(second) - Instant::now()).await;
    }
    assert_eq!(ends, [2, 4, 5, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_own_deadline_if_that_comes_first() {
    let scene = Scene::new(WIDE);
    let mut client = scene.client(&everything(), scene.initial(Marker::None), 3);
    scene.schedule_end();
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(3)).await;
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Timeout);
}
