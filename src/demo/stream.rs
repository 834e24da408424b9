//! Decodes the bytes of a watch: HTTP/1.1 chunks, lines, and the few parts of a line that the demo checks. Pure; buffers only a line that
//! is incomplete.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use kube_fanout_testkit::apiserver::churn::WRITTEN_AT;
use memchr::memmem::Finder;

use crate::resource::{EventKind, ResourceVersion};

/// Longer than any object of the demo.
const LINE_LEN_MAX: usize = 4 << 20;

/// An error in a watch stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StreamError {
    /// The chunked encoding is invalid.
    #[error("the response has an invalid chunked encoding")]
    Chunk,
    /// A line is not a watch event.
    #[error("a line is not a watch event")]
    Line,
    /// An `ERROR` event: the client must list again.
    #[error("an error event ended the watch")]
    Refused,
}

/// One line of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamLine<'a> {
    /// A change of an object.
    Event {
        /// The type of the event.
        kind: EventKind,
        /// The object's bytes.
        object: &'a [u8],
        /// The object's resource version.
        version: ResourceVersion,
    },
    /// A bookmark: there are no further events up to this version.
    Bookmark(ResourceVersion),
}

/// Searchers for the parts of a line, created once for all watchers.
#[derive(Debug)]
pub(super) struct Finders {
    version: Finder<'static>,
    written_at: Finder<'static>,
}

impl Finders {
    pub(super) fn new() -> Self {
        let written_at = format!("\"{WRITTEN_AT}\":\"");
        Self {
            version: Finder::new("\"resourceVersion\":\""),
            written_at: Finder::new(written_at.as_bytes()).into_owned(),
        }
    }

    /// Parses a line without its newline.
    pub(super) fn line<'a>(&self, line: &'a [u8]) -> Result<StreamLine<'a>, StreamError> {
        let version = || {
            number(line, &self.version)
                .and_then(|version| u64::try_from(version).ok())
                .map(ResourceVersion)
                .ok_or(StreamError::Line)
        };
        for kind in [EventKind::Modified, EventKind::Added, EventKind::Deleted] {
            if let Some(rest) = line.strip_prefix(kind.line_head().as_bytes()) {
                return Ok(StreamLine::Event {
                    kind,
                    object: rest.strip_suffix(b"}").ok_or(StreamError::Line)?,
                    version: version()?,
                });
            }
        }
        if line.starts_with(b"{\"type\":\"BOOKMARK\"") {
            return Ok(StreamLine::Bookmark(version()?));
        }
        if line.starts_with(b"{\"type\":\"ERROR\"") {
            return Err(StreamError::Refused);
        }
        Err(StreamError::Line)
    }

    /// When the object was written, in nanoseconds since 1970.
    pub(super) fn written_at(&self, object: &[u8]) -> Option<i128> {
        number(object, &self.written_at)
    }
}

/// The number whose digits follow the first occurrence of a text.
fn number(text: &[u8], prefix: &Finder<'_>) -> Option<i128> {
    let start = prefix.find(text)? + prefix.needle().len();
    let rest = &text[start..];
    let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..len]).ok()?.parse().ok()
}

/// Hashes an event together with the hash of the events before it. Two hashes are equal only if events, order and bytes are equal.
pub(super) fn chained(chain: u64, kind: EventKind, object: &[u8]) -> u64 {
    FixedState::with_seed(chain ^ kind as u64).hash_one(object)
}

/// Decodes the chunked encoding and splits the data into lines.
#[derive(Debug, Default)]
pub(super) struct ChunkDecoder {
    position: DecoderPosition,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum DecoderPosition {
    /// In the digits of a chunk's length, with the value read up to now.
    Len(usize),
    /// After a chunk's length, before the end of its line.
    LenEnd(usize),
    /// In the data, with the number of bytes that remain.
    Data(usize),
    /// After the data, before the end of the line.
    DataEnd,
    /// After the last chunk.
    Over,
}

impl Default for DecoderPosition {
    fn default() -> Self {
        Self::Len(0)
    }
}

impl ChunkDecoder {
    /// Whether the last chunk was decoded.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.position, DecoderPosition::Over)
    }

