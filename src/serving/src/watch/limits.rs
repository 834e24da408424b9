//! The bounds of one frame of a stream.

use crate::protocol::BufList;

/// The limits of one frame of a stream.
#[derive(Debug)]
pub(crate) struct FrameLimits {
    /// Approximate length in bytes, which is collected for a client that is behind.
    pub(crate) len: usize,
    /// Approximate length of a frame of initial events. It is larger because these are borrowed from the snapshot, which is in
    /// memory anyway.
    pub(crate) initial_len: usize,
    pub(crate) slices: usize,
    /// Length in bytes of the shortest chunk of initial events that is sent compressed.
    pub(crate) block_min: usize,
    /// Cost of searching for the frame's events, in selector terms, after which other tasks run.
    pub(crate) cost: usize,
}

impl FrameLimits {
    pub(super) fn are_reached(&self, buf: &BufList, cost: usize) -> bool {
        buf.len() >= self.len || buf.count() >= self.slices || cost >= self.cost
    }
}

/// The limits in production; tests have smaller ones. hyper writes 64 slices at once. Evaluating a term takes about 30 ns, so a
/// search takes a quarter of a millisecond.
pub(crate) static FRAMES: FrameLimits = FrameLimits {
    len: 64 << 10,
    initial_len: 256 << 10,
    slices: 60,
    block_min: 4 << 10,
    cost: 8_192,
};

/// The limits of a compressed watch, which gets copies of what it gets alone.
pub(super) static GZIP_FRAMES: FrameLimits = FrameLimits {
    initial_len: FRAMES.len,
    ..FRAMES
};
