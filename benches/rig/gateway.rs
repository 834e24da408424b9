//! The whole downstream path around one cache: the serving side of a gateway, without upstream and its wiring.

use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Empty};
use kube_fanout::admission::Admission;
use kube_fanout::cache::{CacheWriter, Change, Retention};
use kube_fanout::config::AdmissionLimits;
use kube_fanout::connection::listener;
use kube_fanout::decode::{WatchLine, scan_line};
use kube_fanout::metrics::{Metrics, ResourceLabels, ShardedCounter};
use kube_fanout::resource::{
    CacheKey, Encoding, EventKind, FieldTable, Gvr, Layout, Object, ResourceKind, ResourceVersion,
};
use kube_fanout::serve::Service;
use kube_fanout::serve::resources::{
    Availability, BoxFuture, FillWait, ForwardRequest, ForwardedBody, Latest, Peer, RequestOutcome,
    Resources,
};
use kube_fanout::shutdown::Drain;
use kube_fanout::view::{Hub, ServedResource};
use kube_fanout::watch::WatchRecorder;
use tokio::net::TcpListener;

/// The resource version from which the first watch starts.
pub(crate) const FIRST_VERSION: u64 = 1_000_000;

const RETENTION: Retention = Retention {
    segment_slots: 256,
    events_min: 1_024,
    events_max: 16_384,
    bytes_max: 64 << 20,
    age_max: Duration::from_secs(1),
};

/// None of them is reached.
const LIMITS: AdmissionLimits = AdmissionLimits {
    connections_max: 100_000,
    watches_max: 100_000,
    lists_max: 1_000,
    lists_waiting_max: 0,
    list_wait_max: Duration::ZERO,
    list_stall_max: Duration::from_secs(60),
    memory_max: 0,
};

/// A gateway that serves exactly one cached resource.
#[derive(Debug)]
pub(crate) struct OneCache {
    served: ServedResource,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    events: ShardedCounter,
    bytes: ShardedCounter,
}

impl WatchRecorder for Counters {
    fn delivered(&self, events: u64, bytes: u64) {
        self.events.add(events);
        self.bytes.add(bytes);
    }
}

impl Resources for OneCache {
    fn availability<'a>(
        &'a self,
        _: &'a CacheKey,
        _: FillWait,
        _: Peer,
    ) -> BoxFuture<'a, Availability> {
        Box::pin(ready(Availability::Ready(self.served.clone())))
    }

    fn latest<'a>(&'a self, served: &'a ServedResource) -> BoxFuture<'a, Latest> {
        Box::pin(ready(Latest::At(served.hub.reached().version)))
    }

    fn forward(&self, _: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        let body = Empty::new().map_err(|never| match never {});
        Box::pin(ready(Response::new(body.boxed_unsync())))
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::clone(&self.counters) as _
    }

    fn answered(&self, _: RequestOutcome<'_>) {}
}

/// A resource's kind as the serving side needs it.
pub(crate) fn kind(resource: &str, kind: &str) -> ResourceKind {
    ResourceKind {
        gvr: Gvr::new("", "v1", resource),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        namespaced: true,
        layout: Layout::Typed,
        encoding: Encoding::Json,
        warnings: Vec::new(),
    }
}

/// A writer whose cache holds `objects`, and the same cache as the gateway serves it.
pub(crate) fn filled(kind: ResourceKind, objects: Vec<Object>) -> (CacheWriter, ServedResource) {
    let hub = Arc::new(Hub::new(&kind));
    let mut writer = CacheWriter::new(kind, RETENTION, Arc::clone(&hub) as _);
    let filled = writer.replace(objects, ResourceVersion(FIRST_VERSION), Instant::now());
    filled.expect("the first list cannot be older than the cache");
    let cache = Arc::clone(writer.cache());
    (writer, ServedResource { cache, hub })
}

/// Listens on a port that the system chooses, and serves `served` there until the process ends.
pub(crate) async fn serve(
    served: ServedResource,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> io::Result<std::net::SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let metrics = Metrics::new().map_err(io::Error::other)?;
    let handles = metrics.downstream(ResourceLabels {
        encoding: "json",
        group: "",
        version: "v1",
        resource: "configmaps",
    });
    let resources = OneCache {
        served,
        counters: Arc::new(Counters {
            events: handles.watch_events,
            bytes: handles.watch_bytes,
        }),
    };
    // The runtime owns the task: it lives as long as the process.
    tokio::spawn(listener::run(
        listener,
        tls.map(|settings| Arc::new(ArcSwap::new(settings))),
        Service::new(
            Arc::new(resources),
            Admission::new(LIMITS, None),
            metrics.listener(),
        ),
        Drain::new(),
    ));
    Ok(address)
}

/// An event line from upstream, converted to a change as the driver does.
pub(crate) fn change(line: Bytes, fields: FieldTable) -> Change {
    let without_newline = &line[..line.len() - 1];
    let Ok(WatchLine::Event {
        kind,
        object,
        parts,
    }) = scan_line(without_newline, fields)
    else {
        panic!("a bench's own line is an event");
    };
    let object = Object::in_frame(parts, Encoding::Json, &line, object.start);
    match kind {
        EventKind::Added | EventKind::Modified => Change::Put(object),
        EventKind::Deleted => Change::Delete(object),
    }
}
