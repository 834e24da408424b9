//! One gzip member (RFC 1952), put together of pieces that were compressed apart. It compresses nothing itself.

use bytes::{Bytes, BytesMut};
use crc32fast::Hasher;

use crate::cache::DeflateBlock;

/// No name, no time, fastest, unknown system: what Go's writer says at level 1.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// A deflate block that is the last one and holds nothing.
const LAST_BLOCK: [u8; 5] = [1, 0, 0, 0xff, 0xff];
/// What a stored deflate block holds at most.
const STORED_LEN_MAX: usize = u16::MAX as usize;

/// A member that is being written: the checksum and length of what went in.
#[derive(Debug, Default)]
pub struct GzipMember {
    crc: Hasher,
    len: u64,
}

impl GzipMember {
    /// What stands before everything else.
    #[must_use]
    pub const fn header() -> Bytes {
        Bytes::from_static(&HEADER)
    }

    /// Adds a compressed piece.
    #[must_use]
    pub fn block(&mut self, block: &DeflateBlock) -> Bytes {
        self.crc
            .combine(&Hasher::new_with_initial_len(block.crc, block.len));
        self.len = self.len.wrapping_add(block.len);
        block.deflate.clone()
    }

    /// Adds bytes as they are: a few, for which compressing is not worth its price.
    #[must_use]
    pub fn stored(&mut self, bytes: &[u8]) -> Bytes {
        self.crc.update(bytes);
        self.len = self.len.wrapping_add(bytes.len() as u64);
        let mut out = BytesMut::with_capacity(bytes.len() + 5);
        for part in bytes.chunks(STORED_LEN_MAX) {
            let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
            out.extend_from_slice(&[0]);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&(!len).to_le_bytes());
            out.extend_from_slice(part);
        }
        out.freeze()
    }

    /// What stands behind everything else.
    #[must_use]
    pub fn trailer(self) -> Bytes {
        let mut out = BytesMut::with_capacity(LAST_BLOCK.len() + 8);
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&self.crc.finalize().to_le_bytes());
        // The format keeps the length's lower half only.
        out.extend_from_slice(&self.len.to_le_bytes()[..4]);
        out.freeze()
    }
}
