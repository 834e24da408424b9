//! How a stream ends that cannot go on, and what is recorded of every end.

use tokio::time::Instant;

use super::{CursorStep, SentEvents, WatchCursor};
use crate::metrics::WatchEnd;
use crate::protocol::BufList;
use crate::protocol::status::Status;
use crate::watch::catch_up::can_catch_up;
use crate::watch::recorder::{WatchTotals, end_of_dropped};
use crate::watch::table::TableRegistration;

impl WatchCursor {
    /// Ends the stream at an event that cannot be projected to its format, as upstream does.
    pub(super) fn end_unprojectable(&mut self) -> CursorStep {
        self.lifetime.end = Some(WatchEnd::CacheGone);
        CursorStep::Over
    }

    /// Ends the stream of a client that fell out of the history. If it can catch up, it need not list: the stream ends without 410, and the
    /// client watches again from its last version. Clients expect that only of a stream that had events.
    pub(super) fn end_behind(&mut self) -> CursorStep {
        let can_catch_up = self.served.cache.keeps_tombstones() && can_catch_up(self.selector());
        if can_catch_up && self.sent.events > 0 {
            self.end_as(WatchEnd::Lagged);
            return CursorStep::Over;
        }
        CursorStep::Frame(self.end_lagged())
    }

    /// Ends the stream of a client that fell out of the history; returns its last event.
    pub(super) fn end_lagged(&mut self) -> BufList {
        self.lifetime.end = Some(WatchEnd::Lagged);
        self.expired_event()
    }

    pub(super) fn expired_event(&self) -> BufList {
        let cache = &self.served.cache;
        let floor = cache.snapshot().map_or(self.known, |snapshot| {
            crate::cache::floor(&snapshot, cache.history())
        });
        Status::expired_watch(self.known, floor)
            .error_event(self.view.encoding())
            .into()
    }
}

impl Drop for WatchCursor {
    fn drop(&mut self) {
        let end = self.lifetime.end.unwrap_or_else(end_of_dropped);
        let SentEvents { events, bytes, .. } = self.sent;
        if let Some(compression) = &self.compression {
            compression.ended(end == WatchEnd::ClientGone);
        }
        let place = self.place.as_ref();
        if let Some(place) = place {
            place.end(end, events, Instant::now().into_std());
            place.count_bytes(bytes);
        }
        self.recorder.ended(WatchTotals {
            end,
            client: place.map(TableRegistration::client),
            events,
            bytes,
        });
    }
}
