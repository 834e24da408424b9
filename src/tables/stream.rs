//! One upstream watch of Tables and what is kept of it, for all clients that ask alike.

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
use crate::decode::{Frames, TableLine, scan_table};
use crate::metrics::TableMetrics;
use crate::resource::{Encoding, ResourceVersion};
use crate::upstream::backoff::Backoff;
use crate::upstream::client::{Client, RequestBody, ResponseBody};
use crate::view::WaiterList;

/// What is kept for those who come later or read slowly. A row with its object's metadata has a few kilobytes.
const RETENTION: Retention = Retention {
    segment_slots: 32,
    events_min: 0,
    events_max: 1024,
    bytes_max: 1 << 20,
    age_min: Duration::from_secs(60),
};
/// Bookmarks come every minute where anything happens at all; after so long without one the watch is asked for again,
/// which costs little.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// How far a stream is.
#[derive(Clone, Debug)]
pub(super) enum TableStreamPhase {
    /// Upstream has not answered yet.
    Opening,
    /// It has granted the watch, with these warnings.
    Open(Arc<[HeaderValue]>),
    /// It has not: each client's own request shall get its own answer.
    Refused,
}

/// Why a stream is over.
#[derive(Clone, Debug)]
pub(super) enum TableStreamEnd {
    /// As watches end.
    Closed,
    /// With an ERROR event, when upstream was asked to go on after this version.
    Error { line: Bytes, after: ResourceVersion },
}

/// What clients hold of a stream.
#[derive(Debug)]
pub(super) struct TableStream {
    pub(super) key: Key,
    start: ResourceVersion,
    history: Arc<Ring<StoredTableEvent>>,
    /// As upstream wrote them into its first event.
    columns: OnceLock<Bytes>,
    waiting: Arc<WaiterList>,
    phase: watch::Sender<TableStreamPhase>,
    watchers: watch::Sender<usize>,
    end: OnceLock<TableStreamEnd>,
}

impl TableStream {
    /// A stream that begins after `start`, and its writer.
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
            waiting: Arc::default(),
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

    pub(super) fn waiting(&self) -> &Arc<WaiterList> {
        &self.waiting
    }

    pub(super) fn end(&self) -> Option<&TableStreamEnd> {
        self.end.get()
    }

    /// Whether a client that knows everything up to `after` can join.
    pub(super) fn covers(&self, after: ResourceVersion) -> bool {
        self.end().is_none() && covers(&self.history, self.start, after)
    }

    /// Ends it for all its clients. The first end counts.
    pub(super) fn close(&self, end: TableStreamEnd) {
        // Ended twice is ended.
        let _ = self.end.set(end);
        self.phase.send_if_modified(|phase| {
            let is_opening = matches!(phase, TableStreamPhase::Opening);
            if is_opening {
                *phase = TableStreamPhase::Refused;
            }
            is_opening
        });
        self.waiting.wake_all(&mut Vec::new());
    }

    /// Waits for upstream's answer, which has a time limit.
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

    /// Completes when nobody has watched for `idle`. Safe to cancel.
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

/// One client's hold on a stream.
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

/// Keeps a stream going: asks upstream, and again from where it was when upstream ends it.
pub(super) struct TableStreamKeeper {
    pub(super) stream: Arc<TableStream>,
    pub(super) writer: RingWriter<StoredTableEvent>,
    pub(super) client: Arc<Client>,
    pub(super) metrics: TableMetrics,
    pub(super) frame_len_max: usize,
}

/// How one watch upstream went.
enum UpstreamWatchOutcome {
    /// It ended, as watches do.
    Ended,
    /// It broke, or upstream cannot answer now.
    Broken,
    /// Nothing more can come.
    For(TableStreamEnd),
}

impl TableStreamKeeper {
    /// Runs until nothing more can come. Safe to cancel: then the stream must be closed by whoever does.
    pub(super) async fn run(mut self) {
        let mut reached = self.stream.start;
        let mut backoff = Backoff::brisk();
        while self.stream.end().is_none() {
            match self.watch(&mut reached).await {
                UpstreamWatchOutcome::Ended => backoff.succeeded(),
                UpstreamWatchOutcome::Broken => {}
                UpstreamWatchOutcome::For(end) => {
                    debug!(resource = %self.stream.key.gvr, ?end, "shared table watch ended");
                    return self.stream.close(end);
                }
            }
            // Also after an orderly end: a server that ends watches at once must not be asked without pause.
            let wait = backoff.next(Instant::now().into_std(), crate::resource::random());
            tokio::time::sleep(wait).await;
        }
    }

