//! Sends some clients away, so that they choose a replica again: some at random (decision 46), or those of connections that are in a table
//! (decision 52).

use super::connection_table::{ConnectionEntry, ConnectionTable};
use super::service::Service;

impl Service {
    /// Ends the connection of one in `requests` requests over HTTP/2, at random, so that clients do not stay with one replica; 0 for none.
    #[must_use]
    pub fn rebalanced(self, requests: usize) -> Self {
        Self {
            requests_per_goaway: requests,
            ..self
        }
    }

    /// Enters each connection in this table, if there is one.
    #[must_use]
    pub fn tracked(self, connections: Option<ConnectionTable>) -> Self {
        Self {
            connections,
            ..self
        }
    }

    /// Enters a new connection in the table; `None` if there is no table.
    pub(crate) fn track(&self) -> Option<ConnectionEntry> {
        self.connections.as_ref().map(ConnectionTable::enter)
    }

    /// Whether a request of this HTTP version is one that ends its connection. Over HTTP/1.1 each watch has a connection of its own, and
    /// its client chooses a replica for each.
    pub(crate) fn sends_away(&self, version: http::Version) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a probability")]
        let requests = self.requests_per_goaway as f64;
        self.requests_per_goaway > 0
            && version == http::Version::HTTP_2
            && crate::resource::fraction() * requests < 1.0
    }
}
