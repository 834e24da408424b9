//! One upstream watch of Tables and its recent events, shared by all clients with the same parameters.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WARNING};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::event::{StoredTableEvent, covers};
use super::request::Key;
use crate::cache::{Retention, Ring, RingWriter};
use crate::decode::{Frames, TableLine, WatchLine, scan_table, scan_watch};
use crate::fairness::Permit;
use crate::metrics::TableMetrics;
use crate::resource::{Encoding, FieldTable, Gvr, ResourceVersion};
use crate::upstream::backoff::Backoff;
use crate::upstream::client::{Client, RequestBody, ResponseBody};
use crate::view::WaiterList;

/// What is stored for clients that join later or read slowly. A row with its object's metadata has a few kilobytes.
const RETENTION: Retention = Retention {
    segment_slots: 32,
    events_min: 0,
    events_max: 1024,
    bytes_max: 1 << 20,
    age_max: Duration::from_secs(60),
};
/// Bookmarks come about every minute unless nothing happens in the cluster. After this time without any data the watch is requested again,
/// which costs little.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// Tells, once upstream has begun to answer a request for a resource, whether the answer is kube-apiserver's own; if not, or if that cannot
/// be told, why.
pub type OriginCheck =
    Arc<dyn Fn(&Gvr) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// The phase of a stream.
#[derive(Clone, Debug)]
pub(super) enum TableStreamPhase {
    /// Upstream has not answered yet.
    Opening,
    /// Upstream has accepted the watch, with these warnings.
    Open(Arc<[HeaderValue]>),
    /// Upstream has refused the watch: each client's request is forwarded instead.
    Refused,
}

/// Why a stream has ended.
#[derive(Clone, Debug)]
pub(super) enum TableStreamEnd {
    /// Without an error.
    Closed,
    /// The resource's versions mean nothing any more: its clients must list again.
    Expired,
    /// The same, because upstream's events cannot be read. Watches with the same parameters are forwarded from now on.
    Unreadable,
    /// With an ERROR event from upstream, for a watch after this version.
    Error { line: Bytes, after: ResourceVersion },
}

/// The part of a stream that its clients share.
#[derive(Debug)]
pub(super) struct TableStream {
    pub(super) key: Key,
    start: ResourceVersion,
    history: Arc<Ring<StoredTableEvent>>,
    /// The column definitions of upstream's first event.
    columns: OnceLock<Bytes>,
    waiters: Arc<WaiterList>,
    phase: watch::Sender<TableStreamPhase>,
    watchers: watch::Sender<usize>,
    end: OnceLock<TableStreamEnd>,
}

impl TableStream {
    /// A stream that starts after `start`, and the writer of its ring.
    pub(super) fn new(
        key: Key,
        start: ResourceVersion,
    ) -> (Arc<Self>, RingWriter<StoredTableEvent>) {
        let writer = RingWriter::new(RETENTION);
        let stream = Self {
            key,
            start,
            history: Arc::clone(writer.ring()),
            columns: OnceLock::new(),
            waiters: Arc::default(),
            phase: watch::Sender::new(TableStreamPhase::Opening),
            watchers: watch::Sender::new(0),
            end: OnceLock::new(),
        };
        (Arc::new(stream), writer)
    }

    pub(super) fn history(&self) -> &Ring<StoredTableEvent> {
        &self.history
    }

    pub(super) fn columns(&self) -> Option<&Bytes> {
        self.columns.get()
    }

    pub(super) fn waiters(&self) -> &Arc<WaiterList> {
        &self.waiters
    }

    pub(super) fn end(&self) -> Option<&TableStreamEnd> {
        self.end.get()
    }

    /// Whether a client that knows everything up to `after` can join.
    pub(super) fn covers(&self, after: ResourceVersion) -> bool {
        self.end().is_none() && covers(&self.history, self.start, after)
    }

    /// Ends the stream for all clients. Only the first end counts.
    pub(super) fn close(&self, end: TableStreamEnd) {
        // Fails if the stream has ended already.
        let _ = self.end.set(end);
        self.phase.send_if_modified(|phase| {
            let is_opening = matches!(phase, TableStreamPhase::Opening);
            if is_opening {
                *phase = TableStreamPhase::Refused;
            }
            is_opening
        });
        self.waiters.wake_all(&mut Vec::new());
    }

