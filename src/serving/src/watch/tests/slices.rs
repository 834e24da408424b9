//! Watches that search through many events or objects before they find a match, and bursts that are laid out in slices.

use super::*;
use crate::cache::Change;
use crate::selector::EVALUATED;

/// Fifty terms that match all objects of the test, and one that matches few.
fn expensive_selector() -> Selector {
    let absent: Vec<_> = (0..50).map(|index| format!("!absent{index}")).collect();
    Selector {
        labels: LabelSelector::parse(&format!("{},tier=x", absent.join(","))).unwrap(),
        ..Selector::default()
    }
}

/// The first lines, after many polls that each take only a short time.
fn search(client: &mut Client) -> Vec<String> {
    for polls in 1.. {
        EVALUATED.set(0);
        let before = client.wakes();
        let polled = client.poll();
        // The selector is evaluated for the object before and after an event.
        assert!(EVALUATED.get() <= 3 * FRAMES.cost, "{}", EVALUATED.get());
        match polled {
            Polled::Lines(lines) => {
                assert!(polls > 5, "{polls}");
                return lines;
            }
            Polled::Waits => assert_eq!(client.wakes(), before + 1, "it wakes itself"),
            Polled::Ended => break,
        }
    }
    panic!("the stream ended");
}

#[tokio::test(start_paused = true)]
async fn a_search_through_the_history_gives_others_their_turn() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..2_000 {
        scene.put("a/other", None);
    }
    let found = scene.put("a/mine", Some("x"));
    let mut client = scene.after(&expensive_selector(), 10);
    assert_eq!(search(&mut client), [format!("ADDED a/mine {found} x")]);
    let wakes = client.wakes();
    assert_eq!(client.poll(), Polled::Waits);
    assert_eq!(client.wakes(), wakes, "it waits for events");
}

#[tokio::test(start_paused = true)]
async fn a_search_for_initial_events_gives_others_their_turn() {
    let mut scene = Scene::new(WIDE);
    for index in 0..2_000 {
        scene.put(&format!("a/{index}"), None);
    }
    let found = scene.put("b/mine", Some("x"));
    let start = scene.initial(Marker::InitialEventsEnd);
    let mut client = scene.client(&expensive_selector(), start, HOUR);
    let expected = [format!("ADDED b/mine {found} x"), format!("MARKER {found}")];
    assert_eq!(search(&mut client), expected);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_search() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..2_000 {
        scene.put("a/other", None);
    }
    let mut client = scene.after(&expensive_selector(), 10);
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(HOUR)).await;
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Timeout);
}

/// Enough for several slices.
const BURST: usize = 5_000;

/// A watch of everything, whose bookmark is due, and a burst of which one slice is laid out.
async fn client_within_burst() -> (Scene, Client) {
    let mut scene = Scene::new(WIDE);
    let mut client = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    assert_eq!(client.poll(), Polled::Waits);
    scene.progress(100);
    let World { writer, now, .. } = &mut scene.world;
    let changes: Vec<_> = (0..BURST)
        .map(|index| Change::Put(Sample::new(&format!("a/{index}"), 101 + index as u64).object()))
        .collect();
    writer.publish_changes(changes, *now);
    writer.dispatch(*now);
    assert!(writer.is_behind());
    (scene, client)
}

impl Scene {
    fn dispatch_rest(&mut self) {
        let World { writer, now, .. } = &mut self.world;
        while writer.is_behind() {
            writer.dispatch(*now);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_bookmark_is_below_an_event_of_a_slice() {
    let (mut scene, mut client) = client_within_burst().await;
    advance(Duration::from_secs(60)).await;
    let first = client.drain();
    assert!(first.len() < BURST);
    assert!(first.iter().all(|line| line.starts_with("ADDED")));
    scene.dispatch_rest();
    let rest = client.drain();
    assert_eq!(first.len() + rest.len(), BURST);
    advance(Duration::from_secs(60)).await;
    let newest = 100 + BURST;
    assert_eq!(client.drain(), [format!("BOOKMARK {newest}")]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_within_a_burst_ends_with_a_bookmark_at_its_last_event() {
    let (_scene, mut client) = client_within_burst().await;
    client
        .body
        .cursor
        .ended_at(Instant::now(), WatchEnd::Rebalance);
    let mut lines = client.drain();
    let bookmark = lines.pop().unwrap();
    assert!(lines.iter().all(|line| line.starts_with("ADDED")));
    let last = lines.last().unwrap().split(' ').nth(2).unwrap();
    assert_eq!(bookmark, format!("BOOKMARK {last}"));
    assert_eq!(client.end().end, WatchEnd::Rebalance);
}
