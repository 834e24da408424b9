//! The status of the gateway as one document: what the admin port shows to people, in a page and as JSON (docs/STATUS.md).
//!
//! The document is bounded whatever clients do: so many resources, so many columns for each, so many named clients in all. `cursors`
//! makes it of positions, without a clock; the composition root collects them, and only while somebody looks.

mod clients;
mod cursors;

use serde::Serialize;

pub use clients::{ClientStatus, LagState, SlowGroup, TalkerStatus, TalkersStatus};
pub use cursors::{CursorSummary, HistoryLimits, HistoryRange, NamedCursors, WatchLag};

/// The version of the document. It grows if a member changes its meaning or disappears; members may be added.
pub const STATUS_VERSION: u32 = 1;
/// Resources with the most watches; the others are only counted.
pub const RESOURCES_MAX: usize = 100;

/// Collects the document. It may take milliseconds, and is called on a thread for blocking work, at most once a second.
pub trait StatusSource: Send + Sync {
    /// The status now.
    fn collect(&self) -> StatusDocument;
}

/// The whole document.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDocument {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// When it was made, in milliseconds since 1970.
    pub at: u64,
    /// The gateway itself.
    pub gateway: GatewayStatus,
    /// All resources together.
    pub totals: TotalStatus,
    /// The resources with the most watches, at most [`RESOURCES_MAX`].
    pub resources: Vec<ResourceStatus>,
    /// Number of resources that are not in the list.
    pub resources_omitted: usize,
    /// The clients that have waited longest, of all resources.
    pub slowest: Vec<ClientStatus>,
    /// The slow clients by user and user agent.
    pub slow_groups: Vec<SlowGroup>,
    /// The watches that were cut lately because their clients were slow, the latest first.
    pub cuts: Vec<CutStatus>,
    /// Who talks most.
    pub talkers: TalkersStatus,
}

/// The gateway itself.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The version of the build.
    pub version: String,
    /// The commit of the build.
    pub commit: String,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Whether all checks of `/readyz` pass.
    pub ready: bool,
    /// Whether it ends, and sends its clients to other gateways.
    pub draining: bool,
    /// The checks that fail, with their reasons.
    pub failing: Vec<String>,
    /// What is not cached although the settings allow it, because the gateway may not read who serves it.
    pub limitation: Option<String>,
}

/// All resources together, or one of them: what was received from upstream and delivered to watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficStatus {
    /// Events delivered to watches.
    pub events: u64,
    /// Bytes of these events.
    pub bytes: u64,
    /// Events received from upstream.
    pub upstream_events: u64,
    /// Bytes received from upstream, lists included.
    pub upstream_bytes: u64,
    /// Events delivered each second, since the last document; `None` if that was long ago.
    pub events_per_second: Option<f64>,
    /// Bytes of these events.
    pub bytes_per_second: Option<f64>,
}

/// All resources together.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TotalStatus {
    /// Open watches.
    pub watches: usize,
    /// Watches whose oldest unread event has waited for more than five seconds.
    pub slow: usize,
    /// What was delivered.
    #[serde(flatten)]
    pub traffic: TrafficStatus,
    /// What the API server would have done had the clients been connected to it.
    pub saved: SavedStatus,
    /// What it did all the same.
    pub forwarded: ForwardedStatus,
    /// What was compared of that with memory; `None` if the serving rules compare nothing.
    pub shadow: Option<ShadowStatus>,
    /// Requests and connections that the gateway itself refused: for their caller, because there were too many, or for their form.
    pub refused: u64,
    /// The memory of the process.
    pub memory: MemoryStatus,
}

/// Requests that upstream answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardedStatus {
    /// All of them.
    pub requests: u64,
    /// Those whose response is not complete: watches, tunnels and others.
    pub active: u64,
    /// Those that failed on the way: upstream did not answer, or not in time, or the response broke off.
    pub failed: u64,
    /// Requests each second, since the last document; `None` if that was long ago.
    pub requests_per_second: Option<f64>,
}

