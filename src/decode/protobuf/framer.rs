//! Cuts a watch response into frames by the length before each. Knows nothing of what they hold.

use bytes::Bytes;

use crate::decode::framer::{FrameTooLong, KEPT_LEN_MAX};

/// Bytes of the length before each frame.
const LENGTH_LEN: usize = 4;

/// Collects chunks and gives back whole frames, each as an allocation of its own.
///
/// A frame is a length of four bytes, big end first, and as many bytes (protocol.md §4.11); chunk boundaries mean nothing.
/// Frames are copied out for the reason that lines are ([`LineFramer`](crate::decode::LineFramer)).
///
/// The caller takes all frames after each push; the buffer then holds at most one unfinished frame, so its size is bounded by
/// `frame_len_max` plus one chunk. A length alone, which a peer may make up, reserves nothing.
///
/// Invariant: `taken <= buffer.len()`.
#[derive(Debug)]
pub struct LengthFramer {
    buffer: Vec<u8>,
    taken: usize,
    frame_len_max: usize,
}

impl LengthFramer {
    /// A framer that refuses frames longer than `frame_len_max` bytes, the length before them not counted.
    #[must_use]
    pub const fn new(frame_len_max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            frame_len_max,
        }
    }

    /// Adds bytes as they came from the socket.
    pub fn push(&mut self, chunk: &[u8]) {
        // Moving what is left costs no more than what was taken before, so each byte moves a bounded number of times.
        if self.taken > 0 && self.taken >= self.buffer.len() - self.taken {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(chunk);
    }

    /// The next whole frame with its length, which watchers get as well; `None` when more bytes are needed.
    ///
    /// # Errors
    /// The frame at hand, finished or not, is longer than the limit. The error stays: a stream that lost its place is of no use.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let held = &self.buffer[self.taken..];
        let Some(length) = held.first_chunk::<LENGTH_LEN>() else {
            self.release();
            return Ok(None);
        };
        let len = u32::from_be_bytes(*length) as usize;
        if len > self.frame_len_max {
            return Err(FrameTooLong {
                frame_len_max: self.frame_len_max,
            });
        }
        let Some(frame) = held.get(..LENGTH_LEN + len) else {
            return Ok(None);
        };
        self.taken += frame.len();
        Ok(Some(Bytes::copy_from_slice(frame)))
    }

    /// Whether bytes of an unfinished frame are held: a stream that ends now was cut.
    #[must_use]
    pub const fn is_mid_frame(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Bytes of memory that the buffer holds.
    #[must_use]
    pub const fn capacity(&self) -> usize {
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
    }
}

#[cfg(test)]
mod tests;