    async fn watch(&mut self, reached: &mut ResourceVersion) -> UpstreamWatchOutcome {
        let is_first = matches!(*self.stream.phase.borrow(), TableStreamPhase::Opening);
        let response = match self.ask(*reached).await {
            Some(response) if is_granted(&response) => response,
            // Nobody has been answered yet: let each ask for itself.
            _ if is_first => return UpstreamWatchOutcome::For(TableStreamEnd::Closed),
            Some(response) if is_final(response.status()) => {
                return UpstreamWatchOutcome::For(TableStreamEnd::Closed);
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
        self.read(response.into_body(), reached).await
    }

    async fn ask(&self, after: ResourceVersion) -> Option<Response<ResponseBody>> {
        let key = &self.stream.key;
        let request = Request::get(key.uri(after)?)
            .header(ACCEPT, key.accept())
            .body(RequestBody::Empty)
            .ok()?;
        self.metrics.requests.inc();
        match self.client.send_watch(request).await {
            Ok(response) => Some(response),
            Err(error) => {
                debug!(resource = %key.gvr, %error, "a table watch cannot be asked for");
                None
            }
        }
    }

    async fn read(
        &mut self,
        mut body: ResponseBody,
        reached: &mut ResourceVersion,
    ) -> UpstreamWatchOutcome {
        let mut framer = Frames::new(Encoding::Json, self.frame_len_max);
        let mut wakers = Vec::new();
        loop {
            // Losing the wait loses no bytes: frames are whole when they come.
            let Ok(frame) = tokio::time::timeout(SILENCE_MAX, body.frame()).await else {
                return UpstreamWatchOutcome::Ended;
            };
            let chunk = match frame {
                None => return UpstreamWatchOutcome::Ended,
                Some(Err(_)) => return UpstreamWatchOutcome::Broken,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            framer.push(&chunk);
            let over = self.take_lines(&mut framer, reached);
            self.stream.waiting.wake_all(&mut wakers);
            if let Err(end) = over {
                return UpstreamWatchOutcome::For(end);
            }
        }
    }

    fn take_lines(
        &mut self,
        framer: &mut Frames,
        reached: &mut ResourceVersion,
    ) -> Result<(), TableStreamEnd> {
        loop {
            match framer.next_frame() {
                Ok(Some(line)) => self.take_line(&Bytes::copy_from_slice(line), reached)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.unreadable(&error)),
            }
        }
    }

    fn take_line(
        &mut self,
        line: &Bytes,
        reached: &mut ResourceVersion,
    ) -> Result<(), TableStreamEnd> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let event = match scan_table(text) {
            Ok(TableLine::Event(event)) => event,
            Ok(TableLine::Error) => {
                return Err(TableStreamEnd::Error {
                    line: line.clone(),
                    after: *reached,
                });
            }
            Err(error) => return Err(self.unreadable(&error)),
        };
        if event.resource_version < *reached {
            return Err(self.unreadable(&"versions went back"));
        }
        let (kept, columns) = StoredTableEvent::new(line, &event);
        // Before the event that they came with can be read.
        if let Some(columns) = columns
            && *self.stream.columns.get_or_init(|| columns.clone()) != columns
        {
            // Cells mean something else from here on, and a stream tells its columns once.
            return Err(TableStreamEnd::Closed);
        }
        *reached = event.resource_version;
        let len = kept.len();
        self.writer.append(kept, len, Instant::now().into_std());
        Ok(())
    }

    fn unreadable(&self, cause: &dyn std::fmt::Display) -> TableStreamEnd {
        warn!(resource = %self.stream.key.gvr, %cause, "a table watch cannot be read");
        TableStreamEnd::Closed
    }
}

/// An upstream watch, counted while it is open.
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

fn is_granted(response: &Response<ResponseBody>) -> bool {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    response.status() == StatusCode::OK && response.headers().get(CONTENT_TYPE).is_some_and(is_json)
}

/// Whether asking again is of no use.
fn is_final(status: StatusCode) -> bool {
    let may_pass = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_client_error() && !may_pass.contains(&status)
}
