//! One gzip member (RFC 1952), assembled from separately compressed blocks. Compresses nothing itself.

use bytes::{Bytes, BytesMut};
use crc32fast::Hasher;

use crate::cache::DeflateBlock;

/// No name, no time, fastest compression, unknown system: the header that Go's writer sends at level 1.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty final deflate block.
const LAST_BLOCK: [u8; 5] = [1, 0, 0, 0xff, 0xff];
/// Maximum length of a stored deflate block.
const STORED_LEN_MAX: usize = u16::MAX as usize;

/// The state of a member that is being written: checksum and length of the input so far.
#[derive(Debug, Default)]
pub struct GzipMember {
    crc: Hasher,
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
        self.crc
            .combine(&Hasher::new_with_initial_len(block.crc, block.len));
        self.len = self.len.wrapping_add(block.len);
        block.deflate.clone()
    }

    /// Adds bytes uncompressed, for short parts that are not worth compressing; returns the bytes to send.
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

    /// The trailer, which comes last.
    #[must_use]
    pub fn trailer(self) -> Bytes {
        let mut out = BytesMut::with_capacity(LAST_BLOCK.len() + 8);
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&self.crc.finalize().to_le_bytes());
        // The format has only the lower 32 bits of the length.
        out.extend_from_slice(&self.len.to_le_bytes()[..4]);
        out.freeze()
    }
}
