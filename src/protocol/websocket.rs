//! Watches over WebSocket (docs/PROTOCOL.md §4.13): the opening handshake, and events as frames. The connection's part, which reads and
//! writes the socket, is `connection::websocket`.

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

/// The connection of a request can become a WebSocket: an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanSwitch;

/// What a request asks its connection to become.
#[derive(Debug)]
pub enum UpgradeRequest {
    /// Nothing that a watch knows.
    Http,
    /// A WebSocket, if the request is a watch.
    WebSocket(WebSocketUpgrade),
    /// A WebSocket whose handshake only upstream can judge.
    Upstream,
}

impl UpgradeRequest {
    /// Reads it from a request's version and headers.
    #[must_use]
    pub fn of(version: Version, headers: &HeaderMap) -> Self {
        if version != Version::HTTP_11 || !handshake::is_asked(headers) {
            return Self::Http;
        }
        match handshake::read(headers) {
            Err(HandshakeFault::Unclear) => Self::Upstream,
            handshake => Self::WebSocket(WebSocketUpgrade(handshake)),
        }
    }
}

/// The handshake of a watch over WebSocket, good or bad.
#[derive(Debug)]
pub struct WebSocketUpgrade(Result<Handshake, HandshakeFault>);

impl WebSocketUpgrade {
    /// The head that switches protocols, for a watch that was accepted.
    ///
    /// # Errors
    /// The API server's own answer to a bad handshake, which it checks after everything else.
    pub fn accept(self) -> Result<Response<()>, Response<Bytes>> {
        let handshake = self.0.map_err(|fault| refused(&fault))?;
        let mut switching = Response::new(());
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switching.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        handshake.accept(headers);
        Ok(switching)
    }
}

/// Has no headers but those that the API server sends here.
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
