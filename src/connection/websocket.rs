//! A watch over WebSocket (docs/PROTOCOL.md §4.13): the same stream as over HTTP, with one WebSocket message per event.
//!
//! It needs no queue and no task of its own: the connection's task runs [`Socket`] once HTTP has ended on the connection.

mod socket;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};

use crate::protocol::BufList;
pub use socket::Socket;
#[cfg(test)]
pub(crate) use socket::SocketIo;

/// The events to send, as the body of a watch over HTTP.
pub(crate) type StreamBody = UnsyncBoxBody<BufList, Box<dyn std::error::Error + Send + Sync>>;

fn no_body() -> StreamBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests;
