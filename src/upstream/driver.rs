//! Performs what the reflector decides: asks upstream, reads what comes, and hands it to the cache's writer.
//!
//! One driver, one task and one upstream watch per resource. It holds no opinion about the protocol: each outcome is
//! told to the reflector, and each effect that the reflector names is carried out.

mod ask;
mod batch;
mod compare;
mod lists;
mod probe;
mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use http_body::Body;

use super::backoff::Backoff;
use super::reflector::{Action, Input, Reflector, ReflectorOptions, RelistReason};
use crate::cache::{Applied, Writer};
use crate::decode::Bookmark;
use crate::resource::{FieldTable, Object, ObjectKey, ResourceKind, ResourceVersion};
pub use compare::{Census, census};
pub use probe::{Probe, ProbeError, probe};

/// Which connections a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request that ends.
    Read,
    /// A list of which only metadata will be read.
    ReadMetadata,
    /// A stream that stays open.
    Watch,
}

/// Upstream did not answer at all.
#[derive(Debug, thiserror::Error)]
#[error("upstream did not answer")]
pub struct FetchError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A way to ask upstream; tests have their own.
pub trait Fetch: Send + Sync + 'static {
    /// What answers consist of.
    type Body: Body<Data = Bytes, Error: fmt::Display + Send> + Send + Unpin;

    /// Sends a GET for JSON, uncompressed.
    fn get(
        &self,
        path_and_query: String,
        purpose: Purpose,
    ) -> impl Future<Output = Result<Response<Self::Body>, FetchError>> + Send;
}

/// What a driver tells of its work, for metrics and logs. Called from the driver's task.
pub trait DriverTally: Send + Sync + fmt::Debug {
    /// Bytes came.
    fn received(&self, bytes: usize);
    /// A batch was published.
    fn applied(&self, applied: Applied);
    /// A frame could not be used.
    fn rejected(&self, reason: FrameRejection);
    /// All objects were asked for.
    fn relisted(&self, reason: RelistReason);
    /// The watch is open, or no longer.
    fn connected(&self, connected: Connected);
    /// State after a batch or a tick.
    fn state(&self, state: DriverState);
    /// How bookmarks look upstream.
    fn bookmark(&self, object: &[u8], bookmark: &Bookmark);
}

/// Whether the watch upstream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connected {
    /// It is.
    Yes,
    /// It ended, in this way.
    No(StreamEnd),
}

/// How a watch upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Between two frames, as agreed.
    Clean,
    /// The connection broke, or went silent.
    Cut,
    /// With an ERROR event, or by giving up.
    Error,
    /// With a frame that cannot be used.
    Unreadable,
}

/// Why a frame could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRejection {
    /// Not what a watch event looks like.
    Unparsable,
    /// Longer than allowed.
    TooLong,
}

/// Sizes of what the driver fills.
#[derive(Clone, Copy, Debug)]
pub struct DriverState {
    /// Version of the state.
    pub version: ResourceVersion,
    /// Objects.
    pub objects: usize,
    /// Bytes of their lines.
    pub objects_len: usize,
    /// Events in the history.
    pub events: usize,
    /// Bytes in the history.
    pub bytes: usize,
    /// Age of the oldest part of the history.
    pub oldest_age: Duration,
}

/// Why a driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// Upstream no longer knows the resource.
    Gone,
    /// Upstream's versions went back, as after a restored backup: the cache must be built anew.
    WentBack,
}

/// Bounds of a driver.
#[derive(Clone, Copy, Debug)]
pub struct DriverLimits {
    /// Longest watch frame, bytes.
    pub frame_len_max: usize,
    /// How long a busy resource's events may be held back to be delivered together.
    pub coalesce_delay_max: Duration,
}

/// The driver of one resource.
#[derive(Debug)]
pub struct Driver<F> {
    fetch: Arc<F>,
    kind: ResourceKind,
    fields: FieldTable,
    reflector: Reflector,
    writer: Writer,
    limits: DriverLimits,
    tally: Arc<dyn DriverTally>,
    /// Initial data on its way; replaces the state when complete.
    side: BTreeMap<ObjectKey, Object>,
    /// Until then batches may grow, because watchers are busy with the last one.
    hold_until: Instant,
}

/// The runtime's clock, which is the one that waits go by: a test that stops it stops the driver.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Something made the driver give up.
type Stopped = DriverEnd;

impl<F: Fetch> Driver<F> {
    /// A driver that fills `writer`.
    #[must_use]
    pub fn new(
        fetch: Arc<F>,
        writer: Writer,
        options: ReflectorOptions,
        limits: DriverLimits,
        tally: Arc<dyn DriverTally>,
    ) -> Self {
        let kind = writer.cache().kind().clone();
        let fields = FieldTable::of(&kind.gvr);
        Self {
            fetch,
            kind,
            fields,
            reflector: Reflector::new(options).with_backoff(Backoff::brisk()),
            writer,
            limits,
            tally,
            side: BTreeMap::new(),
            hold_until: now(),
        }
    }

    /// Follows the resource until there is nothing left to follow. Dropping the future stops it at any point.
    pub async fn run(mut self) -> DriverEnd {
        loop {
            let step = match self.reflector.next_action(now(), crate::resource::random()) {
                Action::WaitUntil(at) => {
                    self.rest_until(at).await;
                    Ok(())
                }
                Action::List {
                    resource_version,
                    continue_token,
                    limit,
                    reason,
                } => {
                    let first = continue_token.is_none();
                    if first {
                        self.tally.relisted(reason);
                    }
                    self.list(resource_version, continue_token, limit).await
                }
                Action::WatchList {
                    resource_version,
                    reason,
                } => {
                    self.tally.relisted(reason);
                    self.side.clear();
                    self.watch(ask::watch_list(&self.kind.gvr, resource_version))
                        .await
                }
                Action::Watch { after } => self.watch(ask::watch(&self.kind.gvr, after)).await,
                Action::Stop(_) => Err(DriverEnd::Gone),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn rest_until(&mut self, at: Instant) {
        tokio::time::sleep_until(at.into()).await;
        self.writer.expire(now());
        self.tell_state();
    }

    fn tell_state(&self) {
        let Some(snapshot) = self.writer.cache().snapshot() else {
            return;
        };
        let (events, bytes, oldest_at) = self.writer.history_size();
        self.tally.state(DriverState {
            version: snapshot.resource_version,
            objects: snapshot.objects.len(),
            objects_len: self.writer.objects_len(),
            events,
            bytes,
            oldest_age: oldest_at.map_or(Duration::ZERO, |at| now().saturating_duration_since(at)),
        });
    }

    /// Puts the side buffer in place of the state.
    fn replace(&mut self, version: ResourceVersion) -> Result<(), Stopped> {
        let objects = std::mem::take(&mut self.side).into_values().collect();
        let applied = self
            .writer
            .replace(objects, version, now())
            .map_err(|_| DriverEnd::WentBack)?;
        self.tally.applied(applied);
        self.tell_state();
        Ok(())
    }

    fn observe(&mut self, input: Input) -> super::reflector::Effect {
        self.reflector.observe(input, now())
    }
}

#[cfg(test)]
mod tests;
