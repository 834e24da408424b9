//! Sends requests over HTTP/1.1, HTTP/2 and WebSocket, and reads their responses.

use std::io::Read;
use std::net::SocketAddr;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, UPGRADE};
use http::request::Builder;
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// How a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http1,
    Http2,
    /// HTTP/1.1; the response may be compressed.
    Gzip,
    WebSocket,
}

/// The transports of lists, and those of watches.
pub(crate) const TRANSPORTS: [[Transport; 3]; 2] = [
    [Transport::Http1, Transport::Http2, Transport::Gzip],
    [Transport::Http1, Transport::Http2, Transport::WebSocket],
];

pub(crate) struct Clients {
    http1: Client<HttpConnector, Full<Bytes>>,
    http2: Client<HttpConnector, Full<Bytes>>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        let builder = || Client::builder(TokioExecutor::new());
        Self {
            http1: builder().build_http(),
            http2: builder().http2_only(true).build_http(),
        }
    }

    /// Sends a request without a body; returns the response with its body unread.
    pub(crate) async fn send(
        &self,
        transport: Transport,
        server: SocketAddr,
        (target, request): (String, Builder),
    ) -> Response<Incoming> {
        let whole = |request: Builder| {
            let request = request.uri(format!("http://{server}{target}"));
            request.body(Full::default()).unwrap()
        };
        match transport {
            Transport::Http1 => self.http1.request(whole(request)).await.unwrap(),
            Transport::Http2 => self.http2.request(whole(request)).await.unwrap(),
            Transport::Gzip => {
                let request = request.header(ACCEPT_ENCODING, "gzip");
                self.http1.request(whole(request)).await.unwrap()
            }
            Transport::WebSocket => send_handshake(server, request.uri(&target)).await,
        }
    }

    /// Sends a request with a body; returns the response's body.
    pub(crate) async fn post(&self, request: http::Request<Full<Bytes>>) -> Bytes {
        let answer = self.http1.request(request).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    }
}

/// Sends a WebSocket handshake on a new connection.
async fn send_handshake(server: SocketAddr, request: Builder) -> Response<Incoming> {
    let request = request
        .header("host", "localhost")
        .header("origin", "http://localhost")
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(Full::<Bytes>::default())
        .unwrap();
    let stream = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (mut requests, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
    // The task ends with the response, or with the upgraded connection.
    tokio::spawn(connection.with_upgrades());
    requests.send_request(request).await.unwrap()
}

/// The uncompressed body, and whether the response was compressed.
pub(crate) async fn read(answer: Response<Incoming>) -> (Bytes, bool) {
    let is_compressed =
        answer.headers().get(CONTENT_ENCODING) == Some(&HeaderValue::from_static("gzip"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    if !is_compressed {
        return (body, false);
    }
    let mut uncompressed = Vec::new();
    GzDecoder::new(&body[..]).read_to_end(&mut uncompressed).unwrap();
    (uncompressed.into(), true)
}

/// Removes the complete text messages from the front of the received bytes. `None` after the server's close frame.
pub(crate) fn messages(buffer: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    loop {
        let Some(&[kind, length_byte]) = buffer.first_chunk::<2>() else {
            return Some(messages);
        };
        let Some((head_len, len)) = frame_len(length_byte, buffer) else {
            return Some(messages);
        };
        if buffer.len() < head_len + len {
            return Some(messages);
        }
        let rest = buffer.split_off(head_len + len);
        let frame = std::mem::replace(buffer, rest);
        match kind {
            // A final text frame.
            0x81 => messages.push(frame[head_len..].to_vec()),
            // A ping.
            0x89 => {}
            0x88 => return None,
            other => panic!("unexpected frame with first byte {other:#x}"),
        }
    }
}

/// The lengths of a server frame's head and of its payload.
fn frame_len(length_byte: u8, frame: &[u8]) -> Option<(usize, usize)> {
    match length_byte {
        126 => {
            let len: [u8; 2] = frame.get(2..4)?.try_into().unwrap();
            Some((4, usize::from(u16::from_be_bytes(len))))
        }
        127 => {
            let len: [u8; 8] = frame.get(2..10)?.try_into().unwrap();
            Some((10, usize::try_from(u64::from_be_bytes(len)).unwrap()))
        }
        length_byte => Some((2, usize::from(length_byte))),
    }
}
