//! The order, merging and bounds of the queue; and that replaying its notifications leads to the state of the store.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::processor::tests::samples::{
    Held, Replay, Store, added, deleted, initial, object, updated, word,
};
use crate::{EventFilter, EventHandler};

fn queue(len_max: usize, overflow: Overflow) -> NotificationQueue<u64> {
    NotificationQueue::new(InitialState::nothing(), len_max, overflow)
}

/// Takes everything that waits, as short texts.
fn take_all(queue: &mut NotificationQueue<u64>) -> Vec<String> {
    let mut out = VecDeque::new();
    queue.take(usize::MAX, &mut out);
    out.iter().map(word).collect()
}

/// Merges these changes once, and checks the result.
#[track_caller]
fn check_merged(changes: &[Notification<u64>], expected: &[&str]) {
    let mut queue = queue(1_000, Overflow::Merge);
    for change in changes {
        queue.push(change.clone()).unwrap();
    }
    queue.merge();
    let merged = (changes.len() - expected.len()) as u64;
    assert_eq!(queue.merged(), merged);
    assert_eq!(take_all(&mut queue), expected);
}

#[test]
fn below_its_bound_a_queue_tells_every_change_in_order() {
    let mut queue = queue(4, Overflow::Merge);
    for change in [
        added("a", 1),
        updated("a", 1, 2),
        deleted("a", 2, 3),
        added("a", 4),
    ] {
        queue.push(change).unwrap();
    }
    assert_eq!(take_all(&mut queue), ["+a1", "a1>2", "-a2>3", "+a4"]);
    assert_eq!(queue.merged(), 0);
}

#[test]
fn an_object_added_and_updated_is_told_as_added_in_its_last_state() {
    check_merged(&[added("a", 1), updated("a", 1, 2)], &["+a2"]);
    check_merged(&[initial("a", 1), updated("a", 1, 2)], &["^a2"]);
}

#[test]
fn an_object_added_and_deleted_is_not_told() {
    check_merged(&[added("a", 1), deleted("a", 1, 2)], &[]);
    check_merged(
        &[added("a", 1), deleted("a", 1, 2), added("a", 3)],
        &["+a3"],
    );
}

#[test]
fn updates_of_an_object_are_told_as_one_from_the_first_state_to_the_last() {
    let changes = [updated("a", 1, 2), updated("a", 2, 2), updated("a", 2, 3)];
    check_merged(&changes, &["a1>3"]);
}

#[test]
fn an_object_updated_and_deleted_is_told_as_deleted() {
    check_merged(&[updated("a", 1, 2), deleted("a", 2, 3)], &["-a1>3"]);
    let unknown = Notification::Deleted {
        old: object("a", 2),
        object: object("a", 2),
        final_state_known: false,
    };
    check_merged(&[updated("a", 1, 2), unknown], &["?a1>2"]);
}

#[test]
fn an_object_deleted_and_made_again_is_told_as_updated() {
    check_merged(&[deleted("a", 1, 2), added("a", 3)], &["a1>3"]);
    let changes = [
        updated("a", 1, 2),
        deleted("a", 2, 3),
        added("a", 4),
        updated("a", 4, 5),
    ];
    check_merged(&changes, &["a1>5"]);
    let again = [&changes[..], &[deleted("a", 5, 6)]].concat();
    check_merged(&again, &["-a1>6"]);
}

#[test]
fn merged_changes_stand_where_their_object_was_first_mentioned() {
    let changes = [
        updated("b", 1, 2),
        added("a", 3),
        updated("c", 1, 4),
        updated("a", 3, 5),
        updated("b", 2, 6),
    ];
    check_merged(&changes, &["b1>6", "+a5", "c1>4"]);
}

#[test]
fn merging_never_reaches_into_the_initial_state() {
    let initial_state = InitialState::from(vec![object("a", 1), object("b", 2)]);
    let mut queue = NotificationQueue::new(initial_state, 1, Overflow::Merge);
    for change in [updated("a", 1, 3), deleted("a", 3, 4), added("a", 5)] {
        queue.push(change).unwrap();
    }
    queue.merge();
    assert_eq!(take_all(&mut queue), ["^a1", "^b2", "a1>5"]);
}

