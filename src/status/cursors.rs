//! Where the watches of a cache are in its history: columns to draw, numbers, and the names of those that wait longest.

use std::cmp::Ordering;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::clients::{ClientStatus, SlowGroup};

/// Columns of the picture, from the oldest event to the newest.
const COLUMNS: usize = 64;
/// Watches that have waited for longer than this are slow.
const SLOW_SECONDS: f64 = 5.0;
/// The oldest part of the history: a watch there may be cut soon.
const ENDANGERED: f64 = 0.25;
/// Named clients of one resource.
const NAMES_OF_RESOURCE_MAX: usize = 8;
/// Named clients in all.
const NAMES_MAX: usize = 100;
/// Groups of slow clients in the document.
const GROUPS_MAX: usize = 20;
/// Groups that are counted to find these; clients of further groups count as one group without a name.
const GROUPS_COUNTED_MAX: usize = 1_000;

/// Where the watches of a cache are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CursorSummary {
    /// Open watches.
    pub watches: usize,
    /// Those that have everything that their connection could take.
    pub current: usize,
    /// Those that are behind, but not slow.
    pub behind: usize,
    /// Those whose first unread event has waited for more than five seconds.
    pub slow: usize,
    /// Those of them that are in the oldest quarter of a history that is nearly full: they may be cut soon.
    pub endangered: usize,
    /// Number of watches in each part of the history, the oldest first; those that have everything are in the last one.
    pub columns: Vec<u32>,
}

impl Default for CursorSummary {
    fn default() -> Self {
        Self {
            watches: 0,
            current: 0,
            behind: 0,
            slow: 0,
            endangered: 0,
            columns: vec![0; COLUMNS],
        }
    }
}

/// The sequences of a history.
#[derive(Clone, Copy, Debug)]
pub struct HistoryRange {
    /// The oldest event.
    pub oldest: u64,
    /// One past the newest event.
    pub head: u64,
}

impl HistoryRange {
    /// Events from this one on, and where it is: 0 is the oldest, 1 is past the newest.
    #[must_use]
    pub fn locate(self, sequence: u64) -> (u64, f64) {
        let lag = self.head.saturating_sub(sequence.max(self.oldest));
        let len = self.head.saturating_sub(self.oldest);
        #[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
        let position = if len == 0 {
            1.0
        } else {
            1.0 - lag as f64 / len as f64
        };
        (lag, position)
    }
}

impl CursorSummary {
    /// Counts a watch that has everything.
    pub fn add_current(&mut self) {
        self.watches += 1;
        self.current += 1;
        if let Some(last) = self.columns.last_mut() {
            *last += 1;
        }
    }

    /// Counts a watch at this position whose first unread event has waited for so long; returns whether it is slow. A history that is
    /// not nearly full loses no events.
    pub fn add_behind(&mut self, (position, is_full): (f64, bool), lag_seconds: f64) -> bool {
        self.watches += 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 0 and the number of columns"
        )]
        let column = (position.clamp(0.0, 1.0) * COLUMNS as f64) as usize;
        self.columns[column.min(COLUMNS - 1)] += 1;
        let is_slow = lag_seconds > SLOW_SECONDS;
        if is_slow {
            self.slow += 1;
            self.endangered += usize::from(is_full && position < ENDANGERED);
        } else {
            self.behind += 1;
        }
        is_slow
    }
}

/// The clients that have waited longest, of all resources, and the slow ones by user and user agent.
#[derive(Debug, Default)]
pub struct NamedCursors {
    clients: Vec<ClientStatus>,
    /// Where the clients of the resource that is being added begin.
    resource_at: usize,
    groups: HashMap<(String, String), (usize, f64), foldhash::fast::RandomState>,
}

impl NamedCursors {
    /// Begins another resource.
    pub fn begin_resource(&mut self) {
        self.resource_at = self.clients.len();
    }

    /// Adds a client that is behind, if it is among those of its resource that have waited longest.
    pub fn add(&mut self, lag_seconds: f64, client: impl FnOnce() -> ClientStatus) {
        let of_resource = &mut self.clients[self.resource_at..];
        if of_resource.len() < NAMES_OF_RESOURCE_MAX {
            self.clients.push(client());
            return;
        }
        let least = of_resource
            .iter_mut()
            .min_by(|one, other| by_lag(one, other));
        if let Some(least) = least
            && least.lag_seconds < lag_seconds
        {
            *least = client();
        }
    }

    /// Counts a slow client in its group.
    pub fn add_slow(&mut self, user: &str, user_agent: &str, lag_seconds: f64) {
        let mut key = (user.to_owned(), user_agent.to_owned());
        if self.groups.len() >= GROUPS_COUNTED_MAX && !self.groups.contains_key(&key) {
            key = (String::new(), "(others)".to_owned());
        }
        let (watches, longest) = self.groups.entry(key).or_default();
        *watches += 1;
        *longest = longest.max(lag_seconds);
    }

    /// The clients and the groups that are shown, the slowest first.
    #[must_use]
    pub fn finish(self) -> (Vec<ClientStatus>, Vec<SlowGroup>) {
        let mut clients = self.clients;
        clients.sort_by(|one, other| by_lag(other, one));
        clients.truncate(NAMES_MAX);
        let groups = self.groups.into_iter();
        let mut groups: Vec<_> = groups
            .map(|((user, user_agent), (watches, lag_seconds))| SlowGroup {
                user,
                user_agent,
                watches,
                lag_seconds,
            })
            .collect();
        groups.sort_by(|one, other| {
            let name = |group: &SlowGroup| (group.user.clone(), group.user_agent.clone());
            let by_count = other.watches.cmp(&one.watches);
            by_count.then_with(|| name(one).cmp(&name(other)))
        });
        groups.truncate(GROUPS_MAX);
        (clients, groups)
    }
}

fn by_lag(one: &ClientStatus, other: &ClientStatus) -> Ordering {
    one.lag_seconds.total_cmp(&other.lag_seconds)
}

#[cfg(test)]
mod tests;
