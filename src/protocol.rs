//! The Kubernetes list/watch protocol as HTTP carries it: what a request asks, and how answers and refusals are written. Pure:
//! no sockets, no clock, no `async`.

mod audit_id;
mod buf_list;
pub mod continue_token;
pub mod indent;
pub mod request;
pub mod status;
pub mod websocket;

#[cfg(test)]
pub(crate) use audit_id::AUDIT_ID;
pub use audit_id::{audit_id, with_audit_id};
pub use buf_list::BufList;
pub(crate) use buf_list::ItemRange;
