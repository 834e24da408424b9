//! A run of objects: the unit that is copied when one of them changes, and for which compressed blocks are kept.
//!
//! This module does not know how blocks are made or which requests use them.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::resource::{ByteSpan, KeyRef, Object, ResourceVersion, allocated_len};

/// Maximum number of objects in a chunk. A snapshot of 150,000 objects then has fewer than 1,200 chunks, and an update
/// copies at most 256 pointers.
pub(super) const OBJECT_COUNT_MAX: usize = 256;
/// Maximum bytes of a chunk with more than one object. It bounds the cost of compressing again after a change (about 5 ms).
pub(super) const FRAMES_LEN_MAX: usize = 2 << 20;

/// Number of objects for which a chunk's vector reserves memory when it is full.
const INSERT_RESERVE: usize = 16;

/// A chunk's objects in one format, compressed independently: a part of a deflate stream that ends on a byte boundary
/// and refers to nothing before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeflateBlock {
    /// The compressed bytes.
    pub deflate: Bytes,
    /// Length of the uncompressed bytes.
    pub len: u64,
    /// CRC-32 of the uncompressed bytes.
    pub crc: u32,
}

/// The formats of list items, and of events, for which compressed blocks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockFormat {
    /// Whole items, as the cache holds them.
    Whole,
    /// Metadata only, version `v1`, in the cache's own encoding.
    Metadata,
    /// Metadata only, version `v1`, in protobuf although the cache holds JSON.
    Translated,
    /// Whole objects as ADDED events, in the cache's own encoding.
    Added,
}

impl BlockFormat {
    const COUNT: usize = 4;
}

/// The forms of list items in protobuf for which lengths are kept. The versions of metadata do not differ in length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LengthForm {
    /// Whole objects.
    Whole,
    /// Metadata only.
    Metadata,
    /// Whole objects without managed fields.
    WithoutManagedFields,
    /// Metadata without managed fields.
    MetadataWithoutManagedFields,
}

impl LengthForm {
    const COUNT: usize = 4;
}

/// A run of objects, and bytes and lengths that were derived from them.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Sorted by key, never empty.
    objects: Vec<Object>,
    /// Length of the objects' frames together, in bytes.
    frames_len: usize,
    /// Bytes of memory that the objects take together.
    objects_len: usize,
    derived: DerivedBytes,
}

/// Bytes of memory that chunks take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunksMemory {
    /// Bytes of the objects themselves.
    pub objects: usize,
    /// Bytes of the compressed blocks that are kept with the chunks.
    pub blocks: usize,
    /// The lists of objects, and the positions and lengths that were derived from them.
    pub indexes: usize,
}

impl ChunksMemory {
    pub(in crate::cache) const fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.blocks += other.blocks;
        self.indexes += other.indexes;
    }

    pub(in crate::cache) const fn total(self) -> usize {
        self.objects + self.blocks + self.indexes
    }
}

/// What was derived from a chunk's objects, each on first use. Any change of the objects clears it.
#[derive(Debug, Default)]
struct DerivedBytes {
    /// Also dropped while memory is short.
    blocks: Mutex<[Option<DeflateBlock>; BlockFormat::COUNT]>,
    /// The spans of the objects' metadata; `None` inside if an object has none.
    metadata: OnceLock<Option<Box<[ByteSpan]>>>,
    /// The lengths of the objects as list items; `None` inside if an object cannot be written in that form.
    lens: [OnceLock<Option<Box<[u32]>>>; LengthForm::COUNT],
    newest_version: OnceLock<ResourceVersion>,
}

/// A clone is made in order to change it, so it does not copy what was derived.
impl Clone for Chunk {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            frames_len: self.frames_len,
            objects_len: self.objects_len,
            derived: DerivedBytes::default(),
        }
    }
}

