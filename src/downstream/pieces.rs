//! A run of shared slices that leaves in one vectored write: list items and event lines, never copied.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use smallvec::{SmallVec, smallvec};

/// What one body frame carries.
///
/// `chunks_vectored` fills the slices it is given as far as it goes, without leaving a later piece out: hyper's
/// chunk framing relies on that (hyperium/hyper#4132).
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    /// Not yet written, the first perhaps in part. Never holds an empty piece. A client that keeps up gets one
    /// at a time, which costs no allocation.
    parts: SmallVec<[Bytes; 1]>,
    /// Parts before this one are written.
    at: usize,
    len: usize,
}

impl Pieces {
    /// Adds a slice at the end.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slices that are left, in order.
    pub fn into_parts(self) -> impl Iterator<Item = Bytes> {
        self.parts.into_iter().skip(self.at)
    }

    /// Number of slices.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len() - self.at
    }
}

impl From<Bytes> for Pieces {
    fn from(part: Bytes) -> Self {
        let len = part.len();
        Self {
            parts: if len == 0 {
                SmallVec::new()
            } else {
                smallvec![part]
            },
            at: 0,
            len,
        }
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.parts.get(self.at).map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.parts.get(self.at..).unwrap_or(&[]);
        slices
            .iter_mut()
            .zip(parts)
            .map(|(slice, part)| *slice = IoSlice::new(part))
            .count()
    }

    fn advance(&mut self, mut written: usize) {
        assert!(written <= self.len, "no more can be written than is there");
        self.len -= written;
        while written > 0 {
            let part = &mut self.parts[self.at];
            let step = written.min(part.len());
            part.advance(step);
            written -= step;
            if part.is_empty() {
                // The slice is let go now, not with the frame: a slow socket must not pin what it has taken.
                *part = Bytes::new();
                self.at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parts: &[&'static str], step: usize, slots: usize) {
        let whole = parts.concat();
        let mut pieces = Pieces::default();
        parts
            .iter()
            .for_each(|part| pieces.push(Bytes::from_static(part.as_bytes())));
        let mut written = Vec::new();
        while pieces.has_remaining() {
            let mut slices = vec![IoSlice::new(&[]); slots];
            let filled = pieces.chunks_vectored(&mut slices);
            let seen: Vec<u8> = slices[..filled]
                .iter()
                .flat_map(|slice| slice.to_vec())
                .collect();
            assert!(
                filled == slots || seen.len() == pieces.remaining(),
                "room was left though there was more"
            );
            let take = seen.len().min(step);
            written.extend_from_slice(&seen[..take]);
            pieces.advance(take);
        }
        assert_eq!(String::from_utf8_lossy(&written), whole);
    }

    #[test]
    fn every_partial_write_goes_on_where_it_stopped() {
        for step in 1..=12 {
            for slots in 1..=4 {
                check(&["abc", "", "d", "efgh", "ij"], step, slots);
            }
        }
    }
}
