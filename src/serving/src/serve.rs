//! Answers requests: from memory if the request is a list or a watch of a cached resource in a format that the cache can produce,
//! else from upstream.
//!
//! [`Service::answer`] is the start of every request. Each stage adds what it finds out, and changes nothing of the stages before:
//!
//! | stage | adds | in |
//! |---|---|---|
//! | [`ClientRequest`] | the parsed head ([`RequestInfo`](crate::protocol::request::RequestInfo)) and the client's connection | `client_request` |
//! | `ReadRequest` | what a list or a watch asks of memory | `read_request` |
//! | `AuthorizedRead` | the caller's permission and the audit entry | `permission` |
//! | `NegotiatedRead` | the format of the response and the cache | `negotiation` |
//! | [`CacheRead`](crate::protocol::request::CacheRead) | the plan: what is selected, and the state to read | `protocol::request` |
//!
//! Then `read_state` chooses the state of the cache that is fresh enough. A list is searched, measured and streamed by [`list`],
//! compressed by [`gzip`], and a watch becomes a [`Watch`](crate::watch::Watch). At each of these steps the request can turn out to be
//! upstream's; it then becomes a [`ForwardRequest`](resources::ForwardRequest). [`resources`] is the interface through which the room
//! reaches caches and upstream.

mod answer;
mod body;
mod client_name;
mod client_request;
mod connection_table;
mod cooperation;
mod denial;
mod fresh;
pub mod gzip;
mod handover;
pub mod list;
mod lost_history;
mod negotiated_read;
mod negotiation;
mod permission;
mod read;
mod read_request;
mod read_state;
mod rebalance;
mod record;
mod relay;
mod request_timeout;
pub mod resources;
mod response;
mod service;
mod shadow;
mod side;
mod unhandled;
mod watch_compression;

pub use body::{AnswerBody, MeasuredList};
pub use client_name::forwarded_client;
pub use client_request::{ClientRequest, ConnectInfo};
pub use connection_table::{ConnectionEntry, ConnectionTable, OldestConnections};
pub use fresh::wait_until_fresh;
pub use record::response_status;
pub use service::Service;

#[cfg(test)]
mod tests;
