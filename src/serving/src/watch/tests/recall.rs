//! Watches whose connection is recalled.

use super::*;
use tokio::task::yield_now;

/// The shortest and the longest time until a recalled watch ends.
const SOONEST: Duration = Duration::from_millis(1_500);
const LATEST: Duration = Duration::from_millis(3_500);

impl Scene {
    fn recalled_by(&self, recall: &WatchRecall) -> Client {
        let mut client = self.client(&everything(), self.initial(Marker::None), HOUR);
        client.body.cursor.hold_recall(recall);
        client
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_watches_of_the_connection_end_each_after_all_events_and_a_bookmark() {
    let mut scene = Scene::new(WIDE);
    let (recall, other) = (WatchRecall::default(), WatchRecall::default());
    let mut clients = [(); 2].map(|()| scene.recalled_by(&recall));
    let mut staying = scene.recalled_by(&other);
    assert_eq!(recall.movable_count(), 2);
    for client in clients.iter_mut().chain([&mut staying]) {
        assert_eq!(client.poll(), Polled::Waits);
    }
    let wakes = clients.each_ref().map(Client::wakes);
    recall.begin();
    recall.begin();
    assert_eq!(
        clients.each_ref().map(Client::wakes),
        wakes.map(|count| count + 1)
    );
    for client in &mut clients {
        assert_eq!(client.poll(), Polled::Waits);
    }
    // Nobody would list because a watch was too short.
    advance(SOONEST - Duration::from_millis(1)).await;
    let version = scene.put("a/x", None);
    for client in &mut clients {
        assert_eq!(client.drain(), [format!("ADDED a/x {version} -")]);
        assert_eq!(client.poll(), Polled::Waits);
    }
    advance(LATEST).await;
    let last = scene.put("a/y", None);
    for mut client in clients {
        let lines = [format!("ADDED a/y {last} -"), format!("BOOKMARK {last}")];
        assert_eq!(client.drain(), lines);
        assert_eq!(client.poll(), Polled::Ended);
        assert_eq!(client.end().end, WatchEnd::Rebalance);
    }
    assert_eq!(recall.movable_count(), 0);
    assert_eq!(staying.drain().len(), 2);
    assert_eq!(staying.poll(), Polled::Waits);
}

/// A client that did not know yet that the connection was recalled.
#[tokio::test(start_paused = true)]
async fn a_watch_that_comes_after_the_recall_lasts_for_more_than_a_second() {
    let scene = Scene::new(WIDE);
    let recall = WatchRecall::default();
    recall.begin();
    let mut client = scene.recalled_by(&recall);
    assert_eq!(client.poll(), Polled::Waits);
    advance(SOONEST - Duration::from_millis(1)).await;
    assert_eq!(client.poll(), Polled::Waits);
    advance(LATEST).await;
    assert_eq!(client.poll(), Polled::Ended);
}

/// Its version may be so old that it would have to list.
#[tokio::test(start_paused = true)]
async fn a_client_without_bookmarks_keeps_its_watch() {
    let mut scene = Scene::new(WIDE);
    let recall = WatchRecall::default();
    let mut client = scene.client(&everything(), scene.initial(Marker::None), HOUR);
    client.body.cursor.lifetime.bookmarks = None;
    client.body.cursor.hold_recall(&recall);
    assert_eq!(client.poll(), Polled::Waits);
    assert_eq!(recall.movable_count(), 0);
    recall.begin();
    assert_eq!(client.poll(), Polled::Waits);
    advance(10 * LATEST).await;
    let version = scene.put("a/x", None);
    assert_eq!(client.drain(), [format!("ADDED a/x {version} -")]);
    assert_eq!(client.poll(), Polled::Waits);
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_a_deadline_and_a_recall_counts() {
    let scene = Scene::new(WIDE);
    let recall = WatchRecall::default();
    let mut client = scene.client(&everything(), scene.initial(Marker::None), 1);
    client.body.cursor.hold_recall(&recall);
    recall.begin();
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(1)).await;
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Timeout);
}

/// The watches of a connection end within the time that a hundred in a second take.
#[tokio::test(start_paused = true)]
async fn many_watches_of_a_connection_take_longer_to_end() {
    for (watches, spread) in [(1, 2_000), (200, 2_000), (250, 2_500), (600, 6_000)] {
        let scene = Scene::new(WIDE);
        let (total, began) = (OpenWatchCount::default(), Instant::now());
        let recall = WatchRecall::counted(&total);
        let mut clients: Vec<_> = (0..watches).map(|_| scene.recalled_by(&recall)).collect();
        assert_eq!((total.count(), recall.movable_count()), (watches, watches));
        recall.begin();
        assert_eq!((total.count(), recall.movable_count()), (0, 0));
        let latest = began + SOONEST + Duration::from_millis(spread);
        for client in &mut clients {
            // The runtime lets a task poll only so many timers in a row.
            yield_now().await;
            let cursor = &mut client.body.cursor;
            let hold = cursor.guards.recall.as_ref().unwrap();
            assert_eq!(hold.end_spread(), Some(Duration::from_millis(spread)));
            assert_eq!(client.poll(), Polled::Waits);
        }
        advance(latest - Instant::now() + Duration::from_millis(1)).await;
        for mut client in clients {
            yield_now().await;
            client.drain();
            assert_eq!(client.poll(), Polled::Ended);
        }
    }
}
