//! Counts what drivers and streams tell, in metrics made once per resource.

use std::sync::Arc;

use tokio::sync::watch;

use super::slot::Filling;
use crate::cache::Applied;
use crate::decode::Bookmark;
use crate::downstream::watch::{WatchEnd, WatchTally, WatchTotals};
use crate::metrics::{
    CacheMetrics, DownstreamMetrics, FrameRejection as RejectionLabel, Metrics,
    RelistReason as RelistLabel, ResourceLabels, StreamEnd as StreamLabel, UpstreamMetrics,
    WatchEnd as WatchLabel,
};
use crate::resource::Gvr;
use crate::upstream::driver::{Connected, DriverState, DriverTally, FrameRejection, StreamEnd};
use crate::upstream::reflector::RelistReason;
use crate::view::{BookmarkShape, Served};

/// Metrics of one resource's upstream side.
#[derive(Debug)]
pub(super) struct ResourceTally {
    gvr: Gvr,
    upstream: UpstreamMetrics,
    cache: CacheMetrics,
}

impl ResourceTally {
    pub(super) fn new(metrics: &Metrics, gvr: &Gvr) -> Self {
        let labels = labels(gvr);
        Self {
            gvr: gvr.clone(),
            upstream: metrics.upstream(labels),
            cache: metrics.cache(labels),
        }
    }

    /// The tally of one cache of the resource; announces when it is ready.
    pub(super) fn for_cache(
        self: Arc<Self>,
        served: Served,
        filling: watch::Sender<Filling>,
    ) -> Arc<CacheTally> {
        Arc::new(CacheTally {
            resource: self,
            served,
            filling,
        })
    }
}

/// Labels of a resource.
pub(super) fn labels(gvr: &Gvr) -> ResourceLabels<'_> {
    ResourceLabels {
        group: &gvr.group,
        version: &gvr.version,
        resource: &gvr.resource,
    }
}

/// What one driver tells.
#[derive(Debug)]
pub(super) struct CacheTally {
    resource: Arc<ResourceTally>,
    served: Served,
    filling: watch::Sender<Filling>,
}

impl DriverTally for CacheTally {
    fn received(&self, bytes: usize) {
        self.resource.upstream.bytes_received.add(bytes as u64);
    }

    fn applied(&self, applied: Applied) {
        self.resource
            .upstream
            .events_received
            .add((applied.events + applied.ignored) as u64);
    }

    fn rejected(&self, reason: FrameRejection) {
        tracing::warn!(resource = %self.resource.gvr, ?reason, "a frame from upstream cannot be used");
        self.resource.upstream.frames_rejected.inc(match reason {
            FrameRejection::Unparsable => RejectionLabel::Malformed,
            FrameRejection::TooLong => RejectionLabel::TooLong,
        });
    }

    fn relisted(&self, reason: RelistReason) {
        tracing::info!(resource = %self.resource.gvr, reason = reason.as_str(), "listing");
        self.resource.upstream.lists.inc();
        let label = match reason {
            RelistReason::Start => return,
            RelistReason::Expired => RelistLabel::Expired,
            RelistReason::VersionAhead | RelistReason::PagesExpired | RelistReason::Interrupted => {
                RelistLabel::Inconsistent
            }
            RelistReason::StreamRefused | RelistReason::WatchRefused => RelistLabel::Refused,
            RelistReason::Unparsable => RelistLabel::Undecodable,
        };
        self.resource.upstream.relists.inc(label);
    }

    fn connected(&self, connected: Connected) {
        let open = i64::from(connected == Connected::Yes);
        self.resource.upstream.watches_active.set(open);
        self.resource.upstream.connected.set(open);
        if let Connected::No(end) = connected {
            self.resource.upstream.watch_ends.inc(match end {
                StreamEnd::Clean => WatchLabel::Closed,
                StreamEnd::Cut => WatchLabel::Disconnected,
                StreamEnd::Error => WatchLabel::Error,
            });
        }
    }

    fn state(&self, state: DriverState) {
        let cache = &self.resource.cache;
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.resource
            .upstream
            .resource_version
            .set(i64::try_from(state.version.0).unwrap_or(i64::MAX));
        cache.objects.set(gauge(state.objects));
        cache.ring_events.set(gauge(state.events));
        cache.ring_bytes.set(gauge(state.bytes));
        cache.ring_oldest_age.set(state.oldest_age.as_secs_f64());
        let announce = |filling: &mut Filling| {
            let ready = matches!(filling, Filling::Ready(_));
            if !ready {
                cache.initializations.inc();
                *filling = Filling::Ready(self.served.clone());
            }
            !ready
        };
        if self.filling.send_if_modified(announce) {
            tracing::info!(resource = %self.resource.gvr, objects = state.objects, version = %state.version, "serving from memory");
        }
    }

    fn bookmark(&self, object: &[u8], bookmark: &Bookmark) {
        if let Some(shape) = BookmarkShape::seen(object, bookmark.version_span)
            && shape != self.served.hub.bookmark()
        {
            self.served.hub.learn_bookmark(shape);
        }
    }
}

/// Metrics of one resource's clients.
#[derive(Debug)]
pub(super) struct StreamTally {
    pub(super) metrics: DownstreamMetrics,
}

impl StreamTally {
    pub(super) fn new(metrics: &Metrics, gvr: &Gvr) -> Self {
        Self {
            metrics: metrics.downstream(labels(gvr)),
        }
    }
}

impl WatchTally for StreamTally {
    fn delivered(&self, events: u64, bytes: u64) {
        self.metrics.watch_events.add(events);
        self.metrics.watch_bytes.add(bytes);
    }

    fn ended(&self, totals: WatchTotals) {
        self.metrics.watches.dec();
        if totals.end == WatchEnd::Lagged {
            self.metrics.lagged.inc();
        }
        self.metrics.stream_ends.inc(match totals.end {
            WatchEnd::Deadline => StreamLabel::Timeout,
            WatchEnd::Lagged => StreamLabel::Lagged,
            WatchEnd::Closed => StreamLabel::CacheGone,
            WatchEnd::Client => StreamLabel::ClientGone,
        });
    }
}
