//! Pages that are requested before the previous page is read.

use super::*;

/// Enough that their page is decoded on another thread.
const OBJECTS: u64 = 6_000;

fn key(index: u64) -> String {
    format!("a/{index:05}")
}

#[tokio::test(start_paused = true)]
async fn the_next_page_is_asked_for_before_a_page_is_read_and_dropped_if_that_is_bad() {
    let mut scene = Scene::new(StreamingLists::Never);
    let good = list(&[("a/x", 3), ("a/y", 2)], 7, "t1");
    let bad = good.replace("\"name\":\"y\"", "\"name\":\"\"");
    scene.request("list latest").await.whole(200, &bad).await;
    let ahead = scene.request("page t1").await;
    let again = scene.request("list latest").await;
    ahead.whole(200, &list(&[("a/z", 4)], 7, "")).await;
    again.whole(200, &list(&[("a/v", 3)], 7, "")).await;
    scene.request("watch 7").await;
    scene.holds(&["a/v 3"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_page_ahead_that_fails_is_asked_for_again_and_the_pages_before_it_stay() {
    let mut scene = Scene::new(StreamingLists::Never);
    let first = list(&[("a/x", 3)], 7, "t1");
    scene.request("list latest").await.whole(200, &first).await;
    scene.request("page t1").await.refuse(429).await;
    let second = list(&[("a/y", 3)], 7, "t2");
    scene.request("page t1").await.whole(200, &second).await;
    scene.request("page t2").await.fail();
    let last = list(&[("a/z", 3)], 7, "");
    scene.request("page t2").await.whole(200, &last).await;
    scene.request("watch 7").await;
    scene.holds(&["a/x 3", "a/y 3", "a/z 3"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_large_page_is_read_as_a_small_one_is() {
    let mut scene = Scene::new(StreamingLists::Never);
    let keys: Vec<_> = (0..OBJECTS).map(key).collect();
    let items: Vec<_> = keys.iter().map(|key| (&**key, 3)).collect();
    let large = list(&items[1..], 7, "t1");
    scene.request("list latest").await.whole(200, &large).await;
    let ahead = scene.request("page t1").await;
    ahead.whole(200, &list(&items[..1], 7, "")).await;
    scene.request("watch 7").await;
    let held: Vec<_> = keys.iter().map(|key| format!("{key} 3")).collect();
    assert_eq!(scene.state(), Some((held, 7)));
}
