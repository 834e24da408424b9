//! How many replicas, cores, memory and bandwidth a number of clients needs: the model of docs/SCALING.md, with its measured constants.
//!
//! Start with [`plan`].

mod report;

#[cfg(test)]
mod tests;

pub use report::{json, text};

/// CPU seconds for an event that many watches get, for each delivery.
const SHARED_DELIVERY: f64 = 9.1e-6;
/// CPU seconds for an event that only one watch gets.
const OWN_DELIVERY: f64 = 60e-6;
/// CPU seconds for an event that is read from upstream.
const UPSTREAM_EVENT: f64 = 76e-6;
/// CPU seconds for each listed byte.
const LISTED_BYTE: f64 = 0.55e-9;
/// Bytes of the process without clients and objects.
const PROCESS_BYTES: f64 = (20 << 20) as f64;
/// Memory of objects and of history, divided by their bytes.
const OVERHEAD: f64 = 1.25;
/// Bytes of memory for a list that is being sent.
const LIST_BYTES: f64 = 32_768.0;
/// History younger than this is kept, as far as its bounds allow: the default of `--ring-age-min`. Older history is kept as well while
/// less than 70 % of `--memory-max` is in use.
const HISTORY_SECONDS: f64 = 75.0;
/// Share of a replica's cores and network that is planned for: the rest is for lists, reconnecting clients and latency.
const USED_SHARE: f64 = 0.7;
/// Memory is given back above this share of `--memory-max`.
const MEMORY_SHARE: f64 = 0.8;
/// `--memory-max` as a share of the container's limit.
const LIMIT_SHARE: f64 = 0.9;
/// More watches than one process had in a measurement over HTTP/1.1 are not planned for.
const WATCHES_MAX: u32 = 10_000;
/// The model was compared with measurements of at most so many watches.
const WATCHES_CHECKED: u32 = 5_000;
/// The model was compared with measurements of at most so many bytes of objects.
const OBJECTS_CHECKED: f64 = (512 << 20) as f64;
/// More replicas than this need a tier between them and the API server.
const REPLICAS_MAX: u32 = 1_000;

/// What clients and the API server do, over all cached resources together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Watches of all clients, at least 1.
    pub watches: u32,
    /// Events a second that a watch receives and that others receive as well.
    pub events: f64,
    /// Events a second that a watch receives and that no other receives.
    pub own_events: f64,
    /// Bytes of an event.
    pub event_bytes: f64,
    /// Events a second that upstream sends to a gateway, in each encoding.
    pub upstream_events: f64,
    /// Bytes of all objects in one encoding.
    pub object_bytes: f64,
    /// Cached resources.
    pub resources: u32,
    /// Encodings that clients use for each of them.
    pub encodings: u32,
    /// Bytes listed a second, over all clients.
    pub listed_bytes: f64,
    /// Lists that are sent at the same time, over all clients.
    pub lists: u32,
}

impl Workload {
    /// Cores that read upstream's events, which come once in each encoding.
    fn upstream_cores(&self) -> f64 {
        self.upstream_events * f64::from(self.encodings) * UPSTREAM_EVENT
    }
}

/// What a replica has, and how clients reach it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSpec {
    /// Cores.
    pub cores: f64,
    /// Bits a second of its network.
    pub network_bits: f64,
    /// Most bytes of history for each resource and encoding: `--ring-bytes-max`.
    pub history_bytes_max: f64,
    /// Most events of history for each resource and encoding: `--ring-events-max`.
    pub history_events_max: f64,
    /// Whether clients use HTTP/2, with many watches on a connection.
    pub http2: bool,
    /// Whether clients use TLS.
    pub tls: bool,
}

impl ReplicaSpec {
    /// Bytes of memory for a watch that gets events.
    fn watch_bytes(self) -> f64 {
        match (self.http2, self.tls) {
            (true, _) => 9_200.0,
            (false, true) => 16_800.0,
            (false, false) => 9_400.0,
        }
    }
}

