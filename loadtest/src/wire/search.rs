//! Counts a text in a stream that comes in pieces.

use memchr::memmem;

/// Counts the occurrences of a text, also of those that are cut between two pieces.
#[derive(Debug)]
pub struct StreamSearch {
    needle: &'static [u8],
    /// The end of what came before, shorter than the text.
    seam: Vec<u8>,
    count: u64,
    len: u64,
}

impl StreamSearch {
    /// A search that has read nothing.
    pub const fn new(needle: &'static [u8]) -> Self {
        Self {
            needle,
            seam: Vec::new(),
            count: 0,
            len: 0,
        }
    }

    pub fn feed(&mut self, data: &[u8]) {
        self.len += data.len() as u64;
        let keep = self.needle.len() - 1;
        self.seam.extend_from_slice(&data[..data.len().min(keep)]);
        let found = |text: &[u8]| memmem::find_iter(text, self.needle).count() as u64;
        self.count += found(&self.seam) + found(data);
        if data.len() >= keep {
            self.seam.clear();
            self.seam.extend_from_slice(&data[data.len() - keep..]);
        } else {
            let surplus = self.seam.len().saturating_sub(keep);
            self.seam.drain(..surplus);
        }
    }

    /// Length of the stream so far.
    pub const fn len(&self) -> u64 {
        self.len
    }

    pub const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    //! Every occurrence is counted once, however the stream is cut.

    use super::*;

    #[test]
    fn a_text_is_found_in_pieces_of_any_length() {
        let text = b"some marker and another marker, mark";
        for piece_len in 1..=text.len() {
            let mut search = StreamSearch::new(b"marker");
            let mut end = 0;
            for piece in text.chunks(piece_len) {
                end += piece.len();
                search.feed(piece);
                let expected = u64::from(end >= 11) + u64::from(end >= 30);
                assert_eq!(
                    search.count(),
                    expected,
                    "pieces of {piece_len}, after {end}"
                );
            }
        }
    }
}
