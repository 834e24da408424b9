//! Hands caches over to other gateways, from memory: the objects at the start of the history, and the history. A handover reads the cache as a
//! client does and is written by a thread for blocking work, so it never holds the writer up. It counts as served once its response has
//! been sent to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::pipe::{self, PipeBody, PipeWriter};
use crate::blocking::spawn_blocking;
use crate::checkpoint::{Capture, CheckpointHeader, CheckpointWriter};
use crate::fairness::Peer;
use crate::metrics::{ServedHandover, ServedHandoverMetrics};
use crate::protocol::handover::HANDOVER_MEDIA_TYPE;
use crate::protocol::status::Status;
use crate::resource::CacheKey;
use crate::restored::clock;
use crate::view::{Marker, ServedResource};

/// Handovers at a time. Each occupies a thread, and keeps a snapshot and its history alive.
const HANDOVERS_MAX: usize = 4;
/// Handovers to one address at a time: as many as a gateway asks for. A slow one leaves the rest to others.
const HANDOVERS_PER_PEER: usize = 2;
/// How long the other gateway may read nothing.
const STALL_MAX: Duration = Duration::from_secs(10);
/// How long a handover may take; the other gateway gives up no later.
const LENGTH_MAX: Duration = Duration::from_secs(600);
/// After how many seconds to retry.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The handovers to other gateways.
pub(crate) struct HandoverOffers {
    /// To whom caches are handed over now.
    peers: Arc<Mutex<Vec<Peer>>>,
    metrics: ServedHandoverMetrics,
}

/// A permit to hand a cache over, until it is dropped.
pub(crate) struct OfferPermit {
    peers: Arc<Mutex<Vec<Peer>>>,
    peer: Peer,
}

impl Drop for OfferPermit {
    fn drop(&mut self) {
        let mut peers = self.peers.lock();
        if let Some(index) = peers.iter().position(|one| *one == self.peer) {
            peers.swap_remove(index);
        }
    }
}

/// Counts one handover when its response has ended.
struct OfferRecord {
    metrics: ServedHandoverMetrics,
    resource: CacheKey,
    began: Instant,
}

impl OfferRecord {
    fn record(&self, bytes: u64, is_whole: bool) {
        let (resource, elapsed) = (&self.resource, self.began.elapsed());
        if is_whole {
            info!(%resource, bytes, ?elapsed, "handed the cache over to another gateway");
            self.metrics.outcomes.inc(ServedHandover::Served);
            self.metrics.transfers.record(bytes, elapsed);
        } else {
            warn!(%resource, bytes, ?elapsed, "a handover of the cache to another gateway broke off");
            self.metrics.outcomes.inc(ServedHandover::Cut);
        }
    }
}

impl HandoverOffers {
    pub(crate) fn new(metrics: ServedHandoverMetrics) -> Self {
        Self {
            peers: Arc::default(),
            metrics,
        }
    }

    /// A permit to hand a cache over to this address.
    ///
    /// # Errors
    /// The response if too many are handed over already.
    pub(crate) fn permit(&self, peer: Peer) -> Result<OfferPermit, Status> {
        let mut peers = self.peers.lock();
        let own = peers.iter().filter(|one| **one == peer).count();
        if peers.len() >= HANDOVERS_MAX || own >= HANDOVERS_PER_PEER {
            return Err(self.busy("too many caches are handed over at the moment"));
        }
        peers.push(peer);
        Ok(OfferPermit {
            peers: Arc::clone(&self.peers),
            peer,
        })
    }

    /// The response for a cache that is to be asked for again.
    pub(crate) fn busy(&self, message: &str) -> Status {
        self.metrics.outcomes.inc(ServedHandover::Busy);
        Status::too_many_requests(message, RETRY_AFTER_SECONDS)
    }

    /// The response for a cache that is not there.
    pub(crate) fn missing(&self) -> Status {
        self.metrics.outcomes.inc(ServedHandover::Missing);
        Status::unknown_resource()
    }

    /// Starts to write the state of a cache in the cluster with this uid.
    pub(crate) fn begin(
        &self,
        permit: OfferPermit,
        served: ServedResource,
        cluster: Option<String>,
    ) -> Response<PipeBody> {
        let began = Instant::now();
        let record = OfferRecord {
            metrics: self.metrics.clone(),
            resource: served.cache.kind().cache_key(),
            began,
        };
        let (writer, body) = pipe::to_response(STALL_MAX, began + LENGTH_MAX);
        let body = body.on_end(move |bytes, is_whole| record.record(bytes, is_whole));
        spawn_blocking(move || {
            let _permit = permit;
            if let Err(error) = write(writer, &served, cluster) {
                let resource = served.cache.kind().cache_key();
                debug!(%resource, %error, "the state was not written to its end");
            }
        });
        let mut response = Response::new(body);
        let media_type = HeaderValue::from_static(HANDOVER_MEDIA_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response
    }
}

fn write(out: PipeWriter, served: &ServedResource, cluster: Option<String>) -> io::Result<()> {
    let capture =
        Capture::of(&served.cache).ok_or_else(|| io::Error::other("the cache is not filled"))?;
    let clock = clock();
    let bookmark = served
        .hub
        .bookmark()
        .frame(capture.snapshot().resource_version, Marker::None);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use std::net::IpAddr;

    /// Otherwise one that reads slowly would keep all others from their caches.
    #[test]
    fn one_gateway_does_not_get_all_permits() {
        let metrics = Metrics::new().unwrap().served_handovers();
        let offers = HandoverOffers::new(metrics.clone());
        let peer = |last| Peer::from(IpAddr::from([10, 0, 0, last]));
        let first = [1, 1, 2].map(|last| offers.permit(peer(last)).unwrap());
        assert!(offers.permit(peer(1)).is_err());
        let last = offers.permit(peer(3)).unwrap();
        assert!(offers.permit(peer(4)).is_err());
        drop(last);
        assert!(offers.permit(peer(1)).is_err());
        drop(first);
        let again = [1, 1].map(|last| offers.permit(peer(last)).unwrap());
        assert_eq!(metrics.outcomes.count(ServedHandover::Busy), 3);
        drop(again);
    }
}
