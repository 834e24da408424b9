//! Reads a checkpoint back. Every byte may be wrong: the reader refuses, or stops before what is damaged, and never panics.

use std::collections::VecDeque;
use std::io::{self, Read};

use super::block::{BlockError, BlockReader};
use super::header::{CheckpointHeader, LOST_AHEAD_MAX};
use super::record::Record;
use super::seal::{SALT_LEN, StateKey};
use super::writer::{FORMAT, MAGIC, PREAMBLE_LEN, SEALED, WriteClock};
use crate::cache::{Change, GAPS_MAX, Gap, ObjectMap, PastEvent, PriorState, SortedBuilder};
use crate::decode::{WatchLine, object_in, scan_watch};
use crate::resource::{Encoding, EventKind, FieldTable, Gvr, Object, ResourceVersion};

/// Why a checkpoint is refused; then the cache is filled from upstream.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file does not begin as a checkpoint does.
    #[error("it is not a checkpoint, or its first bytes are damaged")]
    NotACheckpoint,
    /// The file has another format.
    #[error("it has format {0}, and this build reads format {FORMAT}")]
    Format(u16),
    /// The file is encrypted, and there is no key.
    #[error("it is encrypted, and there is no --state-key-file")]
    NoKey,
    /// The file is not encrypted, but there is a key.
    #[error("it is not encrypted, although there is a --state-key-file")]
    NotSealed,
    /// The file was encrypted with another key.
    #[error("it was encrypted with another key")]
    OtherKey,
    /// The base is damaged.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl From<BlockError> for CheckpointError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Damaged(_) => Self::Damaged(error.to_string()),
            BlockError::OtherKey(_) => Self::OtherKey,
            BlockError::Io(error) => Self::Io(error),
        }
    }
}

/// How the journal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEnd {
    /// With its last block.
    Whole,
    /// Before this damage, such as a block that was being written when the process was killed.
    Cut(String),
}

/// What a checkpoint holds.
#[derive(Debug)]
pub struct CheckpointContent {
    /// Its header.
    pub header: CheckpointHeader,
    /// The state for a cache's writer.
    pub state: PriorState,
    /// How the journal ended.
    pub end: JournalEnd,
}

/// Reads one checkpoint: first its header, then the rest.
#[derive(Debug)]
pub struct CheckpointReader<R> {
    blocks: BlockReader<R>,
    header: CheckpointHeader,
    /// Whether another machine wrote it, a moment ago.
    is_stream: bool,
}

impl<R: Read> CheckpointReader<R> {
    /// Reads the header of a file of `len` bytes.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn open(input: R, len: u64, key: Option<&StateKey>) -> Result<Self, CheckpointError> {
        Self::open_input(input, Some(len), key)
    }

    /// Reads the header of a checkpoint that another gateway sends. It is not encrypted, and ends where the stream does.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn open_stream(input: R) -> Result<Self, CheckpointError> {
        Self::open_input(input, None, None)
    }

    fn open_input(
        mut input: R,
        len: Option<u64>,
        key: Option<&StateKey>,
    ) -> Result<Self, CheckpointError> {
        let mut first = [0; PREAMBLE_LEN];
        match input.read_exact(&mut first) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(CheckpointError::NotACheckpoint);
            }
            Err(error) => return Err(error.into()),
        }
        let (flags, salt) = parse_preamble(&first)?;
        let seal = match (flags & SEALED != 0, key) {
            (false, None) => None,
            (true, Some(key)) => {
                let seal = key.for_file(&salt);
                Some(seal.map_err(|error| CheckpointError::Io(io::Error::other(error)))?)
            }
            (true, None) => return Err(CheckpointError::NoKey),
            (false, Some(_)) => return Err(CheckpointError::NotSealed),
        };
        let remaining = len.map(|len| len.saturating_sub(PREAMBLE_LEN as u64));
        let mut blocks = BlockReader::new(input, remaining, seal);
        let block = blocks.next_block()?;
        let header = block.and_then(|mut block| match Record::take(&mut block) {
            Some(Record::Header(json)) if block.is_empty() => serde_json::from_slice(json).ok(),
            _ => None,
        });
        let header = header.ok_or_else(|| damaged("its header cannot be read"))?;
        Ok(Self {
            blocks,
            header,
            is_stream: len.is_none(),
        })
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &CheckpointHeader {
        &self.header
    }

    /// Reads the rest. As long as `excess` bytes of memory are too many, so many bytes of the oldest history are given up.
    ///
    /// # Errors
    /// See [`CheckpointError`]. A damaged journal is no error.
    pub fn restore(
        self,
        clock: WriteClock,
        excess: &dyn Fn() -> usize,
    ) -> Result<CheckpointContent, CheckpointError> {
        let Self {
            mut blocks,
            header,
            is_stream,
        } = self;
        // The wall clocks of two machines may differ, so ages are counted on the writer's.
        let clock = match is_stream {
            true => WriteClock {
                unix_ms: header.written_at_ms,
                ..clock
            },
            false => clock,
        };
        let gvr = Gvr::new(&header.group, &header.version, &header.resource);
        let frames = FrameDecoder {
            encoding: header.encoding(),
            fields: FieldTable::of(&gvr),
        };
        let base_version = ResourceVersion(header.base_version);
        let mut journal = JournalReader {
            base: read_base(&mut blocks, frames)?,
            base_version,
            frames,
            clock,
            newest: base_version,
            reached: None,
            proven: ResourceVersion(header.proven),
            events: VecDeque::new(),
        };
        let end = journal.read(&mut blocks, excess)?;
        let Some((version, count)) = journal.reached else {
            return Err(match end {
                JournalEnd::Whole => damaged("its history is not complete"),
                JournalEnd::Cut(what) => CheckpointError::Damaged(what),
            });
        };
        journal.events.truncate(count);
        let state = PriorState {
            base: journal.base,
            base_version: journal.base_version,
            forgotten: ResourceVersion(header.forgotten),
            proven: journal.proven,
            lost: ResourceVersion(header.lost),
            gaps: header.gaps(),
            events: journal.events.into(),
            version,
        };
        check_history(&state)?;
        Ok(CheckpointContent { header, state, end })
    }
}

