//! Watches over WebSocket (docs/PROTOCOL.md §4.13): the opening handshake, and events as frames. `connection::websocket` reads and
//! writes the socket.

mod client;
mod events;
mod handshake;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

pub use client::{ClientFrames, ControlRequest};
pub use events::{CloseCode, close, pong};
pub use events::{EventFrames, Framing};
use handshake::Handshake;

/// The protocol that a request asks to upgrade its connection to.
#[derive(Debug)]
pub enum UpgradeRequest {
    /// None that a watch can use.
    Http,
    /// A WebSocket, if the request is a watch.
    WebSocket(WebSocketUpgrade),
    /// A WebSocket whose handshake is not certain to be valid, so that upstream must decide.
    Upstream,
}

impl UpgradeRequest {
    /// Reads the upgrade from a request's version and headers.
    #[must_use]
    pub fn of(version: Version, headers: &HeaderMap) -> Self {
        if version != Version::HTTP_11 || !handshake::is_requested(headers) {
            return Self::Http;
        }
        handshake::read(headers).map_or(Self::Upstream, |handshake| {
            Self::WebSocket(WebSocketUpgrade(handshake))
        })
    }
}

/// The valid handshake of a watch over WebSocket.
#[derive(Debug)]
pub struct WebSocketUpgrade(Handshake);

impl WebSocketUpgrade {
    /// The head that switches protocols.
    #[must_use]
    pub fn accept(&self) -> Response<()> {
        let mut switching = Response::new(());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switching.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        self.0.accept(headers);
        switching
    }
}
