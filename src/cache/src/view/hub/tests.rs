//! Views of a sample history: what they show, which watches share them, and that joining neither loses nor repeats an event.

use std::ops::ControlFlow;
use std::task::Wake;

use proptest::prelude::*;

use super::*;
use crate::cache::Change;
use crate::cache::samples::{Sample, World, kind, told, uncuttable};
use crate::resource::{Encoding, EventKind, Layout};
use crate::selector::LabelSelector;
use crate::selector::samples::{labelled, tier};
use crate::view::waiters::tests::Wakes;
use crate::view::{MetaVersion, ObjectPart, filtered};

fn scene(seed: u64) -> (World, Arc<Hub>) {
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    (World::new(seed, 1 << 20, Arc::clone(&hub) as _), hub)
}

fn named(namespace: &str, selector: Selector) -> Selector {
    Selector {
        namespace: Some(namespace.into()),
        ..selector
    }
}

/// The events from `cursor` on as text, one list for each batch.
fn batches(view: &View, cursor: &mut Sequence) -> Vec<Vec<String>> {
    let mut batches = Vec::new();
    let read = view.read(*cursor, |batch| {
        let lines = told(&batch.frames);
        assert_eq!(lines.len(), batch.count);
        assert!(batch.first <= batch.last && batch.first_version <= batch.last_version);
        batches.push(lines);
        ControlFlow::Continue(())
    });
    *cursor = read.unwrap();
    batches
}

#[test]
fn an_object_enters_stays_in_and_leaves_a_selector() {
    let (mut world, hub) = scene(1);
    let view = hub.join(&tier("x"));
    let mut cursor = view.cursor;
    let mut steps = Vec::new();
    // Of a/1: created outside the selection, enters, stays, leaves, changes outside, enters, deleted. Of a/2: created inside, leaves,
    // deleted outside.
    for (key, state) in [
        ("a/1", Some(None)),
        ("a/1", Some(Some("x"))),
        ("a/1", Some(Some("x"))),
        ("a/1", Some(Some("y"))),
        ("a/1", Some(None)),
        ("a/1", Some(Some("x"))),
        ("a/1", None),
        ("a/2", Some(Some("x"))),
        ("a/2", Some(Some("y"))),
        ("a/2", None),
    ] {
        let change = match state {
            Some(tier) => world.write(key, tier),
            None => world.delete(key).unwrap(),
        };
        world.apply(vec![change]);
        let version = world.version;
        let shown = batches(&view.view, &mut cursor).concat();
        steps.push(
            shown
                .first()
                .map(|line| line.replace(&version.to_string(), "now")),
        );
    }
    let expected = [
        None,
        Some("ADDED a/1 now x"),
        Some("MODIFIED a/1 now x"),
        // The object's last state in the selection, with the version of the event.
        Some("DELETED a/1 now x"),
        None,
        Some("ADDED a/1 now x"),
        Some("DELETED a/1 now x"),
        Some("ADDED a/2 now x"),
        Some("DELETED a/2 now x"),
        None,
    ];
    assert_eq!(steps, expected.map(|step| step.map(str::to_owned)));
}

#[test]
fn an_object_made_anew_is_deleted_and_added() {
    let (mut world, hub) = scene(1);
    let everything = hub.join(&Selector::default());
    let mut cursor = everything.cursor;
    let put = world.write("a/1", None);
    let gone = world.delete("a/1").unwrap();
    let again = world.write("a/1", None);
    world.apply(vec![put, gone, again]);
    let words = batches(&everything.view, &mut cursor).concat();
    let words: Vec<_> = words
        .iter()
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(words, ["ADDED", "DELETED", "ADDED"]);
}

