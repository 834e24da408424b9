//! Lists of metadata only. Each item is a part of the object's own bytes between bytes that are the same for all items. The
//! positions of these parts are found once per chunk of the snapshot, by the first list that needs them.
//!
//! The parts are copied, so that a frame is one slice. Sharing them would cost more: hyper passes 64 slices to the socket at a
//! time, which is little data if the slices are short.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::envelope::Envelope;
use crate::cache::Chunk;
use crate::view::Projection;

/// The bytes around the metadata of each item.
#[derive(Clone, Debug)]
pub(super) struct ItemSeparators {
    first: Bytes,
    /// Before each other item, including the end of the previous one.
    further: Bytes,
}

/// The end of an item.
const END: u8 = b'}';

impl ItemSeparators {
    /// `None` if each object has to be projected by itself.
    pub(super) fn new(projection: Option<Projection>, envelope: &Envelope) -> Option<Self> {
        let head = projection?.before_metadata()?;
        let first = [&envelope.opening, head.as_bytes()].concat().into();
        Some(Self {
            first,
            further: [&[END], &*envelope.separator, head.as_bytes()]
                .concat()
                .into(),
        })
    }

    /// Objects of a chunk from `start` on as items of about `room` bytes together, but at least one; returns the bytes and the
    /// number of items. `None` if an object cannot be read.
    pub(super) fn items(
        &self,
        chunk: &Chunk,
        start: usize,
        has_items: bool,
        room: usize,
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
            items.put_slice(match (has_items, at) {
                (false, 0) => &self.first,
                // The previous item's end is already written.
                (true, 0) => &self.further[1..],
                _ => &self.further,
            });
            items.put_slice(piece.of(object.bytes()));
        }
        items.put_u8(END);
        Some((items.freeze(), count))
    }
}