/// What is needed: the replicas, and what each of the others uses while one is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaPlan {
    /// Replicas, at least 2.
    pub replicas: u32,
    /// Watches of a replica.
    pub watches: u32,
    /// Events that a replica delivers a second.
    pub deliveries: f64,
    /// Cores that it uses.
    pub cores: f64,
    /// Bytes that it holds.
    pub memory: f64,
    /// The least `--memory-max`, in bytes, below which it gives nothing back.
    pub memory_max: f64,
    /// The container's memory limit, in bytes.
    pub memory_limit: f64,
    /// The most bytes that it comes to hold without `--memory-max`, when its histories have reached their bounds.
    pub memory_unbounded: f64,
    /// Bits a second to clients.
    pub bits_out: f64,
    /// Bits a second from upstream.
    pub bits_in: f64,
    /// Watches that it has upstream.
    pub upstream_watches: u32,
    /// Open files.
    pub open_files: u32,
    /// Whether the model was compared with measurements of this size.
    pub checked: bool,
}

/// No number of replicas is enough.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SizeError {
    /// What does not depend on the number of replicas already needs more cores than one may use.
    #[error(
        "reading upstream's events alone takes {needed:.2} cores, and {available:.2} may be used: give replicas more cores"
    )]
    Cores {
        /// Cores that it takes.
        needed: f64,
        /// Cores that may be used.
        available: f64,
    },
    /// So many replicas that the API server would need protection from them.
    #[error(
        "more than {REPLICAS_MAX} replicas: give replicas more cores or bandwidth, or divide the clients among tiers"
    )]
    Replicas,
}

/// The smallest number of replicas, at least 2, that carry the workload while one of them is gone.
///
/// # Errors
/// [`SizeError`] if no number is enough.
pub fn plan(workload: &Workload, replica: ReplicaSpec) -> Result<ReplicaPlan, SizeError> {
    let (needed, available) = (workload.upstream_cores(), USED_SHARE * replica.cores);
    if needed > available {
        return Err(SizeError::Cores { needed, available });
    }
    (2..=REPLICAS_MAX)
        .map(|replicas| with_replicas(workload, replica, replicas))
        .find(|plan| {
            plan.watches <= WATCHES_MAX
                && plan.cores <= available
                && plan.bits_out.max(plan.bits_in) <= USED_SHARE * replica.network_bits
        })
        .ok_or(SizeError::Replicas)
}

/// What each replica uses while one of `replicas` is gone.
fn with_replicas(workload: &Workload, replica: ReplicaSpec, replicas: u32) -> ReplicaPlan {
    let others = replicas - 1;
    let watches = workload.watches.div_ceil(others);
    let count = f64::from(watches);
    let (shared, own) = (count * workload.events, count * workload.own_events);
    let listed = workload.listed_bytes / f64::from(others);
    let caches = f64::from(workload.resources) * f64::from(workload.encodings);
    let history = |events: f64| {
        let bytes = events.min(replica.history_events_max * f64::from(workload.resources))
            * workload.event_bytes
            * f64::from(workload.encodings);
        OVERHEAD * bytes.min(caches * replica.history_bytes_max)
    };
    let rest = PROCESS_BYTES
        + OVERHEAD * workload.object_bytes * f64::from(workload.encodings)
        + count * replica.watch_bytes()
        + f64::from(workload.lists.div_ceil(others)) * LIST_BYTES;
    let memory = rest + history(workload.upstream_events * HISTORY_SECONDS);
    let memory_max = memory / MEMORY_SHARE;
    ReplicaPlan {
        replicas,
        watches,
        deliveries: shared + own,
        cores: shared * SHARED_DELIVERY
            + own * OWN_DELIVERY
            + workload.upstream_cores()
            + listed * LISTED_BYTE,
        memory,
        memory_max,
        memory_limit: memory_max / LIMIT_SHARE,
        memory_unbounded: match workload.upstream_events > 0.0 {
            true => rest + history(f64::INFINITY),
            false => rest,
        },
        bits_out: ((shared + own) * workload.event_bytes + listed) * 8.0,
        bits_in: workload.upstream_events
            * workload.event_bytes
            * f64::from(workload.encodings)
            * 8.0,
        upstream_watches: workload.resources.saturating_mul(workload.encodings) + ROLE_WATCHES,
        open_files: if replica.http2 {
            watches.div_ceil(STREAMS) * 2
        } else {
            watches.saturating_mul(2)
        },
        checked: watches <= WATCHES_CHECKED && workload.object_bytes <= OBJECTS_CHECKED,
    }
}

/// The watches of roles and bindings with `--auth rbac`.
const ROLE_WATCHES: u32 = 4;
/// Watches on a connection over HTTP/2, as assumed for open files: those of a kubelet.
const STREAMS: u32 = 10;
