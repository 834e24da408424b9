//! How requests travel, and how answers come back.

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

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http1,
    Http2,
    /// HTTP/1.1, and the answer may be compressed.
    Gzip,
    WebSocket,
}

/// Those of lists, and those of watches.
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

    /// The head of the answer to a request without a body.
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
            Transport::WebSocket => switched(server, request.uri(&target)).await,
        }
    }

    /// The answer to a request with a body.
    pub(crate) async fn post(&self, request: http::Request<Full<Bytes>>) -> Bytes {
        let answer = self.http1.request(request).await.unwrap();
        answer.into_body().collect().await.unwrap().to_bytes()
    }
}

/// Asks for WebSocket on a connection of its own.
async fn switched(server: SocketAddr, request: Builder) -> Response<Incoming> {
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
    // It ends with the answer, or with what it was switched to.
    tokio::spawn(connection.with_upgrades());
    requests.send_request(request).await.unwrap()
}

/// The whole answer in clear, and whether it came compressed.
pub(crate) async fn read(answer: Response<Incoming>) -> (Bytes, bool) {
    let is_compressed =
        answer.headers().get(CONTENT_ENCODING) == Some(&HeaderValue::from_static("gzip"));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    if !is_compressed {
        return (body, false);
    }
    let mut clear = Vec::new();
    GzDecoder::new(&body[..]).read_to_end(&mut clear).unwrap();
    (clear.into(), true)
}

/// Takes whole text messages from the front of what has come over WebSocket. `None` when the server has said that it ends.
pub(crate) fn messages(gathered: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    loop {
        let Some(&[kind, short]) = gathered.first_chunk::<2>() else {
            return Some(messages);
        };
        let Some((head_len, len)) = frame_len(short, gathered) else {
            return Some(messages);
        };
        if gathered.len() < head_len + len {
            return Some(messages);
        }
        let rest = gathered.split_off(head_len + len);
        let frame = std::mem::replace(gathered, rest);
        match kind {
            // Text, whole.
            0x81 => messages.push(frame[head_len..].to_vec()),
            // Ping.
            0x89 => {}
            0x88 => return None,
            other => panic!("a frame of kind {other:#x}"),
        }
    }
}

/// Of a frame from a server: its head, and what follows.
fn frame_len(short: u8, frame: &[u8]) -> Option<(usize, usize)> {
    match short {
        126 => {
            let len: [u8; 2] = frame.get(2..4)?.try_into().unwrap();
            Some((4, usize::from(u16::from_be_bytes(len))))
        }
        127 => {
            let len: [u8; 8] = frame.get(2..10)?.try_into().unwrap();
            Some((10, usize::try_from(u64::from_be_bytes(len)).unwrap()))
        }
        short => Some((2, usize::from(short))),
    }
}
