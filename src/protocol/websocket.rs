//! Watches over WebSocket (docs/PROTOCOL.md §4.13): the opening handshake, and events as frames. `connection::websocket` reads and
//! writes the socket.

mod client;
mod events;
mod handshake;
mod origin;

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

pub use client::{ClientFrames, ControlRequest};
pub(crate) use events::{CloseCode, close, pong};
pub use events::{EventFrames, Framing};
use handshake::{Handshake, HandshakeFault};

/// The protocol that a request asks to upgrade its connection to.
#[derive(Debug)]
pub enum UpgradeRequest {
    /// None that a watch can use.
    Http,
    /// A WebSocket, if the request is a watch.
    WebSocket(WebSocketUpgrade),
    /// A WebSocket whose handshake only upstream can validate.
    Upstream,
}

impl UpgradeRequest {
    /// Reads the upgrade from a request's version and headers.
    #[must_use]
    pub fn of(version: Version, headers: &HeaderMap) -> Self {
        if version != Version::HTTP_11 || !handshake::is_requested(headers) {
            return Self::Http;
        }
        match handshake::read(headers) {
            Err(HandshakeFault::Unclear) => Self::Upstream,
            handshake => Self::WebSocket(WebSocketUpgrade(handshake)),
        }
    }
}

/// The handshake of a watch over WebSocket, valid or not.
#[derive(Debug)]
pub struct WebSocketUpgrade(Result<Handshake, HandshakeFault>);

impl WebSocketUpgrade {
    /// The response to a watch that was accepted: the head that switches protocols, or the API server's response to an invalid handshake,
    /// which it checks last.
    #[must_use]
    pub fn accept(&self) -> Response<Bytes> {
        let handshake = match &self.0 {
            Ok(handshake) => handshake,
            Err(fault) => return refused(fault),
        };
        let mut switching = Response::new(Bytes::new());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switching.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        handshake.accept(headers);
        switching
    }
}

/// The response to an invalid handshake. It has only the headers that the API server sends.
fn refused(fault: &HandshakeFault) -> Response<Bytes> {
    let (status, text) = fault.error_response();
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if *fault == HandshakeFault::Version {
        headers.insert(handshake::VERSION, HeaderValue::from_static("13"));
    }
    response
}