#[test]
fn a_dispatch_adds_one_batch_to_each_view_that_shows_an_event() {
    let (mut world, hub) = scene(1);
    let (all, x, y) = (
        hub.join(&Selector::default()),
        hub.join(&tier("x")),
        hub.join(&tier("y")),
    );
    let changes = ["a/1", "a/2", "a/3"].map(|key| world.write(key, Some("x")));
    world.apply(changes.into());
    for (entry, expected) in [(&all, vec![3]), (&x, vec![3]), (&y, vec![])] {
        let mut cursor = entry.cursor;
        let shown = batches(&entry.view, &mut cursor);
        let lens: Vec<_> = shown.iter().map(Vec::len).collect();
        assert_eq!(lens, expected);
    }
}

#[test]
fn a_view_that_could_not_show_an_event_is_not_entered_again() {
    let (mut world, hub) = scene(1);
    let metadata = ObjectFormat {
        form: ObjectPart::Metadata(MetaVersion::V1),
        ..ObjectFormat::default()
    };
    let join = || {
        hub.join_as(&Selector::default(), metadata, Peer::UNKNOWN)
            .unwrap()
    };
    let before = join();
    let shown = world.write("a/1", None);
    world.version += 1;
    let hidden = Change::Put(uncuttable("a/2", world.version));
    let late = world.write("a/3", None);
    world.apply(vec![shown, hidden, late]);
    let mut cursor = before.cursor;
    assert_eq!(batches(&before.view, &mut cursor).concat().len(), 1);
    assert!(before.view.is_closed());
    assert_eq!(hub.view_count(), 0, "although a watch still holds it");

    let after = join();
    assert!(!after.view.is_closed() && !Arc::ptr_eq(&before.view, &after.view));
    assert_eq!(after.reached, hub.reached());
    let next = world.write("a/4", None);
    world.apply(vec![next]);
    let mut cursor = after.cursor;
    assert_eq!(batches(&after.view, &mut cursor).concat().len(), 1);
    assert!(
        Arc::ptr_eq(&after.view, &join().view),
        "the new view is shared"
    );
}

#[test]
fn one_event_is_one_line_shared_by_all_views_that_show_it_alike() {
    let (mut world, hub) = scene(1);
    let (all, x) = (hub.join(&Selector::default()), hub.join(&tier("x")));
    let change = world.write("a/1", Some("x"));
    world.apply(vec![change]);
    let lines = |entry: &ViewSubscription| {
        let mut start = None;
        let read = entry.view.read(entry.cursor, |batch| {
            start = Some(batch.frames.as_ptr());
            ControlFlow::Break(())
        });
        read.unwrap();
        start.unwrap()
    };
    assert_eq!(lines(&all), lines(&x));
}

/// Objects may be large, and many selectors may show one.
#[test]
fn an_event_is_projected_once_for_all_views() {
    let (mut world, hub) = scene(1);
    let metadata = ObjectFormat {
        form: ObjectPart::Metadata(MetaVersion::V1),
        ..ObjectFormat::default()
    };
    let selectors = [Selector::default(), tier("x"), named("a", tier("x"))];
    let entries = selectors.map(|selector| {
        let entry = hub.join_as(&selector, metadata, Peer::UNKNOWN);
        entry.unwrap()
    });
    let change = world.write("a/1", Some("x"));
    world.apply(vec![change]);
    let frames = entries.map(|entry| {
        let mut frames = Vec::new();
        let read = entry.view.read(entry.cursor, |batch| {
            frames.push(batch.frames.as_ptr());
            ControlFlow::Continue(())
        });
        assert_eq!(read, Ok(1));
        frames
    });
    assert_eq!(frames[0], frames[1]);
    assert_eq!(frames[0], frames[2]);
}

