//! Carries out the decisions of the reflector: sends requests upstream, decodes the responses and passes the objects to a
//! [`Sink`].
//!
//! There is one driver, one task and one upstream watch per collection. The driver makes no decisions about the protocol:
//! it reports each outcome to the [`ReflectorMachine`] and carries out the [`Effect`] that it gets back. `lists.rs` reads
//! pages and `stream.rs` reads watches; the other files hold small requests outside the driver's loop and what all of them
//! share.

mod clock;
mod comparison;
mod fault;
mod fetch;
mod lists;
mod object_versions;
mod page;
mod probe;
mod read_spec;
mod recorder;
mod request;
mod response;
mod sample;
mod scan;
mod stream;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backoff::fraction;
use super::reflector::{Action, Effect, Input, ReflectorMachine, StopReason};
use super::sink::{Sink, UpstreamWentBack};
pub(super) use clock::now;
use fault::AttemptFailure;
pub use fault::{FailureReport, FrameRejection, RequestKind};
pub use fetch::{Fetch, FetchError, RequestPurpose};
pub use object_versions::{CENSUS_MAX, census};
use page::{PageAhead, UpstreamPageRequest};
pub use probe::{NewestVersion, Probe, newest_version, offers_protobuf, probe};
pub use read_spec::{ReadSpec, SILENCE_MAX};
pub use recorder::{DriverEnd, DriverRecorder, UpstreamWatchEnd, WatchConnection};
pub use request::{Collection, escaped};
pub use sample::{Sample, SampleEntry, cluster_uid, sample, sample_from, short_list};
#[cfg(feature = "gateway")]
pub(super) use scan::run_blocking;

/// The target of spans, which are never logged; the gateway can send them to a collector.
const SPAN_TARGET: &str = "kube_fanout::span";

/// A silent watch is compared later by a random part of the time, up to one of this many parts.
const SILENCE_SPREAD: u32 = 16;

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
    /// When upstream last showed that the state is its own, by an event, a bookmark, a list or a comparison.
    proven_at: Instant,
    /// How long a watch may bring nothing from then on.
    silence_max: Duration,
    /// Upstream's state cannot be read before this time.
    compare_at: Instant,
    /// When the first change arrived that is not an initial object, while initial data is streamed.
    changed_at: Option<Instant>,
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
            silence_max: spec.silence_max,
            spec,
            reflector,
            sink,
            recorder,
            page_ahead: None,
            proven_at: now(),
            compare_at: now(),
            changed_at: None,
        }
    }

    /// Lists and watches until the driver has to end. The future can be dropped at any point.
    pub async fn run(mut self) -> DriverEnd {
        loop {
            self.reflector.note_given(self.sink.newest_given());
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
                Action::Compare => {
                    self.compare().await;
                    Ok(())
                }
                Action::Stop(StopReason::Gone) => Err(DriverEnd::Gone),
                Action::Stop(StopReason::GivenUp(reason)) => Err(DriverEnd::GivenUp(reason)),
            };
            if let Err(end) = step {
                return end;
            }
            if let Err(went_back) = self.sink.ready().await {
                return went_back.into();
            }
        }
    }

    async fn wait_until(&mut self, at: Instant) {
        tokio::time::sleep_until(at.into()).await;
        self.sink.tick();
    }

    fn observe(&mut self, input: Input) -> Effect {
        let before = self.reflector.version();
        if is_end_of_data(&input) && !self.reflector.is_live() {
            self.reflector.note_given(self.sink.newest_given());
        }
        let effect = self.reflector.observe(input, now());
        match effect {
            Effect::Ignored => self.recorder.ignored(),
            Effect::InitialDone { .. } | Effect::Proven => self.proven(),
            _ if self.reflector.version() > before => self.proven(),
            Effect::None
            | Effect::InitialItem
            | Effect::Live
            | Effect::Progress { .. }
            | Effect::Late
            | Effect::EndWatch
            | Effect::Restarted
            | Effect::Relisting { .. } => {}
        }
        effect
    }

    fn proven(&mut self) {
        self.proven_at = now();
        // Many gateways get the same events, and must not compare at the same moment.
        let spread = self.spec.silence_max / SILENCE_SPREAD;
        self.silence_max = self.spec.silence_max + fraction(spread, crate::resource::random());
        self.recorder.proven();
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

/// Whether initial data may be complete with this input.
const fn is_end_of_data(input: &Input) -> bool {
    matches!(
        input,
        Input::ListPage { .. }
            | Input::Bookmark {
                initial_events_end: true,
                ..
            }
    )
}

impl From<UpstreamWentBack> for DriverEnd {
    fn from(_: UpstreamWentBack) -> Self {
        Self::WentBack
    }
}

#[cfg(all(feature = "gateway", any(test, feature = "testing")))]
pub mod samples;
#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;
