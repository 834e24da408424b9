//! How slow clients read. They are slow while [`Control::stalled`](crate::recorder::Control) is set, and read freely before and after. Time
//! is an argument.

use std::time::Duration;

/// How a slow client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPace {
    /// As fast as the others.
    Freely,
    Never,
    /// At most this many bytes, then a pause.
    Pieces {
        /// Bytes of one read.
        len: usize,
        /// Time from one read to the next.
        every: Duration,
    },
    /// Freely for a while, then not at all, in turn; all such clients at the same time.
    Spells {
        reads: Duration,
        rests: Duration,
    },
}

/// The pause of a slow client after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPause {
    None,
    /// Until this time has passed.
    For(Duration),
    /// Until the slow time is over.
    UntilWoken,
}

/// How a client is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowness {
    pub pace: ReadPace,
    /// Receive buffer of its socket, bytes; HTTP/2 uses windows instead.
    pub receive_buffer: usize,
    /// Age at which it leaves a stream, and watches again from the newest version that its thread has received.
    pub renews_every: Option<Duration>,
}

/// Receive buffer of slow clients over HTTP/1.1, bytes.
pub const SLOW_BUFFER_LEN: usize = 4_096;

impl Slowness {
    /// Reads nothing until it is woken.
    pub const STALLED: Self = Self {
        pace: ReadPace::Never,
        receive_buffer: SLOW_BUFFER_LEN,
        renews_every: None,
    };

    /// Whether a stream of this age is left.
    pub fn renews(&self, age: Duration) -> bool {
        self.renews_every.is_some_and(|every| age >= every)
    }
}

impl ReadPace {
    /// The pause after a read of `len` bytes that ended at this time since the epoch.
    pub fn rest(self, len: usize, now: Duration) -> ReadPause {
        match self {
            Self::Freely => ReadPause::None,
            Self::Never => ReadPause::UntilWoken,
            Self::Pieces { len: piece, every } => {
                let pieces = u32::try_from(len.div_ceil(piece.max(1))).unwrap_or(u32::MAX);
                ReadPause::For(every * pieces.max(1))
            }
            Self::Spells { reads, rests } => {
                let turn = (reads + rests).as_nanos().max(1);
                let into = now.as_nanos() % turn;
                if into < reads.as_nanos() {
                    ReadPause::None
                } else {
                    let left = u64::try_from(turn - into).unwrap_or(u64::MAX);
                    ReadPause::For(Duration::from_nanos(left))
                }
            }
        }
    }

    /// The longest single read, bytes.
    pub fn read_len_max(self) -> usize {
        match self {
            Self::Pieces { len, .. } => len.max(1),
            Self::Freely | Self::Never | Self::Spells { .. } => usize::MAX,
        }
    }
}
