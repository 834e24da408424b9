//! What a cursor says is to be done for its client, and what it is told.

use crate::cache::{DeflateBlock, Sequence};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;

/// The next thing to do for a client.
#[derive(Debug)]
pub(crate) enum CursorStep {
    Frame(BufList),
    /// Wait until woken.
    Nothing,
    /// Nothing found yet, but there is more to search. Continue after other tasks have run; no waker is called for that.
    Unfinished,
    Over,
}

/// As [`CursorStep`], before events are encoded for the client.
#[derive(Debug)]
pub(super) enum EventsStep {
    Step(CursorStep),
    /// A block that is compressed already.
    Block(DeflateBlock),
}

impl From<CursorStep> for EventsStep {
    fn from(step: CursorStep) -> Self {
        Self::Step(step)
    }
}

/// What to do when the timer fires.
#[derive(Debug)]
pub(crate) enum TimerAction {
    /// The deadline is reached and the stream has ended.
    Ended,
    Bookmark(BufList),
    /// Nothing is due; there may be events.
    Nothing,
}

/// Batches that are sent to several clients at once.
pub(crate) struct SharedBatches {
    /// The batch after them.
    pub(crate) to: Sequence,
    /// The sequence of their last event.
    pub(crate) last: Sequence,
    pub(crate) last_version: ResourceVersion,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
}
