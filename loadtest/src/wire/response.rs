//! One HTTP/1.1 response, fed in pieces of any length: head, then a body that is chunked, counted, or ends with the connection.
//!
//! It does not know what the body means; the pieces go to a closure in order.

use std::time::Duration;

use anyhow::{Result, bail};

/// Longest response head that is accepted: real servers send about 300 bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// Longest single chunk that is accepted; a list of 29 MB may come as one.
const CHUNK_LEN_MAX: u64 = 1 << 34;

/// What a response's head said, as far as the swarm cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// HTTP status code.
    pub status: u16,
    /// The server will close the connection after this response.
    pub closes: bool,
    /// When to come again, if it says so.
    pub retry_after: Option<Duration>,
}

/// What a Retry-After header asks for. Seconds only: the API server sends no dates, and client-go reads none.
pub fn retry_after(value: &str) -> Option<Duration> {
    let seconds: u32 = value.trim().parse().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// How far a response has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    Partial,
    /// The body is complete; so many bytes of the last piece were used.
    Complete(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Head,
    /// Inside the line that holds a chunk's size.
    Size(Size),
    Data {
        left: u64,
    },
    /// The CRLF after a chunk's data.
    DataEnd,
    /// Trailer lines after the zero chunk; `empty` while the current line holds nothing.
    Trailer {
        empty: bool,
    },
    Counted {
        left: u64,
    },
    UntilClose,
}

/// A chunk's size line, as far as it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Size {
    len: u64,
    has_digit: bool,
    /// Behind the digits: an extension, or the line's end.
    is_over: bool,
}

impl Size {
    fn next(mut self, byte: u8) -> Result<BodyState> {
        match (byte, (byte as char).to_digit(16)) {
            (b'\n', _) if !self.has_digit => bail!("a chunk without a size"),
            (b'\n', _) if self.len == 0 => return Ok(BodyState::Trailer { empty: true }),
            (b'\n', _) => return Ok(BodyState::Data { left: self.len }),
            (b'\r' | b';' | b' ', _) => self.is_over = true,
            _ if self.is_over => {}
            (_, Some(digit)) => {
                self.len = self.len * 16 + u64::from(digit);
                self.has_digit = true;
            }
            (_, None) => bail!("byte {byte:#04x} in a chunk's size"),
        }
        if self.len > CHUNK_LEN_MAX {
            bail!("a chunk of more than {CHUNK_LEN_MAX} bytes");
        }
        Ok(BodyState::Size(self))
    }
}

/// The reader of one response at a time; ready for the next after [`Progress::Complete`].
#[derive(Debug)]
pub struct Response {
    state: BodyState,
    head_bytes: Vec<u8>,
    head: Option<Head>,
}

impl Default for Response {
    fn default() -> Self {
        Self {
            state: BodyState::Head,
            head_bytes: Vec::new(),
            head: None,
        }
    }
}

impl Response {
    /// The head of the response being read, once it is complete.
    pub fn head(&self) -> Option<Head> {
        self.head
    }

    /// Whether the connection's end also ends the body in good order.
    pub fn ends_with_connection(&self) -> bool {
        self.state == BodyState::UntilClose
    }

    /// Reads one piece; body bytes go to `body` in order, framing removed.
    pub fn feed(&mut self, piece: &[u8], mut body: impl FnMut(Head, &[u8])) -> Result<Progress> {
        let mut at = 0;
        if self.state == BodyState::Head {
            match self.feed_head(piece)? {
                None => return Ok(Progress::Partial),
                Some(used) => at = used,
            }
        }
        let Some(head) = self.head else {
            bail!("a body without a head")
        };
        loop {
            if self.state == (BodyState::Counted { left: 0 }) {
                return Ok(self.complete(at));
            }
            if at == piece.len() {
                return Ok(Progress::Partial);
            }
            if let BodyState::Data { left } | BodyState::Counted { left } = self.state {
                let take = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(piece.len() - at);
                body(head, &piece[at..at + take]);
                at += take;
                let left = left - take as u64;
                self.state = match self.state {
                    BodyState::Data { .. } if left == 0 => BodyState::DataEnd,
                    BodyState::Data { .. } => BodyState::Data { left },
                    _ => BodyState::Counted { left },
                };
            } else if self.state == BodyState::UntilClose {
                body(head, &piece[at..]);
                return Ok(Progress::Partial);
            } else {
                let byte = piece[at];
                at += 1;
                if self.frame_byte(byte)? {
                    return Ok(self.complete(at));
                }
            }
        }
    }

    fn complete(&mut self, used: usize) -> Progress {
        self.state = BodyState::Head;
        Progress::Complete(used)
    }

    /// One byte of chunk framing; true when the body is complete.
    fn frame_byte(&mut self, byte: u8) -> Result<bool> {
        self.state = match (self.state, byte) {
            (BodyState::Size(size), _) => size.next(byte)?,
            (BodyState::DataEnd, b'\r') => BodyState::DataEnd,
            (BodyState::DataEnd, b'\n') => BodyState::Size(Size::default()),
            (BodyState::Trailer { empty: true }, b'\n') => return Ok(true),
            (BodyState::Trailer { .. }, b'\n') => BodyState::Trailer { empty: true },
            (BodyState::Trailer { empty }, b'\r') => BodyState::Trailer { empty },
            (BodyState::Trailer { .. }, _) => BodyState::Trailer { empty: false },
            (state, _) => bail!("byte {byte:#04x} breaks the chunk framing in {state:?}"),
        };
        Ok(false)
    }

    /// Collects the head; returns how many bytes of `piece` belonged to it once it is complete.
    fn feed_head(&mut self, piece: &[u8]) -> Result<Option<usize>> {
        self.head = None;
        let before = self.head_bytes.len();
        let from = before.saturating_sub(3);
        self.head_bytes.extend_from_slice(piece);
        let Some(end) =
            memchr::memmem::find(&self.head_bytes[from..], b"\r\n\r\n").map(|i| from + i + 4)
        else {
            if self.head_bytes.len() > HEAD_LEN_MAX {
                bail!("a response head of more than {HEAD_LEN_MAX} bytes");
            }
            return Ok(None);
        };
        self.parse_head(end)?;
        self.head_bytes = Vec::new();
        Ok(Some(end - before))
    }

    fn parse_head(&mut self, end: usize) -> Result<()> {
        let text = String::from_utf8_lossy(&self.head_bytes[..end]).to_ascii_lowercase();
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let Some(status) = first
            .strip_prefix("http/1.")
            .and_then(|rest| rest.get(2..5)?.parse::<u16>().ok())
        else {
            bail!("not an HTTP/1 response: {first:?}");
        };
        let (mut closes, mut told) = (first.starts_with("http/1.0"), None);
        let mut state = BodyState::UntilClose;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match (name, value.trim()) {
                ("transfer-encoding", "chunked") => state = BodyState::Size(Size::default()),
                ("content-length", value) if state == BodyState::UntilClose => {
                    state = BodyState::Counted {
                        left: value.parse()?,
                    };
                }
                ("connection", "close") => closes = true,
                ("retry-after", value) => told = retry_after(value),
                _ => {}
            }
        }
        self.state = state;
        self.head = Some(Head {
            status,
            closes,
            retry_after: told,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
