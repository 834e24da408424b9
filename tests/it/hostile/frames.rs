//! An HTTP/2 connection frame by frame, for sequences that no client library sends (RFC 9113, RFC 7541).

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::hostile::wire::send;
use crate::support::PATIENCE;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PING_LEN: usize = 8;

/// A frame that was received (RFC 9113 §4.1).
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The big-endian number at offset `at` of the payload, such as an error code or a last stream.
    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub(crate) fn is(&self, kind: u8, stream: u32) -> bool {
        self.kind == kind && self.stream == stream
    }

    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The bytes of one frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RESET, 0, stream, &CANCEL.to_be_bytes())
}

pub(crate) fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in values {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// A GET request: one HEADERS frame.
pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(
        HEADERS,
        END_STREAM | END_HEADERS,
        stream,
        &head("GET", path),
    )
}

/// The header block of a request; it uses the static table only.
pub(crate) fn head(method: &str, path: &str) -> Vec<u8> {
    let mut block = vec![if method == "GET" { 0x82 } else { 0x83 }, 0x86, 0x04];
    put_text(path, &mut block);
    block.push(0x01);
    put_text("a", &mut block);
    block
}

/// A header that is not added to the dynamic table.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x00];
    put_text(name, &mut block);
    put_text(value, &mut block);
    block
}

/// A header that is added to the dynamic table: afterwards the one byte [`INDEXED`] stands for all of it.
pub(crate) fn indexed_header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0x40];
    put_text(name, &mut block);
    put_text(value, &mut block);
    block
}

/// The newest entry of the dynamic table, as an indexed header field.
pub(crate) const INDEXED: u8 = 0x80 | 62;

/// Appends a string literal: its length, as an integer with a prefix of seven bits, then the text.
fn put_text(text: &str, block: &mut Vec<u8>) {
    let mut len = text.len();
    if len < 127 {
        block.push(u8::try_from(len).unwrap());
    } else {
        block.push(127);
        len -= 127;
        while len >= 128 {
            block.push(u8::try_from(len % 128).unwrap() | 128);
            len /= 128;
        }
        block.push(u8::try_from(len).unwrap());
    }
    block.extend_from_slice(text.as_bytes());
}

/// A connection that sends only what the test sends: it acknowledges nothing by itself. `S` is the socket or its reading half.
pub(crate) struct RawConnection<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    pings: u64,
}

impl RawConnection {
    /// Connects and sends the preface with these settings.
    pub(crate) async fn connect(server: SocketAddr, values: &[(u16, u32)]) -> Self {
        let mut raw = Self {
            stream: TcpStream::connect(server).await.unwrap(),
            buffer: Vec::new(),
            pings: 0,
        };
        raw.send(&[PREFACE, &settings(values)].concat()).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        send(&mut self.stream, bytes).await;
    }

    /// Splits the connection, so that a test can write and read concurrently.
    pub(crate) fn split(self) -> (RawConnection<OwnedReadHalf>, OwnedWriteHalf) {
        let (reader, writer) = self.stream.into_split();
        let reader = RawConnection {
            stream: reader,
            buffer: self.buffer,
            pings: self.pings,
        };
        (reader, writer)
    }

    /// Sends a PING and returns the frames that arrived before its acknowledgement. By then the gateway has read all that was sent.
    pub(crate) async fn sync(&mut self) -> Vec<Frame> {
        self.pings += 1;
        let payload = self.pings.to_be_bytes();
        assert_eq!(payload.len(), PING_LEN);
        self.send(&frame(PING, 0, 0, &payload)).await;
        let mut frames = self
            .until(|frame| frame.kind == PING && frame.flags == ACK && frame.payload == payload)
            .await;
        frames.pop();
        frames
    }

    /// Reads to the end of the connection; returns the error code of the last GOAWAY.
    pub(crate) async fn goaway(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                code = Some(frame.u32_at(4));
            }
        }
        code
    }
}

impl RawConnection<OwnedReadHalf> {
    /// Joins both halves again.
    pub(crate) fn reunite(self, writer: OwnedWriteHalf) -> RawConnection {
        RawConnection {
            stream: self.stream.reunite(writer).unwrap(),
            buffer: self.buffer,
            pings: self.pings,
        }
    }
}

impl<S: AsyncRead + Unpin> RawConnection<S> {
    /// The next frame; `None` once the connection is closed or reset.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let mut chunk = [0; 4 << 10];
            let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut chunk)).await;
            match read.unwrap() {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.buffer.get(..9)?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let frame = Frame {
            kind: head[3],
            flags: head[4],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload: self.buffer.get(9..9 + len)?.to_vec(),
        };
        self.buffer.drain(..9 + len);
        Some(frame)
    }

    /// Reads until `is_last` returns true for a frame; returns this frame and those before it.
    pub(crate) async fn until(&mut self, is_last: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let is_found = is_last(&frame);
            frames.push(frame);
            if is_found {
                return frames;
            }
        }
        panic!("the connection was closed after {frames:?}");
    }
}

/// The number of bytes of DATA on one stream.
pub(crate) fn data_len(frames: &[Frame], stream: u32) -> usize {
    let data = frames.iter().filter(|frame| frame.is(DATA, stream));
    data.map(|frame| frame.payload.len()).sum()
}
