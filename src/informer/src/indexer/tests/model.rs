//! Compares the store with a plain map, whose indices are computed by searching all objects; and tests readers beside a writer.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;

use proptest::prelude::*;

use super::*;

const VALUES: [&str; 4] = ["w", "x", "y", "z"];

#[derive(Clone, Debug)]
enum Step {
    /// A name, and the positions of its values in `VALUES`.
    Put(u8, Vec<usize>),
    Remove(u8),
    Replace(Vec<(u8, Vec<usize>)>),
    AddIndex,
}

fn step() -> impl Strategy<Value = Step> {
    let values = || proptest::collection::vec(0..VALUES.len(), 0..4);
    let objects = proptest::collection::vec((any::<u8>(), values()), 0..40);
    prop_oneof![
        12 => (any::<u8>(), values()).prop_map(|(name, values)| Step::Put(name, values)),
        6 => any::<u8>().prop_map(Step::Remove),
        1 => objects.prop_map(Step::Replace),
        1 => Just(Step::AddIndex),
    ]
}

fn numbered_item(name: u8, number: u32, values: &[usize]) -> Arc<Item> {
    let values: Vec<_> = values.iter().map(|position| VALUES[*position]).collect();
    item(&name.to_string(), number, &values)
}

type Plain = BTreeMap<String, Arc<Item>>;

fn compare(indexer: &Indexer<Item>, plain: &Plain, index_count: usize) {
    assert_eq!(indexer.len(), plain.len());
    let snapshot = indexer.snapshot();
    assert_eq!(snapshot.len(), plain.len());
    let stored: Plain = snapshot
        .iter()
        .map(|item| (item.name.clone(), Arc::clone(item)))
        .collect();
    assert_eq!(&stored, plain);
    let keys = indexer.keys();
    let keys = sorted(keys.iter().map(ObjectKey::as_str));
    assert_eq!(keys, plain.keys().collect::<Vec<_>>());
    for index in 0..index_count {
        compare_index(indexer, plain, &index.to_string());
    }
}

fn compare_index(indexer: &Indexer<Item>, plain: &Plain, index: &str) {
    let mut values = Vec::new();
    for value in VALUES {
        let matching: Vec<_> = plain
            .values()
            .filter(|item| item.values.iter().any(|own| own == value))
            .collect();
        if !matching.is_empty() {
            values.push(value.to_owned());
        }
        let found = indexer.by_index(index, value).unwrap();
        assert_eq!(
            sorted(found.iter().map(|item| item.number)),
            sorted(matching.iter().map(|item| item.number)),
        );
        let keys = indexer.index_keys(index, value).unwrap();
        assert_eq!(
            sorted(keys.iter().map(ObjectKey::as_str)),
            sorted(matching.iter().map(|item| &*item.name)),
        );
    }
    assert_eq!(sorted(indexer.index_values(index).unwrap()), values);
}

proptest! {
    #[test]
    fn a_store_holds_what_a_plain_map_holds(steps in proptest::collection::vec(step(), 0..150)) {
        let (indexer, mut plain) = (Indexer::new(name_key()), Plain::new());
        let (mut index_count, mut snapshots) = (0, Vec::new());
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Put(name, values) => {
                    let item = numbered_item(name, number, &values);
                    let before = plain.insert(item.name.clone(), Arc::clone(&item));
                    prop_assert_eq!(indexer.put(item).unwrap(), before);
                }
                Step::Remove(name) => {
                    let name = name.to_string();
                    let removed = indexer.remove(&ObjectKey::new("", &name));
                    prop_assert_eq!(removed, plain.remove(&name));
                }
                Step::Replace(objects) => {
                    let items = objects.iter().zip(1_000 * (number + 1)..);
                    let items: Vec<_> = items
                        .map(|((name, values), number)| numbered_item(*name, number, values))
                        .collect();
                    plain = items.iter().map(|item| (item.name.clone(), Arc::clone(item))).collect();
                    prop_assert!(indexer.replace(items).is_empty());
                }
                Step::AddIndex => {
                    indexer.add_index(&index_count.to_string(), own_values()).unwrap();
                    index_count += 1;
                }
            }
            if number % 8 == 0 {
                compare(&indexer, &plain, index_count);
                snapshots.push((indexer.snapshot(), plain.clone()));
            }
        }
        compare(&indexer, &plain, index_count);
        for (snapshot, expected) in snapshots {
            let held: Plain = snapshot.iter().map(|item| (item.name.clone(), Arc::clone(item))).collect();
            prop_assert_eq!(held, expected);
        }
    }
}

/// Rounds of writing while readers read.
const ROUNDS: u32 = 300;
/// More than one page.
const OBJECTS: u32 = 600;

/// Calls `read` repeatedly from two threads while `write` runs, and at least once after it.
fn with_readers(write: impl FnOnce(), read: impl Fn() + Sync) {
    let (writing, written) = sync_channel::<()>(0);
    let written = Mutex::new(written);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while written.lock().try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                    read();
                }
                read();
            });
        }
        write();
        drop(writing);
    });
}

#[test]
fn readers_see_the_store_as_it_was_at_one_moment() {
    // Objects are written in order, round after round: at any moment the first ones belong to this round, the others to the previous one.
    let indexer = indexed(&[]);
    let put = |round: u32, position: u32| {
        indexer
            .put(item(
                &position.to_string(),
                round * OBJECTS + position,
                &["x"],
            ))
            .unwrap();
    };
    (0..OBJECTS).for_each(|position| put(0, position));
    with_readers(
        || (1..ROUNDS).for_each(|round| (0..OBJECTS).for_each(|position| put(round, position))),
        || {
            let snapshot = indexer.snapshot();
            for mut numbers in [
                snapshot.iter().map(|item| item.number).collect::<Vec<_>>(),
                numbers(&indexer, "x"),
            ] {
                numbers.sort_unstable();
                assert_eq!(numbers.len(), OBJECTS as usize);
                let first = numbers[0];
                assert!(numbers.into_iter().eq(first..first + OBJECTS));
            }
        },
    );
}

#[test]
fn readers_see_a_replacement_whole_or_not_at_all() {
    let indexer = indexed(&[]);
    let of_round = |round: u32| {
        let items = (0..OBJECTS).map(|position| item(&position.to_string(), round, &["x"]));
        assert!(indexer.replace(items.collect()).is_empty());
    };
    of_round(0);
    with_readers(
        || (1..ROUNDS / 10).for_each(of_round),
        || {
            let numbers = numbers(&indexer, "x");
            assert_eq!(numbers.len(), OBJECTS as usize);
            assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]));
        },
    );
}

#[test]
fn an_index_added_while_objects_change_misses_none() {
    let indexer = Indexer::new(name_key());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..20 * OBJECTS {
                let name = (number % OBJECTS).to_string();
                indexer.put(item(&name, number, &["x"])).unwrap();
            }
        });
        for index in ["one", "two", "value"] {
            indexer.add_index(index, own_values()).unwrap();
        }
    });
    assert_eq!(numbers(&indexer, "x").len(), OBJECTS as usize);
}
