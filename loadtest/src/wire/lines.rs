//! Splits a stream of pieces into lines; a line in one piece is passed on without a copy.

use anyhow::{Result, bail};

/// Longest line that is accepted: etcd refuses objects above 1.5 MB, and JSON may triple their size.
pub const LINE_LEN_MAX: usize = 8 << 20;

/// The unfinished line of one stream.
#[derive(Debug, Default)]
pub struct Lines {
    head: Vec<u8>,
    /// Most bytes of a line that are kept, besides its last ones.
    head_len_max: Option<usize>,
    /// The last bytes behind the head.
    end: Vec<u8>,
    /// Length of the unfinished line so far.
    len: usize,
}

/// Bytes of a line's end that show that it is complete.
const END_LEN: usize = 2;

impl Lines {
    /// Keeps only the head and the last two bytes of longer lines that do not come in one piece.
    pub fn heads(head_len_max: usize) -> Self {
        Self {
            head_len_max: Some(head_len_max),
            ..Self::default()
        }
    }

    /// Passes every complete line (without its newline) to `line`, in order.
    pub fn feed(&mut self, piece: &[u8], mut line: impl FnMut(&[u8])) -> Result<()> {
        let mut rest = piece;
        if self.len > 0 {
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return self.keep(rest);
            };
            self.keep(&rest[..end])?;
            self.head.append(&mut self.end);
            line(&self.head);
            // Idle streams keep no buffer: there are thousands of them.
            self.clear();
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

    /// Whether the stream is between two lines.
    pub const fn is_between(&self) -> bool {
        self.len == 0
    }

    /// Drops an unfinished line after the connection broke.
    pub fn clear(&mut self) {
        self.head = Vec::new();
        self.end = Vec::new();
        self.len = 0;
    }

    fn keep(&mut self, rest: &[u8]) -> Result<()> {
        self.len += rest.len();
        if self.len > LINE_LEN_MAX {
            bail!("a line of more than {LINE_LEN_MAX} bytes");
        }
        let room = self.head_len_max.unwrap_or(LINE_LEN_MAX) - self.head.len();
        let (head, behind) = rest.split_at(room.min(rest.len()));
        self.head.extend_from_slice(head);
        self.end
            .extend_from_slice(&behind[behind.len().saturating_sub(END_LEN)..]);
        let before_end = self.end.len().saturating_sub(END_LEN);
        self.end.drain(..before_end);
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
    fn heads_keep_the_beginning_and_the_end() {
        let text = b"0123456789abcdefgh\nshort\n";
        for piece_len in 1..text.len() - 6 {
            let mut lines = Lines::heads(4);
            let mut got: Vec<Vec<u8>> = Vec::new();
            for piece in text.chunks(piece_len) {
                lines.feed(piece, |line| got.push(line.to_vec())).unwrap();
            }
            assert_eq!(got[0], b"0123gh", "pieces of {piece_len}");
            assert!(lines.is_between());
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
