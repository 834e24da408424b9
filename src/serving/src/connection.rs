//! Client connections: accepts them, chooses HTTP/1.1 or HTTP/2, and passes requests to the service.
//!
//! `listener` runs one task per connection and is the place to start reading. `serve` answers the requests: `service` adapts it to hyper,
//! and `body` is the response body that hyper polls. A watch over HTTP/1.1 leaves hyper: `service` puts it into the connection's `hijack`
//! slot, and the listener passes it with the socket to `watch::delivery`. A WebSocket takes the same slot; `websocket` runs it once HTTP
//! has ended. Over HTTP/2 the body gives its watch to `watch::delivery` (`adoption`), and the socket stays with hyper. `go_away` ends a connection after its open requests.

mod adoption;
mod body;
mod go_away;
mod head;
mod hijack;
pub mod listener;
mod preface;
mod service;
pub mod websocket;

#[cfg(test)]
pub(crate) use body::ClientBody;
