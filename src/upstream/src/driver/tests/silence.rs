//! What an open watch that brings nothing costs upstream, and when it is ended.

use super::*;

/// A list that says how many objects follow.
fn counted(items: &[(&str, u64)], version: u64, token: &str, remaining: u64) -> String {
    let count = format!("\"continue\":\"{token}\",\"remainingItemCount\":{remaining}");
    list(items, version, token).replacen(&format!("\"continue\":\"{token}\""), &count, 1)
}

/// One object more than a comparison reads, and the version of the last one.
const COUNT: u64 = 50_001;
const NEWEST: u64 = 50_005;

/// Answers a comparison in which objects are counted, and a few of them are read.
async fn compared_in_part(scene: &mut Scene, items: &[(&str, u64)]) {
    let version = NEWEST + 10;
    let one = counted(&items[..1], version, "t1", COUNT - 1);
    scene.request("list latest").await.whole(200, &one).await;
    let some = counted(items, version, "t2", COUNT - 2);
    scene.request("list latest").await.whole(200, &some).await;
}

/// A scene with more objects than a comparison reads.
async fn live_with_many() -> (Scene, Feed) {
    let (scene, feed) = Scene::live().await;
    let added = (6..=NEWEST).map(|version| line("ADDED", &format!("b/{version:05}"), version));
    push(&feed, &added.collect::<Vec<_>>()).await;
    (scene, feed)
}

/// A scene with three objects.
async fn live() -> (Scene, Feed) {
    let (scene, feed) = Scene::live().await;
    push(&feed, &[line("ADDED", "a/y", 6), line("ADDED", "b/z", 7)]).await;
    scene.holds(&["a/x 3", "a/y 6", "b/z 7"], 7);
    (scene, feed)
}

#[tokio::test(start_paused = true)]
async fn bookmarks_once_a_minute_are_enough_so_that_nothing_is_listed() {
    let (mut scene, feed) = Scene::live().await;
    for minute in 1..=10 {
        tokio::time::sleep(Duration::from_millis(61_500)).await;
        let asked = scene.requests.try_recv();
        assert!(asked.is_err(), "in minute {minute}: {asked:?}");
        push(&feed, &[bookmark(5 + minute)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_more_objects_than_are_compared_a_page_is_read_and_the_watch_is_opened_again() {
    let (mut scene, mut feed) = live_with_many().await;
    let watch = format!("watch {NEWEST}");
    for _ in 0..3 {
        let started = tokio::time::Instant::now();
        compared_in_part(&mut scene, &[("a/x", 3), ("b/00006", 6)]).await;
        assert!((64..73).contains(&started.elapsed().as_secs()));
        feed = scene.request(&watch).await.open();
        compared_in_part(&mut scene, &[("a/x", 3), ("b/00006", 6)]).await;
        assert!((67..78).contains(&started.elapsed().as_secs()));
    }
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_differs_ends_the_watch() {
    let (mut scene, feed) = live_with_many().await;
    for _ in 0..2 {
        compared_in_part(&mut scene, &[("a/x", 3), ("b/00006", 18)]).await;
    }
    scene.request(&format!("watch {NEWEST}")).await;
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_dead_watch_of_very_many_objects_is_ended_as_soon_as_any_other() {
    let (mut scene, feed) = live().await;
    let started = tokio::time::Instant::now();
    loop {
        let request = scene.requests.recv().await.unwrap();
        if sort_of(&request.path) == "watch 7" {
            break;
        }
        let some = counted(&[("a/x", 3)], 20, "t1", 59_999);
        request.whole(200, &some).await;
    }
    assert!(started.elapsed() < Duration::from_secs(100));
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_if_nothing_can_be_compared() {
    let (mut scene, feed) = live().await;
    let started = tokio::time::Instant::now();
    let busy = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":30}}"#;
    scene.request("list latest").await.whole(429, busy).await;
    let mut asked_at = tokio::time::Instant::now();
    let again = scene.request("watch 7").await.open();
    assert!(started.elapsed() < Duration::from_secs(90));
    for _ in 0..2 {
        scene.request("list latest").await.whole(429, busy).await;
        assert!((30..41).contains(&asked_at.elapsed().as_secs()));
        asked_at = tokio::time::Instant::now();
    }
    push(&again, &[line("MODIFIED", "b/z", 21)]).await;
    scene.holds(&["a/x 3", "a/y 6", "b/z 21"], 21);
    drop(feed);
}

#[tokio::test(start_paused = true)]
async fn versions_proven_by_a_consistent_read_are_not_compared_again() {
    let (mut scene, _feed) = live().await;
    for version in 1..10 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        let snapshot = scene.cache.snapshot().unwrap();
        assert!(scene.cache.prove(&snapshot, ResourceVersion(20 + version)));
        let asked = scene.requests.try_recv();
        assert!(asked.is_err(), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn gateways_that_got_the_same_event_do_not_compare_at_the_same_moment() {
    let mut times = Vec::new();
    for seed in 0..4 {
        crate::resource::replay_random(seed);
        let (mut scene, _feed) = live().await;
        let started = tokio::time::Instant::now();
        scene.request("list latest").await;
        times.push(started.elapsed().as_millis());
    }
    times.sort_unstable();
    assert!(times[3] - times[0] > 500, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_between_the_watch_and_what_clients_were_given_is_no_lost_history() {
    for refusal in [400, 405] {
        let (mut scene, feed) = live().await;
        let snapshot = scene.cache.snapshot().unwrap();
        assert!(scene.cache.prove(&snapshot, ResourceVersion(30)));
        drop(feed);
        for _ in 0..3 {
            scene.request("watch 7").await.refuse(refusal).await;
        }
        // A server behind the one that was asked for the proof does not know that version yet.
        let feed = scene.request("stream 30").await.open();
        push(&feed, &[line("ADDED", "a/x", 3), marker(20)]).await;
        let feed = scene.request("stream latest").await.open();
        push(&feed, &[line("ADDED", "a/x", 3), marker(31)]).await;
        scene.holds(&["a/x 3"], 31);
        assert!(!scene.driver.is_finished());
    }
}
