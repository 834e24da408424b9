//! The open connections of clients, oldest first, so that some can be sent to another replica (decision 52). When, and how many, is not decided
//! here.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::watch::{OpenWatchCount, WatchRecall};

/// Connections that are searched while the table is locked. New connections wait for that long.
const SEARCHED_MAX: usize = 1_024;

/// The open connections of clients. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTable(Arc<TableState>);

#[derive(Debug, Default)]
struct TableState {
    content: Mutex<TableContent>,
    watches: OpenWatchCount,
}

#[derive(Debug, Default)]
struct TableContent {
    next: u64,
    /// In the order in which they were accepted.
    connections: BTreeMap<u64, WatchRecall>,
}

/// A connection's entry in the table, which is removed when this is dropped.
#[derive(Debug)]
pub struct ConnectionEntry {
    table: ConnectionTable,
    number: u64,
    recall: WatchRecall,
}

/// The connections of a table that are open now, oldest first.
#[derive(Debug)]
pub struct OldestConnections {
    table: ConnectionTable,
    /// Where to go on, and where to end: later connections are new.
    next: u64,
    end: u64,
    passed_over: usize,
}

impl ConnectionTable {
    /// Enters a connection that was accepted now.
    #[must_use]
    pub fn enter(&self) -> ConnectionEntry {
        let recall = WatchRecall::counted(&self.0.watches);
        let mut content = self.0.content.lock();
        let number = content.next;
        content.next += 1;
        content.connections.insert(number, recall.clone());
        ConnectionEntry {
            table: self.clone(),
            number,
            recall,
        }
    }

    /// Number of open watches from memory, without those that are about to end because their connection was recalled.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.0.watches.count()
    }

    /// The connections that are open now.
    #[must_use]
    pub fn oldest(&self) -> OldestConnections {
        OldestConnections {
            table: self.clone(),
            next: 0,
            end: self.0.content.lock().next,
            passed_over: 0,
        }
    }
}

impl OldestConnections {
    /// Recalls the next connection that has at most this many watches that can be moved, and at least one; returns how many it has. A
    /// connection that has more is passed over: elsewhere it would be as much too much.
    pub fn recall_next(&mut self, watches: usize) -> Option<usize> {
        while self.next < self.end {
            let found = self.search(watches);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Number of connections that had too many watches.
    #[must_use]
    pub const fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Searches some connections.
    fn search(&mut self, watches: usize) -> Option<usize> {
        let content = self.table.0.content.lock();
        let range = content.connections.range(self.next..self.end);
        self.next = self.end;
        for (index, (number, recall)) in range.enumerate() {
            if index == SEARCHED_MAX {
                self.next = *number;
                return None;
            }
            let movable = recall.movable_count();
            if movable > watches {
                self.passed_over += 1;
            } else if movable > 0 {
                let recall = recall.clone();
                self.next = number + 1;
                // Wakes the watches, so the lock is released first.
                drop(content);
                // More may have begun since.
                return Some(recall.begin_at_most(watches)).filter(|moved| *moved > 0);
            }
        }
        None
    }
}

impl ConnectionEntry {
    /// Ends the connection's watches.
    #[must_use]
    pub fn recall(&self) -> &WatchRecall {
        &self.recall
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        self.table.0.content.lock().connections.remove(&self.number);
    }
}
