//! How clients read that are slow on purpose. They are so while [`Control::stalled`](crate::recorder::Control) holds, and read freely
//! before and after. Time comes in as an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a slow client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadPace {
    /// As fast as the others.
    Freely,
    /// Not at all.
    Never,
    /// At most so many bytes, and the next so long after.
    Pieces {
        /// Bytes of one read.
        len: usize,
        /// From one read to the next.
        every: Duration,
    },
    /// Freely for a while, then not at all for a while, again and again; all such clients at once.
    Spells {
        /// How long it reads.
        reads: Duration,
        /// How long it does not.
        rests: Duration,
    },
}

/// What a slow client does after a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPause {
    /// Reads on.
    None,
    /// Reads after this time.
    For(Duration),
    /// Reads when it is told that the slow time is over.
    UntilWoken,
}

/// A slow client's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slowness {
    /// How it reads.
    pub pace: ReadPace,
    /// Receive buffer of its socket, bytes; HTTP/2 has windows instead.
    pub receive_buffer: usize,
    /// After so long on a stream it leaves, and watches anew from the newest version that any of its thread has seen.
    pub renews_every: Option<Duration>,
}

impl Slowness {
    /// Whether a stream that is so old is left.
    pub fn renews(&self, age: Duration) -> bool {
        self.renews_every.is_some_and(|every| age >= every)
    }
}

impl ReadPace {
    /// What comes after a read of `len` bytes that ended so long after the epoch.
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

#[cfg(test)]
mod tests {
    //! Each pace rests as long as it says.

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[track_caller]
    fn check(pace: ReadPace, len: usize, now_ms: u64, rest: ReadPause) {
        assert_eq!(pace.rest(len, Duration::from_millis(now_ms)), rest);
    }

    #[test]
    fn each_pace_rests_as_long_as_it_says() {
        check(ReadPace::Freely, 1, 0, ReadPause::None);
        check(ReadPace::Never, 1, 0, ReadPause::UntilWoken);
        let pieces = ReadPace::Pieces {
            len: 100,
            every: SECOND,
        };
        check(pieces, 0, 0, ReadPause::For(SECOND));
        check(pieces, 100, 7, ReadPause::For(SECOND));
        check(pieces, 101, 7, ReadPause::For(SECOND * 2));
        let spells = ReadPace::Spells {
            reads: SECOND,
            rests: SECOND * 2,
        };
        check(spells, 9, 900, ReadPause::None);
        check(spells, 9, 1_000, ReadPause::For(SECOND * 2));
        check(spells, 9, 2_900, ReadPause::For(Duration::from_millis(100)));
        check(spells, 9, 3_000, ReadPause::None);
    }
}
