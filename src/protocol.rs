//! The Kubernetes list/watch protocol as HTTP carries it: what a request asks, and how answers and refusals are written. Pure:
//! no sockets, no clock, no `async`.

pub mod continue_token;
pub mod indent;
mod pieces;
pub mod request;
pub mod status;

pub use pieces::BufList;
pub(crate) use pieces::ItemRange;
