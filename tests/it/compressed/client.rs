//! Clients that decode a watch as it comes, and show the events that are whole.

use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;

use flate2::write::GzDecoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT, VARY};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::PATIENCE;
use crate::support::client::HttpVersion;

/// What a client asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked<'a> {
    pub(super) target: &'a str,
    pub(super) accept: &'a str,
    pub(super) encoding: &'a str,
    pub(super) agent: &'a str,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            target: "/api/v1/configmaps?watch=1",
            accept: "application/json",
            encoding: "gzip",
            agent: "compressed/1",
        }
    }
}

/// A watch on a connection of its own.
pub(super) struct Client {
    body: Incoming,
    decoded: Decoded,
    is_binary: bool,
    /// The events that were not taken, and where the one begins that is not whole.
    events: Vec<Range<usize>>,
    begin: usize,
}

/// What the body has said so far.
enum Decoded {
    Plain(Vec<u8>),
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Client {
    pub(super) async fn open(http: HttpVersion, server: SocketAddr, asked: &Asked<'_>) -> Self {
        let request = http::Request::get(format!("http://gateway{}", asked.target))
            .header("host", "gateway")
            .header(ACCEPT, asked.accept)
            .header(ACCEPT_ENCODING, asked.encoding)
            .header(USER_AGENT, asked.agent)
            .body(Full::<Bytes>::default())
            .unwrap();
        let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
        // The connection ends with the response's body.
        let response = match http {
            HttpVersion::One => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                timeout(PATIENCE, sender.send_request(request)).await
            }
            HttpVersion::Two => {
                let executor = TokioExecutor::new();
                let handshake = hyper::client::conn::http2::handshake(executor, io);
                let (mut sender, connection) = handshake.await.unwrap();
                tokio::spawn(connection);
                timeout(PATIENCE, sender.send_request(request)).await
            }
        };
        let (head, body) = response.unwrap().unwrap().into_parts();
        assert_eq!(head.status, 200, "{asked:?}");
        let header = |name| head.headers.get(name).map(|value| value.to_str().unwrap());
        let decoded = match header(CONTENT_ENCODING) {
            None => Decoded::Plain(Vec::new()),
            Some("gzip") => Decoded::Gzip(Box::new(GzDecoder::new(Vec::new()))),
            Some(other) => panic!("{other}"),
        };
        let varies = matches!(decoded, Decoded::Gzip(_)).then_some("Accept-Encoding");
        assert_eq!(header(VARY), varies, "{asked:?}");
        Self {
            body,
            decoded,
            is_binary: header(CONTENT_TYPE).unwrap().contains("protobuf"),
            events: Vec::new(),
            begin: 0,
        }
    }

    pub(super) const fn is_gzip(&self) -> bool {
        matches!(self.decoded, Decoded::Gzip(_))
    }

    fn bytes(&self) -> &[u8] {
        match &self.decoded {
            Decoded::Plain(bytes) => bytes,
            Decoded::Gzip(decoder) => decoder.get_ref(),
        }
    }

    /// Reads what comes next; false at the end.
    async fn read(&mut self) -> bool {
        let Some(frame) = timeout(PATIENCE, self.body.frame()).await.unwrap() else {
            return false;
        };
        let part = frame.unwrap().into_data().unwrap_or_default();
        match &mut self.decoded {
            Decoded::Plain(bytes) => bytes.extend_from_slice(&part),
            Decoded::Gzip(decoder) => {
                decoder.write_all(&part).unwrap();
                decoder.flush().unwrap();
            }
        }
        while let Some(len) = event_len(&self.bytes()[self.begin..], self.is_binary) {
            self.events.push(self.begin..self.begin + len);
            self.begin += len;
        }
        true
    }

    /// Reads until it has the event of an object with this name, and nothing but bookmarks behind it.
    pub(super) async fn until(&mut self, name: &str) {
        let has_it = |bytes: &[u8]| memchr::memmem::find(bytes, name.as_bytes()).is_some();
        let reading = async {
            while !self.steady().next_back().is_some_and(has_it) {
                assert!(self.read().await, "the watch ended before {name}");
            }
        };
        // Bookmarks, which may come meanwhile, do not extend it.
        let read = timeout(PATIENCE, reading).await;
        read.unwrap_or_else(|_| panic!("no {name}"));
    }

    /// The events that were not taken.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.events.iter().map(|range| &self.bytes()[range.clone()])
    }

    /// Those of them that all clients have at the same place.
    pub(super) fn steady(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.events().filter(|event| !is_bookmark(event))
    }

    /// Returns the events without bookmarks, one after the other, and forgets all.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let taken = self.steady().collect::<Vec<_>>().concat();
        self.events.clear();
        let (begin, bytes) = match &mut self.decoded {
            Decoded::Plain(bytes) => (&mut self.begin, bytes),
            Decoded::Gzip(decoder) => (&mut self.begin, decoder.get_mut()),
        };
        let rest = bytes.split_off(std::mem::take(begin));
        *bytes = rest;
        taken
    }

    /// Reads to the end, where the member must be whole; returns everything.
    pub(super) async fn into_events(mut self) -> Vec<Vec<u8>> {
        while self.read().await {}
        assert_eq!(self.begin, self.bytes().len(), "the last event is whole");
        let events = self.events().map(<[u8]>::to_vec).collect();
        if let Decoded::Gzip(decoder) = self.decoded {
            // Compares length and checksum.
            decoder.finish().unwrap();
        }
        events
    }
}

/// Whether an event is a bookmark, in either form.
pub(super) fn is_bookmark(event: &[u8]) -> bool {
    memchr::memmem::find(&event[..event.len().min(32)], b"BOOKMARK").is_some()
}

/// The length of the event that these bytes begin with, if it is whole.
fn event_len(bytes: &[u8], is_binary: bool) -> Option<usize> {
    if !is_binary {
        return memchr::memchr(b'\n', bytes).map(|end| end + 1);
    }
    let len = u32::from_be_bytes(*bytes.first_chunk()?);
    let len = usize::try_from(len).unwrap() + 4;
    (bytes.len() >= len).then_some(len)
}
