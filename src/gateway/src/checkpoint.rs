//! The state of a cache on disk, so that a gateway that starts again continues where it ended and its clients list nothing.
//!
//! A checkpoint is one file for each cached resource and encoding: the objects as they were at the start of the history (the *base*),
//! followed by the events since then, which are appended while the gateway runs (the *journal*). Reading it back replays the events on
//! the base, so that objects, history and version always agree. The file holds the frames that upstream sent, and the reader decodes
//! them as it decodes upstream's; nothing in a file is trusted.
//!
//! ```text
//! ┌──────────┬─ block ───────┬─ block ──────────────────┬─ block ─────────────┬─ block ──
//! │ preamble │ header (JSON) │ objects …       base end │ event event version │ event …
//! └──────────┴───────────────┴──────────────────────────┴─────────────────────┴──────────
//!             written aside, then renamed                appended, a block at a time
//! ```
//!
//! Each block has a checksum, and is encrypted if there is a key. A file whose base is damaged is refused. A damaged journal is read up
//! to the damage: what precedes it is the state of an earlier moment, from which upstream's watch continues.
//!
//! `block` and `seal` hold the bytes, `header` and `record` their meaning, `writer` and `reader` both directions, and [`directory`] the
//! files. All but `directory` are pure.

mod block;
mod capture;
pub mod directory;
mod header;
mod reader;
mod record;
mod seal;
mod writer;

pub use capture::{Capture, events_between};
pub use header::{CheckpointHeader, LOST_AHEAD_MAX};
pub use reader::{CheckpointContent, CheckpointError, CheckpointReader, JournalEnd};
pub use seal::{SealError, StateKey};
pub use writer::{CheckpointWriter, WriteClock};

#[cfg(test)]
mod tests;
