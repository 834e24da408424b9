//! What is read of the gateway's status document (docs/STATUS.md): the members that are drawn. Others are ignored, and members that version 1
//! did not always have may be missing.

use serde::Deserialize;

/// The version of the document that this program knows. It grows if a member changes its meaning or disappears.
pub(super) const STATUS_VERSION: u32 = 1;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusDocument {
    /// When it was made, in milliseconds since 1970.
    pub(super) at: u64,
    pub(super) gateway: GatewayStatus,
    pub(super) totals: TotalStatus,
    /// The resources with the most watches.
    pub(super) resources: Vec<ResourceStatus>,
    pub(super) resources_omitted: usize,
    /// The clients that have waited longest, of all resources.
    pub(super) slowest: Vec<ClientStatus>,
    pub(super) slow_groups: Vec<SlowGroup>,
    /// The watches that were cut lately because their clients were slow, the latest first.
    pub(super) cuts: Vec<CutStatus>,
    #[serde(default)]
    pub(super) talkers: TalkersStatus,
}

/// The users and user agents that ask for most.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct TalkersStatus {
    /// The time that is counted.
    pub(super) seconds: f64,
    pub(super) users: Vec<TalkerStatus>,
    pub(super) agents: Vec<TalkerStatus>,
}

/// A user or a user agent, and what it asked for and got.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct TalkerStatus {
    pub(super) name: String,
    /// Watches that are open now.
    pub(super) watches: u64,
    pub(super) requests: u64,
    pub(super) lists: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GatewayStatus {
    pub(super) version: String,
    pub(super) commit: String,
    pub(super) uptime_seconds: u64,
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) draining: bool,
    /// The checks of `/readyz` that fail, with their reasons.
    pub(super) failing: Vec<String>,
    #[serde(default)]
    pub(super) limitation: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrafficStatus {
    pub(super) events: u64,
    pub(super) bytes: u64,
    pub(super) upstream_bytes: u64,
    /// Since the last document; `None` if that was long ago.
    pub(super) events_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TotalStatus {
    pub(super) watches: usize,
    pub(super) slow: usize,
    #[serde(flatten)]
    pub(super) traffic: TrafficStatus,
    pub(super) saved: SavedStatus,
    #[serde(default)]
    pub(super) forwarded: ForwardedStatus,
    /// `None` if nothing is compared.
    #[serde(default)]
    pub(super) shadow: Option<ShadowStatus>,
    #[serde(default)]
    pub(super) refused: u64,
    #[serde(default)]
    pub(super) memory: MemoryStatus,
}

/// Requests that upstream answered.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ForwardedStatus {
    pub(super) requests: u64,
    /// Since the last document; `None` if that was long ago.
    pub(super) requests_per_second: Option<f64>,
}

/// What was found where forwarded answers were compared with memory's.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShadowStatus {
    pub(super) equal: u64,
    pub(super) missing: u64,
    pub(super) extra: u64,
    pub(super) content: u64,
    pub(super) status: u64,
    pub(super) not_comparable: u64,
}

/// The memory of the gateway, in bytes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct MemoryStatus {
    pub(super) resident: u64,
    /// `None` without a bound.
    pub(super) limit: Option<u64>,
}

/// What the API server would have sent had the clients been connected to it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct SavedStatus {
    pub(super) bytes: u64,
    /// `None` if callers are not authorized.
    #[serde(default)]
    pub(super) requests: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceStatus {
    pub(super) name: String,
    pub(super) ready: bool,
    /// Whether nobody needs to do anything about a resource that is not ready.
    #[serde(default)]
    pub(super) harmless: bool,
    pub(super) note: String,
    pub(super) objects: u64,
    pub(super) object_bytes: u64,
    pub(super) upstream: UpstreamWatchStatus,
    pub(super) ring: Option<RingStatus>,
    pub(super) cursors: CursorSummary,
    #[serde(flatten)]
    pub(super) traffic: TrafficStatus,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpstreamWatchStatus {
    pub(super) connected: bool,
    /// How old the cache may be.
    pub(super) age_seconds: f64,
    /// `None` before the first byte.
    pub(super) silence_seconds: Option<f64>,
}

/// A cache's history.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RingStatus {
    pub(super) events: u64,
    /// `None` if it is empty.
    pub(super) oldest_version: Option<u64>,
    pub(super) newest_version: u64,
    pub(super) oldest_age_seconds: f64,
}

/// Where the watches of a cache are in its history.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct CursorSummary {
    pub(super) watches: usize,
    pub(super) current: usize,
    /// Behind, but not slow.
    pub(super) behind: usize,
    pub(super) slow: usize,
    /// Those of the slow ones that may be cut soon.
    pub(super) endangered: usize,
    /// Those of the slow ones that are cut as soon as their connection takes something.
    #[serde(default)]
    pub(super) lost: usize,
    /// Those of the current ones that wait for a version that is still in the future.
    #[serde(default)]
    pub(super) future: usize,
    /// Those of the others that have not taken all of their initial events.
    #[serde(default)]
    pub(super) initial: usize,
    /// Watches in each part of the history, the oldest first.
    pub(super) columns: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum LagState {
    #[default]
    Behind,
    Slow,
    Endangered,
    Lost,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientStatus {
    pub(super) resource: String,
    pub(super) user: String,
    pub(super) user_agent: String,
    pub(super) address: String,
    pub(super) lag_events: u64,
    pub(super) lag_seconds: f64,
    #[serde(default)]
    pub(super) state: LagState,
    /// 0 is the oldest event, 1 the newest.
    pub(super) position: f64,
}

/// Slow clients with the same user and user agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlowGroup {
    pub(super) user: String,
    pub(super) user_agent: String,
    pub(super) watches: usize,
    pub(super) lag_seconds: f64,
}

/// A watch that was cut because its client was slow.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CutStatus {
    pub(super) resource: String,
    pub(super) user: String,
    pub(super) user_agent: String,
    pub(super) address: String,
    /// `lagged`, `stalled` or `disconnected`.
    pub(super) reason: String,
    pub(super) seconds_ago: f64,
}