/// Views with different selectors may see one event as different kinds.
#[test]
fn a_projected_event_has_the_type_that_each_view_sees() {
    let (mut world, hub) = scene(1);
    let metadata = ObjectFormat {
        form: ObjectPart::Metadata(MetaVersion::V1),
        ..ObjectFormat::default()
    };
    // Whichever view is first, the others must not get its frame.
    for selectors in [
        [Selector::default(), tier("x"), tier("y")],
        [tier("y"), tier("x"), Selector::default()],
        [tier("x"), tier("y"), Selector::default()],
    ] {
        let before = world.write("a/1", Some("y"));
        world.apply(vec![before]);
        let entries = selectors.map(|selector| {
            let entry = hub.join_as(&selector, metadata, Peer::UNKNOWN);
            (selector, entry.unwrap())
        });
        let change = world.write("a/1", Some("x"));
        world.apply(vec![change]);
        let version = world.version;
        for (selector, entry) in entries {
            let mut cursor = entry.cursor;
            let expected = if selector == tier("x") {
                format!("ADDED a/1 {version} x")
            } else if selector == tier("y") {
                format!("DELETED a/1 {version} y")
            } else {
                format!("MODIFIED a/1 {version} x")
            };
            assert_eq!(batches(&entry.view, &mut cursor).concat(), [expected]);
        }
    }
}

#[test]
fn equal_selectors_share_a_view_however_they_are_written() {
    let (_, hub) = scene(1);
    let one = hub.join(&labelled("a=1,b in (2,3)"));
    let other = hub.join(&labelled("b in (3,2), a==1"));
    assert!(Arc::ptr_eq(&one.view, &other.view));
    assert!(!Arc::ptr_eq(
        &one.view,
        &hub.join(&named("n", tier("x"))).view
    ));
}

#[test]
fn unwatched_views_are_dropped_at_once() {
    let (mut world, hub) = scene(1);
    let stays = hub.join(&tier("x"));
    let goes = hub.join(&tier("y"));
    let change = world.write("a/1", Some("y"));
    world.apply(vec![change]);
    assert_eq!((hub.view_count(), goes.view.head()), (2, 1));
    drop(goes);
    assert_eq!(hub.view_count(), 1);
    assert!(Arc::ptr_eq(&stays.view, &hub.join(&tier("x")).view));
    assert_eq!(
        hub.join(&tier("y")).cursor,
        0,
        "a new view starts at batch 0"
    );
}

#[test]
fn short_lived_views_of_a_quiet_resource_do_not_accumulate() {
    let (_world, hub) = scene(4);
    for _ in 0..3 {
        drop(hub.join(&tier("x")));
        let _kept = hub.join(&tier("y"));
        assert!(hub.directory().take_changes().is_empty());
    }
}

#[test]
fn batches_and_watchers_are_counted() {
    let (mut world, hub) = scene(5);
    assert!(!hub.is_watched());
    let selectors = [tier("x"), tier("y"), Selector::default()];
    let views = selectors.each_ref().map(|selector| hub.join(selector));
    let joined = views.each_ref().map(|entry| entry.view.selector().clone());
    assert_eq!(joined, selectors);
    assert!(hub.is_watched());
    let changes = vec![world.write("a/1", Some("x")), world.write("a/2", Some("y"))];
    // One line in the view of each label value, and one in the view of everything, for each event.
    let now = world.now;
    assert_eq!(world.writer.apply(changes, now).frames, 4);
    assert_eq!(world.writer.apply([], now).frames, 0);
    drop(views);
    assert!(!hub.is_watched());
}

#[test]
fn bookmarks_follow_the_last_bookmark_of_upstream() {
    let (_world, hub) = scene(6);
    let guessed = hub.bookmark();
    let seen = BookmarkTemplate::guessed(&kind(Layout::Dynamic));
    assert_ne!(seen, guessed);
    hub.learn_bookmark(seen.clone());
    assert_eq!(hub.bookmark(), seen);
}

