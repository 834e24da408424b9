//! Performs what the reflector decides: asks upstream, reads what comes, and hands it to a [`Sink`].
//!
//! One driver, one task and one upstream watch per collection. It holds no opinion about the protocol: each outcome is
//! told to the reflector, and each effect that the reflector names is carried out.

mod fault;
mod lists;
mod object_versions;
mod probe;
mod request;
mod sample;
mod scan;
mod stream;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http_body::Body;

use super::reflector::{Action, Effect, GiveUp, Input, ReflectorMachine, RelistReason, StopReason};
use super::sink::{Sink, UpstreamWentBack};
use crate::decode::Bookmark;
use crate::resource::{Encoding, FieldTable};
use fault::AttemptFailure;
pub use fault::{FailureReport, FrameRejection, RequestKind};
use lists::{PageAhead, UpstreamPageRequest};
pub use object_versions::{CENSUS_MAX, ObjectVersions, census};
pub use probe::{Probe, ProbeError, newest_version, offers_protobuf, probe};
pub use request::{Collection, escaped};
pub use sample::{Sample, SampleEntry, cluster_uid, sample};

/// Which connections a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// A request that ends.
    Read,
    /// A list of which only metadata will be read.
    ReadMetadata,
    /// A list of which only names and versions will be read.
    ReadVersions,
    /// A stream that stays open.
    Watch,
    /// The same, of which only metadata will be read.
    WatchMetadata,
}

/// Upstream did not answer at all.
#[derive(Debug, thiserror::Error)]
#[error("upstream did not answer")]
pub struct FetchError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A way to ask upstream; tests have their own.
pub trait Fetch: Send + Sync + 'static {
    /// What answers consist of.
    type Body: Body<Data = Bytes, Error: fmt::Display + Send> + Send + Unpin;

    /// Sends a GET for answers in this encoding, uncompressed.
    fn get(
        &self,
        path_and_query: String,
        purpose: RequestPurpose,
        encoding: Encoding,
    ) -> impl Future<Output = Result<Response<Self::Body>, FetchError>> + Send;
}

/// What a driver tells of its work, for metrics and logs. Called from the driver's task.
pub trait DriverRecorder: Send + Sync + fmt::Debug {
    /// Bytes came.
    fn received(&self, bytes: usize);
    /// A frame could not be used.
    fn rejected(&self, reason: FrameRejection);
    /// All objects were asked for.
    fn relisted(&self, reason: RelistReason);
    /// The watch is open, or no longer.
    fn connected(&self, connected: WatchConnection);
    /// How bookmarks look upstream.
    fn bookmark(&self, _object: &[u8], _bookmark: &Bookmark) {}
    /// An attempt failed; the reflector decides what is tried next.
    fn failed(&self, _trouble: FailureReport<'_>) {}
    /// An event or a bookmark was left out, because its version is behind the held state's.
    fn ignored(&self) {}
}

/// Whether the watch upstream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchConnection {
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

/// Why a driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// Upstream no longer knows the resource.
    Gone,
    /// Upstream's versions went back, as after a restored backup: the sink must be built anew.
    WentBack,
    /// The reflector stopped after too many failures; only one that may give up does.
    GivenUp(GiveUp),
}

/// What a driver reads, and how.
#[derive(Clone, Debug)]
pub struct ReadSpec {
    /// What is listed and watched.
    pub collection: Collection,
    /// Selectable fields to look for in each object.
    pub fields: FieldTable,
    /// Whether objects are wanted without anything but metadata.
    pub metadata_only: bool,
    /// How objects are written; metadata alone is read in JSON only.
    pub encoding: Encoding,
    /// Longest watch frame, bytes.
    pub frame_len_max: usize,
}

impl ReadSpec {
    /// All objects of a resource, whole, with its selectable fields.
    #[must_use]
    pub fn all(gvr: &crate::resource::Gvr, frame_len_max: usize) -> Self {
        Self {
            collection: Collection::all(gvr),
            fields: FieldTable::of(gvr),
            metadata_only: false,
            encoding: Encoding::Json,
            frame_len_max,
        }
    }