#[test]
fn changes_are_not_merged_into_an_initial_list_before_they_reach_the_bound() {
    let mut queue = queue(2, Overflow::Merge);
    for version in 0..50 {
        queue
            .push(initial(&format!("n{version}"), version))
            .unwrap();
    }
    queue.push(updated("n0", 0, 50)).unwrap();
    queue.push(updated("n0", 50, 51)).unwrap();
    assert_eq!((queue.len(), queue.merged()), (52, 0));
    queue.push(updated("n0", 51, 52)).unwrap();
    assert_eq!((queue.len(), queue.merged()), (51, 2));
}

#[test]
fn the_initial_state_is_read_as_it_is_told() {
    let read = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&read);
    let objects = (0..100_000).map(move |version| {
        *counted.lock().unwrap() += 1;
        object("a", version)
    });
    let mut queue =
        NotificationQueue::new(InitialState::new(100_000, objects), 10, Overflow::Merge);
    let mut out = VecDeque::new();
    queue.take(3, &mut out);
    assert_eq!((*read.lock().unwrap(), out.len()), (3, 3));
    assert_eq!(queue.len(), 99_997);
}

#[test]
fn a_queue_that_gives_up_takes_no_more_than_its_bound() {
    let mut queue = queue(2, Overflow::Remove);
    assert_eq!(queue.push(added("a", 1)), Ok(()));
    assert_eq!(queue.push(updated("a", 1, 2)), Ok(()));
    assert_eq!(queue.push(updated("a", 2, 3)), Err(QueueOverflow));
    queue.take(1, &mut VecDeque::new());
    assert_eq!(queue.push(updated("a", 2, 3)), Ok(()));
}

#[test]
fn a_queue_that_blocks_keeps_everything_and_says_when_it_is_full() {
    let mut queue = queue(2, Overflow::Block);
    queue.push(added("a", 1)).unwrap();
    assert!(!queue.is_full());
    queue.push(updated("a", 1, 2)).unwrap();
    assert!(queue.is_full());
    queue.push(updated("a", 2, 3)).unwrap();
    assert_eq!(take_all(&mut queue), ["+a1", "a1>2", "a2>3"]);
}

#[test]
fn merging_is_not_tried_again_before_the_queue_has_doubled() {
    let mut queue = queue(1, Overflow::Merge);
    let mut merges = 0;
    for version in 0..1_000 {
        let before = queue.merge_at;
        queue.push(added(&format!("n{version}"), version)).unwrap();
        merges += usize::from(queue.merge_at != before);
    }
    assert!(merges <= 11, "{merges}");
    take_all(&mut queue);
    assert_eq!(queue.merge_at, 0);
    assert!(queue.changes.capacity() <= CAPACITY_KEPT);
}

#[test]
fn the_end_of_the_initial_list_keeps_its_place_when_changes_are_merged() {
    let mut queue = queue(1_000, Overflow::Merge);
    for change in [initial("a", 1), initial("b", 2), initial("c", 3)] {
        queue.push(change).unwrap();
    }
    queue.end_initial_list();
    for change in [added("d", 4), deleted("b", 2, 5), updated("a", 1, 6)] {
        queue.push(change).unwrap();
    }
    queue.merge();
    let mut out = VecDeque::new();
    assert_eq!(queue.take(1, &mut out), None);
    assert_eq!(queue.take(100, &mut out), Some(2));
    let words: Vec<_> = out.iter().map(word).collect();
    assert_eq!(words, ["^a6", "^c3", "+d4"]);
    assert!(queue.is_done());
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    Again(u8),
    Take(usize),
    EndInitialList,
}

fn step() -> impl Strategy<Value = Step> {
    // Few names, so that most steps concern an object that was changed before.
    prop_oneof![
        4 => (0..6_u8).prop_map(Step::Put),
        3 => (0..6_u8).prop_map(Step::Delete),
        1 => (0..6_u8).prop_map(Step::Again),
        2 => (1..8_usize).prop_map(Step::Take),
        1 => Just(Step::EndInitialList),
    ]
}

