//! One gzip member (RFC 1952), put together from blocks that were compressed separately. Compresses nothing itself.

use bytes::{Bytes, BytesMut};

use crate::buf_list::BufList;
use crate::cache::{Checksum, DeflateBlock};
use crate::view::{STORED_LEN_MAX, SYNC, stored_head};

/// No name, no time, fastest compression, unknown system: the header that Go's writer sends at level 1.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty final deflate block.
const LAST_BLOCK: [u8; 5] = [1, 0, 0, 0xff, 0xff];
/// Parts up to this length are copied together, longer ones are not copied.
const COPIED_LEN_MAX: usize = 1 << 10;

/// The state of a member that is being written: CRC-32 and length of its bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct GzipMember {
    crc: u32,
    len: u64,
}

impl GzipMember {
    /// The header, which comes first.
    #[must_use]
    pub const fn header() -> Bytes {
        Bytes::from_static(&HEADER)
    }

    /// Adds a compressed block and returns the bytes to send.
    #[must_use]
    pub fn block(&mut self, block: &DeflateBlock) -> Bytes {
        self.add(Checksum::new(block.crc, block.len));
        block.deflate.clone()
    }

    /// Adds bytes that are sent compressed.
    pub const fn add(&mut self, sum: Checksum) {
        self.crc = sum.after(self.crc);
        self.len = self.len.wrapping_add(sum.len());
    }

    /// Adds bytes uncompressed, for short parts that are not worth compressing; returns the bytes to send.
    #[must_use]
    pub fn stored(&mut self, bytes: &[u8]) -> Bytes {
        self.add(Checksum::of(bytes));
        let mut out = BytesMut::with_capacity(bytes.len() + 5);
        for part in bytes.chunks(STORED_LEN_MAX) {
            out.extend_from_slice(&stored_head(part));
            out.extend_from_slice(part);
        }
        out.freeze()
    }

    /// Adds parts uncompressed; returns what to send, which a decoder gives out at once.
    #[must_use]
    pub fn stored_parts(&mut self, parts: BufList) -> BufList {
        let mut out = BufList::default();
        let mut copied = BytesMut::new();
        for part in parts.into_parts() {
            self.add(Checksum::of(&part));
            for start in (0..part.len()).step_by(STORED_LEN_MAX) {
                let part = part.slice(start..part.len().min(start + STORED_LEN_MAX));
                copied.extend_from_slice(&stored_head(&part));
                if part.len() <= COPIED_LEN_MAX {
                    copied.extend_from_slice(&part);
                } else {
                    out.push(copied.split().freeze());
                    out.push(part);
                }
            }
        }
        copied.extend_from_slice(SYNC);
        out.push(copied.freeze());
        out
    }

    /// The trailer, which comes last.
    #[must_use]
    pub fn trailer(self) -> Bytes {
        let mut out = BytesMut::with_capacity(LAST_BLOCK.len() + 8);
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&self.crc.to_le_bytes());
        // The format has only the lower 32 bits of the length.
        out.extend_from_slice(&self.len.to_le_bytes()[..4]);
        out.freeze()
    }
}