    /// The same in another encoding.
    #[must_use]
    pub fn in_encoding(self, encoding: Encoding) -> Self {
        Self { encoding, ..self }
    }

    const fn list_purpose(&self) -> RequestPurpose {
        if self.metadata_only {
            RequestPurpose::ReadMetadata
        } else {
            RequestPurpose::Read
        }
    }

    const fn watch_purpose(&self) -> RequestPurpose {
        if self.metadata_only {
            RequestPurpose::WatchMetadata
        } else {
            RequestPurpose::Watch
        }
    }
}

/// The driver of one collection.
#[derive(Debug)]
pub struct Driver<F, S> {
    fetch: Arc<F>,
    reading: ReadSpec,
    reflector: ReflectorMachine,
    sink: S,
    tally: Arc<dyn DriverRecorder>,
    ahead: Option<PageAhead>,
}

/// The runtime's clock, which is the one that waits go by: a test that stops it stops the driver.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Something made the driver give up.
type StopResult = DriverEnd;

impl<F: Fetch, S: Sink> Driver<F, S> {
    /// A driver that fills `sink` as `reflector` decides.
    #[must_use]
    pub fn new(
        fetch: Arc<F>,
        reading: ReadSpec,
        reflector: ReflectorMachine,
        sink: S,
        tally: Arc<dyn DriverRecorder>,
    ) -> Self {
        Self {
            fetch,
            reading,
            reflector,
            sink,
            tally,
            ahead: None,
        }
    }

    /// Follows the resource until there is nothing left to follow. Dropping the future stops it at any point.
    pub async fn run(mut self) -> DriverEnd {
        loop {
            let action = self.reflector.next_action(now(), crate::resource::random());
            let ahead = self.ahead.take().filter(|ahead| ahead.action == action);
            let step = match action {
                Action::WaitUntil(at) => {
                    self.rest_until(at).await;
                    Ok(())
                }
                Action::List {
                    resource_version: version,
                    continue_token,
                    limit,
                    reason,
                } => {
                    if continue_token.is_none() {
                        self.tally.relisted(reason);
                    }
                    let request = UpstreamPageRequest {
                        version,
                        continue_token,
                        limit,
                    };
                    self.list(request, ahead).await
                }
                Action::WatchList {
                    resource_version,
                    reason,
                } => {
                    self.tally.relisted(reason);
                    self.sink.restart();
                    let path = request::watch_list(&self.reading.collection, resource_version);
                    self.watch(path).await
                }
                Action::Watch { after } => {
                    self.watch(request::watch(&self.reading.collection, after))
                        .await
                }
                Action::Stop(StopReason::Gone) => Err(DriverEnd::Gone),
                Action::Stop(StopReason::GivenUp(reason)) => Err(DriverEnd::GivenUp(reason)),
            };
            if let Err(end) = step {
                return end;
            }
            self.sink.ready().await;
        }
    }

    async fn rest_until(&mut self, at: Instant) {
        tokio::time::sleep_until(at.into()).await;
        self.sink.tick();
    }

    fn observe(&mut self, input: Input) -> Effect {
        let effect = self.reflector.observe(input, now());
        if effect == Effect::Ignored {
            self.tally.ignored();
        }
        effect
    }

    /// An attempt came to nothing.
    fn failed(&mut self, asked: RequestKind, fault: AttemptFailure) {
        if let Some(rejection) = fault.rejection {
            self.tally.rejected(rejection);
        }
        self.tally.failed(fault.trouble(asked));
        // A server that has no form with metadata alone, and says so although whole objects would do, is asked for those.
        if fault.is_not_acceptable() {
            self.reading.metadata_only = false;
        }
        self.observe(match asked {
            RequestKind::List => Input::ListFailed(fault.failure),
            RequestKind::Watch => Input::WatchFailed(fault.failure),
        });
    }
}

impl From<UpstreamWentBack> for DriverEnd {
    fn from(_: UpstreamWentBack) -> Self {
        Self::WentBack
    }
}

#[cfg(test)]
pub(crate) mod tests;