/// Refuses a history that no cache can have had: what counts versions later relies on it.
pub(super) fn check_history(state: &PriorState) -> Result<(), CheckpointError> {
    let version = state.version;
    if state.lost.0.saturating_sub(version.0) > LOST_AHEAD_MAX {
        return Err(damaged("it knows a lost history that cannot have been"));
    }
    if state.proven.0.saturating_sub(version.0) > LOST_AHEAD_MAX {
        return Err(damaged("it was proven at a version that cannot have been"));
    }
    // The events are not older than the base, so none has version 0 either.
    if state.base_version.0 == 0 {
        return Err(damaged("its history begins with version 0"));
    }
    if state.forgotten > version {
        return Err(damaged("its history is forgotten beyond its end"));
    }
    let is_wrong = |gap: &Gap| gap.from >= gap.to || gap.to > version;
    if state.gaps.len() > GAPS_MAX || state.gaps.iter().any(is_wrong) {
        return Err(damaged("its history has gaps that cannot be"));
    }
    let mut versions = state.base.iter().map(Object::resource_version);
    if versions.any(|object| object > version) {
        return Err(damaged("an object is newer than its history"));
    }
    Ok(())
}

fn damaged(what: &str) -> CheckpointError {
    CheckpointError::Damaged(what.to_owned())
}

/// Flags and salt.
fn parse_preamble(preamble: &[u8; PREAMBLE_LEN]) -> Result<(u16, [u8; SALT_LEN]), CheckpointError> {
    let (body, check) = preamble.split_at(PREAMBLE_LEN - 4);
    if !body.starts_with(MAGIC) || check != crc32fast::hash(body).to_le_bytes() {
        return Err(CheckpointError::NotACheckpoint);
    }
    let number = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
    let (format, flags) = (number(8), number(10));
    if format != FORMAT || flags > SEALED {
        return Err(CheckpointError::Format(format));
    }
    let salt = body[12..].try_into();
    Ok((flags, salt.map_err(|_| CheckpointError::NotACheckpoint)?))
}

/// Decodes frames as upstream's are decoded.
#[derive(Clone, Copy, Debug)]
struct FrameDecoder {
    encoding: Encoding,
    fields: FieldTable,
}

impl FrameDecoder {
    fn object(self, frame: &[u8]) -> Option<Object> {
        match scan_watch(self.encoding, frame, self.fields).ok()? {
            WatchLine::Event { object, parts, .. } => {
                object_in(self.encoding, frame, object, parts).ok()
            }
            WatchLine::Bookmark(_) | WatchLine::Error(_) => None,
        }
    }
}

