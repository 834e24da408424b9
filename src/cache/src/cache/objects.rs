//! A sorted map of objects whose clones share memory: a list of chunks, each with some of the objects.
//!
//! Cloning copies the list of chunks but not the chunks. Changing an object copies its chunk if a clone shares it.
//! Chosen over a persistent tree for the sake of lists, which walk the whole map: a chunk is an array, and the unit for
//! which compressed blocks are kept.

mod chunk;
mod sorted_builder;

use std::collections::HashSet;
use std::sync::Arc;

pub use chunk::{BlockFormat, Chunk, ChunksMemory, DeflateBlock, LengthForm};
pub use sorted_builder::SortedBuilder;

use self::chunk::{ChunkCapacity, OBJECT_COUNT_MAX};
use crate::resource::{KeyRef, Object, ResourceVersion};

/// Objects by key, in list order (docs/PROTOCOL.md §3.8).
#[derive(Clone, Debug, Default)]
pub struct ObjectMap {
    chunks: Vec<Arc<Chunk>>,
    count: usize,
}

/// A position in an [`ObjectMap`]. Valid for the map that returned it and its clones, until they change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapPosition {
    chunk: usize,
    index: usize,
}

impl MapPosition {
    fn next_chunk(self) -> Self {
        Self {
            chunk: self.chunk + 1,
            index: 0,
        }
    }
}

