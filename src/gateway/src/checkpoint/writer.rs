//! Writes a checkpoint: the base once, then the journal as long as the gateway runs.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::block::BlockWriter;
use super::capture::Capture;
use super::header::{CheckpointHeader, LOST_AHEAD_MAX};
use super::record::Record;
use super::seal::{SALT_LEN, StateKey};
use crate::cache::Event;
use crate::resource::ResourceVersion;

/// The first bytes of every checkpoint.
pub(super) const MAGIC: &[u8; 8] = b"kfstate\n";
/// The version of the format. A file of any other version is refused.
pub(super) const FORMAT: u16 = 1;
/// The flag of an encrypted file.
pub(super) const SEALED: u16 = 1;
/// Magic, format, flags, salt and a checksum over them.
pub(super) const PREAMBLE_LEN: usize = 8 + 2 + 2 + SALT_LEN + 4;

/// The bytes before the first block.
pub(super) fn preamble(flags: u16, salt: &[u8; SALT_LEN]) -> [u8; PREAMBLE_LEN] {
    let mut out = [0; PREAMBLE_LEN];
    let (body, check) = out.split_at_mut(PREAMBLE_LEN - 4);
    body[..8].copy_from_slice(MAGIC);
    body[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    body[10..12].copy_from_slice(&flags.to_le_bytes());
    body[12..].copy_from_slice(salt);
    check.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    out
}

/// The same moment on both clocks: a process counts the age of events on a clock that ends with it.
#[derive(Clone, Copy, Debug)]
pub struct WriteClock {
    /// The process's clock.
    pub instant: Instant,
    /// The wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
}

impl WriteClock {
    /// A moment on both clocks.
    #[must_use]
    pub fn new(instant: Instant, wall: SystemTime) -> Self {
        let since = wall.duration_since(SystemTime::UNIX_EPOCH);
        let unix_ms = u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        Self { instant, unix_ms }
    }

    /// The wall clock's time of a moment that is past.
    pub(super) fn ms_at(&self, moment: Instant) -> u64 {
        let age = self.instant.saturating_duration_since(moment).as_millis();
        self.unix_ms
            .saturating_sub(u64::try_from(age).unwrap_or(u64::MAX))
    }

    /// The moment that was at this time on the wall clock; now if it lies in the future or before the process's clock began.
    #[must_use]
    pub fn instant_at(&self, unix_ms: u64) -> Instant {
        let age = Duration::from_millis(self.unix_ms.saturating_sub(unix_ms));
        self.instant.checked_sub(age).unwrap_or(self.instant)
    }
}

/// Writes one checkpoint. After an error the file must be given up, because its last block may be incomplete.
#[derive(Debug)]
pub struct CheckpointWriter<W> {
    blocks: BlockWriter<W>,
    version: ResourceVersion,
    proven: ResourceVersion,
    base_len: u64,
}

impl<W: Write> CheckpointWriter<W> {
    /// Writes the base of what was captured, and its events.
    ///
    /// # Errors
    /// Those of the output, and an error of kind `Other` if the blocks cannot be encrypted.
    pub fn create(
        mut out: W,
        key: Option<&StateKey>,
        header: &CheckpointHeader,
        capture: &Capture,
        clock: WriteClock,
    ) -> io::Result<Self> {
        let mut salt = [0; SALT_LEN];
        let seal = match key {
            Some(key) => {
                aws_lc_rs::rand::fill(&mut salt).map_err(io::Error::other)?;
                Some(key.for_file(&salt).map_err(io::Error::other)?)
            }
            None => None,
        };
        let flags = if seal.is_some() { SEALED } else { 0 };
        out.write_all(&preamble(flags, &salt))?;
        let mut blocks = BlockWriter::new(out, seal);
        let header = serde_json::to_vec(header).map_err(io::Error::other)?;
        Record::Header(&header).write(blocks.records());
        blocks.end_block()?;
        let count = capture.each_base_object(|object| {
            Record::Object(object.stored_frame()).write(blocks.records());
            blocks.end_full_block()
        })?;
        Record::BaseEnd(count).write(blocks.records());
        blocks.end_block()?;
        // No version before the last event: some of these events may be the difference of a relist, in whose middle there is no state
        // that a watch could continue from.
        for event in capture.events() {
            record_of(event, clock).write(blocks.records());
            blocks.end_full_block()?;
        }
        let mut writer = Self {
            base_len: 0,
            blocks,
            version: capture.base_version(),
            proven: capture.proven(),
        };
        writer.end_at(capture.snapshot().resource_version)?;
        writer.base_len = writer.blocks.len();
        Ok(writer)
    }

    /// Appends the events that follow, in the same epoch, the version that the resource has reached with them, and the newest version that
    /// clients may have.
    ///
    /// # Errors
    /// See [`CheckpointWriter::create`].
    pub fn append(
        &mut self,
        events: &[Arc<Event>],
        version: ResourceVersion,
        given: ResourceVersion,
        clock: WriteClock,
    ) -> io::Result<()> {
        for (index, event) in events.iter().enumerate() {
            record_of(event, clock).write(self.blocks.records());
            // Events with the same version belong together.
            let reached = event.resource_version();
            let next = events.get(index + 1);
            if self.blocks.is_full() && next.is_some_and(|next| next.resource_version() > reached) {
                self.end_at(reached)?;
            }
        }
        let is_proven = given > version.max(self.proven);
        if is_proven {
            let max = version.0.saturating_add(LOST_AHEAD_MAX);
            self.proven = ResourceVersion(given.0.min(max));
            Record::Proven(self.proven).write(self.blocks.records());
        }
        if is_proven || !events.is_empty() || version > self.version {
            self.end_at(version)?;
        }
        Ok(())
    }

    /// Ends a block: with all records so far, the resource has reached `version`.
    fn end_at(&mut self, version: ResourceVersion) -> io::Result<()> {
        self.version = self.version.max(version);
        Record::Version(self.version).write(self.blocks.records());
        self.blocks.end_block()
    }

    /// Bytes that were written at first, and bytes that were appended.
    #[must_use]
    pub const fn lens(&self) -> (u64, u64) {
        (self.base_len, self.blocks.len() - self.base_len)
    }

    /// What the checkpoint was written to.
    pub fn into_out(self) -> W {
        self.blocks.into_out()
    }

    /// What the checkpoint is written to.
    pub const fn out(&mut self) -> &mut W {
        self.blocks.out()
    }
}

fn record_of(event: &Event, clock: WriteClock) -> Record<'_> {
    Record::Event {
        kind: event.kind(),
        at_ms: clock.ms_at(event.arrived_at()),
        frame: event.object().stored_frame(),
    }
}
