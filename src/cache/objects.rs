//! A sorted map of objects whose copies share structure: two levels, chunks of objects under one list of chunks.
//!
//! Cloning copies the list of chunks, not the chunks; changing an object copies its chunk if somebody else holds it.
//! Chosen over a persistent tree because lists walk it: chunks are arrays, and a chunk is the unit that compressed
//! blocks are kept with.

mod chunk;
mod sorted_builder;

use std::sync::Arc;

pub use chunk::{BlockFormat, Chunk, DeflateBlock, LengthForm};
pub use sorted_builder::SortedBuilder;

use self::chunk::{ChunkCapacity, OBJECT_COUNT_MAX};
use crate::resource::{KeyRef, Object};

/// Objects by key, in list order (docs/PROTOCOL.md §3.8).
#[derive(Clone, Debug, Default)]
pub struct ObjectMap {
    chunks: Vec<Arc<Chunk>>,
    count: usize,
}

/// A place in an [`ObjectMap`]: valid for the map that gave it and its clones, as long as they stay unchanged.
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

    /// True if there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of all objects' frames, in bytes.
    #[must_use]
    pub fn frames_len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.frames_len()).sum()
    }

    /// Bulk load; of objects with the same key the last one stays.
    #[must_use]
    pub fn from_objects(mut objects: Vec<Object>) -> Self {
        objects.sort_by(|a, b| a.key().cmp(&b.key()));
        // Keeps the last of equals: `dedup_by` drops `later`, so swap it forward first.
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

    /// Puts an object in; returns the one that had its key.
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

    /// Takes an object out.
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

    /// Small neighbours become one, so that deletions don't leave a list of crumbs.
    fn join_with_next(&mut self, at: usize) {
        let next = self.chunks.get(at + 1);
        if next.is_some_and(|next| self.chunks[at].can_join(next)) {
            let next = self.chunks.remove(at + 1);
            Arc::make_mut(&mut self.chunks[at]).append(&next);
        }
    }

    /// The place of the first object whose key is not below `key`.
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

    /// The object at `place`, which moves on to the next one; `None` at the end.
    #[must_use]
    pub fn next(&self, place: &mut MapPosition) -> Option<&Object> {
        loop {
            let chunk = self.chunks.get(place.chunk)?;
            if let Some(object) = chunk.objects().get(place.index) {
                place.index += 1;
                return Some(object);
            }
            *place = place.next_chunk();
        }
    }

    /// The chunk that begins at `place`, if all its keys start with `prefix`; `place` then moves on behind it.
    #[must_use]
    pub fn next_chunk(&self, place: &mut MapPosition, prefix: &str) -> Option<&Arc<Chunk>> {
        let mut chunk = self.chunks.get(place.chunk)?;
        if place.index >= chunk.objects().len() {
            *place = place.next_chunk();
            chunk = self.chunks.get(place.chunk)?;
        }
        let is_whole = place.index == 0 && chunk.is_prefixed_from(0, prefix);
        is_whole.then(|| {
            *place = place.next_chunk();
            chunk
        })
    }

    /// Whether a chunk begins at `place`, or all are behind it.
    #[must_use]
    pub fn is_at_chunk(&self, place: MapPosition) -> bool {
        let chunk = self.chunks.get(place.chunk);
        place.index == 0 || chunk.is_none_or(|chunk| place.index >= chunk.objects().len())
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Object> {
        self.chunks.iter().flat_map(|chunk| chunk.objects().iter())
    }

    /// How many objects lie from `place` on whose keys start with `prefix`.
    #[must_use]
    pub fn count_prefixed(&self, mut place: MapPosition, prefix: &str) -> usize {
        let mut count = 0;
        while let Some(chunk) = self.chunks.get(place.chunk) {
            let objects = chunk.objects().get(place.index..).unwrap_or(&[]);
            if !objects.is_empty() && !chunk.is_prefixed_from(place.index, prefix) {
                let starts = |object: &&Object| object.key().starts_with(prefix);
                return count + objects.iter().take_while(starts).count();
            }
            count += objects.len();
            place = place.next_chunk();
        }
        count
    }

    /// The chunk where `key` is or belongs; `None` only if there are no chunks.
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
