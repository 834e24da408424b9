//! Watches over WebSocket (protocol.md §4.13): the same stream as over HTTP, one frame an event.
//!
//! ```text
//! request ── Wish::of ──▶ answered as any watch ── Wish::switch ──▶ 101, and the stream's body in a handover
//!                                                                       │ taken when HTTP has ended on the connection
//!                                                                       ▼
//!                                              Socket::run: body ── EventFrames ──▶ client, client ──▶ ClientFrames
//! ```
//!
//! It holds no queue and no task of its own: the connection's task goes on with the socket.

mod client;
mod events;
mod handshake;
mod origin;
mod socket;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;

use super::handover::{HijackSlot, Hijacked};
use crate::protocol::BufList;
pub use client::{ClientFrames, ControlRequest};
pub use events::{EventFrames, Framing};
use handshake::{Handshake, HandshakeFault};
pub use socket::Socket;
#[cfg(test)]
pub(crate) use socket::SocketIo;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// What a socket sends, as the body of an HTTP watch would have.
type StreamBody = UnsyncBoxBody<BufList, BoxError>;

/// What a request wants its connection to become.
#[derive(Debug)]
pub enum UpgradeRequest {
    /// Nothing, or nothing that watches know of.
    Http,
    /// A WebSocket, if the request is a watch.
    Socket(PendingUpgrade),
    /// A WebSocket whose handshake only upstream can judge, or on a connection that cannot become one.
    Upstream,
}

impl UpgradeRequest {
    /// Reads it off a request.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Self {
        if request.version() != Version::HTTP_11 || !handshake::is_asked(request.headers()) {
            return Self::Http;
        }
        let handover = request.extensions().get::<HijackSlot>().cloned();
        let connection = request.extensions().get::<OnUpgrade>().cloned();
        let handshake = handshake::read(request.headers());
        match (handover, connection, handshake) {
            (.., Err(HandshakeFault::Unclear)) => Self::Upstream,
            (Some(handover), Some(connection), handshake) => Self::Socket(PendingUpgrade {
                handover,
                connection,
                handshake,
            }),
            _ => Self::Upstream,
        }
    }
}

/// A client's wish to get a watch over WebSocket.
#[derive(Debug)]
pub struct PendingUpgrade {
    handover: HijackSlot,
    connection: OnUpgrade,
    handshake: Result<Handshake, HandshakeFault>,
}

impl PendingUpgrade {
    /// Turns the answer to a watch into one over WebSocket. Refusals stay what they are: the server looks at the handshake
    /// after everything else.
    #[must_use]
    pub fn switch<B>(self, answer: Response<B>, whole: impl FnOnce(Bytes) -> B) -> Response<B>
    where
        B: http_body::Body<Data = BufList> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if answer.status() != StatusCode::OK {
            return answer;
        }
        let handshake = match self.handshake {
            Ok(handshake) => handshake,
            Err(unfit) => return refused(&unfit).map(whole),
        };
        let framing = Framing::of(answer.headers().get(CONTENT_TYPE));
        let body = answer.into_body().map_err(Into::into).boxed_unsync();
        let socket = Socket::new(self.connection, body, framing);
        self.handover.put(Hijacked::WebSocket(Box::new(socket)));
        let mut switching = Response::new(whole(Bytes::new()));
        *switching.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switching.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        handshake.accept(headers);
        switching
    }
}

/// The server's own words, bare of the headers that other answers have.
fn refused(unfit: &HandshakeFault) -> Response<Bytes> {
    let (status, text) = unfit.told();
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if *unfit == HandshakeFault::Version {
        headers.insert(handshake::VERSION, HeaderValue::from_static("13"));
    }
    response
}

fn no_body() -> StreamBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests;