/// The filter of the test.
fn passes(object: &Cached<u64>) -> bool {
    object.is_multiple_of(2)
}

/// The queue, a model of the store, and replays of the notifications; each step checks the invariants.
struct Trial {
    store: Store,
    queue: NotificationQueue<u64>,
    replay: Replay,
    /// The replay of a handler behind a filter.
    filtered: Arc<Mutex<Replay>>,
    /// Names that were changed since the queue was last empty.
    touched: std::collections::BTreeSet<String>,
    /// What the store held when the initial list ended; taken once the queue returns that end.
    initial: Option<Held>,
    /// Whether the initial list ended.
    ended: bool,
}

impl Trial {
    fn new(names: &[u8], len_max: usize, overflow: Overflow) -> Self {
        let store = Store::of(names.iter().map(u8::to_string));
        let initial_state = InitialState::from(store.objects());
        Self {
            store,
            queue: NotificationQueue::new(initial_state, len_max, overflow),
            replay: Replay::default(),
            filtered: Arc::default(),
            touched: std::collections::BTreeSet::new(),
            initial: None,
            ended: false,
        }
    }

    fn step(&mut self, step: &Step) {
        let change = match step {
            Step::Put(name) => Some(self.store.put(&name.to_string())),
            Step::Delete(name) => self.store.delete(&name.to_string()),
            Step::Again(name) => self.store.again(&name.to_string()),
            Step::Take(count) => {
                self.take(*count);
                None
            }
            Step::EndInitialList => {
                if !self.ended {
                    self.ended = true;
                    self.initial = Some(self.store.held.clone());
                }
                self.queue.end_initial_list();
                None
            }
        };
        if let Some(change) = change {
            self.touched.insert(change.key().name().to_owned());
            self.queue.push(change).unwrap();
        }
        let bound = self.queue.len_max.max(2 * self.touched.len());
        let len = self.queue.changes.len();
        assert!(
            self.queue.overflow == Overflow::Block || len <= bound,
            "{len} of {bound}"
        );
    }

    fn take(&mut self, count: usize) {
        let mut out = VecDeque::new();
        let end = self.queue.take(count, &mut out);
        for index in 0..=out.len() {
            if end == Some(index) {
                self.check_initial_list_is_delivered();
            }
            if let Some(notification) = out.get(index) {
                self.replay.apply(notification);
                let filtered = Arc::clone(&self.filtered);
                let handler = move |change: &Notification<u64>| {
                    filtered.lock().unwrap().apply(change);
                };
                EventFilter::new(passes, handler).on_notification(notification);
            }
        }
        if self.queue.changes.is_empty() {
            self.touched.clear();
        }
    }

    fn check_initial_list_is_delivered(&mut self) {
        let initial = self
            .initial
            .take()
            .expect("the initial list ends once, after `EndInitialList`");
        for (name, version) in initial {
            let now = self.store.held.get(&name);
            let delivered = self.replay.held.get(&name);
            assert!(
                delivered.is_some_and(|&delivered| delivered >= version) || now != Some(&version)
            );
        }
    }

    fn finish(mut self) {
        self.step(&Step::EndInitialList);
        while !self.queue.is_done() {
            self.take(3);
        }
        assert_eq!(self.replay.held, self.store.held);
        let mut passing = self.store.held.clone();
        passing.retain(|name, version| passes(&object(name, *version)));
        assert_eq!(self.filtered.lock().unwrap().held, passing);
        assert_eq!(self.initial, None);
        assert_eq!(self.queue.len(), 0);
    }
}

proptest! {
    #[test]
    fn what_is_told_at_any_pace_explains_the_store(
        names in proptest::collection::vec(0..6_u8, 0..5),
        steps in proptest::collection::vec(step(), 0..200),
        len_max in 1..12_usize,
        merge in any::<bool>(),
    ) {
        let overflow = if merge { Overflow::Merge } else { Overflow::Block };
        let mut trial = Trial::new(&names, len_max, overflow);
        for step in &steps {
            trial.step(step);
        }
        trial.finish();
    }
}