/// Forwarded answers that were compared with what memory would have answered, by what was found, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowStatus {
    /// Watches that are being compared.
    pub watches: u64,
    /// Both sides are the same.
    pub equal: u64,
    /// Memory lacks something.
    pub missing: u64,
    /// Upstream lacks something.
    pub extra: u64,
    /// Both sides have it, and it is not the same.
    pub content: u64,
    /// Memory would have answered with another status.
    pub status: u64,
    /// There was nothing to compare with, or it would have cost too much.
    pub not_comparable: u64,
}

/// The memory of the process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Resident memory.
    pub resident: u64,
    /// The bound (`--memory-max`); `None` if there is none.
    pub limit: Option<u64>,
}

/// What the API server would have done had the clients been connected to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedStatus {
    /// Bytes that it did not send.
    pub bytes: u64,
    /// Events that it did not send.
    pub events: u64,
    /// Lists and watches that it did not answer, less the reviews that it answered for them and the lists and watches that fill caches;
    /// `None` if callers are not authorized.
    pub requests: Option<i64>,
}

impl From<TrafficStatus> for SavedStatus {
    fn from(traffic: TrafficStatus) -> Self {
        Self {
            bytes: traffic.bytes.saturating_sub(traffic.upstream_bytes),
            events: traffic.events.saturating_sub(traffic.upstream_events),
            requests: None,
        }
    }
}

/// One cache.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// Its name, as in `/readyz`: `pods.v1`, or `pods.v1 in protobuf`.
    pub name: String,
    /// Whether requests are answered from memory.
    pub ready: bool,
    /// Whether nobody needs to do anything about a resource that is not ready: its cache is being filled, or upstream does not give the
    /// gateway the resource in this encoding or at all.
    pub harmless: bool,
    /// The state as text, as in `/readyz`.
    pub note: String,
    /// Objects in the cache.
    pub objects: u64,
    /// Bytes of these objects.
    pub object_bytes: u64,
    /// Its upstream watch.
    pub upstream: UpstreamWatchStatus,
    /// Its history; `None` without a cache.
    pub ring: Option<RingStatus>,
    /// Where its watches are.
    pub cursors: CursorSummary,
    /// What was delivered.
    #[serde(flatten)]
    pub traffic: TrafficStatus,
}

/// A cache's upstream watch.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamWatchStatus {
    /// Whether the watch is open.
    pub connected: bool,
    /// How old the cache may be.
    pub age_seconds: f64,
    /// Time since upstream has sent anything; `None` before the first byte.
    pub silence_seconds: Option<f64>,
}

/// A cache's history.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RingStatus {
    /// Events in it.
    pub events: u64,
    /// Bytes of these events.
    pub bytes: u64,
    /// How full it is, between 0 and 1, by events or bytes, whichever is nearer to its limit.
    pub fill: f64,
    /// The version of its oldest event; `None` if it is empty.
    pub oldest_version: Option<u64>,
    /// The newest version.
    pub newest_version: u64,
    /// The age of its oldest event.
    pub oldest_age_seconds: f64,
}

/// A watch that was cut because its client was slow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CutStatus {
    /// The cache that it watched.
    pub resource: String,
    /// The name of the user; empty if callers are not authenticated.
    pub user: String,
    /// Its `User-Agent`.
    pub user_agent: String,
    /// Its address.
    pub address: String,
    /// `lagged`: its events were no longer in the history. `stalled`: it had stopped reading. `disconnected`: its connection ended while events
    /// waited for it.
    pub reason: &'static str,
    /// How long ago.
    pub seconds_ago: f64,
    /// How long the first unread event had waited, if that is known.
    pub lag_seconds: Option<f64>,
    /// Events that it had got.
    pub events: u64,
    /// How long its watch was open.
    pub open_seconds: f64,
}
