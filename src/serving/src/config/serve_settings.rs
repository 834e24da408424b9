//! Settings of the gateway.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::audit::AuditSettings;
use super::auth::AuthSettings;
use super::handover::HandoverSettings;
use super::patterns::{CacheLists, ResourcePattern};
use super::serving_rules::ServingRules;
use super::traces::TraceSettings;
use super::transport::ListenTransport;
use crate::cli::{CompressWatches, Percentage};
use crate::resource::Gvr;

/// Settings of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    /// The upstream API server.
    pub upstream: UpstreamSource,
    /// Several API servers of one cluster, which are used instead of the one that `upstream` names.
    pub api_servers: Vec<http::Uri>,
    /// Longest frame accepted from upstream, in bytes: one watch event or one list item.
    pub frame_len_max: usize,
    /// Address for clients; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Plain HTTP or TLS, on `listen` and `operator_listen`.
    pub transport: ListenTransport,
    /// Address for operators, with limits of its own; port 0 lets the system choose.
    pub operator_listen: Option<SocketAddr>,
    /// How callers are authenticated and authorized.
    pub auth: AuthSettings,
    /// The audit log, if there is one.
    pub audit: Option<AuditSettings>,
    /// Address for metrics and health; port 0 lets the system choose.
    pub admin_listen: SocketAddr,
    /// Resources whose caches are filled at start and kept.
    pub pin_resources: Vec<Gvr>,
    /// Resources that may be cached.
    pub cached: CacheLists,
    /// Whose lists and watches memory answers.
    pub serving: ServingRules,
    /// How long a cache is kept after its last client has left.
    pub idle_resource_timeout: Duration,
    /// Bounds of each resource's history.
    pub ring: RingLimits,
    /// Resources whose clients get the latest state of what changed if the history no longer reaches their version.
    pub catch_up: Vec<ResourcePattern>,
    /// Longest delay of an event, under load, in which more events are collected for the same write.
    pub coalesce_delay_max: Duration,
    /// A cache that may be older than this is stale, and its answers say so.
    pub staleness_bound: Duration,
    /// How often a page of each cache is compared with upstream; zero for never.
    pub drift_interval: Duration,
    /// Where checkpoints of the caches are kept; `None` for none.
    pub state: Option<StateSettings>,
    /// From where caches are taken over; `None` for nowhere.
    pub handover: Option<HandoverSettings>,
    /// Limits for all clients together.
    pub admission: AdmissionLimits,
    /// Callers that are not limited to a share.
    pub exempt: ExemptSettings,
    /// Limits of forwarded requests.
    pub forwards: ForwardLimits,
    /// One in this many requests over HTTP/2, at random, ends its connection; 0 for none.
    pub requests_per_goaway: usize,
    /// Which watches are compressed.
    pub compress_watches: CompressWatches,
    /// The nodes whose relay sends clients here.
    pub relay_percent: Percentage,
    /// Where spans are sent; `None` for nowhere.
    pub traces: Option<TraceSettings>,
}

/// Where and how checkpoints of the caches are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// The directory.
    pub directory: PathBuf,
    /// The file with the key that they are encrypted with.
    pub key_file: Option<PathBuf>,
    /// Maximum size of all checkpoints, in bytes.
    pub len_max: u64,
    /// How often changes are appended.
    pub interval: Duration,
    /// Resources without a checkpoint.
    pub excluded: Vec<ResourcePattern>,
}

/// How to reach the upstream API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamSource {
    /// By a kubeconfig file.
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The context's name; `None` for the current one.
        context: Option<String>,
    },
    /// By the service account of the pod that the process runs in.
    InCluster,
    /// By an `http` or `https` URL, without credentials.
    Url(http::Uri),
}

/// Bounds of the history of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Maximum number of events.
    pub events_max: usize,
    /// Maximum number of bytes.
    pub bytes_max: usize,
    /// Events younger than this stay as long as the other two bounds allow.
    pub age_min: Duration,
}

/// Limits of connections, watches, lists and memory, for all clients together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Maximum number of client connections; 0 for what the limit of open files leaves.
    pub connections_max: usize,
    /// Maximum number of watches.
    pub watches_max: usize,
    /// Maximum number of lists that are sent at the same time.
    pub lists_max: usize,
    /// Maximum number of lists in the queue.
    pub lists_waiting_max: usize,
    /// Longest wait of a list in the queue.
    pub list_wait_max: Duration,
    /// How long a list keeps its permit while its client reads nothing and other lists wait for a permit.
    pub list_stall_max: Duration,
    /// Resident bytes of the process above which new watches are refused, and lists while another list runs; 0 for no bound.
    pub memory_max: usize,
}

/// Callers that are not limited to a share. The limits for all clients together apply to them, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExemptSettings {
    /// Names of users.
    pub users: Vec<String>,
    /// Names of groups.
    pub groups: Vec<String>,
}

/// Limits of forwarded requests, for all clients together. The limit of open files may allow fewer (see `config::OpenFiles`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardLimits {
    /// Maximum number of short requests.
    pub requests_max: usize,
    /// Maximum number of watches, logs and other long requests.
    pub watches_max: usize,
    /// Maximum number of upgraded connections.
    pub tunnels_max: usize,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            // The capacity of the connections to upstream: 64 HTTP/2 connections with 90 streams each.
            requests_max: 5_760,
            // The same capacity again: short requests and watches have connections of their own, so neither takes the other's.
            watches_max: 5_760,
            // Each tunnel holds two connections and two buffers, so this is at most 320 MB and 8,192 open files.
            tunnels_max: 4_096,
        }
    }
}