    /// Decodes bytes, and calls `on_line` for every line that they complete, without its newline.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        on_line: &mut dyn FnMut(&[u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        while let [first, rest @ ..] = bytes {
            match self.position {
                DecoderPosition::Len(len) => {
                    self.position = match char::from(*first).to_digit(16) {
                        Some(digit) if len < LINE_LEN_MAX => {
                            DecoderPosition::Len(len * 16 + digit as usize)
                        }
                        None if matches!(first, b'\r' | b';') => DecoderPosition::LenEnd(len),
                        _ => return Err(StreamError::Chunk),
                    };
                    bytes = rest;
                }
                DecoderPosition::LenEnd(len) => {
                    if *first == b'\n' {
                        self.position = if len == 0 {
                            DecoderPosition::Over
                        } else {
                            DecoderPosition::Data(len)
                        };
                    }
                    bytes = rest;
                }
                DecoderPosition::Data(len) => {
                    let (data, rest) = bytes.split_at(len.min(bytes.len()));
                    self.data(data, on_line)?;
                    self.position = match len - data.len() {
                        0 => DecoderPosition::DataEnd,
                        remaining => DecoderPosition::Data(remaining),
                    };
                    bytes = rest;
                }
                DecoderPosition::DataEnd => {
                    if *first == b'\n' {
                        self.position = DecoderPosition::Len(0);
                    }
                    bytes = rest;
                }
                DecoderPosition::Over => return Ok(()),
            }
        }
        Ok(())
    }

    fn data(
        &mut self,
        mut data: &[u8],
        on_line: &mut dyn FnMut(&[u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        while let Some(end) = memchr::memchr(b'\n', data) {
            if self.partial.is_empty() {
                on_line(&data[..end])?;
            } else {
                self.partial.extend_from_slice(&data[..end]);
                on_line(&self.partial)?;
                self.partial.clear();
            }
            data = &data[end + 1..];
        }
        if self.partial.len() + data.len() > LINE_LEN_MAX {
            return Err(StreamError::Line);
        }
        self.partial.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(wire: &[u8], step: usize) -> (Vec<String>, bool) {
        let (mut chunks, mut seen) = (ChunkDecoder::default(), Vec::new());
        for piece in wire.chunks(step) {
            chunks
                .push(piece, &mut |line| {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                    Ok(())
                })
                .unwrap();
        }
        (seen, chunks.is_over())
    }

    #[test]
    fn lines_are_joined_over_chunks_and_reads_of_any_length() {
        let wire = b"4\r\nab\nc\r\n3;x=y\r\nde\n\r\n0\r\n\r\n";
        for step in 1..=wire.len() {
            assert_eq!(lines(wire, step), (vec!["ab".into(), "cde".into()], true));
        }
    }

    #[test]
    fn lines_tell_kind_version_and_time() {
        let finders = Finders::new();
        let object = br#"{"metadata":{"resourceVersion":"12","annotations":{"kube-fanout.dev/written-at":"1700"}}}"#;
        let line = [b"{\"type\":\"ADDED\",\"object\":", object.as_slice(), b"}"].concat();
        let expected = StreamLine::Event {
            kind: EventKind::Added,
            object,
            version: ResourceVersion(12),
        };
        assert_eq!(finders.line(&line), Ok(expected));
        assert_eq!(finders.written_at(object), Some(1700));
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"13"}}}"#;
        assert_eq!(
            finders.line(bookmark),
            Ok(StreamLine::Bookmark(ResourceVersion(13)))
        );
        let error = br#"{"type":"ERROR","object":{"kind":"Status"}}"#;
        assert_eq!(finders.line(error), Err(StreamError::Refused));
        assert_eq!(finders.line(b"garbage"), Err(StreamError::Line));
    }

    #[test]
    fn order_and_bytes_change_the_chain() {
        let of = |events: &[(EventKind, &[u8])]| {
            events
                .iter()
                .fold(0, |chain, (kind, object)| chained(chain, *kind, object))
        };
        let (a, b) = (
            (EventKind::Added, b"a".as_slice()),
            (EventKind::Added, b"b".as_slice()),
        );
        let deleted = (EventKind::Deleted, b"b".as_slice());
        assert_eq!(of(&[a, b]), of(&[a, b]));
        for other in [[b, a], [a, deleted], [a, a]] {
            assert_ne!(of(&[a, b]), of(&other));
        }
    }
}
