//! A run of objects: the unit that is copied when one of them changes, and that compressed blocks are kept with.
//!
//! It does not know how blocks are made, nor for whom.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::resource::{ByteSpan, KeyRef, Object};

/// Objects of one chunk at most. With 150,000 objects a snapshot then lists under 1,200 chunks, and an update
/// copies at most 256 pointers.
pub(super) const OBJECT_COUNT_MAX: usize = 256;
/// Bytes of a chunk at most, unless it is one object: what one change costs to compress again (about 5 ms).
pub(super) const FRAMES_LEN_MAX: usize = 2 << 20;

/// Places that a full chunk grows by.
const INSERT_RESERVE: usize = 16;

/// A chunk's objects in one encoding, compressed on their own: a piece of a deflate stream that ends on a byte and
/// refers to nothing before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeflateBlock {
    /// The piece.
    pub deflate: Bytes,
    /// Length of what it decodes to, in bytes.
    pub len: u64,
    /// CRC-32 of what it decodes to.
    pub crc: u32,
}

/// The encodings that blocks are kept of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// List items as the cache holds them.
    Whole,
    /// Nothing but metadata, version `v1`, in the cache's own encoding.
    Metadata,
    /// Nothing but metadata, version `v1`, in protobuf though the cache holds JSON.
    Translated,
}

impl BlockFormat {
    const COUNT: usize = 3;
}

/// The forms of list items in protobuf whose lengths are kept. Versions of metadata do not differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LengthForm {
    /// All of an object.
    Whole,
    /// Nothing but metadata.
    Metadata,
    /// All but managed fields.
    WithoutManagedFields,
    /// Metadata without managed fields.
    MetadataWithoutManagedFields,
}

impl LengthForm {
    const COUNT: usize = 4;
}

/// A run of objects and what was made of it.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Sorted by key, never empty.
    objects: Vec<Object>,
    /// The objects' frames together, in bytes.
    frames_len: usize,
    made: DerivedBytes,
}

/// What was made of a chunk's objects as they are, each when first wanted: whoever changes the objects empties it.
#[derive(Debug, Default)]
struct DerivedBytes {
    blocks: [OnceLock<DeflateBlock>; BlockFormat::COUNT],
    /// Where the objects' metadata stands. `None` in it if some has none.
    metadata: OnceLock<Option<Box<[ByteSpan]>>>,
    /// How long the objects are as items of a list. `None` in it if one cannot be written so.
    lens: [OnceLock<Option<Box<[u32]>>>; LengthForm::COUNT],
}

/// The copy is made to be changed: nothing made of the objects goes with it.
impl Clone for Chunk {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            frames_len: self.frames_len,
            made: DerivedBytes::default(),
        }
    }
}

impl Chunk {
    /// A chunk of sorted objects, at least one, and their frames' bytes.
    pub(super) fn new(objects: Vec<Object>, frames_len: usize) -> Self {
        Self {
            objects,
            frames_len,
            made: DerivedBytes::default(),
        }
    }

    /// The objects in order.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Length of the objects' frames together, in bytes.
    #[must_use]
    pub fn frames_len(&self) -> usize {
        self.frames_len
    }

    /// The block of this encoding, if it has been made.
    #[must_use]
    pub fn block(&self, kept: BlockFormat) -> Option<&DeflateBlock> {
        self.made.blocks[kept as usize].get()
    }

    /// Keeps a block; of two, the first stays, and is returned.
    pub fn keep(&self, kept: BlockFormat, block: DeflateBlock) -> &DeflateBlock {
        self.made.blocks[kept as usize].get_or_init(|| block)
    }

    /// Where in its bytes each object's metadata stands, as `find` tells; it is asked once, and who comes meanwhile waits for
    /// it, for some tenths of a millisecond at most. `None` if it did not find all.
    pub fn metadata(&self, find: impl Fn(&Object) -> Option<ByteSpan>) -> Option<&[ByteSpan]> {
        let found = &self.made.metadata;
        let found = found.get_or_init(|| self.objects.iter().map(find).collect());
        found.as_deref()
    }

    /// Whether [`Self::metadata`] costs nothing any more.
    #[must_use]
    pub fn has_metadata(&self) -> bool {
        self.made.metadata.get().is_some()
    }

    /// Whether [`Self::lens`] costs nothing any more.
    #[must_use]
    pub fn is_measured(&self, form: LengthForm) -> bool {
        self.made.lens[form as usize].get().is_some()
    }

