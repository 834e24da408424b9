//! Blocks: runs of bytes with a length and a checksum, encrypted if there is a key.

use std::io::{self, Read, Write};

use super::seal::{BlockSeal, SealError};

/// A block is written once its records have at least this many bytes. A longer record makes a longer block.
const BLOCK_LEN: usize = 256 * 1024;
/// Length and checksum before a block's bytes.
const HEAD_LEN: usize = 8;
/// The longest block. A frame is bounded far below, and a block ends with the first record that fills it.
const BLOCK_LEN_MAX: u32 = 1 << 30;

/// Collects records and writes them as blocks.
#[derive(Debug)]
pub(super) struct BlockWriter<W> {
    out: W,
    seal: Option<BlockSeal>,
    index: u64,
    records: Vec<u8>,
    /// Bytes written so far, blocks only.
    len: u64,
}

impl<W: Write> BlockWriter<W> {
    pub(super) const fn new(out: W, seal: Option<BlockSeal>) -> Self {
        Self {
            out,
            seal,
            index: 0,
            records: Vec::new(),
            len: 0,
        }
    }

    /// The buffer that records are appended to; [`BlockWriter::end_block`] or [`BlockWriter::end_full_block`] must follow.
    pub(super) const fn records(&mut self) -> &mut Vec<u8> {
        &mut self.records
    }

    /// Whether the block should be written.
    pub(super) const fn is_full(&self) -> bool {
        self.records.len() >= BLOCK_LEN
    }

    /// Writes the block if it is full.
    pub(super) fn end_full_block(&mut self) -> io::Result<()> {
        if self.is_full() {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes the records that were collected, if there are any.
    pub(super) fn end_block(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        if let Some(seal) = &self.seal {
            seal.seal(self.index, &mut self.records)
                .map_err(|error: SealError| io::Error::other(error))?;
        }
        let len = u32::try_from(self.records.len()).ok();
        let len = len.filter(|len| *len <= BLOCK_LEN_MAX);
        let len = len.ok_or_else(|| io::Error::other("a block is longer than 1 GiB"))?;
        let check = checksum(self.index, &self.records);
        let mut head = [0; HEAD_LEN];
        head[..4].copy_from_slice(&len.to_le_bytes());
        head[4..].copy_from_slice(&check.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.records)?;
        self.out.flush()?;
        self.len += (HEAD_LEN + self.records.len()) as u64;
        self.index += 1;
        self.records.clear();
        // A large object must not keep its buffer for the life of the file.
        self.records.shrink_to(2 * BLOCK_LEN);
        Ok(())
    }

    /// Bytes of the blocks written so far.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// What the blocks were written to.
    pub(super) fn into_out(self) -> W {
        self.out
    }

    /// What the blocks are written to.
    pub(super) const fn out(&mut self) -> &mut W {
        &mut self.out
    }
}

/// The checksum also covers the index, so that blocks cannot be swapped unnoticed.
fn checksum(index: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Why the next block cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BlockError {
    /// The file ends within the block, or its bytes are not what was written.
    #[error("block {0} is damaged")]
    Damaged(u64),
    /// The block is whole, but was encrypted with another key.
    #[error("block {0} was encrypted with another key")]
    OtherKey(u64),
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads blocks.
#[derive(Debug)]
pub(super) struct BlockReader<R> {
    input: R,
    /// Bytes of the file that were not read yet: no block can be longer. `None` for a stream, whose length is not known before its end.
    remaining: Option<u64>,
    seal: Option<BlockSeal>,
    index: u64,
    block: Vec<u8>,
}

impl<R: Read> BlockReader<R> {
    pub(super) const fn new(input: R, remaining: Option<u64>, seal: Option<BlockSeal>) -> Self {
        Self {
            input,
            remaining,
            seal,
            index: 0,
            block: Vec::new(),
        }
    }

    /// The records of the next block; `None` at the end of the file.
    pub(super) fn next_block(&mut self) -> Result<Option<&[u8]>, BlockError> {
        if self.remaining == Some(0) {
            return Ok(None);
        }
        let damaged = BlockError::Damaged(self.index);
        self.read(HEAD_LEN)?;
        if self.block.is_empty() && self.remaining.is_none() {
            return Ok(None);
        }
        let head = self.block.first_chunk::<HEAD_LEN>();
        let Some(&head) = head else {
            return Err(damaged);
        };
        let [a, b, c, d, e, f, g, h] = head;
        let len = u32::from_le_bytes([a, b, c, d]);
        let check = u32::from_le_bytes([e, f, g, h]);
        if len == 0 || len > BLOCK_LEN_MAX {
            return Err(damaged);
        }
        self.read(len as usize)?;
        if self.block.len() != len as usize {
            return Err(damaged);
        }
        if checksum(self.index, &self.block) != check {
            return Err(damaged);
        }
        if let Some(seal) = &self.seal {
            let opened = seal.open(self.index, &mut self.block);
            opened.ok_or(BlockError::OtherKey(self.index))?;
        }
        self.index += 1;
        Ok(Some(&self.block))
    }

    /// Reads so many bytes, or fewer if the input ends before.
    fn read(&mut self, len: usize) -> Result<(), BlockError> {
        self.block.clear();
        if self.remaining.is_some_and(|rest| (len as u64) > rest) {
            return Err(BlockError::Damaged(self.index));
        }
        // Memory grows with what arrives, not with what the input claims.
        let read = (&mut self.input)
            .take(len as u64)
            .read_to_end(&mut self.block)?;
        if let Some(rest) = &mut self.remaining {
            *rest -= read as u64;
        }
        Ok(())
    }
}
