//! Where the watches of a cache are in its history: columns to draw, numbers, and the names of those that wait longest.

use std::cmp::Ordering;

use hashbrown::HashMap;
use serde::Serialize;

use super::clients::{ClientStatus, LagState, SlowGroup};

/// Columns of the picture, from the oldest event to the newest.
const COLUMNS: usize = 64;
/// Watches that have waited for longer than this are slow.
const SLOW_SECONDS: f64 = 5.0;
/// The oldest part of a history that is nearly full: a watch there may be cut soon.
const ENDANGERED: f64 = 0.25;
/// A history that has more than this part of what it may have is nearly full. An event that has more than this part of the age at which it
/// is dropped is old.
const NEARLY: f64 = 0.75;
/// Named clients of one resource.
const NAMES_OF_RESOURCE_MAX: usize = 8;
/// Named clients in all.
const NAMES_MAX: usize = 100;
/// Groups of slow clients in the document.
const GROUPS_MAX: usize = 20;
/// Groups that are counted to find these; clients of further groups count as one group without a name.
const GROUPS_COUNTED_MAX: usize = 1_000;

/// Where the watches of a cache are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CursorSummary {
    /// Open watches.
    pub watches: usize,
    /// Those that have everything that their connection could take.
    pub current: usize,
    /// Those that are behind, but not slow.
    pub behind: usize,
    /// Those whose first unread event has waited for more than five seconds, or is lost.
    pub slow: usize,
    /// Those of them whose first unread event the history may soon drop: they may be cut soon.
    pub endangered: usize,
    /// Those of the slow ones whose first unread event the history has dropped: they are cut as soon as their connection takes something.
    pub lost: usize,
    /// Those of the current ones that wait for a version that is still in the future.
    pub future: usize,
    /// Those of the others that have not taken all of their initial events.
    pub initial: usize,
    /// Number of watches in each part of the history, the oldest first; those that have everything are in the last one, and lost ones are in
    /// none.
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
            lost: 0,
            future: 0,
            initial: 0,
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
    /// Events from this one on, whether they are still there or not, and where it is: 0 is the oldest, 1 is past the newest.
    #[must_use]
    pub fn locate(self, sequence: u64) -> (u64, f64) {
        let lag = self.head.saturating_sub(sequence);
        let len = self.head.saturating_sub(self.oldest);
        #[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
        let position = if len == 0 {
            1.0
        } else {
            1.0 - lag.min(len) as f64 / len as f64
        };
        (lag, position)
    }
}

/// What makes a history drop its oldest events.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// How full it is, between 0 and 1. A full one drops an event for each new one.
    pub fill: f64,
}

/// How far a watch is behind.
#[derive(Clone, Copy, Debug)]
pub struct WatchLag {
    /// Where it is in the history: 0 is the oldest event, 1 the newest.
    pub position: f64,
    /// How long the first unread event has waited.
    pub seconds: f64,
    /// Whether the history has dropped that event.
    pub is_lost: bool,
    /// Whether it has not taken all of its initial events.
    pub is_initial: bool,
}

impl HistoryLimits {
    /// How badly a watch is behind. A history that is not nearly full drops events only while memory is short.
    fn state(self, lag: WatchLag) -> LagState {
        let is_near_edge = self.fill > NEARLY && lag.position < ENDANGERED;
        if lag.is_lost {
            LagState::Lost
        } else if lag.seconds <= SLOW_SECONDS {
            LagState::Behind
        } else if is_near_edge {
            LagState::Endangered
        } else {
            LagState::Slow
        }
    }
}

impl CursorSummary {
    /// Counts a watch that waits for a version that is still in the future. It has all that there is.
    pub fn add_future(&mut self) {
        self.add_current();
        self.future += 1;
    }

    /// Counts a watch that has everything.
    pub fn add_current(&mut self) {
        self.watches += 1;
        self.current += 1;
        if let Some(last) = self.columns.last_mut() {
            *last += 1;
        }
    }

    /// Counts a watch that is behind; returns how badly.
    pub fn add_behind(&mut self, limits: HistoryLimits, lag: WatchLag) -> LagState {
        self.watches += 1;
        self.initial += usize::from(lag.is_initial);
        let state = limits.state(lag);
        match state {
            LagState::Behind => self.behind += 1,
            LagState::Slow | LagState::Endangered | LagState::Lost => self.slow += 1,
        }
        self.endangered += usize::from(state == LagState::Endangered);
        if state == LagState::Lost {
            self.lost += 1;
            return state;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "between 0 and the number of columns"
        )]
        let column = (lag.position.clamp(0.0, 1.0) * COLUMNS as f64) as usize;
        self.columns[column.min(COLUMNS - 1)] += 1;
        state
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