impl Chunk {
    /// A chunk of sorted objects, at least one, and the length of their frames.
    pub(super) fn new(objects: Vec<Object>, frames_len: usize) -> Self {
        Self {
            objects_len: objects.iter().map(Object::allocated_len).sum(),
            objects,
            frames_len,
            derived: DerivedBytes::default(),
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

    /// The block in this format, if it has been made.
    #[must_use]
    pub fn block(&self, format: BlockFormat) -> Option<DeflateBlock> {
        self.derived.blocks.lock()[format as usize].clone()
    }

    /// Keeps a block and returns it. If there is one in this format already, that one stays and is returned.
    pub fn keep(&self, format: BlockFormat, block: DeflateBlock) -> DeflateBlock {
        let kept = &mut self.derived.blocks.lock()[format as usize];
        kept.get_or_insert(block).clone()
    }

    /// Drops the blocks. Lists that are sending one keep it until they have sent it; the next list makes it again.
    pub fn drop_blocks(&self) {
        let dropped = std::mem::take(&mut *self.derived.blocks.lock());
        // The memory is freed after the lock is released.
        drop(dropped);
    }

    /// Bytes of memory that the chunk takes.
    #[must_use]
    pub fn memory(&self) -> ChunksMemory {
        let derived = &self.derived;
        let blocks = derived.blocks.lock();
        let kept = blocks
            .iter()
            .flatten()
            .map(|block| allocated_len(block.deflate.len()));
        let spans = derived.metadata.get().and_then(Option::as_deref);
        let lens = derived
            .lens
            .iter()
            .filter_map(|lens| lens.get())
            .filter_map(Option::as_deref)
            .map(size_of_val);
        let lists = [
            size_of::<Self>(),
            self.objects.capacity() * size_of::<Object>(),
            spans.map_or(0, size_of_val),
        ];
        ChunksMemory {
            objects: self.objects_len,
            blocks: kept.sum(),
            indexes: lists.into_iter().chain(lens).map(allocated_len).sum(),
        }
    }

    /// The spans of the objects' metadata in their bytes, as `find` returns them; `None` if it does not find all. They are computed
    /// once. Concurrent callers wait for that, for some tenths of a millisecond at most.
    pub fn metadata(&self, find: impl Fn(&Object) -> Option<ByteSpan>) -> Option<&[ByteSpan]> {
        let found = &self.derived.metadata;
        found
            .get_or_init(|| self.objects.iter().map(find).collect())
            .as_deref()
    }

    /// Whether the result of [`Self::metadata`] has been computed.
    #[must_use]
    pub fn has_metadata(&self) -> bool {
        self.derived.metadata.get().is_some()
    }

    /// Whether the result of [`Self::lens`] for this form has been computed.
    #[must_use]
    pub fn is_measured(&self, form: LengthForm) -> bool {
        self.derived.lens[form as usize].get().is_some()
    }

    /// The objects' lengths as list items, as `len` returns them; `None` if it does not return all. They are computed once.
    /// Concurrent callers wait for that, for a millisecond or two at most.
    pub fn lens(&self, form: LengthForm, len: impl Fn(&Object) -> Option<u32>) -> Option<&[u32]> {
        let lens = &self.derived.lens[form as usize];
        lens.get_or_init(|| self.objects.iter().map(len).collect())
            .as_deref()
    }

    /// The newest version of an object in the chunk. A search for what changed since a later version skips the chunk.
    #[must_use]
    pub fn newest_version(&self) -> ResourceVersion {
        *self.derived.newest_version.get_or_init(|| {
            self.objects
                .iter()
                .map(Object::resource_version)
                .max()
                .unwrap_or_default()
        })
    }

    /// Whether the chunk exceeds a bound and must be split.
    pub(super) fn is_over_full(&self) -> bool {
        let len = self.objects.len();
        len > OBJECT_COUNT_MAX || self.frames_len > FRAMES_LEN_MAX && len > 1
    }

    /// Whether both chunks together would be at most half full.
    pub(super) fn can_join(&self, other: &Self) -> bool {
        self.objects.len() + other.objects.len() <= OBJECT_COUNT_MAX / 2
            && self.frames_len + other.frames_len <= FRAMES_LEN_MAX / 2
    }

    pub(super) fn find(&self, key: KeyRef<'_>) -> Result<usize, usize> {
        self.objects
            .binary_search_by(|object| object.key().cmp(&key))
    }

    /// Whether every key from the one at `index` on starts with `prefix`.
    pub(super) fn is_prefixed_from(&self, index: usize, prefix: &str) -> bool {
        let starts = |object: &Object| object.key().starts_with(prefix);
        // Keys are sorted, so those with a common prefix are contiguous.
        self.objects.get(index).is_some_and(starts) && self.objects.last().is_some_and(starts)
    }

    pub(super) fn insert(&mut self, index: usize, object: Object) {
        self.frames_len += object.frame_len();
        self.objects_len += object.allocated_len();
        let objects = self.objects_mut();
        if objects.len() == objects.capacity() {
            // Doubling could leave up to half of a growing chunk's memory unused.
            objects.reserve_exact(INSERT_RESERVE);
        }
        objects.insert(index, object);
    }

    pub(super) fn replace(&mut self, index: usize, object: Object) -> Object {
        self.frames_len += object.frame_len();
        self.objects_len += object.allocated_len();
        let previous = std::mem::replace(&mut self.objects_mut()[index], object);
        self.frames_len -= previous.frame_len();
        self.objects_len -= previous.allocated_len();
        previous
    }

    pub(super) fn remove(&mut self, index: usize) -> Object {
        let object = self.objects_mut().remove(index);
        self.frames_len -= object.frame_len();
        self.objects_len -= object.allocated_len();
        object
    }

    pub(super) fn append(&mut self, next: &Self) {
        self.frames_len += next.frames_len;
        self.objects_len += next.objects_len;
        self.objects_mut().extend(next.objects.iter().cloned());
    }

    /// The objects for a change, which clears what was derived from them.
    fn objects_mut(&mut self) -> &mut Vec<Object> {
        self.derived = DerivedBytes::default();
        &mut self.objects
    }
}

/// How far new chunks are filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkCapacity {
    object_count: usize,
    frames_len: usize,
}

impl ChunkCapacity {
    /// Three quarters, so that there is room for inserts before the first split.
    pub(super) const LOADED: Self = Self {
        object_count: OBJECT_COUNT_MAX / 4 * 3,
        frames_len: FRAMES_LEN_MAX / 4 * 3,
    };
    /// Half, for the parts of an overfull chunk; rounded up, so that one object too many makes two parts, not three.
    pub(super) const SPLIT: Self = Self {
        object_count: OBJECT_COUNT_MAX / 2 + 1,
        frames_len: FRAMES_LEN_MAX / 2,
    };

    /// Divides sorted objects into chunks.
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

    /// Whether a chunk with this many objects and bytes has no room for an object of `len` bytes.
    pub(super) const fn is_full(self, object_count: usize, frames_len: usize, len: usize) -> bool {
        object_count >= self.object_count || object_count > 0 && frames_len + len > self.frames_len
    }

    /// The number of objects in the first chunk, at least one, and the length of their frames.
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
