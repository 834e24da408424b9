//! Client connections: accepts them, chooses HTTP/1.1 or HTTP/2, and passes requests to the service.
//!
//! `listener` runs one task per connection and is the place to start reading. An [`HttpService`] answers the requests: the gateway's, or
//! the embedded API server. `service` adapts it to hyper, and `body` is the response body that hyper polls. A watch over HTTP/1.1 leaves
//! hyper: `service` puts it into the connection's `hijack` slot, and the listener passes it with the socket to `watch::delivery`. A
//! WebSocket takes the same slot; `websocket` runs it once HTTP has ended. With [`GoAway`] a service ends a connection.

mod body;
mod go_away;
mod head;
mod hijack;
pub mod listener;
mod preface;
mod service;
pub mod websocket;

pub(crate) use body::ClientBody;
pub use go_away::GoAway;
pub use service::HttpService;
