//! Finds the request lines in what a client sends over HTTP/1.1, because the library for URIs silently cuts a target off at `#`. It only
//! looks: hyper parses the same bytes, refuses what is no HTTP, and decides where a message ends.

use std::collections::VecDeque;

/// Longer lines end the search; hyper refuses a head of this length.
const LINE_LEN_MAX: usize = 64 << 10;
/// Requests that may be read before the first of them is served; more than fit into hyper's buffer with any sense. Whatever comes over a
/// tunnel is no request.
const AHEAD_MAX: usize = 4096;

/// The search on one connection.
#[derive(Debug, Default)]
pub(super) struct RequestLines {
    part: MessagePart,
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Whether the body of the message being read is chunked, and its length otherwise.
    is_chunked: bool,
    length: u64,
    /// Whether the target has a fragment, of each request that is not served yet.
    fragments: VecDeque<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MessagePart {
    #[default]
    RequestLine,
    Fields,
    /// A body, or a chunk with the line end behind it.
    Data {
        left: u64,
    },
    ChunkSize,
    Trailers,
    /// The search has ended.
    Unknown,
}

impl RequestLines {
    /// Takes what was read next.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.part != MessagePart::Unknown {
            if let MessagePart::Data { left } = self.part {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = &bytes[len..];
                self.part = match left - len as u64 {
                    0 if self.is_chunked => MessagePart::ChunkSize,
                    0 => MessagePart::RequestLine,
                    left => MessagePart::Data { left },
                };
                continue;
            }
            let end = memchr::memchr(b'\n', bytes);
            let (head, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.line.extend_from_slice(head);
            bytes = rest.get(1..).unwrap_or_default();
            if self.line.len() > LINE_LEN_MAX || self.fragments.len() > AHEAD_MAX {
                self.part = MessagePart::Unknown;
                (self.line, self.fragments) = Default::default();
            } else if end.is_some() {
                let line = std::mem::take(&mut self.line);
                self.part = self.after(line.trim_ascii());
            }
        }
    }

    /// The part of the message that follows this line.
    fn after(&mut self, line: &[u8]) -> MessagePart {
        match self.part {
            MessagePart::RequestLine if line.is_empty() => MessagePart::RequestLine,
            MessagePart::RequestLine => {
                self.fragments.push_back(line.contains(&b'#'));
                (self.is_chunked, self.length) = (false, 0);
                MessagePart::Fields
            }
            MessagePart::Fields if line.is_empty() => match (self.is_chunked, self.length) {
                (true, _) => MessagePart::ChunkSize,
                (false, 0) => MessagePart::RequestLine,
                (false, left) => MessagePart::Data { left },
            },
            MessagePart::Fields => {
                self.read_field(line);
                MessagePart::Fields
            }
            MessagePart::ChunkSize => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
                let digits = &line[..digits.count()];
                let size = std::str::from_utf8(digits).ok();
                match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
                    Some(0) => MessagePart::Trailers,
                    Some(size) => MessagePart::Data {
                        left: size.saturating_add(b"\r\n".len() as u64),
                    },
                    None => MessagePart::Unknown,
                }
            }
            MessagePart::Trailers if line.is_empty() => MessagePart::RequestLine,
            part @ (MessagePart::Trailers | MessagePart::Data { .. } | MessagePart::Unknown) => {
                part
            }
        }
    }

    fn read_field(&mut self, line: &[u8]) {
        let Some(colon) = memchr::memchr(b':', line) else {
            return;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = value.to_ascii_lowercase().ends_with(b"chunked");
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok();
            self.length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        }
    }

    /// Whether the target of the next request has a fragment.
    pub(super) fn next_has_fragment(&mut self) -> bool {
        self.fragments.pop_front().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTS: [(&str, bool); 9] = [
        ("GET /a HTTP/1.1\r\nHost: #\r\n\r\n", false),
        ("\r\nGET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", true),
        (
            "POST /a HTTP/1.1\r\nContent-Length: 19\r\n\r\n\nGET /#b HTTP/1.1\r\n\n",
            false,
        ),
        ("DELETE /a?b=c#d HTTP/1.1\n\n", true),
        ("PUT /a HTTP/1.1\r\ncontent-length:0\r\n\r\n", false),
        (
            "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n4;x=#\r\n#\n\r\n\r\nA\r\nGET /# HTT\r\n0\r\nTrailer: #\r\n\r\n",
            false,
        ),
        ("GET /# HTTP/1.1\r\nContent-Length: 1\r\n\r\n#", true),
        ("GET http://a/#b HTTP/1.1\r\n\r\n", true),
        ("GET /%23 HTTP/1.1\r\n\r\n", false),
    ];

    #[test]
    fn a_fragment_is_found_in_request_lines_alone_however_they_arrive() {
        let text: String = REQUESTS.iter().map(|(text, _)| *text).collect();
        for len in 1..=text.len() {
            let mut lines = RequestLines::default();
            for piece in text.as_bytes().chunks(len) {
                lines.feed(piece);
            }
            for (request, has_fragment) in REQUESTS {
                assert_eq!(lines.next_has_fragment(), has_fragment, "{len} {request:?}");
            }
            assert!(lines.fragments.is_empty() && lines.part == MessagePart::RequestLine);
        }
    }

    #[test]
    fn what_is_no_http_costs_little() {
        for junk in [
            "x",
            "\n",
            "x\n",
            "\r\n\r\n",
            "0\r\n",
            "a:b\n\n",
            "#\n\n",
            "99999999999999999999:\n",
        ] {
            let mut lines = RequestLines::default();
            for _ in 0..2 * LINE_LEN_MAX {
                lines.feed(junk.as_bytes());
            }
            assert!(lines.line.len() <= LINE_LEN_MAX && lines.fragments.len() <= AHEAD_MAX + 1);
        }
    }
}