    /// The length of each object as an item of a list, as `len` tells; it is asked once, and who comes meanwhile waits for it,
    /// for a millisecond or two at most. `None` if it did not tell all.
    pub fn lens(&self, form: LengthForm, len: impl Fn(&Object) -> Option<u32>) -> Option<&[u32]> {
        let lens = &self.made.lens[form as usize];
        let lens = lens.get_or_init(|| self.objects.iter().map(len).collect());
        lens.as_deref()
    }

    /// True if there is more in it than there should be.
    pub(super) fn is_over_full(&self) -> bool {
        let len = self.objects.len();
        len > OBJECT_COUNT_MAX || self.frames_len > FRAMES_LEN_MAX && len > 1
    }

    /// True if both together would be half full at most.
    pub(super) fn can_join(&self, other: &Self) -> bool {
        self.objects.len() + other.objects.len() <= OBJECT_COUNT_MAX / 2
            && self.frames_len + other.frames_len <= FRAMES_LEN_MAX / 2
    }

    pub(super) fn find(&self, key: KeyRef<'_>) -> Result<usize, usize> {
        self.objects
            .binary_search_by(|object| object.key().cmp(&key))
    }

    /// True if every key, from the one at `index` on, starts with `prefix`.
    pub(super) fn is_prefixed_from(&self, index: usize, prefix: &str) -> bool {
        let starts = |object: &Object| object.key().starts_with(prefix);
        // In the order of keys those that start alike stand together.
        self.objects.get(index).is_some_and(starts) && self.objects.last().is_some_and(starts)
    }

    pub(super) fn insert(&mut self, index: usize, object: Object) {
        self.frames_len += object.frame_len();
        let objects = self.changed();
        if objects.len() == objects.capacity() {
            // Doubling would leave half of each chunk empty that an object came to.
            objects.reserve_exact(INSERT_RESERVE);
        }
        objects.insert(index, object);
    }

    pub(super) fn replace(&mut self, index: usize, object: Object) -> Object {
        let len = object.frame_len();
        let previous = std::mem::replace(&mut self.changed()[index], object);
        self.frames_len = self.frames_len + len - previous.frame_len();
        previous
    }

    pub(super) fn remove(&mut self, index: usize) -> Object {
        let object = self.changed().remove(index);
        self.frames_len -= object.frame_len();
        object
    }

    pub(super) fn append(&mut self, next: &Self) {
        self.frames_len += next.frames_len;
        self.changed().extend(next.objects.iter().cloned());
    }

    /// The objects, to be changed: what was made of them is forgotten.
    fn changed(&mut self) -> &mut Vec<Object> {
        self.made = DerivedBytes::default();
        &mut self.objects
    }
}

/// How full new chunks are made, at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkCapacity {
    object_count: usize,
    frames_len: usize,
}

impl ChunkCapacity {
    /// Three quarters: room for inserts before the first split.
    pub(super) const LOADED: Self = Self {
        object_count: OBJECT_COUNT_MAX / 4 * 3,
        frames_len: FRAMES_LEN_MAX / 4 * 3,
    };
    /// Half: what becomes of one that is over-full.
    pub(super) const SPLIT: Self = Self {
        object_count: OBJECT_COUNT_MAX / 2 + 1,
        frames_len: FRAMES_LEN_MAX / 2,
    };

    /// Cuts sorted objects into chunks.
    pub(super) fn cut(self, objects: Vec<Object>) -> Vec<Arc<Chunk>> {
        let mut chunks = Vec::with_capacity(objects.len() / self.object_count + 1);
        let mut objects = objects.into_iter();
        while !objects.as_slice().is_empty() {
            let (count, frames_len) = self.first(objects.as_slice());
            let first = objects.by_ref().take(count).collect();
            chunks.push(Arc::new(Chunk::new(first, frames_len)));
        }
        chunks
    }

    /// Whether a chunk of so many objects and bytes has no room for one of `len` bytes.
    pub(super) const fn is_full(self, object_count: usize, frames_len: usize, len: usize) -> bool {
        object_count >= self.object_count || object_count > 0 && frames_len + len > self.frames_len
    }

    /// How many objects the first chunk takes, at least one, and their frames' bytes.
    fn first(self, objects: &[Object]) -> (usize, usize) {
        let (mut count, mut frames_len) = (0, 0);
        for object in objects {
            let len = object.frame_len();
            if self.is_full(count, frames_len, len) {
                break;
            }
            count += 1;
            frames_len += len;
        }
        (count, frames_len)
    }
}