fn read_base<R: Read>(
    blocks: &mut BlockReader<R>,
    frames: FrameDecoder,
) -> Result<ObjectMap, CheckpointError> {
    let mut base = SortedBuilder::default();
    let mut count = 0;
    while let Some(mut block) = blocks.next_block()? {
        while !block.is_empty() {
            match Record::take(&mut block) {
                Some(Record::Object(frame)) => {
                    let object = frames.object(frame);
                    let object = object.ok_or_else(|| damaged("an object cannot be read"))?;
                    let pushed = base.push(object);
                    pushed.map_err(|_| damaged("the objects are not in order"))?;
                    count += 1;
                }
                Some(Record::BaseEnd(expected)) if expected == count && block.is_empty() => {
                    return Ok(base.finish());
                }
                Some(
                    Record::Header(_)
                    | Record::BaseEnd(_)
                    | Record::Event { .. }
                    | Record::Version(_)
                    | Record::Proven(_),
                )
                | None => return Err(damaged("its objects cannot be read")),
            }
        }
    }
    Err(damaged("its objects are not complete"))
}

/// The events read so far.
struct JournalReader {
    /// The state before the first of the events.
    base: ObjectMap,
    base_version: ResourceVersion,
    frames: FrameDecoder,
    clock: WriteClock,
    /// The version of the newest record.
    newest: ResourceVersion,
    /// The version that the resource reached last, and the number of events up to there.
    reached: Option<(ResourceVersion, usize)>,
    proven: ResourceVersion,
    events: VecDeque<PastEvent>,
}

impl JournalReader {
    /// Reads blocks until the file ends or a block cannot be used.
    fn read<R: Read>(
        &mut self,
        blocks: &mut BlockReader<R>,
        excess: &dyn Fn() -> usize,
    ) -> Result<JournalEnd, CheckpointError> {
        loop {
            self.forget(excess());
            let block = match blocks.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(JournalEnd::Whole),
                Err(BlockError::Io(error)) => return Err(error.into()),
                Err(error @ (BlockError::Damaged(_) | BlockError::OtherKey(_))) => {
                    return Ok(JournalEnd::Cut(error.to_string()));
                }
            };
            if self.take_block(block).is_none() {
                return Ok(JournalEnd::Cut("an event cannot be read".to_owned()));
            }
        }
    }

    fn take_block(&mut self, mut block: &[u8]) -> Option<()> {
        while !block.is_empty() {
            match Record::take(&mut block)? {
                Record::Event { kind, at_ms, frame } => {
                    let object = self.frames.object(frame)?;
                    self.advance(object.resource_version())?;
                    self.events.push_back(PastEvent {
                        change: match kind {
                            EventKind::Added | EventKind::Modified => Change::Put(object),
                            EventKind::Deleted => Change::Delete(object),
                        },
                        arrived_at: self.clock.instant_at(at_ms),
                    });
                }
                Record::Version(version) => {
                    self.advance(version)?;
                    self.reached = Some((version, self.events.len()));
                }
                Record::Proven(version) => self.proven = self.proven.max(version),
                Record::Header(_) | Record::Object(_) | Record::BaseEnd(_) => return None,
            }
        }
        Some(())
    }

    /// Moves the oldest events into the base until so many bytes are free. Events that a damaged end may still take away stay; those before
    /// the first version do not, because without that the whole state is refused.
    fn forget(&mut self, excess: usize) {
        let mut freed = 0;
        while freed < excess {
            let reached = self.reached.map_or(self.events.len(), |(_, count)| count);
            if reached == 0 {
                return;
            }
            let Some(event) = self.events.pop_front() else {
                return;
            };
            freed += event.change.object().allocated_len();
            self.base_version = event.change.object().resource_version();
            match event.change {
                Change::Put(object) => drop(self.base.insert(object)),
                Change::Delete(object) => drop(self.base.remove(object.key())),
            }
            if let Some((_, count)) = &mut self.reached {
                *count -= 1;
            }
        }
    }

    /// Notes the version of a record; `None` if it goes backwards.
    fn advance(&mut self, version: ResourceVersion) -> Option<()> {
        let is_next = version >= self.newest;
        self.newest = version;
        is_next.then_some(())
    }
}
