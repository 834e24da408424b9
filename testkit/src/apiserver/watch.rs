//! Watches: each pulls its events from the shared history, at its client's pace. Nothing is queued for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::history::EventsAfter;
use super::list::{bookmark, select};
use super::object::{EventType, Form, Object};
use super::query::{Consistency, ListOptions, WatchStart};
use super::selector::Selector;
use super::status::Status;
use super::view::View;

/// The lifetime of a watch that asks for none: from half an hour to an hour.
const LIFETIME_SECONDS_MIN: u64 = 1_800;
/// The time between two bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How long before a watch's deadline it gets its last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Some open watches, which can be ended together.
#[derive(Debug)]
pub(super) struct WatchGroup {
    open: AtomicUsize,
    ended: watch::Sender<bool>,
}

impl WatchGroup {
    pub(super) fn new() -> Self {
        Self {
            open: AtomicUsize::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// The number of open watches. Relaxed: tests wait until it is what they expect.
    pub(super) fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Ends the watches between two events.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }
}

/// What a watch asks for.
pub(super) struct WatchRequest {
    pub(super) kind_index: usize,
    pub(super) selector: Selector,
    pub(super) form: Form,
    pub(super) options: ListOptions,
    /// Whether the path has the deprecated `watch` segment.
    pub(super) is_prefixed: bool,
}

/// An open watch.
pub(super) struct Watch {
    view: Arc<View>,
    request: WatchRequest,
    group: Arc<WatchGroup>,
    /// Lines that are to be sent next.
    lines: VecDeque<Bytes>,
    /// The objects of the initial state that are left.
    initial: std::vec::IntoIter<Arc<Object>>,
    /// The marker that follows them.
    marker: Option<Bytes>,
    /// The version up to which everything was taken from the history.
    position: u64,
    /// The version of the last bookmark, or of the start.
    bookmarked: u64,
    next_bookmark: Instant,
    deadline: Instant,
    is_over: bool,
    changed: watch::Receiver<()>,
    frozen: watch::Receiver<Option<u64>>,
    ended: watch::Receiver<bool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.group.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watch {
    /// Opens a watch, after the version that it needs was reached. A failure after the checks is an ERROR event.
    ///
    /// # Errors
    /// 422 or 500 for options that are not legal.
    pub(super) async fn open(
        view: Arc<View>,
        group: Arc<WatchGroup>,
        request: WatchRequest,
        random: u64,
    ) -> Result<Self, Status> {
        let start = request.options.watch(request.is_prefixed)?;
        let now = Instant::now();
        let lifetime = match request.options.timeout_seconds {
            0 => LIFETIME_SECONDS_MIN + random % LIFETIME_SECONDS_MIN,
            seconds => u64::try_from(seconds).unwrap_or(0),
        };
        // A century is as good as forever, and no time that tokio cannot represent.
        let deadline = now + Duration::from_secs(lifetime.min(3_000_000_000));
        group.open.fetch_add(1, Ordering::Relaxed);
        let mut watch = Self {
            changed: view.subscribe(request.kind_index),
            frozen: view.frozen(),
            ended: group.ended.subscribe(),
            lines: VecDeque::new(),
            initial: Vec::new().into_iter(),
            marker: None,
            position: 0,
            bookmarked: 0,
            next_bookmark: next_bookmark(now, deadline),
            deadline,
            is_over: deadline <= now,
            group,
            view,
            request,
        };
        if let Err(status) = watch.start(start).await {
            watch.fail(&status);
        }
        Ok(watch)
    }

    async fn start(&mut self, start: WatchStart) -> Result<(), Status> {
        let kind_index = self.request.kind_index;
        match start {
            WatchStart::After(version) => {
                self.view.check_start(kind_index, version)?;
                self.position = version;
            }
            WatchStart::Now => self.position = self.view.events_after(kind_index, u64::MAX).reached,
            WatchStart::Initial {
                consistency,
                has_marker,
            } => self.start_with_objects(consistency, has_marker).await?,
        }
        self.bookmarked = self.position;
        Ok(())
    }

    async fn start_with_objects(
        &mut self,
        consistency: Consistency,
        has_marker: bool,
    ) -> Result<(), Status> {
        self.view.wait_for(consistency).await?;
        let WatchRequest {
            kind_index,
            selector,
            form,
            ..
        } = &self.request;
        let kind = self.view.store.catalogue().kind(*kind_index);
        let read = self.view.read(*kind_index, None, |objects, version| {
            (select(kind, objects, selector, ""), version)
        });
        // Only a view that has stood still for longer than the history has lost its own state.
        let lost = || Status::version_too_large(self.view.store.revision(), 0);
        let (objects, version) = read.ok_or_else(lost)?;
        self.position = version;
        self.marker = has_marker.then(|| bookmark(kind, *form, version, true));
        self.initial = objects.into_iter();
        Ok(())
    }

    fn fail(&mut self, status: &Status) {
        self.lines.push_back(status.error_event());
        self.is_over = true;
    }

    /// The lines of the watch, until its end.
    pub(super) fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        futures::stream::unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.is_over || *self.ended.borrow() || self.deadline <= Instant::now() {
                return None;
            }
            if let Some(object) = self.initial.next() {
                return Some(object.line(EventType::Added, self.request.form));
            }
            if let Some(marker) = self.marker.take() {
                return Some(marker);
            }
            if !self.take_events() {
                return None;
            }
            self.bookmark_if_due();
            if self.lines.is_empty() {
                self.wait().await;
            }
        }
    }

    /// Takes the next events from the history. Returns false if the client is so slow that they are gone.
    fn take_events(&mut self) -> bool {
        let kind_index = self.request.kind_index;
        // Before the history is read, so that what is logged afterwards is noticed.
        self.changed.mark_unchanged();
        self.frozen.mark_unchanged();
        loop {
            let new = self.view.events_after(kind_index, self.position);
            let EventsAfter::Events(events) = new.events else {
                return false;
            };
            let Some(last) = events.last() else {
                self.position = self.position.max(new.reached);
                return true;
            };
            self.position = last.version();
            let kind = self.view.store.catalogue().kind(kind_index);
            let selector = &self.request.selector;
            for event in &events {
                let line = event.line(kind, self.request.form, |object| selector.matches(object));
                self.lines.extend(line);
            }
            if !self.lines.is_empty() {
                return true;
            }
        }
    }

    /// Sends a bookmark if one is due and says something new.
    fn bookmark_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next_bookmark {
            return;
        }
        // Also without bookmarks: a time that has passed would keep `wait` from waiting.
        self.next_bookmark = next_bookmark(now, self.deadline);
        if self.request.options.allows_bookmarks && self.position > self.bookmarked {
            let kind = self.view.store.catalogue().kind(self.request.kind_index);
            let line = bookmark(kind, self.request.form, self.position, false);
            self.lines.push_back(line);
            self.bookmarked = self.position;
        }
    }

    /// Waits for an event, the time of a bookmark, or an end.
    async fn wait(&mut self) {
        tokio::select! {
            _ = self.changed.changed() => {}
            _ = self.frozen.changed() => {}
            _ = self.ended.changed() => {}
            () = sleep_until(self.next_bookmark.min(self.deadline)) => {}
        }
    }
}

/// Bookmarks are sent in every period, and once more shortly before the end.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let periodic = now + BOOKMARK_PERIOD;
    match deadline.checked_sub(LAST_BOOKMARK) {
        Some(last) if last > now => periodic.min(last),
        _ => periodic,
    }
}
