//! Rounds over a table of connections whose watches end as they are to.

use super::*;
use crate::metrics::Metrics;
use crate::serve::{ConnectionEntry, ConnectionTable};

/// A connection with this many watches that can be moved and this many that cannot. They stay open until this is dropped.
struct Connection {
    _watches: Vec<Box<dyn std::fmt::Debug>>,
    entry: ConnectionEntry,
}

fn connect(table: &ConnectionTable, movable: usize, fixed: usize) -> Connection {
    let entry = table.enter();
    let kinds = [true]
        .repeat(movable)
        .into_iter()
        .chain([false].repeat(fixed));
    let watches = kinds.map(|is_movable| Box::new(entry.recall().hold(is_movable)) as _);
    Connection {
        _watches: watches.collect(),
        entry,
    }
}

fn round(table: &ConnectionTable, watches: usize, per_second: usize) -> (Round, IntCounter) {
    let order = RoundOrder {
        watches,
        floor: 0,
        per_second,
    };
    let recalls = Metrics::new().unwrap().rebalance().connections;
    (Round::new(table.oldest(), order, recalls.clone()), recalls)
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_as_long_as_its_watches() {
    let table = ConnectionTable::default();
    let sizes = [99, 199, 1, 150, 60];
    let connections = sizes.map(|watches| connect(&table, watches, 0));
    let (round, recalls) = round(&table, 509, 100);
    let began = Instant::now();
    let (mut elapsed, mut left) = (Vec::new(), 509);
    let sent = round.finish(|| {
        if table.watch_count() != left {
            left = table.watch_count();
        }
        elapsed.push(began.elapsed().as_millis());
        true
    });
    assert_eq!(sent.await, 509);
    assert_eq!(elapsed, [0, 990, 2_980, 2_990, 4_490]);
    assert_eq!(began.elapsed().as_millis(), 5_090);
    assert_eq!((table.watch_count(), recalls.get()), (0, 5));
    assert!(connections.iter().all(|one| one.entry.recall().is_begun()));
}

#[tokio::test(start_paused = true)]
async fn in_place_of_a_client_that_leaves_another_one_is_sent_away() {
    let table = ConnectionTable::default();
    let mut connections: Vec<_> = [1, 1, 1, 1].map(|one| connect(&table, one, 0)).into();
    let (round, _) = round(&table, 3, 1);
    let mut passes = 0;
    let sent = round.finish(|| {
        passes += 1;
        if passes == 2 {
            connections.remove(1);
        }
        true
    });
    assert_eq!(sent.await, 3);
    assert_eq!(table.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_round_ends_when_it_is_not_to_go_on() {
    let table = ConnectionTable::default();
    let _connections = [1, 1, 1].map(|one| connect(&table, one, 0));
    let (mut round, _) = round(&table, 3, 1);
    assert!(round.recall_next());
    assert_eq!(round.finish(|| false).await, 1);
    assert_eq!(table.watch_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn watches_that_cannot_be_moved_stay_in_the_count_and_are_not_sent() {
    let table = ConnectionTable::default();
    let fixed = connect(&table, 0, 5);
    let mixed = connect(&table, 2, 3);
    let large = connect(&table, 11, 0);
    assert_eq!(table.watch_count(), 21);
    let (round, recalls) = round(&table, 10, 100);
    assert_eq!(round.finish(|| true).await, 2);
    assert_eq!((table.watch_count(), recalls.get()), (19, 1));
    let begun = [&fixed, &mixed, &large].map(|one| one.entry.recall().is_begun());
    assert_eq!(begun, [false, true, false]);
    // One that begins where no more should.
    let late = [true, false].map(|is_movable| mixed.entry.recall().hold(is_movable));
    assert_eq!(table.watch_count(), 20);
    drop((late, mixed));
    assert_eq!(table.watch_count(), 16);
    drop((fixed, large));
    assert_eq!(table.watch_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn connections_that_have_more_than_is_too_much_stay() {
    let table = ConnectionTable::default();
    let _connections = [60, 70].map(|watches| connect(&table, watches, 0));
    let (mut round, recalls) = round(&table, 59, 100);
    assert!(!round.recall_next());
    assert_eq!((round.passed_over(), recalls.get()), (2, 0));
    assert_eq!(table.watch_count(), 130);
}

/// More connections than are searched while the table is locked.
#[tokio::test(start_paused = true)]
async fn the_whole_table_is_searched() {
    let table = ConnectionTable::default();
    let idle: Vec<_> = (0..5_000).map(|_| connect(&table, 0, 0)).collect();
    let last = connect(&table, 1, 0);
    let (mut round, _) = round(&table, 1, 100);
    let new = connect(&table, 1, 0);
    assert!(round.recall_next());
    assert!(last.entry.recall().is_begun());
    assert!(!round.recall_next());
    assert!(!new.entry.recall().is_begun());
    drop(idle);
}
