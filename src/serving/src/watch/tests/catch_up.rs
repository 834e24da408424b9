//! Watches from before the history: whatever a client missed, its objects equal the server's in the end.

use std::collections::BTreeMap;

use super::*;
use crate::resource::FieldTable;
use crate::selector::FieldSelector;

/// Everything takes several turns.
static NARROW: FrameLimits = FrameLimits {
    len: 200,
    initial_len: 300,
    slices: 5,
    block_min: 1,
    cost: 3,
};

/// A client's objects: the version of each key.
type Store = BTreeMap<String, u64>;

fn scene(seed: u64, events_max: usize, bytes_max: usize) -> Scene {
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    let world = World::keeping_deletions(seed, events_max, bytes_max, Arc::clone(&hub) as _);
    let cache = Arc::clone(world.writer.cache());
    Scene {
        world,
        served: ServedResource { cache, hub },
    }
}

fn named(name: &str) -> Selector {
    let text = format!("metadata.name={name}");
    Selector {
        namespace: Some("a".into()),
        fields: FieldSelector::parse(&text, FieldTable::default()).unwrap(),
        ..Selector::default()
    }
}

impl Scene {
    /// A watch from `version`, as the service starts it; `None` if the client gets 410. Also whether it catches up.
    fn watch_from(&self, selector: &Selector, version: u64) -> Option<(Client, bool)> {
        let entry = self.served.hub.join(selector);
        let version = ResourceVersion(version);
        let cache = &self.served.cache;
        let (start, catches_up) = match cache.resume_after(version) {
            Ok(sequence) => (Start::After { sequence, version }, false),
            Err(_) if !can_catch_up(selector) => return None,
            Err(_) => (Start::CatchUp(cache.catch_up(version)?), true),
        };
        let mut client = self.enter(entry, start, 100 * HOUR);
        client.body.cursor.limits = &NARROW;
        Some((client, catches_up))
    }
}

/// The objects that the selector shows: all in a namespace, or one.
fn shown(selector: &Selector, state: &BTreeMap<String, Sample>) -> Store {
    let name = selector.fields.pinned_name();
    let objects = state.values().filter(|sample| {
        let (namespace, own_name) = sample.key.split_once('/').unwrap();
        let is_in = |scope: &String| scope == namespace;
        selector.namespace.as_ref().is_none_or(is_in) && name.is_none_or(|name| name == own_name)
    });
    objects
        .map(|sample| (sample.key.clone(), sample.version))
        .collect()
}

/// Applies the lines as a store does; returns the version of the last one. Versions never go back.
fn apply(store: &mut Store, lines: &[String], mut version: u64) -> u64 {
    for line in lines {
        let fields: Vec<_> = line.split(' ').collect();
        let (key, at) = match fields[..] {
            ["BOOKMARK", at] => (None, at),
            ["ADDED" | "MODIFIED", key, at, _] => (Some((key, true)), at),
            ["DELETED", key, at, _] => (Some((key, false)), at),
            _ => panic!("{line}"),
        };
        let at = at.parse().unwrap();
        assert!(at > version || key.is_none() && at == version, "{lines:?}");
        version = at;
        match key {
            Some((key, true)) => store.insert(key.to_owned(), at),
            Some((key, false)) => store.remove(key),
            None => None,
        };
    }
    version
}

impl Client {
    /// All lines until the client waits, with turns of other tasks in between.
    fn drain_slowly(&mut self) -> Vec<String> {
        let (mut lines, mut wakes) = (Vec::new(), self.wakes());
        loop {
            match self.poll() {
                Polled::Lines(more) => lines.extend(more),
                Polled::Waits if self.wakes() > wakes => wakes = self.wakes(),
                Polled::Waits | Polled::Ended => return lines,
            }
        }
    }

    fn catch_up_frame(&mut self) -> Option<Vec<String>> {
        let wakes = self.wakes();
        match self.poll() {
            Polled::Lines(lines) => Some(lines),
            Polled::Waits if self.wakes() > wakes => Some(Vec::new()),
            Polled::Waits | Polled::Ended => None,
        }
    }
}

