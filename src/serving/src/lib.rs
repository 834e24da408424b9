//! The side of the clients: who connects, who asks, what they may have, and the answers, from memory or forwarded.
//!
//! | module | what it holds |
//! |---|---|
//! | [`serving_control`] | which side answers whom, memory or upstream, and how open watches change sides |
//! | [`admission`] | permits for lists, watches and connections; requests that wait or get 429 |
//! | `transport` | a client's connection below HTTP: TLS, coalesced writes, limits against abuse |
//! | [`watch`] | one watch: its cursor, its initial events, and its delivery to the client |
//! | [`serve`] | from a request to its response: from memory or upstream, lists, compression |
//! | [`connection`] | accepting clients; HTTP/1.1, HTTP/2 and WebSocket |
//! | [`shadow`] | forwarded answers compared with what memory would have answered |
//! | [`tables`] | watches of Tables, which clients with the same parameters share |
//! | [`passthrough`] | requests that are forwarded, and their bodies in both directions |
//! | [`auth`] | who is calling, what the caller may do, and streams whose permission is revoked |
//! | [`audit`] | the audit log of the requests that the gateway answers itself |
//! | [`metrics`], [`admin`], [`status`], [`talkers`] | what runs, for operators |
//! | [`cli`], [`config`] | flags, environment and file; the settings that result |
//!
//! Smaller modules support these: [`allocator`] counts what is allocated; [`build_info`] is the version; [`cache_rule`] decides which
//! resources may be cached; [`tls`] and [`reload`] follow files that change; [`shutdown`] is the drain; [`log_filter`] is the filter of the
//! log; [`telemetry`] is the spans of requests; [`task`] restarts long-lived tasks; [`printable`] writes text that others chose, and
//! [`numbers`] numbers with their nouns; [`stable_share`] is the same draw in every gateway.

pub mod admin;
pub mod admission;
pub mod allocator;
pub mod audit;
pub mod auth;
pub mod build_info;
pub mod cache_rule;
pub mod cli;
pub mod config;
pub mod connection;
pub mod log_filter;
pub mod metrics;
pub mod numbers;
pub mod passthrough;
pub mod printable;
pub mod reload;
pub mod serve;
pub mod serving_control;
pub mod shadow;
pub mod shutdown;
pub mod stable_share;
pub mod status;
pub mod tables;
pub mod talkers;
pub mod task;
pub mod telemetry;
pub mod tls;
mod transport;
pub mod watch;

// Under the names that they have everywhere.
use kube_fanout_cache::{cache, fairness, sync, view};
use kube_fanout_protocol as protocol;
use kube_fanout_upstream::{self as upstream, blocking, error_chain, log_limit, net};
use kube_fanout_wire::{decode, resource, selector};
