//! Hands caches over to other gateways, from memory: the objects at the start of the history, and the history. A handover reads the cache as a
//! client does and is written by a thread for blocking work, so it never holds the writer up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::{info, warn};

use super::pipe::{self, PipeBody, PipeWriter};
use crate::checkpoint::{Capture, CheckpointHeader, CheckpointWriter, HistoryShare};
use crate::gateway::restored::clock;
use crate::metrics::{ServedHandover, ServedHandoverMetrics};
use crate::protocol::handover::HANDOVER_MEDIA_TYPE;
use crate::protocol::status::Status;
use crate::view::{Marker, ServedResource};

/// Handovers at a time. Each occupies a thread, and keeps a snapshot and its history alive.
const HANDOVERS_MAX: usize = 4;
/// How long the other gateway may read nothing.
const STALL_MAX: Duration = Duration::from_secs(10);
/// How long a handover may take; the other gateway gives up no later (`--handover-timeout`).
const LENGTH_MAX: Duration = Duration::from_secs(600);
/// After how many seconds to retry.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The handovers to other gateways.
pub(in crate::gateway) struct HandoverOffers {
    permits: Arc<Semaphore>,
    metrics: ServedHandoverMetrics,
}

/// A permit to hand a cache over.
pub(in crate::gateway) struct OfferPermit(OwnedSemaphorePermit);

impl HandoverOffers {
    pub(in crate::gateway) fn new(metrics: ServedHandoverMetrics) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(HANDOVERS_MAX)),
            metrics,
        }
    }

    /// A permit to hand a cache over.
    ///
    /// # Errors
    /// The response if too many are handed over already.
    pub(in crate::gateway) fn permit(&self) -> Result<OfferPermit, Status> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map(OfferPermit).map_err(|_| {
            self.metrics.outcomes.inc(ServedHandover::Busy);
            let message = "too many caches are handed over at the moment";
            Status::too_many_requests(message, RETRY_AFTER_SECONDS)
        })
    }

    /// The response for a cache that is not there.
    pub(in crate::gateway) fn missing(&self) -> Status {
        self.metrics.outcomes.inc(ServedHandover::Missing);
        Status::unknown_resource()
    }

    /// Starts to write the state of a cache in the cluster with this uid.
    pub(in crate::gateway) fn begin(
        &self,
        permit: OfferPermit,
        served: ServedResource,
        cluster: Option<String>,
    ) -> Response<PipeBody> {
        let began = Instant::now();
        let (writer, body) = pipe::to_response(STALL_MAX, began + LENGTH_MAX);
        let metrics = self.metrics.clone();
        spawn_blocking(move || {
            let _permit = permit.0;
            let resource = served.cache.kind().cache_key();
            let elapsed = || began.elapsed();
            match write(writer, &served, cluster) {
                Ok(bytes) => {
                    info!(%resource, bytes, elapsed = ?elapsed(), "handed the cache over to another gateway");
                    metrics.outcomes.inc(ServedHandover::Served);
                    metrics.transfers.record(bytes, elapsed());
                }
                Err(error) => {
                    warn!(%resource, %error, "a handover of the cache to another gateway broke off");
                    metrics.outcomes.inc(ServedHandover::Cut);
                    metrics.transfers.record(0, elapsed());
                }
            }
        });
        let mut response = Response::new(body);
        let media_type = HeaderValue::from_static(HANDOVER_MEDIA_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response
    }
}

/// Writes the whole state; returns its length.
fn write(out: PipeWriter, served: &ServedResource, cluster: Option<String>) -> io::Result<u64> {
    let capture = Capture::of(&served.cache, HistoryShare::All);
    let capture = capture.ok_or_else(|| io::Error::other("the cache is not filled"))?;
    let clock = clock();
    let version = capture.snapshot().resource_version;
    let bookmark = served.hub.bookmark().frame(version, Marker::None);
    let header = CheckpointHeader::new(
        served.cache.kind(),
        cluster,
        &capture,
        (&bookmark, clock.unix_ms),
    );
    CheckpointWriter::create(out, None, &header, &capture, clock)?
        .into_out()
        .end()
}
