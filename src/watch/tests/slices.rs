//! Watches that look through much before they find anything.

use super::*;
use crate::view::selector::EVALUATED;

/// Fifty terms that hold for all objects here, and one that holds for few.
fn dear() -> Selector {
    let absent: Vec<_> = (0..50).map(|index| format!("!absent{index}")).collect();
    Selector {
        labels: LabelSelector::parse(&format!("{},tier=x", absent.join(","))).unwrap(),
        ..Selector::default()
    }
}

/// The first lines, after many polls none of which takes long.
fn search(client: &mut Client) -> Vec<String> {
    for polls in 1.. {
        EVALUATED.set(0);
        let before = client.wakes();
        let polled = client.poll();
        // An event's object is looked at before and after.
        assert!(EVALUATED.get() <= 3 * FRAMES.cost, "{}", EVALUATED.get());
        match polled {
            Polled::Lines(lines) => {
                assert!(polls > 5, "{polls}");
                return lines;
            }
            Polled::Waits => assert_eq!(client.wakes(), before + 1, "nobody else wakes it"),
            Polled::Ended => break,
        }
    }
    panic!("it ended");
}

#[tokio::test(start_paused = true)]
async fn a_search_through_the_history_gives_others_their_turn() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..2_000 {
        scene.put("a/other", None);
    }
    let found = scene.put("a/mine", Some("x"));
    let mut client = scene.after(&dear(), 10);
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
    let mut client = scene.client(&dear(), start, HOUR);
    let expected = [format!("ADDED b/mine {found} x"), format!("MARKER {found}")];
    assert_eq!(search(&mut client), expected);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_a_search() {
    let mut scene = Scene::new(WIDE);
    for _ in 0..2_000 {
        scene.put("a/other", None);
    }
    let mut client = scene.after(&dear(), 10);
    assert_eq!(client.poll(), Polled::Waits);
    advance(Duration::from_secs(HOUR)).await;
    assert_eq!(client.poll(), Polled::Ended);
    assert_eq!(client.end().end, WatchEnd::Deadline);
}