    /// Waits for upstream's response, which has a time limit.
    pub(super) async fn settled(&self) -> TableStreamPhase {
        let mut phase = self.phase.subscribe();
        let settled = phase
            .wait_for(|phase| !matches!(phase, TableStreamPhase::Opening))
            .await;
        settled.map_or(TableStreamPhase::Refused, |phase| phase.clone())
    }

    pub(super) fn is_watched(&self) -> bool {
        *self.watchers.borrow() > 0
    }

    /// Completes when the stream has had no client for `idle`. Safe to cancel.
    pub(super) async fn unwatched_for(&self, idle: Duration) {
        let mut watchers = self.watchers.subscribe();
        loop {
            // The channel cannot close: the stream itself holds its sender.
            let _ = watchers.wait_for(|count| *count == 0).await;
            let again = watchers.wait_for(|count| *count > 0);
            if tokio::time::timeout(idle, again).await.is_err() {
                return;
            }
        }
    }
}

/// A client's membership in a stream; dropping it ends the membership.
#[derive(Debug)]
pub(super) struct StreamMember(Arc<TableStream>);

impl StreamMember {
    pub(super) fn of(stream: &Arc<TableStream>) -> Self {
        stream.watchers.send_modify(|count| *count += 1);
        Self(Arc::clone(stream))
    }

    pub(super) fn stream(&self) -> &Arc<TableStream> {
        &self.0
    }
}

impl Drop for StreamMember {
    fn drop(&mut self) {
        self.0.watchers.send_modify(|count| *count -= 1);
    }
}

/// Feeds a stream: watches upstream, and resumes at the last version when upstream ends the watch.
pub(super) struct TableStreamKeeper {
    pub(super) stream: Arc<TableStream>,
    pub(super) writer: RingWriter<StoredTableEvent>,
    pub(super) client: Arc<Client>,
    pub(super) metrics: TableMetrics,
    pub(super) frame_len_max: usize,
    pub(super) origin_check: OriginCheck,
    /// The client that started the stream pays for it while it lasts.
    pub(super) _permit: Permit,
}

/// How one upstream watch ended.
enum UpstreamWatchOutcome {
    /// It ended normally.
    Ended,
    /// It failed, or upstream cannot answer now.
    Broken,
    /// The stream cannot continue.
    Final(TableStreamEnd),
}

impl TableStreamKeeper {
    /// Runs until the stream cannot continue. Safe to cancel; then the caller must close the stream.
    pub(super) async fn run(mut self) {
        let mut version = self.stream.start;
        let mut backoff = Backoff::brisk();
        while self.stream.end().is_none() {
            match self.watch(&mut version).await {
                UpstreamWatchOutcome::Ended => backoff.succeeded(),
                UpstreamWatchOutcome::Broken => {}
                UpstreamWatchOutcome::Final(end) => {
                    debug!(resource = %self.stream.key.gvr, ?end, "shared table watch ended");
                    return self.stream.close(end);
                }
            }
            // The pause also follows a normal end: an upstream that ends watches at once must not be called in a tight loop.
            let wait = backoff.next(Instant::now().into_std(), crate::resource::random());
            tokio::time::sleep(wait).await;
        }
    }

    async fn watch(&mut self, version: &mut ResourceVersion) -> UpstreamWatchOutcome {
        let is_first = matches!(*self.stream.phase.borrow(), TableStreamPhase::Opening);
        let response = match self.request_watch(*version).await {
            Some(response) if is_accepted(&response) => response,
            // No client has an answer yet: forward each client's request.
            _ if is_first => return UpstreamWatchOutcome::Final(TableStreamEnd::Closed),
            Some(response) if is_final(response.status()) => {
                return UpstreamWatchOutcome::Final(TableStreamEnd::Closed);
            }
            _ => return UpstreamWatchOutcome::Broken,
        };
        if is_first {
            let warnings = response.headers().get_all(WARNING).iter().cloned();
            self.stream
                .phase
                .send_replace(TableStreamPhase::Open(warnings.collect()));
        }
        let _open = OpenWatchGuard::count(&self.metrics);
        self.read(response.into_body(), version).await
    }

    async fn request_watch(&self, after: ResourceVersion) -> Option<Response<ResponseBody>> {
        let key = &self.stream.key;
        let request = Request::get(key.uri(after)?)
            .header(ACCEPT, key.accept())
            .body(RequestBody::Empty)
            .ok()?;
        self.metrics.requests.inc();
        match self.client.send_watch(request).await {
            Ok(response) => match (self.origin_check)(&key.gvr).await {
                Ok(()) => Some(response),
                Err(reason) => {
                    debug!(resource = %key.gvr, reason, "a table watch is not shared");
                    None
                }
            },
            Err(error) => {
                debug!(resource = %key.gvr, %error, "cannot request a table watch");
                None
            }
        }
    }

