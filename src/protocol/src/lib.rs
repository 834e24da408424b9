//! The Kubernetes list and watch protocol as HTTP carries it: how requests are parsed, and how responses and errors are written.
//!
//! [`request`] parses a request's path, media types and options into a plan, [`continue_token`] the tokens of paged lists.
//! [`status`] is the one table of error responses. [`BufList`] is the body frame that list items and events share without copying;
//! [`indent`] makes indented JSON. [`relay`] and [`handover`] are paths of the gateway's own.
//! [`websocket`] has the handshake and the frames of watches over WebSocket. Start with
//! [`request::CacheRead::decide`]. Pure: no sockets, no clock, no `async`.

mod audit_id;
mod buf_list;
pub mod continue_token;
pub mod gzip;
pub mod handover;
pub mod indent;
pub mod relay;
pub mod request;
pub mod status;
pub mod websocket;

pub use audit_id::{AUDIT_ID, audit_id, random_uuid, with_audit_id};
pub use buf_list::{BufList, ItemRange};

// Under the names that they have everywhere.
use kube_fanout_cache::{cache, view};
use kube_fanout_wire::{resource, selector};
