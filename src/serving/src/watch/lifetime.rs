//! When a watch began, and when it has something to do or ends, whatever its events are.

use tokio::time::Instant;

use super::bookmarks::BookmarkSchedule;
use super::start::Timing;
use crate::metrics::WatchEnd;
use crate::resource::ResourceVersion;

/// The times of one stream.
#[derive(Debug)]
pub(super) struct WatchLifetime {
    /// Events that arrived earlier do not count as delayed.
    pub(super) opened_at: std::time::Instant,
    pub(super) deadline: Instant,
    /// When the stream ends once its client has all events, and as what; the view's schedule or the connection's recall sets it.
    pub(super) end_at: Option<(Instant, WatchEnd)>,
    /// When the stream ends because upstream answers its client now.
    pub(super) switch_at: Option<Instant>,
    pub(super) end: Option<WatchEnd>,
    pub(super) bookmarks: Option<BookmarkSchedule>,
}

impl WatchLifetime {
    /// The times of a stream whose client knows everything up to a version.
    pub(super) fn new(timing: Timing, known: ResourceVersion) -> Self {
        let deadline = timing.started + timing.timeout;
        Self {
            opened_at: timing.started.into_std(),
            deadline,
            end_at: None,
            switch_at: None,
            end: None,
            bookmarks: (timing.bookmarks)
                .then(|| BookmarkSchedule::new(timing.started, deadline, known)),
        }
    }

    /// The end that is due at `now`.
    pub(super) fn due_end(&self, now: Instant) -> Option<WatchEnd> {
        let switch = self.switch_at.map(|at| (at, WatchEnd::SwitchOver));
        let ends = [self.end_at, switch].into_iter().flatten();
        let due = ends.filter(|(at, _)| *at <= now);
        due.min_by_key(|(at, _)| *at).map(|(_, end)| end)
    }

    /// The next bookmark, the scheduled end or the deadline.
    pub(super) fn wake_at(&self) -> Instant {
        let bookmark = self.bookmarks.as_ref().map(|bookmarks| bookmarks.next_at);
        let times = [bookmark, self.end_at.map(|(at, _)| at), self.switch_at];
        times
            .into_iter()
            .flatten()
            .fold(self.deadline, Instant::min)
    }
}
