//! Cuts a watch response into lines. Knows nothing of JSON.

use bytes::Bytes;

/// A line longer than the framer accepts; the stream cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("watch frame is longer than {frame_len_max} bytes")]
pub struct FrameTooLong {
    /// The limit that was passed, in bytes.
    pub frame_len_max: usize,
}

/// Capacity that an empty framer keeps. Sixteen thousand idle streams with this much hold 1 GiB at worst; events of usual
/// size fit without growing the buffer again.
pub(super) const KEPT_LEN_MAX: usize = 64 * 1024;

/// Collects chunks and gives back whole lines, each as an allocation of its own.
///
/// Watch frames end with a newline and have none inside (protocol.md §4.11); chunk boundaries mean nothing.
/// Lines are copied out exactly because objects live long and must not pin a read buffer that many of them share.
///
/// The caller takes all lines after each push; the buffer then holds at most one unfinished line, so its size is
/// bounded by `frame_len_max` plus one chunk.
///
/// Invariants: `taken <= searched <= buffer.len()`; `buffer[taken..searched]` has no newline, so no byte is searched twice.
#[derive(Debug)]
pub struct LineFramer {
    buffer: Vec<u8>,
    taken: usize,
    searched: usize,
    frame_len_max: usize,
}

impl LineFramer {
    /// A framer that refuses lines longer than `frame_len_max` bytes, newline not counted.
    #[must_use]
    pub const fn new(frame_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            searched: 0,
            frame_len_max,
        }
    }

    /// Adds bytes as they came from the socket.
    pub fn push(&mut self, chunk: &[u8]) {
        // Moving what is left costs no more than what was taken before, so each byte moves a bounded number of times.
        if self.taken > 0 && self.taken >= self.buffer.len() - self.taken {
            self.buffer.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole line with its newline, which watchers get as well; `None` when more bytes are needed. Empty lines are skipped.
    ///
    /// # Errors
    /// The line at hand, finished or not, is longer than the limit. The error stays: a stream that lost its place is of no use.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let end = found.map_or(self.buffer.len(), |at| self.searched + at);
            if end - self.taken > self.frame_len_max {
                return Err(FrameTooLong {
                    frame_len_max: self.frame_len_max,
                });
            }
            if found.is_none() {
                self.searched = end;
                self.release();
                return Ok(None);
            }
            let line = self.taken..end + 1;
            self.taken = line.end;
            self.searched = line.end;
            if line.len() > 1 {
                return Ok(Some(Bytes::copy_from_slice(&self.buffer[line])));
            }
        }
    }

    /// Whether bytes of an unfinished line are held: a stream that ends now was cut.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Bytes of memory that the buffer holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// One large object must not keep its buffer for the life of a quiet stream.
    fn release(&mut self) {
        if self.is_mid_frame() {
            return;
        }
        if self.buffer.capacity() > KEPT_LEN_MAX {
            self.buffer = Vec::new();
        } else {
            self.buffer.clear();
        }
        self.taken = 0;
        self.searched = 0;
    }
}

#[cfg(test)]
mod tests;
