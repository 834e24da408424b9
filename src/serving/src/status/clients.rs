//! Clients that are behind, and those that talk most, as the document names them.

use serde::Serialize;

/// How badly a client is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LagState {
    /// It waits, but not for long yet.
    Behind,
    /// Its first unread event has waited for more than five seconds.
    Slow,
    /// It is slow, and the history may soon drop its first unread event.
    Endangered,
    /// The history has dropped that event: its watch is cut as soon as its connection takes something.
    Lost,
}

/// A client that is behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientStatus {
    /// The cache that it watches.
    pub resource: String,
    /// The name of the user; empty if callers are not authenticated.
    pub user: String,
    /// Its `User-Agent`.
    pub user_agent: String,
    /// Its address.
    pub address: String,
    /// Events of the resource since the first one that it has not read, whether its selector shows them or not.
    pub lag_events: u64,
    /// How long the first unread event has waited; if the history has dropped it, at least.
    pub lag_seconds: f64,
    /// How badly it is behind.
    pub state: LagState,
    /// Where it is in the history: 0 is the oldest event, 1 the newest.
    pub position: f64,
    /// How long its watch has been open.
    pub open_seconds: f64,
}

/// Slow clients with the same user and user agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlowGroup {
    /// The name of the user; empty if callers are not authenticated.
    pub user: String,
    /// Their `User-Agent`.
    pub user_agent: String,
    /// Slow watches.
    pub watches: usize,
    /// The longest time that an unread event has waited.
    pub lag_seconds: f64,
}

/// The users and user agents that talk most: those with most of any of the numbers. A number is too low by a thirtieth of its sum over all
/// names at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TalkersStatus {
    /// The time that is counted, up to now: the last ten to twenty minutes, or since the first request.
    pub seconds: f64,
    /// By user.
    pub users: Vec<TalkerStatus>,
    /// By user agent.
    pub agents: Vec<TalkerStatus>,
}

/// A user or a user agent, and what it asked for and got.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TalkerStatus {
    /// The name; empty if it is not known.
    pub name: String,
    /// Watches that are open now.
    pub watches: u64,
    /// Requests that were answered from memory or forwarded.
    pub requests: u64,
    /// The lists among them.
    pub lists: u64,
    /// Bytes of bodies of responses.
    pub bytes: u64,
}
