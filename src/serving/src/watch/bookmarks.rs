//! The schedule of a watch's bookmarks.

use std::time::Duration;

use tokio::time::Instant;

use crate::resource::ResourceVersion;

/// kube-apiserver's schedule: this long after the start or the previous bookmark, and before the deadline (docs/PROTOCOL.md §4.7).
const PERIOD: Duration = Duration::from_secs(60);
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct BookmarkSchedule {
    pub(super) next_at: Instant,
    /// The version that the watch started with; a bookmark must have a later one.
    pub(super) beyond: ResourceVersion,
}

impl BookmarkSchedule {
    pub(super) fn new(started: Instant, deadline: Instant, beyond: ResourceVersion) -> Self {
        Self {
            next_at: next_at(started, deadline),
            beyond,
        }
    }

    /// Schedules the next bookmark after `now`.
    pub(super) fn wait(&mut self, now: Instant, deadline: Instant) {
        self.next_at = next_at(now, deadline);
    }
}

/// 60 s from now, or 2 s before the deadline if that is earlier and still in the future.
fn next_at(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BEFORE_DEADLINE).unwrap_or(now);
    if last > now {
        last.min(now + PERIOD)
    } else {
        deadline + PERIOD
    }
}