    async fn read(
        &mut self,
        mut body: ResponseBody,
        version: &mut ResourceVersion,
    ) -> UpstreamWatchOutcome {
        let mut framer = Frames::new(Encoding::Json, self.frame_len_max);
        let mut wakers = Vec::new();
        loop {
            // The timeout loses no bytes: the body returns whole frames.
            let Ok(frame) = tokio::time::timeout(SILENCE_MAX, body.frame()).await else {
                return UpstreamWatchOutcome::Ended;
            };
            let chunk = match frame {
                None => return UpstreamWatchOutcome::Ended,
                Some(Err(_)) => return UpstreamWatchOutcome::Broken,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            framer.push(&chunk);
            let outcome = self.append_lines(&mut framer, version);
            self.stream.waiters.wake_all(&mut wakers);
            if let Err(end) = outcome {
                return UpstreamWatchOutcome::Final(end);
            }
        }
    }

    fn append_lines(
        &mut self,
        framer: &mut Frames,
        version: &mut ResourceVersion,
    ) -> Result<(), TableStreamEnd> {
        loop {
            match framer.next_frame() {
                Ok(Some(line)) => self.append_line(&Bytes::copy_from_slice(line), version)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.unreadable(&error)),
            }
        }
    }

    fn append_line(
        &mut self,
        line: &Bytes,
        version: &mut ResourceVersion,
    ) -> Result<(), TableStreamEnd> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let (stored, columns) = match scan_table(text) {
            Ok(TableLine::Event(event)) => StoredTableEvent::new(line, &event),
            Ok(TableLine::Error) => {
                return Err(TableStreamEnd::Error {
                    line: line.clone(),
                    after: *version,
                });
            }
            Err(error) => match plain_event(line, text) {
                Some(stored) => (stored, None),
                None => return Err(self.unreadable(&error)),
            },
        };
        if stored.version < *version {
            return Err(self.unreadable(&"versions went back"));
        }
        // The columns must be set before clients can read the event that they came with.
        if let Some(columns) = columns
            && *self.stream.columns.get_or_init(|| columns.clone()) != columns
        {
            // From here on, cells have another meaning, and a client gets the columns only with its first event.
            return Err(TableStreamEnd::Closed);
        }
        *version = stored.version;
        let len = stored.len();
        self.writer.append(stored, len, Instant::now().into_std());
        Ok(())
    }

    fn unreadable(&self, cause: &dyn std::fmt::Display) -> TableStreamEnd {
        warn!(resource = %self.stream.key.gvr, %cause, "cannot read a table watch; such watches are forwarded from now on");
        // An end without a word would look like the end of the watch's time, and the next watch would be read in the same way.
        TableStreamEnd::Unreadable
    }
}

/// An event whose object is no Table. Servers that cannot render Tables send the objects themselves, and kubectl shows those, too.
fn plain_event(line: &Bytes, text: &[u8]) -> Option<StoredTableEvent> {
    match scan_watch(Encoding::Json, text, FieldTable::default()) {
        Ok(WatchLine::Event { parts, .. }) => {
            Some(StoredTableEvent::plain(line, parts.resource_version, false))
        }
        Ok(WatchLine::Bookmark(bookmark)) => Some(StoredTableEvent::plain(
            line,
            bookmark.resource_version,
            true,
        )),
        Ok(_) | Err(_) => None,
    }
}

/// Counts an upstream watch while it is open.
struct OpenWatchGuard(TableMetrics);

impl OpenWatchGuard {
    fn count(metrics: &TableMetrics) -> Self {
        metrics.watches.inc();
        Self(metrics.clone())
    }
}

impl Drop for OpenWatchGuard {
    fn drop(&mut self) {
        self.0.watches.dec();
    }
}

/// Whether this is a Table, or a watch of them.
pub(super) fn is_accepted(response: &Response<ResponseBody>) -> bool {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    response.status() == StatusCode::OK && response.headers().get(CONTENT_TYPE).is_some_and(is_json)
}

/// Whether repeating the request is useless.
pub(super) fn is_final(status: StatusCode) -> bool {
    let may_pass = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !may_pass.contains(&status)
}