#[test]
fn armed_waiters_are_woken_once_and_dropped_ones_are_not() {
    let (mut world, hub) = scene(1);
    let wakes: Vec<_> = (0..9).map(|_| Arc::new(Wakes::default())).collect();
    let mut entries: Vec<_> = wakes.iter().map(|_| hub.join(&tier("x"))).collect();
    for (entry, wakes) in entries.iter().zip(&wakes) {
        entry.waiter.arm(&Waker::from(Arc::clone(wakes)));
        entry.waiter.arm(&Waker::from(Arc::clone(wakes)));
    }
    entries.truncate(5);
    let counts = || wakes.iter().map(|wakes| wakes.count()).collect::<Vec<_>>();
    let other = world.write("a/1", Some("y"));
    world.apply(vec![other]);
    assert_eq!(counts(), [0; 9], "no event for these views");
    let change = world.write("a/1", Some("x"));
    let applied = world.writer.apply(vec![change], world.now);
    assert_eq!(counts(), [1, 1, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(applied.woken, 5);
    let change = world.write("a/1", Some("x"));
    world.apply(vec![change]);
    assert_eq!(counts(), [1, 1, 1, 1, 1, 0, 0, 0, 0], "not armed again");
}

#[test]
fn a_reused_waiter_slot_wakes_only_its_new_owner() {
    let list = Arc::new(WaiterList::default());
    let (old, new) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let watch_waiter = list.waiter(0);
    watch_waiter.arm(&Waker::from(Arc::clone(&old)));
    drop(watch_waiter);
    let watch_waiter = list.waiter(4);
    watch_waiter.arm(&Waker::from(Arc::clone(&new)));
    assert_eq!(list.wake_all(&mut Vec::new()), 1);
    assert_eq!((old.count(), new.count()), (0, 1));
}

/// Arming and waking both take the lock of the waiter's shard, so one is first: either the waker is found and taken, or the batch
/// was appended before the waiter was armed, and the read after arming finds it. Two threads test this.
#[test]
fn no_wake_up_is_lost_between_looking_and_waiting() {
    let (mut world, hub) = scene(1);
    let entry = hub.join(&Selector::default());
    let dispatched = 3000;
    let watcher = std::thread::spawn(move || {
        let me = std::thread::current();
        let waker = Waker::from(Arc::new(Unpark(me)));
        let (mut cursor, mut parked) = (entry.cursor, 0);
        while cursor < dispatched {
            entry.waiter.arm(&waker);
            let head = entry.view.head();
            if head == cursor {
                parked += 1;
                // With a timeout, so that a lost wake-up fails the test instead of blocking it.
                let before = Instant::now();
                std::thread::park_timeout(std::time::Duration::from_secs(20));
                assert!(before.elapsed().as_secs() < 20, "the wake-up was lost");
            }
            cursor = head;
        }
        parked
    });
    for _ in 0..dispatched {
        let change = world.write("a/1", None);
        world.apply(vec![change]);
    }
    watcher.join().unwrap();
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn closing_ends_present_and_later_views() {
    let (_, hub) = scene(1);
    let before = hub.join(&tier("x"));
    let wakes = Arc::new(Wakes::default());
    before.waiter.arm(&Waker::from(Arc::clone(&wakes)));
    let progress = hub.progress_waiter();
    progress.arm(&Waker::from(Arc::clone(&wakes)));
    assert!(!hub.is_closed());
    hub.close();
    assert_eq!(wakes.count(), 2);
    assert!(before.view.is_closed() && hub.is_closed());
    assert!(!hub.is_expired(), "watches may resume elsewhere");
    assert!(hub.join(&tier("x")).view.is_closed());
    assert!(hub.join(&tier("y")).view.is_closed());
}

#[test]
fn expiring_ends_views_too() {
    let (_, hub) = scene(1);
    let entry = hub.join(&tier("x"));
    hub.expire();
    assert!(hub.is_expired() && hub.is_closed() && entry.view.is_closed());
}

#[test]
fn progress_wakes_version_waiters_but_no_watchers() {
    let (mut world, hub) = scene(1);
    let (watcher, waiter) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let entry = hub.join(&Selector::default());
    entry.waiter.arm(&Waker::from(Arc::clone(&watcher)));
    let watch_waiter = hub.progress_waiter();
    watch_waiter.arm(&Waker::from(Arc::clone(&waiter)));
    world.writer.progress(ResourceVersion(20), world.now);
    assert_eq!((watcher.count(), waiter.count()), (0, 1));
    assert_eq!(hub.reached().version, ResourceVersion(20));
}

#[test]
fn an_evicted_batch_still_has_its_first_sequence() {
    let (mut world, hub) = scene(1);
    let entry = hub.join(&tier("x"));
    for _ in 0..200 {
        let changes = vec![world.write("a/1", Some("y")), world.write("a/2", Some("x"))];
        world.apply(changes);
    }
    assert!(entry.view.read(0, |_| ControlFlow::Continue(())).is_err());
    for batch in 0..200 {
        // For old batches the start is approximate, and never too late.
        let lead = if batch < 200 - 64 { batch % 64 } else { 0 };
        assert_eq!(entry.view.first_of(batch), Some((batch - lead) * 2 + 1));
    }
    assert_eq!(entry.view.first_of(200), None);
}

/// A view must not keep batches for long: the history may have dropped their events already.
#[test]
fn batches_leave_a_view_when_they_are_old_and_the_history_takes_over() {
    let (mut world, hub) = scene(1);
    let seldom = hub.join(&named("a", Selector::default()));
    let change = world.write("a/1", None);
    world.apply(vec![change]);
    let frame = |entry: &ViewSubscription| {
        let mut frames = None;
        let read = entry.view.read(entry.cursor, |batch| {
            frames = Some(batch.frames.clone());
            ControlFlow::Continue(())
        });
        read.map(|_| frames)
    };
    assert!(matches!(frame(&seldom), Ok(Some(_))));
    for _ in 0..4 {
        world.now += std::time::Duration::from_secs(1);
        let change = world.write("b/1", None);
        world.apply(vec![change]);
    }
    assert!(frame(&seldom).is_err(), "the batch was evicted");
    assert_eq!(seldom.view.first_of(seldom.cursor), Some(0));
    let (cursor, reached) = hub.place_in(&seldom.view);
    assert_eq!((cursor, reached.through), (1, 5));
    let again = ViewSubscription { cursor, ..seldom };
    let change = world.write("a/1", None);
    world.apply(vec![change]);
    assert!(
        matches!(frame(&again), Ok(Some(_))),
        "the watch continues with the next batch"
    );
}

#[test]
fn while_memory_is_short_few_batches_are_kept_and_the_history_takes_over() {
    let (mut world, hub) = scene(1);
    world.data_len = 40 << 10;
    let write = |world: &mut World, count| {
        for _ in 0..count {
            let change = world.write("a/1", None);
            world.apply(vec![change]);
        }
    };
    let early = hub.join(&Selector::default());
    write(&mut world, 20);
    let whole = hub.frames_len();
    assert!(whole >= 20 * world.data_len, "{whole}");
    hub.bound_frames(true, world.now);
    assert!(hub.frames_len() <= whole / 4, "{}", hub.frames_len());
    let read = |entry: &ViewSubscription| {
        let read = entry.view.read(entry.cursor, |_| ControlFlow::Continue(()));
        read.is_ok()
    };
    assert!(!read(&early));
    let (cursor, reached) = hub.place_in(&early.view);
    assert_eq!(reached.through, 20, "the history has the rest");
    let again = ViewSubscription { cursor, ..early };

    // A view that is opened meanwhile keeps few as well.
    let late = hub.join(&named("a", Selector::default()));
    write(&mut world, 1);
    assert!(read(&again) && read(&late));
    write(&mut world, 20);
    assert!(hub.frames_len() <= whole / 4, "{}", hub.frames_len());

    hub.bound_frames(false, world.now);
    write(&mut world, 20);
    assert!(hub.frames_len() >= 2 * whole, "{}", hub.frames_len());
    drop((again, late));
    write(&mut world, 1);
    assert_eq!(hub.frames_len(), 0);
}

/// A watch that follows the documented rule: the snapshot, the history up to where it joined, then the view.
struct Watcher {
    entry: ViewSubscription,
    selector: Selector,
    seen: Vec<String>,
    /// The version of the snapshot, from which on events are expected.
    from: u64,
}

impl Watcher {
    /// Joins, makes `meanwhile` steps in the world, and only then takes the snapshot.
    fn new(world: &mut World, hub: &Hub, selector: Selector, meanwhile: usize) -> Self {
        let mut entry = hub.join(&selector);
        (0..meanwhile).for_each(|_| world.step());
        let cache = Arc::clone(world.writer.cache());
        let snapshot = cache.snapshot().unwrap();
        let mut seen = Vec::new();
        let through = entry.reached.through;
        let read = filtered(
            cache.history(),
            &selector,
            snapshot.sequence..through,
            |event, kind| {
                let line = kind.map(|kind| told(&event.frame(kind)));
                seen.extend(line.into_iter().flatten());
                ControlFlow::Continue(())
            },
        );
        let position = read.unwrap();
        // Skip the batches whose events are in the snapshot or were read from the history.
        let history_end = position.max(through);
        while let Some(first) = entry
            .view
            .first_of(entry.cursor)
            .filter(|first| *first < history_end)
        {
            let _ = first;
            entry.cursor += 1;
        }
        Self {
            entry,
            selector,
            seen,
            from: snapshot.resource_version.0,
        }
    }

    fn read(&mut self) {
        let shown = batches(&self.entry.view, &mut self.entry.cursor);
        self.seen.extend(shown.concat());
    }
}

/// The events that a watch gets from its view after those that it read in the history. Every dispatch has one event.
fn shown_after_history(entry: &ViewSubscription) -> Vec<Sequence> {
    let (through, mut shown) = (entry.reached.through, Vec::new());
    let read = entry.view.read(entry.cursor, |batch| {
        assert_eq!(batch.count, 1);
        if batch.first >= through {
            shown.push(batch.first);
        }
        ControlFlow::Continue(())
    });
    read.unwrap();
    shown
}

/// Holding the directory's lock meanwhile would block tasks of other resources, which join on the same threads.
#[test]
fn joining_does_not_wait_for_a_dispatch() {
    let (mut world, hub) = scene(1);
    let before = hub.join(&tier("x"));
    let change = world.write("a/1", Some("x"));
    let held = before.view.core().hold();
    let (joined, all_joined) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| world.apply(vec![change]));
        scope.spawn(|| {
            // Repeat until the dispatch has begun; it cannot end.
            let known = loop {
                let entry = hub.join(&tier("x"));
                if entry.reached.through == 1 {
                    break entry;
                }
                std::thread::yield_now();
            };
            let new = hub.join(&tier("new"));
            assert_eq!(hub.place_in(&known.view).1.through, 1);
            assert!(hub.is_watched() && !hub.is_closed());
            joined.send((known, new, hub.reached().through)).unwrap();
        });
        let entries = all_joined.recv_timeout(std::time::Duration::from_secs(20));
        drop(held);
        let (known, new, reached) = entries.expect("joining waits for the dispatch");
        assert_eq!((new.reached.through, reached), (1, 0));
        assert_eq!((known.cursor, new.cursor), (0, 0));
    });
    assert_eq!((hub.reached().through, before.view.head()), (1, 1));
    assert_eq!(shown_after_history(&before), [0]);
}

