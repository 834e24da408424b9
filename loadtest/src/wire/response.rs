//! One HTTP/1.1 response, fed in pieces of any length: head, then a body that is chunked, has a length, or ends with the connection.
//!
//! The reader does not interpret the body; its pieces go to a closure in order.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use httparse::{EMPTY_HEADER, Status};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest response head that is accepted: real servers send about 300 bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Headers of a response that are accepted.
const HEADERS_MAX: usize = 64;
/// Longest line with a chunk's size, extensions included, that is accepted.
const SIZE_LINE_LEN_MAX: usize = 1_024;
/// Longest single chunk that is accepted; a list of 29 MB may come as one.
const CHUNK_LEN_MAX: u64 = 1 << 34;

/// The parts of a response's head that clients here use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// The server will close the connection after this response.
    pub closes: bool,
    /// The time to wait before the next request, from Retry-After.
    pub retry_after: Option<Duration>,
}

/// The time in a Retry-After header. Seconds only: the API server sends no dates, and client-go reads none.
pub fn retry_after(value: &str) -> Option<Duration> {
    let seconds: u32 = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// How far a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    Partial,
    /// The body is complete; this many bytes of the last piece belonged to it.
    Complete(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum BodyState {
    #[default]
    Head,
    /// In the line with a chunk's size.
    Size,
    Data {
        left: u64,
    },
    /// In the CRLF after a chunk's data.
    DataEnd,
    /// In a trailer line after the last chunk; `empty` while the line has no byte.
    Trailer {
        empty: bool,
    },
    /// In a body whose length is in the head.
    Counted {
        left: u64,
    },
    UntilClose,
}

/// The reader of one response at a time; ready for the next after [`Progress::Complete`].
#[derive(Debug, Default)]
pub struct Response {
    state: BodyState,
    /// The head, or the line with a chunk's size, as far as it has come.
    pending: Vec<u8>,
    head: Option<Head>,
}

impl Response {
    /// The head of the response being read, once it is complete.
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Whether the end of the connection completes the body.
    pub fn ends_with_connection(&self) -> bool {
        self.state == BodyState::UntilClose
    }

    /// Reads one piece; the bytes of the body go to `body` in order, without framing.
    pub fn feed(&mut self, piece: &[u8], mut body: impl FnMut(Head, &[u8])) -> Result<Progress> {
        let mut at = 0;
        if self.state == BodyState::Head {
            match self.feed_head(piece)? {
                None => return Ok(Progress::Partial),
                Some(used) => at = used,
            }
        }
        let head = self.head.context("a body without a head")?;
        loop {
            if self.state == (BodyState::Counted { left: 0 }) {
                return Ok(self.complete(at));
            }
            let rest = &piece[at..];
            let Some(first) = rest.first() else {
                return Ok(Progress::Partial);
            };
            match self.state {
                BodyState::Data { left } | BodyState::Counted { left } => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    body(head, &rest[..len]);
                    at += len;
                    let left = left - len as u64;
                    self.state = match self.state {
                        BodyState::Data { .. } if left == 0 => BodyState::DataEnd,
                        BodyState::Data { .. } => BodyState::Data { left },
                        _ => BodyState::Counted { left },
                    };
                }
                BodyState::UntilClose => {
                    body(head, rest);
                    return Ok(Progress::Partial);
                }
                _ => {
                    at += 1;
                    if self.framing_byte(*first)? {
                        return Ok(self.complete(at));
                    }
                }
            }
        }
    }

    fn complete(&mut self, used: usize) -> Progress {
        self.state = BodyState::Head;
        Progress::Complete(used)
    }

    /// One byte of chunk framing; true when the body is complete.
    fn framing_byte(&mut self, byte: u8) -> Result<bool> {
        self.state = match (self.state, byte) {
            (BodyState::Size, _) => self.size_byte(byte)?,
            (BodyState::DataEnd, b'\r') => BodyState::DataEnd,
            (BodyState::DataEnd, b'\n') => BodyState::Size,
            (BodyState::Trailer { empty: true }, b'\n') => return Ok(true),
            (BodyState::Trailer { .. }, b'\n') => BodyState::Trailer { empty: true },
            (BodyState::Trailer { empty }, b'\r') => BodyState::Trailer { empty },
            (BodyState::Trailer { .. }, _) => BodyState::Trailer { empty: false },
            (state, _) => bail!("byte {byte:#04x} breaks the chunk framing in {state:?}"),
        };
        Ok(false)
    }

    fn size_byte(&mut self, byte: u8) -> Result<BodyState> {
        // httparse takes an empty size for 0.
        let is_size = !self.pending.is_empty() || byte.is_ascii_hexdigit();
        ensure!(is_size, "a chunk without a size");
        self.pending.push(byte);
        let parsed = httparse::parse_chunk_size(&self.pending);
        let parsed = parsed.map_err(|_| anyhow::anyhow!("a chunk with an invalid size"))?;
        let Status::Complete((_, size)) = parsed else {
            ensure!(
                self.pending.len() < SIZE_LINE_LEN_MAX,
                "a line of more than {SIZE_LINE_LEN_MAX} bytes with a chunk's size"
            );
            return Ok(BodyState::Size);
        };
        self.pending.clear();
        match size {
            0 => Ok(BodyState::Trailer { empty: true }),
            1..=CHUNK_LEN_MAX => Ok(BodyState::Data { left: size }),
            _ => bail!("a chunk of more than {CHUNK_LEN_MAX} bytes"),
        }
    }

    /// Collects the head; returns how many bytes of `piece` belonged to it once it is complete.
    fn feed_head(&mut self, piece: &[u8]) -> Result<Option<usize>> {
        self.head = None;
        let before = self.pending.len();
        self.pending.extend_from_slice(piece);
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.pending);
        let Status::Complete(len) = parsed.context("not an HTTP/1 response")? else {
            ensure!(
                self.pending.len() <= HEAD_LEN_MAX,
                "a response head of more than {HEAD_LEN_MAX} bytes"
            );
            return Ok(None);
        };
        let mut head = Head {
            status: response.code.context("a response without a status")?,
            closes: response.version == Some(0),
            retry_after: None,
        };
        let mut state = BodyState::UntilClose;
        for header in response.headers {
            let value = String::from_utf8_lossy(header.value);
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
                state = BodyState::Size;
            } else if is("content-length") && state == BodyState::UntilClose {
                let left = value.parse()?;
                state = BodyState::Counted { left };
            } else if is("connection") {
                head.closes |= value.eq_ignore_ascii_case("close");
            } else if is("retry-after") {
                head.retry_after = retry_after(&value);
            }
        }
        (self.state, self.head) = (state, Some(head));
        self.pending = Vec::new();
        Ok(Some(len - before))
    }
}

/// Reads one response from a stream, drops its body, and returns its head. `has_started` becomes true with its first byte.
pub async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
    has_started: &mut bool,
) -> Result<Head> {
    let mut response = Response::default();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let len = stream.read(&mut buffer).await?;
        ensure!(len > 0, "closed within a response");
        *has_started = true;
        if let Progress::Complete(_) = response.feed(&buffer[..len], |_, _| ())? {
            return response.head().context("a body without a head");
        }
    }
}

#[cfg(test)]
mod tests;
