//! Carries out the decisions of the reflector: sends requests upstream, decodes the responses and passes the objects to a
//! [`Sink`].
//!
//! There is one driver, one task and one upstream watch per collection. The driver makes no decisions about the protocol:
//! it reports each outcome to the [`ReflectorMachine`] and carries out the [`Effect`] that it gets back. `lists.rs` reads
//! pages and `stream.rs` reads watches; the other files hold small requests outside the driver's loop and what all of them
//! share.

mod fault;
mod lists;
#[cfg(feature = "gateway")]
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
use crate::resource::{Encoding, FieldTable};
use fault::AttemptFailure;
pub use fault::{FailureReport, FrameRejection, RequestKind};
use lists::{PageAhead, UpstreamPageRequest};
#[cfg(feature = "gateway")]
pub use object_versions::{CENSUS_MAX, ObjectVersions, census};
pub use probe::{Probe, newest_version, offers_protobuf, probe};
pub use request::{Collection, escaped};
pub use sample::{Sample, SampleEntry, cluster_uid, sample};

/// What a request is for. It decides which connections the request uses and which forms of objects it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// A list, or another short request.
    Read,
    /// A list of which only metadata is read.
    ReadMetadata,
    /// A list of which only names and versions are read.
    ReadVersions,
    /// A watch.
    Watch,
    /// A watch of which only metadata is read.
    WatchMetadata,
}

/// Upstream did not respond.
#[derive(Debug, thiserror::Error)]
#[error("upstream did not answer")]
pub struct FetchError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Sends requests upstream. Tests have their own implementation.
pub trait Fetch: Send + Sync + 'static {
    /// The body of a response.
    type Body: Body<Data = Bytes, Error: fmt::Display + Send> + Send + Unpin;

    /// Sends a GET that accepts this encoding, uncompressed.
    fn get(
        &self,
        path_and_query: String,
        purpose: RequestPurpose,
        encoding: Encoding,
    ) -> impl Future<Output = Result<Response<Self::Body>, FetchError>> + Send;
}

/// Receives the progress and the failures of a driver, for metrics and logs. Nothing else may depend on it: state belongs to
/// the [`Sink`]. Called from the driver's task.
pub trait DriverRecorder: Send + Sync + fmt::Debug {
    /// This many bytes of a response body arrived.
    fn received(&self, bytes: usize);
    /// A frame or a page could not be used.
    fn rejected(&self, reason: FrameRejection);
    /// All objects are requested.
    fn relisted(&self, reason: RelistReason);
    /// The watch was opened, or has ended.
    fn connected(&self, connected: WatchConnection);
    /// A bookmark arrived.
    fn bookmark(&self) {}
    /// An attempt failed. The reflector decides what is tried next.
    fn failed(&self, _report: FailureReport<'_>) {}
    /// An event or a bookmark was left out, because its version is lower than the held state's.
    fn ignored(&self) {}
}

/// Whether the watch upstream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchConnection {
    /// The watch is open.
    Yes,
    /// The watch has ended, in this way.
    No(StreamEnd),
}

/// How a watch upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Between two frames, as watches regularly do.
    Clean,
    /// The connection broke or went silent.
    Cut,
    /// With an ERROR event, or because the driver stopped.
    Error,
    /// With a frame that cannot be used.
    Unreadable,
}

/// Why a driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// Upstream no longer knows the resource.
    Gone,
    /// Upstream's versions went back, as after a restored backup. The sink must be built again.
    WentBack,
    /// The reflector stopped after too many failures. Only one made with [`ReflectorMachine::giving_up`] does so.
    GivenUp(GiveUp),
}

/// What a driver reads, and how.
#[derive(Clone, Debug)]
pub struct ReadSpec {
    /// What is listed and watched.
    pub collection: Collection,
    /// Selectable fields to look for in each object.
    pub fields: FieldTable,
    /// Whether only the objects' metadata is read.
    pub metadata_only: bool,
    /// Encoding of the objects. Metadata alone is read in JSON only.
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

    /// The same collection in another encoding.
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

/// Lists and watches one collection.
#[derive(Debug)]
pub struct Driver<F, S> {
    fetch: Arc<F>,
    spec: ReadSpec,
    reflector: ReflectorMachine,
    sink: S,
    recorder: Arc<dyn DriverRecorder>,
    /// The next page, if it was fetched while the last one was read.
    page_ahead: Option<PageAhead>,
}

/// The runtime's clock, which timers use as well: a test that pauses it pauses the driver.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The error of a step after which the driver ends.
type StopResult = DriverEnd;

impl<F: Fetch, S: Sink> Driver<F, S> {
    /// Creates a driver that fills `sink` as `reflector` decides.
    #[must_use]
    pub fn new(
        fetch: Arc<F>,
        spec: ReadSpec,
        reflector: ReflectorMachine,
        sink: S,
        recorder: Arc<dyn DriverRecorder>,
    ) -> Self {
        Self {
            fetch,
            spec,
            reflector,
            sink,
            recorder,
            page_ahead: None,
        }
    }

    /// Lists and watches until the driver has to end. The future can be dropped at any point.
    pub async fn run(mut self) -> DriverEnd {
        loop {
            let action = self.reflector.next_action(now(), crate::resource::random());
            let ahead = self
                .page_ahead
                .take()
                .filter(|ahead| ahead.action == action);
            let step = match action {
                Action::WaitUntil(at) => {
                    self.wait_until(at).await;
                    Ok(())
                }
                Action::List {
                    resource_version: version,
                    continue_token,
                    limit,
                    reason,
                } => {
                    if continue_token.is_none() {
                        self.recorder.relisted(reason);
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
                    self.recorder.relisted(reason);
                    self.sink.restart();
                    let path = request::watch_list(&self.spec.collection, resource_version);
                    self.watch(path).await
                }
                Action::Watch { after } => {
                    self.watch(request::watch(&self.spec.collection, after))
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

    async fn wait_until(&mut self, at: Instant) {
        tokio::time::sleep_until(at.into()).await;
        self.sink.tick();
    }

    fn observe(&mut self, input: Input) -> Effect {
        let effect = self.reflector.observe(input, now());
        if effect == Effect::Ignored {
            self.recorder.ignored();
        }
        effect
    }

    /// Records a failed attempt and reports it to the reflector.
    fn failed(&mut self, kind: RequestKind, fault: AttemptFailure) {
        if let Some(rejection) = fault.rejection {
            self.recorder.rejected(rejection);
        }
        self.recorder.failed(fault.report(kind));
        // A server that has no metadata-only form may respond with 406 although the request accepts whole objects. From now
        // on, only whole objects are requested.
        if fault.is_not_acceptable() {
            self.spec.metadata_only = false;
        }
        self.observe(match kind {
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

#[cfg(feature = "gateway")]
#[cfg(test)]
pub(crate) mod tests;