#[test]
fn joining_during_a_dispatch_neither_misses_nor_repeats_events() {
    let count = 40;
    for seed in 0..50 {
        let (mut world, hub) = scene(seed);
        let writer = std::thread::spawn(move || {
            for _ in 0..count {
                let change = world.write("a/1", Some("x"));
                world.apply(vec![change]);
            }
        });
        let mut entries = vec![hub.join(&tier("x"))];
        while entries
            .last()
            .is_some_and(|entry| entry.reached.through < count)
        {
            let other = format!("!k{}", entries.len() % 200);
            let labels = LabelSelector::parse(&other).unwrap();
            entries.push(hub.join(&Selector {
                labels,
                ..Selector::default()
            }));
            entries.push(hub.join(&tier("x")));
        }
        writer.join().unwrap();
        for entry in &entries {
            let expected: Vec<_> = (entry.reached.through..count).collect();
            assert_eq!(shown_after_history(entry), expected);
        }
    }
}

#[test]
fn a_version_is_reached_once_all_slices_of_its_batch_are_laid_out() {
    let (mut world, hub) = scene(1);
    let terms: Vec<_> = (0..60).map(|index| format!("!k{index}")).collect();
    let _dear: Vec<_> = (0..50)
        .map(|index| {
            let labels = format!("{},!other{index}", terms.join(","));
            hub.join(&Selector {
                labels: LabelSelector::parse(&labels).unwrap(),
                ..Selector::default()
            })
        })
        .collect();
    let early = hub.join(&tier("x"));
    let changes: Vec<_> = (0..100)
        .map(|index| world.write(&format!("a/{index}"), Some("x")))
        .collect();
    let (before, version) = (hub.reached(), ResourceVersion(world.version));
    assert_eq!(world.writer.publish_changes(changes, world.now).events, 100);
    let mut meanwhile = Vec::new();
    while world.writer.is_behind() {
        assert_eq!(hub.reached().version, before.version);
        world.writer.dispatch(world.now);
        meanwhile.push(hub.join(&tier("x")));
    }
    assert!(meanwhile.len() > 5, "{}", meanwhile.len());
    let through = 100;
    assert_eq!(hub.reached(), HubPosition { through, version });
    let events = batches(&early.view, &mut early.cursor.clone()).concat();
    assert_eq!(events, world.told(before.version.0, |_| true));
    for entry in meanwhile {
        // The whole batch is in the history; the events that the view shows as well are ignored.
        assert_eq!(entry.reached, HubPosition { through, version });
        let read = entry.view.read(entry.cursor, |batch| {
            assert!(batch.last < through);
            ControlFlow::Continue(())
        });
        read.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn snapshot_history_and_view_show_each_event_once_in_order(
        seed: u64,
        joins in proptest::collection::vec((0_usize..60, 0_usize..4, 0_usize..4), 1..8),
    ) {
        let (mut world, hub) = scene(seed);
        let mut watchers: Vec<Watcher> = Vec::new();
        for at in 0..60 {
            for (_, which, meanwhile) in joins.iter().filter(|(when, ..)| *when == at) {
                let selector = match which {
                    0 => Selector::default(),
                    1 => tier("x"),
                    2 => named("a", Selector::default()),
                    _ => named("a-b", tier("y")),
                };
                watchers.push(Watcher::new(&mut world, &hub, selector, *meanwhile));
            }
            world.step();
            watchers.iter_mut().for_each(Watcher::read);
        }
        for watcher in &watchers {
            let sees = |sample: &Sample| watcher.selector.matches(&sample.object());
            prop_assert_eq!(&watcher.seen, &world.told(watcher.from, sees));
        }
    }
}

#[test]
fn a_view_sees_events_as_the_transition_table_says() {
    let (mut world, hub) = scene(1);
    let cache = Arc::clone(world.writer.cache());
    let change: Change = world.write("a/1", Some("x"));
    world.apply(vec![change]);
    let entry = hub.join(&tier("x"));
    assert_eq!(entry.reached.through, 1);
    let mut kinds = Vec::new();
    for through in [0, 1] {
        let read = filtered(cache.history(), &tier("x"), 0..through, |_, kind| {
            kinds.extend(kind);
            ControlFlow::Continue(())
        });
        assert_eq!(read, Ok(through));
    }
    assert_eq!(kinds, [EventKind::Added]);
}

#[test]
fn a_hub_is_closed_for_want_of_watches_only_if_none_joins_first() {
    for _ in 0..200 {
        let (_, hub) = scene(5);
        let (joining, peer) = (Arc::clone(&hub), Peer::UNKNOWN);
        let joiner = std::thread::spawn(move || {
            let format = ObjectFormat::whole(Encoding::Json);
            joining.join_as(&Selector::default(), format, peer)
        });
        let is_closed = hub.close_unwatched();
        let joined = joiner.join().unwrap();
        assert_ne!(is_closed, joined.is_ok());
        assert!(joined.is_err() || !hub.is_closed());
    }
}