impl ObjectMap {
    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the map has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of all objects' frames, in bytes.
    #[must_use]
    pub fn frames_len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.frames_len()).sum()
    }

    /// Bytes of memory that the map takes; each chunk is visited, but no object.
    #[must_use]
    pub fn memory(&self) -> ChunksMemory {
        let mut memory = ChunksMemory::default();
        for chunk in &self.chunks {
            memory.add(chunk.memory());
        }
        memory
    }

    /// The chunks that `other` does not share.
    pub(super) fn chunks_beyond(&self, other: &Self) -> impl Iterator<Item = &Chunk> {
        let shared: HashSet<*const Chunk> = other.chunks.iter().map(Arc::as_ptr).collect();
        self.chunks
            .iter()
            .filter(move |chunk| !shared.contains(&Arc::as_ptr(chunk)))
            .map(Arc::as_ref)
    }

    /// Drops the last chunks, so many of them; returns whether any is left.
    pub fn drop_last(&mut self, chunks: usize) -> bool {
        let kept = self.chunks.len().saturating_sub(chunks);
        self.count -= self
            .chunks
            .split_off(kept)
            .iter()
            .map(|chunk| chunk.objects().len())
            .sum::<usize>();
        !self.chunks.is_empty()
    }

    /// Drops the compressed blocks of all chunks.
    pub fn drop_blocks(&self) {
        self.chunks.iter().for_each(|chunk| chunk.drop_blocks());
    }

    /// A map of objects in any order; of objects with the same key, the last one is used.
    #[must_use]
    pub fn from_objects(mut objects: Vec<Object>) -> Self {
        objects.sort_by(|a, b| a.key().cmp(&b.key()));
        // `dedup_by` drops `later`. Swap first, so that the last of several objects with one key stays.
        objects.dedup_by(|later, kept| {
            let same = later.key() == kept.key();
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        let count = objects.len();
        let chunks = ChunkCapacity::LOADED.cut(objects);
        Self { chunks, count }
    }

    /// The object with this key.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<&Object> {
        self.object_at(KeyRef::of_joined(key))
    }

    /// The object with this key.
    #[must_use]
    pub fn object_at(&self, key: KeyRef<'_>) -> Option<&Object> {
        let chunk = self.chunks.get(self.chunk_of(key)?)?;
        let index = chunk.find(key).ok()?;
        chunk.objects().get(index)
    }

    /// Whether any object was written after `version`. Each chunk knows its newest version once it was asked.
    #[must_use]
    pub fn has_newer(&self, version: ResourceVersion) -> bool {
        self.chunks
            .iter()
            .any(|chunk| chunk.newest_version() > version)
    }

    /// Inserts an object; returns the one that it replaces.
    pub fn insert(&mut self, object: Object) -> Option<Object> {
        let Some(at) = self.chunk_of(object.key()) else {
            self.chunks = ChunkCapacity::LOADED.cut(vec![object]);
            self.count = 1;
            return None;
        };
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let previous = match chunk.find(object.key()) {
            Ok(index) => Some(chunk.replace(index, object)),
            Err(index) => {
                chunk.insert(index, object);
                self.count += 1;
                None
            }
        };
        if chunk.is_over_full() {
            let parts = ChunkCapacity::SPLIT.cut(chunk.objects().to_vec());
            self.chunks.splice(at..=at, parts);
        }
        previous
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, key: KeyRef<'_>) -> Option<Object> {
        let at = self.chunk_of(key)?;
        let index = self.chunks[at].find(key).ok()?;
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let object = chunk.remove(index);
        let left = chunk.objects().len();
        self.count -= 1;
        if left == 0 {
            self.chunks.remove(at);
        } else if left < OBJECT_COUNT_MAX / 8 {
            self.join_with_next(at);
        }
        Some(object)
    }

    /// Joins a small chunk with a small next one, so that deletions do not leave a list of tiny chunks.
    fn join_with_next(&mut self, at: usize) {
        let next = self.chunks.get(at + 1);
        if next.is_some_and(|next| self.chunks[at].can_join(next)) {
            let next = self.chunks.remove(at + 1);
            Arc::make_mut(&mut self.chunks[at]).append(&next);
        }
    }

    /// The position of the first object whose key is not below `key`.
    #[must_use]
    pub fn place_from(&self, key: &str) -> MapPosition {
        let key = KeyRef::of_joined(key);
        let Some(chunk) = self.chunk_of(key) else {
            return MapPosition::default();
        };
        let index = match self.chunks[chunk].find(key) {
            Ok(index) | Err(index) => index,
        };
        MapPosition { chunk, index }
    }

    /// The object at `position`, which advances to the next one; `None` at the end.
    #[must_use]
    pub fn next(&self, position: &mut MapPosition) -> Option<&Object> {
        loop {
            let chunk = self.chunks.get(position.chunk)?;
            if let Some(object) = chunk.objects().get(position.index) {
                position.index += 1;
                return Some(object);
            }
            *position = position.next_chunk();
        }
    }

    /// The chunk that begins at `position`, if all its keys start with `prefix`; `position` then advances past it.
    #[must_use]
    pub fn next_chunk(&self, position: &mut MapPosition, prefix: &str) -> Option<&Arc<Chunk>> {
        let mut chunk = self.chunks.get(position.chunk)?;
        if position.index >= chunk.objects().len() {
            *position = position.next_chunk();
            chunk = self.chunks.get(position.chunk)?;
        }
        let is_whole = position.index == 0 && chunk.is_prefixed_from(0, prefix);
        is_whole.then(|| {
            *position = position.next_chunk();
            chunk
        })
    }

    /// Whether `position` is at the start of a chunk or at the end of the map.
    #[must_use]
    pub fn is_at_chunk(&self, position: MapPosition) -> bool {
        let chunk = self.chunks.get(position.chunk);
        position.index == 0 || chunk.is_none_or(|chunk| position.index >= chunk.objects().len())
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.chunks.iter().flat_map(|chunk| chunk.objects().iter())
    }

    /// The number of objects from `position` on whose keys start with `prefix`; they must be contiguous.
    #[must_use]
    pub fn count_prefixed(&self, mut position: MapPosition, prefix: &str) -> usize {
        let mut count = 0;
        while let Some(chunk) = self.chunks.get(position.chunk) {
            let objects = chunk.objects().get(position.index..).unwrap_or(&[]);
            if !objects.is_empty() && !chunk.is_prefixed_from(position.index, prefix) {
                return count
                    + objects
                        .iter()
                        .take_while(|object| object.key().starts_with(prefix))
                        .count();
            }
            count += objects.len();
            position = position.next_chunk();
        }
        count
    }

    /// The chunk that contains `key` or would contain it; `None` only if there are no chunks.
    fn chunk_of(&self, key: KeyRef<'_>) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| {
            chunk
                .objects()
                .first()
                .is_some_and(|first| first.key() <= key)
        });
        if self.chunks.is_empty() {
            None
        } else {
            Some(after.saturating_sub(1))
        }
    }
}

#[cfg(test)]
mod tests;
