//! The bounds of a worker's turn.

use std::time::Duration;

/// How much work is done before other streams or tasks have their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnLimits {
    /// Length of a shared chunk in bytes, without framing; it has at least one batch. A chunk up to this length is copied into one
    /// slice, a longer one is not.
    pub(super) chunk_len: usize,
    /// Number of chunks kept during a pass. The clients of a view are at very few different positions.
    pub(super) chunks: usize,
    /// Number of writes to one stream, of about 64 KiB each, before other streams have their turn.
    pub(super) stream_turn: usize,
    /// Number of streams visited before other tasks of the thread have their turn: about a tenth of a millisecond.
    pub(super) worker_turn: usize,
    /// A pass that takes less is followed by the next one without a pause: it has few clients.
    pub(super) pass_min: Duration,
    /// How long frames of HTTP/2 streams wait while a pass goes on.
    pub(super) flush_wait: Duration,
}

/// The limits in production; tests have smaller ones.
pub(super) const LIMITS: TurnLimits = TurnLimits {
    chunk_len: 64 << 10,
    chunks: 4,
    stream_turn: 8,
    worker_turn: 64,
    pass_min: Duration::from_millis(2),
    flush_wait: Duration::from_millis(1),
};