fn selectors() -> [Selector; 4] {
    [
        everything(),
        in_namespace("a"),
        in_namespace("a-b"),
        named("o1"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_client_at_any_version_catches_up_with_the_servers_state() {
    let (mut catch_ups, mut refusals) = (0, 0);
    for seed in 0..40 {
        let mut scene = scene(seed, 8, 1 << 20);
        for _ in 0..60 {
            match scene.world.dice.once_in(12) {
                true => scene.world.lose_and_relist(),
                false => scene.world.step(),
            }
        }
        let now = scene.world.version;
        for selector in selectors() {
            for version in 10..=now {
                let Some((mut client, catches_up)) = scene.watch_from(&selector, version) else {
                    refusals += 1;
                    continue;
                };
                let mut store = shown(&selector, &scene.world.state_at(version));
                let lines = client.drain_slowly();
                let reached = apply(&mut store, &lines, version);
                let expected = shown(&selector, &scene.world.state);
                assert_eq!(store, expected, "seed {seed}, {version}: {lines:?}");
                if catches_up {
                    catch_ups += 1;
                    assert_eq!(lines.last(), Some(&format!("BOOKMARK {now}")));
                    assert_eq!(reached, now);
                }
            }
        }
    }
    assert!(catch_ups > 5_000, "{catch_ups}");
    assert!(refusals > 1_000, "versions in gaps: {refusals}");
}

/// A client that is disconnected in the middle of a catch-up resumes from the version that it has, while the server goes on.
#[tokio::test(start_paused = true)]
async fn a_catch_up_can_be_interrupted_after_every_event() {
    let mut interrupted = 0;
    for seed in 0..200 {
        let mut scene = scene(seed, 8, 1 << 20);
        for _ in 0..60 {
            scene.world.step();
        }
        let mut version = 10 + scene.world.dice.below(scene.world.version - 10);
        let selector = selectors()[scene.world.dice.index(4)].clone();
        let mut store = shown(&selector, &scene.world.state_at(version));
        for _ in 0..8 {
            let (mut client, catches_up) = scene.watch_from(&selector, version).unwrap();
            for _ in 0..scene.world.dice.below(9) {
                let Some(mut lines) = client.catch_up_frame() else {
                    break;
                };
                // The connection may break after any line.
                let received = scene.world.dice.index(1 + lines.len() as u64);
                let is_cut = received < lines.len() && scene.world.dice.once_in(2);
                lines.truncate(if is_cut { received } else { lines.len() });
                version = apply(&mut store, &lines, version);
                if is_cut {
                    interrupted += usize::from(catches_up);
                    break;
                }
            }
            for _ in 0..scene.world.dice.below(12) {
                scene.world.step();
            }
        }
        let (mut client, _) = scene.watch_from(&selector, version).unwrap();
        apply(&mut store, &client.drain_slowly(), version);
        assert_eq!(
            store,
            shown(&selector, &scene.world.state),
            "seed {seed}, {selector:?}"
        );
    }
    assert!(interrupted > 100, "{interrupted}");
}

#[tokio::test(start_paused = true)]
async fn the_history_follows_a_catch_up_without_a_gap() {
    for seed in 0..40 {
        let mut scene = scene(seed, 64, 1 << 20);
        for _ in 0..200 {
            scene.world.step();
        }
        let (mut client, catches_up) = scene.watch_from(&everything(), 10).unwrap();
        assert!(catches_up);
        let version = scene.world.version;
        // Events happen while the client catches up.
        for _ in 0..10 {
            client.poll();
            scene.world.step();
        }
        client.drain_slowly();
        let mark = format!("BOOKMARK {version}");
        let live = client.seen.iter().cloned();
        let live: Vec<_> = live.skip_while(|line| *line != mark).skip(1).collect();
        assert_eq!(live, scene.world.told(version, |_| true), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_is_deleted_first_and_each_object_comes_once() {
    let mut scene = scene(1, 4, 1 << 20);
    scene.put("a/kept", None);
    scene.put("a/again", None);
    scene.put("a/gone", None);
    let start = scene.world.version;
    let delete = |scene: &mut Scene, key| {
        let change = scene.world.delete(key).unwrap();
        scene.world.apply(vec![change]);
        scene.world.version
    };
    let again = delete(&mut scene, "a/again");
    for _ in 0..20 {
        scene.put("a/again", None);
    }
    let gone = delete(&mut scene, "a/gone");
    let last = scene.put("a/again", Some("x"));
    let lines = scene
        .watch_from(&everything(), start)
        .unwrap()
        .0
        .drain_slowly();
    assert_eq!(
        lines,
        [
            format!("DELETED a/again {again} -"),
            format!("DELETED a/gone {gone} -"),
            format!("ADDED a/again {last} x"),
            format!("BOOKMARK {last}"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn selectors_that_a_change_can_enter_or_leave_do_not_catch_up() {
    let field = |text: &str| Selector {
        fields: FieldSelector::parse(text, FieldTable::default()).unwrap(),
        ..Selector::default()
    };
    for (selector, expected) in [
        (everything(), true),
        (in_namespace("a"), true),
        (named("x"), true),
        (field("metadata.namespace!=a,metadata.name!=b"), true),
        (tier("x"), false),
        (
            Selector {
                namespace: Some("a".into()),
                ..tier("x")
            },
            false,
        ),
    ] {
        assert_eq!(can_catch_up(&selector), expected, "{selector:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_behind_ends_so_that_its_client_catches_up() {
    let mut scene = scene(1, 8, 1 << 20);
    let begin = |scene: &Scene, selector: &Selector| {
        let marker = Marker::InitialEventsEnd;
        scene.client(selector, scene.initial(marker), HOUR)
    };
    scene.put("a/x", Some("x"));
    let mut plain = begin(&scene, &everything());
    let mut selected = begin(&scene, &tier("x"));
    let empty = Selector {
        namespace: Some("none".into()),
        ..Selector::default()
    };
    for client in [&mut plain, &mut selected] {
        client.drain();
    }
    for _ in 0..200 {
        scene.put("a/x", Some("x"));
    }
    assert_eq!(plain.drain(), [""; 0]);
    assert_eq!(plain.poll(), Polled::Ended);
    let version = plain.seen.last().unwrap().clone();
    assert_eq!(plain.end().end, WatchEnd::Lagged);
    assert_eq!(selected.drain(), ["ERROR 410"]);
    let version: u64 = version.split(' ').nth(1).unwrap().parse().unwrap();
    let (mut client, catches_up) = scene.watch_from(&everything(), version).unwrap();
    assert!(catches_up);
    assert_eq!(client.drain_slowly().len(), 2);
    // A client that has received nothing would back off and list.
    let mut silent = begin(&scene, &empty);
    silent.drain();
    assert_eq!(silent.end().end, WatchEnd::ClientGone);
}
