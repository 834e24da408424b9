//! Lists of metadata alone, where an item is a piece of the object's own bytes between bytes that are the same for all: the
//! pieces are looked for once per chunk of the snapshot, by whichever list comes first.
//!
//! They are copied into frames of one slice each. Left where they are they would cost more: a socket takes 64 slices from
//! hyper at a time, which of small pieces is little.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::envelope::Envelope;
use crate::cache::Chunk;
use crate::view::Projection;

/// What stands around the pieces.
#[derive(Clone, Debug)]
pub(super) struct ItemSeparators {
    /// Before the first of all.
    first: Bytes,
    /// Before each other one: the end of the item before it, too.
    further: Bytes,
}

/// Ends an item.
const END: u8 = b'}';

impl ItemSeparators {
    /// `None` if objects have to be looked at one by one.
    pub(super) fn new(cut: Option<Projection>, envelope: &Envelope) -> Option<Self> {
        let head = cut?.before_metadata()?;
        let first = [&envelope.opening, head.as_bytes()].concat().into();
        let between = [&[END], &*envelope.between, head.as_bytes()].concat();
        Some(Self {
            first,
            further: between.into(),
        })
    }

    /// Objects of a chunk from `start` on as items of about `room` bytes together, and at least one; how many. `None` if one
    /// cannot be read.
    pub(super) fn items(
        &self,
        chunk: &Chunk,
        start: usize,
        (is_begun, room): (bool, usize),
    ) -> Option<(Bytes, usize)> {
        let pieces = chunk.metadata(Projection::metadata_of)?.get(start..)?;
        let (mut count, mut len) = (0, 1);
        for piece in pieces {
            len += self.further.len() + (piece.end - piece.start) as usize;
            count += 1;
            if len >= room {
                break;
            }
        }
        let mut items = BytesMut::with_capacity(len);
        let objects = &chunk.objects()[start..];
        for (at, (piece, object)) in pieces.iter().zip(objects).take(count).enumerate() {
            items.put_slice(match (is_begun, at) {
                (false, 0) => &self.first,
                // Its item before has its end already.
                (true, 0) => &self.further[1..],
                _ => &self.further,
            });
            items.put_slice(piece.of(object.bytes()));
        }
        items.put_u8(END);
        Some((items.freeze(), count))
    }
}
