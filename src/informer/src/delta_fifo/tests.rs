//! The queue's rules, one test each. `model` replays random changes against a plain map.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::Indexer;

mod model;

/// An object; the queue needs only its key.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    name: &'static str,
    version: u32,
}

fn item(name: &'static str, version: u32) -> Arc<Item> {
    Arc::new(Item { name, version })
}

/// Fails for an object without a name, and panics for one named `panic`.
fn name_key() -> KeyFn<Item> {
    Arc::new(|item| match item.name {
        "" => Err(KeyError::new("no name")),
        "panic" => panic!("a key function that panics"),
        name => Ok(ObjectKey::new("", name)),
    })
}

/// A queue, and the store that its consumer fills.
struct Rig {
    fifo: DeltaFifo<Item>,
    store: Arc<Indexer<Item>>,
}

impl Rig {
    fn new() -> Self {
        Self::bounded(PENDING_MAX_DEFAULT)
    }

    fn bounded(pending_max: usize) -> Self {
        let store = Arc::new(Indexer::new(name_key()));
        let known: Arc<dyn KnownObjects<Item>> = Arc::<Indexer<Item>>::clone(&store);
        let fifo = DeltaFifo::bounded(name_key(), known, pending_max);
        Self { fifo, store }
    }

    /// A rig with these objects in the store, and an empty queue.
    fn knowing(known: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        let rig = Self::new();
        for (name, version) in known {
            rig.store.put(item(name, version)).unwrap();
        }
        rig
    }

    fn add(&self, name: &'static str, version: u32) {
        self.fifo.add(item(name, version)).unwrap();
    }

    fn update(&self, name: &'static str, version: u32) {
        self.fifo.update(item(name, version)).unwrap();
    }

    fn delete(&self, name: &'static str, version: u32) {
        self.fifo.delete(item(name, version)).unwrap();
    }

