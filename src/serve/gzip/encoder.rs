//! Compresses one run of bytes into a block that stands for itself.

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};

use crate::cache::DeflateBlock;

/// How hard to try. On pods in blocks of 512 KiB, one core: level 1 makes 730 MB a second into 18.5 %, level 2
/// 460 MB into 13.1 %, level 3 385 MB into 12.5 %. Go's level 1, which the API server uses, comes to 14.6 %.
const LEVEL: u32 = 2;

/// Takes bytes in any number of pieces and makes one block of them.
#[derive(Debug)]
pub struct Encoder {
    deflate: Compress,
    out: Vec<u8>,
    crc: Hasher,
}

/// More room than the end of a block needs (a marker of five bytes, and what the compressor held back of its last bits):
/// with less, the end would have to be asked for twice.
const ROOM_LEN_MIN: usize = 4096;
/// Lists shrink to less than this part of their length, most often.
const SHRINKS_TO_ONE_OF: usize = 5;

impl Encoder {
    /// An encoder for about so many bytes. Its state takes about 300 KB as long as it lives.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            deflate: Compress::new(Compression::new(LEVEL), false),
            out: Vec::with_capacity(len / SHRINKS_TO_ONE_OF + ROOM_LEN_MIN),
            crc: Hasher::new(),
        }
    }

    /// How many bytes were added.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.deflate.total_in()
    }

    /// Whether none were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        let end = self.deflate.total_in() + bytes.len() as u64;
        while self.deflate.total_in() < end {
            let left = usize::try_from(end - self.deflate.total_in()).unwrap_or(usize::MAX);
            self.step(&bytes[bytes.len() - left..], FlushCompress::None);
        }
    }

    /// The block: it ends on a whole byte, and what follows it cannot refer to it.
    #[must_use]
    pub fn finish(mut self) -> DeflateBlock {
        let len = self.deflate.total_in();
        if len > 0 {
            // Complete once there was room left over.
            loop {
                self.step(&[], FlushCompress::Full);
                if self.out.len() < self.out.capacity() {
                    break;
                }
            }
        }
        // It is kept for long: without the room that was not needed.
        self.out.shrink_to_fit();
        DeflateBlock {
            deflate: Bytes::from(self.out),
            len,
            crc: self.crc.finalize(),
        }
    }

    #[expect(clippy::expect_used, reason = "deflate fails on a broken state only")]
    fn step(&mut self, bytes: &[u8], flush: FlushCompress) {
        if self.out.capacity() - self.out.len() < ROOM_LEN_MIN {
            self.out.reserve(self.out.capacity());
        }
        self.deflate
            .compress_vec(bytes, &mut self.out, flush)
            .expect("a stream that has not ended takes more");
    }
}
