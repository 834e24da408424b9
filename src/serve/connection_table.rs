//! The open connections of clients, oldest first, so that some can be sent to another replica (decision 52). When, and how many, is not decided
//! here.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::watch::WatchRecall;

/// The open connections of clients. Clones share the table.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTable(Arc<Mutex<TableContent>>);

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

impl ConnectionTable {
    /// Enters a connection that was accepted now.
    #[must_use]
    pub fn enter(&self) -> ConnectionEntry {
        let recall = WatchRecall::default();
        let mut content = self.0.lock();
        let number = content.next;
        content.next += 1;
        content.connections.insert(number, recall.clone());
        ConnectionEntry {
            table: self.clone(),
            number,
            recall,
        }
    }

    /// Number of open watches from memory, without those of connections that are recalled.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        let content = self.0.lock();
        let staying = content.connections.values().filter(|one| !one.is_begun());
        staying.map(WatchRecall::watch_count).sum()
    }

    /// The connections that have been open longest, with at most this many watches together. A connection that has more than are left is
    /// passed over: elsewhere it would be as much too much.
    #[must_use]
    pub fn oldest(&self, mut watches: usize) -> Vec<WatchRecall> {
        let content = self.0.lock();
        let mut found = Vec::new();
        for recall in content.connections.values() {
            if watches == 0 {
                break;
            }
            let count = recall.watch_count();
            if !recall.is_begun() && (1..=watches).contains(&count) {
                watches -= count;
                found.push(recall.clone());
            }
        }
        found
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
        self.table.0.lock().connections.remove(&self.number);
    }
}