    fn replace(&self, items: impl IntoIterator<Item = (&'static str, u32)>) {
        assert!(self.replace_some(items).is_empty());
    }

    fn replace_some(&self, items: impl IntoIterator<Item = (&'static str, u32)>) -> KeylessObjects {
        let items = items.into_iter().map(|(name, version)| item(name, version));
        self.fifo.replace(items.collect()).unwrap()
    }

    /// Pops the deltas of the next object as a text such as `a: Added 1, Deleted 1?`. A question mark means that the final state is
    /// unknown; a star after the key means that the deltas are part of the initial population.
    fn pop_text(&self) -> Option<String> {
        let mut text = String::new();
        self.fifo
            .pop(|key, deltas, in_initial_list| {
                let deltas: Vec<_> = deltas.iter().map(text_of).collect();
                let star = if in_initial_list { "*" } else { "" };
                text = format!("{key}{star}: {}", deltas.join(", "));
                Ok::<_, ()>(())
            })?
            .unwrap();
        Some(text)
    }

    fn pop_all(&self) -> Vec<String> {
        std::iter::from_fn(|| self.pop_text()).collect()
    }
}

fn text_of(delta: &Delta<Item>) -> String {
    let version = delta.subject.object().map_or(0, |item| item.version);
    let unknown = match &delta.subject {
        DeltaSubject::Object(_) => "",
        DeltaSubject::FinalStateUnknown { .. } => "?",
    };
    format!("{:?} {version}{unknown}", delta.kind)
}

/// Whether a future is ready at its first poll.
async fn is_ready(future: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = future => true,
        () = std::future::ready(()) => false,
    }
}

#[test]
fn objects_leave_in_the_order_in_which_they_were_queued_first() {
    let rig = Rig::new();
    rig.add("b", 1);
    rig.add("a", 2);
    rig.update("b", 3);
    rig.add("c", 4);
    assert_eq!(
        rig.pop_all(),
        ["b: Added 1, Updated 3", "a: Added 2", "c: Added 4"]
    );
}

#[test]
fn an_object_leaves_once_with_all_its_deltas_oldest_first() {
    let rig = Rig::new();
    rig.add("a", 1);
    rig.update("a", 2);
    rig.delete("a", 3);
    rig.add("a", 4);
    let expected = "a: Added 1, Updated 2, Deleted 3, Added 4";
    assert_eq!(rig.pop_all(), [expected]);
}

#[test]
fn an_object_that_left_is_queued_behind_the_others() {
    let rig = Rig::new();
    rig.add("a", 1);
    rig.add("b", 2);
    assert_eq!(rig.pop_text().unwrap(), "a: Added 1");
    rig.update("a", 3);
    assert_eq!(rig.pop_all(), ["b: Added 2", "a: Updated 3"]);
}

#[test]
fn repeated_updates_are_all_kept() {
    let rig = Rig::new();
    rig.update("a", 1);
    rig.update("a", 1);
    rig.add("a", 1);
    rig.add("a", 1);
    assert_eq!(rig.pop_all(), ["a: Updated 1, Updated 1, Added 1, Added 1"]);
}

#[test]
fn two_deletions_in_a_row_become_one() {
    let rig = Rig::knowing([("a", 1)]);
    rig.delete("a", 2);
    rig.delete("a", 3);
    assert_eq!(rig.fifo.delta_count(), 1);
    assert_eq!(rig.pop_all(), ["a: Deleted 2"]);
}

#[test]
fn of_two_deletions_the_one_that_knows_the_final_state_stays() {
    let rig = Rig::knowing([("later", 1), ("sooner", 1)]);
    rig.delete("sooner", 2);
    rig.replace([]);
    rig.delete("later", 3);
    assert_eq!(rig.pop_all(), ["sooner: Deleted 2", "later: Deleted 3"]);
}

#[test]
fn deletions_with_another_change_between_them_stay_apart() {
    let rig = Rig::knowing([("a", 1)]);
    rig.delete("a", 2);
    rig.add("a", 3);
    rig.delete("a", 4);
    assert_eq!(rig.pop_all(), ["a: Deleted 2, Added 3, Deleted 4"]);
}

#[test]
fn deleting_an_unknown_object_is_ignored() {
    let rig = Rig::knowing([("b", 1)]);
    rig.delete("a", 1);
    assert!(rig.fifo.is_empty());
    assert_eq!(rig.pop_text(), None);
}

#[test]
fn deleting_a_known_object_is_queued() {
    let rig = Rig::knowing([("a", 1)]);
    rig.delete("a", 2);
    assert_eq!(rig.pop_all(), ["a: Deleted 2"]);
}

#[test]
fn deleting_an_object_that_is_only_queued_is_queued() {
    let rig = Rig::new();
    rig.add("a", 1);
    rig.delete("a", 2);
    assert_eq!(rig.pop_all(), ["a: Added 1, Deleted 2"]);
}

#[test]
fn a_replacement_tells_all_its_objects_as_replaced() {
    let rig = Rig::knowing([("a", 1)]);
    rig.replace([("b", 2), ("a", 1)]);
    assert_eq!(rig.pop_all(), ["b*: Replaced 2", "a*: Replaced 1"]);
}

#[test]
fn a_replacement_tells_what_vanished_with_its_last_known_state() {
    let rig = Rig::knowing([("a", 7)]);
    rig.replace([("b", 8)]);
    assert_eq!(rig.pop_all(), ["b*: Replaced 8", "a*: Deleted 7?"]);
}

#[test]
fn the_last_known_state_is_rather_what_is_queued_than_what_is_stored() {
    let rig = Rig::knowing([("a", 1)]);
    rig.update("a", 2);
    rig.update("a", 3);
    rig.replace([]);
    assert_eq!(rig.pop_all(), ["a: Updated 2, Updated 3, Deleted 3?"]);
}

#[test]
fn a_replacement_also_takes_away_what_is_only_queued() {
    let rig = Rig::new();
    rig.add("a", 1);
    rig.replace([("b", 2)]);
    assert_eq!(rig.pop_all(), ["a: Added 1, Deleted 1?", "b: Replaced 2"]);
}

#[test]
fn objects_missing_in_a_second_replacement_keep_the_state_of_the_first() {
    let rig = Rig::knowing([("a", 1)]);
    rig.replace([("a", 2)]);
    rig.replace([]);
    rig.replace([]);
    assert_eq!(rig.pop_all(), ["a*: Replaced 2, Deleted 2?"]);
}

#[test]
fn a_deletion_that_waits_is_not_told_again_by_a_replacement() {
    let rig = Rig::knowing([("a", 1)]);
    rig.delete("a", 2);
    rig.replace([]);
    assert_eq!(rig.pop_all(), ["a: Deleted 2"]);
}

#[test]
fn an_object_that_a_replacement_brings_back_is_told_as_deleted_first() {
    let rig = Rig::knowing([("a", 1)]);
    rig.delete("a", 2);
    rig.replace([("a", 3)]);
    assert_eq!(rig.pop_all(), ["a: Deleted 2, Replaced 3"]);
}

#[test]
fn a_resync_tells_known_objects_again() {
    let rig = Rig::knowing([("a", 1)]);
    rig.fifo.resync();
    assert_eq!(rig.fifo.len(), 1);
    rig.fifo
        .pop(|_, deltas, _| {
            let known = rig.store.object("a").unwrap();
            assert!(Arc::ptr_eq(deltas[0].subject.object().unwrap(), &known));
            assert_eq!(deltas[0].kind, DeltaKind::Sync);
            Ok::<_, ()>(())
        })
        .unwrap()
        .unwrap();
}

#[test]
fn a_resync_leaves_out_objects_of_which_something_waits() {
    let rig = Rig::knowing([("a", 1), ("b", 1), ("c", 1)]);
    rig.update("a", 2);
    rig.delete("b", 2);
    rig.fifo.resync();
    rig.fifo.resync();
    assert_eq!(rig.pop_all(), ["a: Updated 2", "b: Deleted 2", "c: Sync 1"]);
}

#[test]
fn it_has_synced_once_the_first_replacement_is_processed() {
    let rig = Rig::new();
    assert!(!rig.fifo.has_synced());
    rig.replace([("a", 1), ("b", 2)]);
    rig.add("c", 3);
    for expected in ["a*: Replaced 1", "b*: Replaced 2"] {
        assert!(!rig.fifo.has_synced());
        assert_eq!(rig.pop_text().unwrap(), expected);
    }
    assert!(rig.fifo.has_synced());
    assert_eq!(rig.pop_text().unwrap(), "c: Added 3");
}

#[test]
fn an_empty_first_replacement_has_synced_at_once() {
    let rig = Rig::new();
    rig.replace([]);
    assert!(rig.fifo.has_synced());
}

#[test]
fn a_change_before_any_replacement_has_synced_at_once() {
    let first: [fn(&Rig); 4] = [
        |rig| rig.add("a", 1),
        |rig| rig.update("a", 1),
        |rig| rig.delete("a", 1),
        |rig| rig.delete("unknown", 1),
    ];
    for change in first {
        let rig = Rig::knowing([("a", 1)]);
        change(&rig);
        assert!(rig.fifo.has_synced());
        rig.replace([("b", 1)]);
        assert!(rig.fifo.has_synced());
        assert!(rig.pop_all().iter().all(|text| !text.contains('*')));
    }
}

#[test]
fn a_resync_before_any_replacement_has_not_synced() {
    let rig = Rig::knowing([("a", 1)]);
    rig.fifo.resync();
    assert!(!rig.fifo.has_synced());
    rig.replace([("b", 1)]);
    assert_eq!(rig.pop_all(), ["a*: Sync 1, Deleted 1?", "b*: Replaced 1"]);
    assert!(rig.fifo.has_synced());
}

#[test]
fn deletions_by_the_first_replacement_belong_to_the_initial_population() {
    let rig = Rig::knowing([("gone", 1)]);
    rig.replace([("a", 1)]);
    assert_eq!(rig.pop_text().unwrap(), "a*: Replaced 1");
    assert!(!rig.fifo.has_synced());
    assert_eq!(rig.pop_text().unwrap(), "gone*: Deleted 1?");
    assert!(rig.fifo.has_synced());
}

#[test]
fn an_object_listed_twice_counts_once_in_the_initial_population() {
    let rig = Rig::new();
    rig.replace([("a", 1), ("a", 2)]);
    assert_eq!(rig.pop_all(), ["a*: Replaced 1, Replaced 2"]);
    assert!(rig.fifo.has_synced());
}

#[test]
fn changes_of_waiting_initial_objects_are_part_of_the_initial_list() {
    let rig = Rig::new();
    rig.replace([("a", 1), ("b", 1)]);
    rig.update("b", 2);
    rig.delete("a", 2);
    assert_eq!(
        rig.pop_all(),
        ["a*: Replaced 1, Deleted 2", "b*: Replaced 1, Updated 2"]
    );
}

#[test]
fn a_later_replacement_does_not_take_back_that_it_has_synced() {
    let rig = Rig::new();
    rig.replace([("a", 1)]);
    rig.pop_all();
    rig.replace([("a", 2), ("b", 2)]);
    assert!(rig.fifo.has_synced());
    assert_eq!(rig.pop_all(), ["a: Replaced 2", "b: Replaced 2"]);
}

#[test]
fn an_error_of_processing_is_handed_back_and_nothing_is_queued_again() {
    let rig = Rig::new();
    rig.replace([("a", 1)]);
    assert_eq!(rig.fifo.pop(|_, _, _| Err("no")), Some(Err("no")));
    assert!(rig.fifo.is_empty() && rig.fifo.has_synced());
}

#[test]
fn a_panic_of_processing_leaves_the_queue_in_order() {
    let rig = Rig::bounded(2);
    rig.replace([("a", 1), ("b", 1)]);
    let popped = catch_unwind(AssertUnwindSafe(|| {
        rig.fifo
            .pop(|_, _, _| -> Result<(), ()> { panic!("processing panics") })
    }));
    assert!(popped.is_err());
    assert!(!rig.fifo.is_full());
    rig.add("c", 2);
    assert_eq!(rig.pop_all(), ["b*: Replaced 1", "c: Added 2"]);
}

#[test]
fn nothing_is_queued_while_deltas_are_processed() {
    let rig = Rig::new();
    rig.add("a", 1);
    std::thread::scope(|scope| {
        rig.fifo
            .pop(|_, _, _| {
                let adding = scope.spawn(|| rig.add("b", 2));
                std::thread::yield_now();
                assert!(!adding.is_finished());
                Ok::<_, ()>(())
            })
            .unwrap()
            .unwrap();
    });
    assert_eq!(rig.pop_all(), ["b: Added 2"]);
}

#[test]
fn a_closed_queue_refuses_changes_and_gives_out_what_waits() {
    let rig = Rig::knowing([("a", 1)]);
    rig.add("a", 1);
    assert!(!rig.fifo.is_closed());
    rig.fifo.close();
    assert!(rig.fifo.is_closed());
    let closed = Err(QueueError::Closed);
    assert_eq!(rig.fifo.add(item("b", 1)), closed);
    assert_eq!(rig.fifo.update(item("b", 1)), closed);
    assert_eq!(rig.fifo.delete(item("a", 1)), closed);
    assert_eq!(rig.fifo.replace(Vec::new()), Err(QueueError::Closed));
    rig.fifo.resync();
    assert_eq!(rig.pop_all(), ["a: Added 1"]);
}

#[tokio::test]
async fn closing_wakes_all_waiters() {
    let rig = Rig::bounded(1);
    tokio::join!(rig.fifo.filled(), async { rig.fifo.close() });
    let rig = Rig::bounded(1);
    rig.add("a", 1);
    tokio::join!(rig.fifo.writable(), async { rig.fifo.close() });
}

#[tokio::test]
async fn every_way_to_queue_deltas_wakes_the_consumer() {
    let ways: [fn(&Rig); 5] = [
        |rig| rig.add("a", 1),
        |rig| rig.update("a", 1),
        |rig| rig.delete("known", 1),
        |rig| rig.replace([("a", 1)]),
        |rig| rig.fifo.resync(),
    ];
    for way in ways {
        let rig = Rig::knowing([("known", 1)]);
        assert!(!is_ready(rig.fifo.filled()).await);
        tokio::join!(rig.fifo.filled(), async { way(&rig) });
        assert!(is_ready(rig.fifo.filled()).await);
    }
}

#[tokio::test]
async fn a_first_change_that_queues_nothing_wakes_the_consumer() {
    let ways: [fn(&Rig); 2] = [|rig| rig.replace([]), |rig| rig.delete("unknown", 1)];
    for way in ways {
        let rig = Rig::new();
        let mut synced = pin!(rig.fifo.synced_without_deltas());
        assert!(!is_ready(synced.as_mut()).await);
        way(&rig);
        // A wait that has begun is ready only if it was notified.
        assert!(is_ready(synced).await);
    }
}

#[tokio::test]
async fn a_queue_is_full_when_all_objects_deltas_reach_the_bound() {
    let rig = Rig::bounded(3);
    rig.add("a", 1);
    rig.update("a", 2);
    assert!(!rig.fifo.is_full() && is_ready(rig.fifo.writable()).await);
    rig.add("b", 3);
    assert!(rig.fifo.is_full() && !is_ready(rig.fifo.writable()).await);
    // A change that the producer has already read is still accepted.
    rig.add("c", 4);
    assert_eq!((rig.fifo.len(), rig.fifo.delta_count()), (3, 4));
    tokio::join!(rig.fifo.writable(), async {
        assert_eq!(rig.pop_text().unwrap(), "a: Added 1, Updated 2");
    });
    assert!(!rig.fifo.is_full());
}

#[test]
fn replacements_and_resyncs_exceed_the_bound_by_a_delta_per_object() {
    let rig = Rig::bounded(1);
    rig.replace([("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(rig.fifo.delta_count(), 3);
    rig.replace([("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(rig.fifo.delta_count(), 6);
    rig.fifo.resync();
    assert_eq!(rig.fifo.delta_count(), 6);
}

#[test]
fn a_change_without_a_key_is_an_error_and_leaves_the_queue_alone() {
    for name in ["", "panic"] {
        let rig = Rig::new();
        let changes = [DeltaFifo::add, DeltaFifo::update, DeltaFifo::delete];
        for change in changes {
            let outcome = change(&rig.fifo, item(name, 1));
            assert!(matches!(outcome, Err(QueueError::Key(_))), "{outcome:?}");
        }
        assert!(rig.fifo.is_empty());
        assert!(!rig.fifo.has_synced());
        rig.add("a", 1);
        assert_eq!(rig.pop_all(), ["a: Added 1"]);
    }
}

#[test]
fn a_replacement_takes_all_objects_that_have_a_key() {
    let rig = Rig::knowing([("a", 1)]);
    let keyless = rig.replace_some([("", 1), ("a", 2), ("panic", 1), ("b", 2)]);
    assert_eq!((keyless.count, keyless.is_empty()), (2, false));
    assert_eq!(keyless.first, Some(KeyError::new("no name")));
    assert_eq!(rig.pop_all(), ["a*: Replaced 2", "b*: Replaced 2"]);
    assert!(rig.fifo.has_synced());
}

/// Knows one object, and panics if all keys are requested.
struct OneKnown(Arc<Item>);

impl KnownObjects<Item> for OneKnown {
    fn keys(&self) -> Vec<ObjectKey> {
        panic!("all objects are searched");
    }

    fn object(&self, key: &ObjectKey) -> Option<Arc<Item>> {
        (key.name() == self.0.name).then(|| Arc::clone(&self.0))
    }
}

/// Otherwise a user who can write undecodable objects could make each deletion cost a search of all objects.
#[test]
fn an_object_whose_last_state_is_unknown_is_found_under_its_usual_key() {
    let fifo = DeltaFifo::new(name_key(), Arc::new(OneKnown(item("a", 1))) as _);
    fifo.delete_where(&ObjectKey::new("", "a"), |last| last.name == "a")
        .unwrap();
    let deleted = fifo.pop(|key, deltas, _| {
        assert_eq!((key.name(), deltas.len()), ("a", 1));
        assert_eq!(deltas[0].subject.object(), Some(&item("a", 1)));
        Ok::<_, ()>(())
    });
    assert_eq!(deleted, Some(Ok(())));
}

#[test]
fn an_object_whose_last_state_is_unknown_is_found_under_any_key() {
    let rig = Rig::knowing([("a", 1), ("b", 1)]);
    let elsewhere = ObjectKey::new("n", "b");
    rig.fifo
        .delete_where(&elsewhere, |last| last.name == "b")
        .unwrap();
    let deleted = rig.fifo.pop(|key, _, _| {
        assert_eq!(key.name(), "b");
        Ok::<_, ()>(())
    });
    assert_eq!((deleted, rig.fifo.len()), (Some(Ok(())), 0));
}
