//! Cuts a stream of pieces into lines; a line that comes in one piece is handed on without a copy.

use anyhow::{Result, bail};

/// Longest line that is accepted: etcd refuses objects above 1.5 MB, JSON may triple their size.
const LINE_LEN_MAX: usize = 8 << 20;

/// The unfinished line of one stream.
#[derive(Debug, Default)]
pub struct Lines {
    tail: Vec<u8>,
}

impl Lines {
    /// Hands every complete line (without its newline) to `line`, in order.
    pub fn feed(&mut self, piece: &[u8], mut line: impl FnMut(&[u8])) -> Result<()> {
        let mut rest = piece;
        if !self.tail.is_empty() {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return self.keep(rest);
            };
            self.tail.extend_from_slice(&rest[..end]);
            line(&self.tail);
            // Idle streams keep no buffer: thousands of them would.
            self.tail = Vec::new();
            rest = &rest[end + 1..];
        }
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line(&rest[..end]);
            rest = &rest[end + 1..];
        }
        if rest.is_empty() {
            Ok(())
        } else {
            self.keep(rest)
        }
    }

    /// Whether the stream stands between two lines.
    pub fn is_between(&self) -> bool {
        self.tail.is_empty()
    }

    /// Forgets an unfinished line: the connection broke within it.
    pub fn clear(&mut self) {
        self.tail = Vec::new();
    }

    fn keep(&mut self, rest: &[u8]) -> Result<()> {
        if self.tail.len() + rest.len() > LINE_LEN_MAX {
            bail!("a line of more than {LINE_LEN_MAX} bytes");
        }
        self.tail.extend_from_slice(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Lines are the same however the stream is cut.

    use super::*;

    #[test]
    fn lines_are_the_same_for_every_piece_length() {
        let text = b"one\ntwo\n\nfour four\nfive";
        for piece_len in 1..=text.len() {
            let mut lines = Lines::default();
            let mut got: Vec<Vec<u8>> = Vec::new();
            for piece in text.chunks(piece_len) {
                lines.feed(piece, |line| got.push(line.to_vec())).unwrap();
            }
            assert_eq!(
                got,
                [&b"one"[..], b"two", b"", b"four four"],
                "pieces of {piece_len}"
            );
            assert!(!lines.is_between());
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; LINE_LEN_MAX / 2];
        assert!(lines.feed(&piece, |_| {}).is_ok());
        assert!(lines.feed(&piece, |_| {}).is_ok());
        assert!(lines.feed(b"x", |_| {}).is_err());
    }
}
