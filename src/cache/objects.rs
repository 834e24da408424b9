//! A sorted map of objects whose copies share structure: two levels, chunks of objects under one list of chunks.
//!
//! Cloning copies the list of chunks, not the chunks; changing an object copies its chunk if somebody else holds it.
//! Chosen over a persistent tree because lists walk it: chunks are arrays, and a chunk is the unit that later
//! encodings (compressed blocks) are kept with.

use std::sync::Arc;

use crate::resource::{Object, ObjectKey};

/// Objects of one chunk at most. With 150,000 objects a snapshot then lists under 1,200 chunks, and an update
/// copies at most 256 pointers.
const CHUNK_LEN_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Sorted by key, never empty.
    objects: Vec<Arc<Object>>,
}

/// Objects by key, in list order (protocol.md §3.8).
#[derive(Clone, Debug, Default)]
pub struct ObjectMap {
    chunks: Vec<Arc<Chunk>>,
    count: usize,
}

/// A place in an [`ObjectMap`]: valid for the map that gave it and its clones, as long as they stay unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    chunk: usize,
    index: usize,
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

    /// Bulk load; of objects with the same key the last one stays.
    #[must_use]
    pub fn from_objects(mut objects: Vec<Arc<Object>>) -> Self {
        objects.sort_by(|a, b| a.key().cmp(b.key()));
        // Keeps the last of equals: `dedup_by` drops `later`, so swap it forward first.
        objects.dedup_by(|later, kept| {
            let same = later.key() == kept.key();
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        let count = objects.len();
        // Three quarters full: room for inserts before the first split.
        let chunks = objects
            .chunks(CHUNK_LEN_MAX / 4 * 3)
            .map(|run| {
                Arc::new(Chunk {
                    objects: run.to_vec(),
                })
            })
            .collect();
        Self { chunks, count }
    }

    /// The object with this key.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<&Arc<Object>> {
        let chunk = self.chunks.get(self.chunk_of(key)?)?;
        let index = find(chunk, key).ok()?;
        chunk.objects.get(index)
    }

    /// Puts an object in; returns the one that had its key.
    pub fn insert(&mut self, object: Arc<Object>) -> Option<Arc<Object>> {
        let Some(at) = self.chunk_of(object.key().as_str()) else {
            self.chunks.push(Arc::new(Chunk {
                objects: vec![object],
            }));
            self.count += 1;
            return None;
        };
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        match find(chunk, object.key().as_str()) {
            Ok(index) => Some(std::mem::replace(&mut chunk.objects[index], object)),
            Err(index) => {
                chunk.objects.insert(index, object);
                self.count += 1;
                if chunk.objects.len() > CHUNK_LEN_MAX {
                    let upper = chunk.objects.split_off(CHUNK_LEN_MAX / 2);
                    self.chunks
                        .insert(at + 1, Arc::new(Chunk { objects: upper }));
                }
                None
            }
        }
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &str) -> Option<Arc<Object>> {
        let at = self.chunk_of(key)?;
        let index = find(&self.chunks[at], key).ok()?;
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let object = chunk.objects.remove(index);
        let left = chunk.objects.len();
        self.count -= 1;
        if left == 0 {
            self.chunks.remove(at);
        } else if left < CHUNK_LEN_MAX / 8 {
            self.join_with_next(at);
        }
        Some(object)
    }

    /// Small neighbours become one, so that deletions don't leave a list of crumbs.
    fn join_with_next(&mut self, at: usize) {
        let Some(next) = self.chunks.get(at + 1) else {
            return;
        };
        if self.chunks[at].objects.len() + next.objects.len() <= CHUNK_LEN_MAX / 2 {
            let next = self.chunks.remove(at + 1);
            Arc::make_mut(&mut self.chunks[at])
                .objects
                .extend(next.objects.iter().cloned());
        }
    }

    /// The place of the first object whose key is not below `key`.
    #[must_use]
    pub fn place_from(&self, key: &str) -> Place {
        let Some(chunk) = self.chunk_of(key) else {
            return Place::default();
        };
        let index = match find(&self.chunks[chunk], key) {
            Ok(index) | Err(index) => index,
        };
        Place { chunk, index }
    }

    /// The object at `place`, which moves on to the next one; `None` at the end.
    #[must_use]
    pub fn next(&self, place: &mut Place) -> Option<&Arc<Object>> {
        loop {
            let chunk = self.chunks.get(place.chunk)?;
            if let Some(object) = chunk.objects.get(place.index) {
                place.index += 1;
                return Some(object);
            }
            *place = Place {
                chunk: place.chunk + 1,
                index: 0,
            };
        }
    }

    /// All objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.chunks.iter().flat_map(|chunk| chunk.objects.iter())
    }

    /// How many objects lie from `place` on whose keys start with `prefix`.
    #[must_use]
    pub fn count_prefixed(&self, mut place: Place, prefix: &str) -> usize {
        let mut count = 0;
        while let Some(object) = self.next(&mut place) {
            if !object.key().as_str().starts_with(prefix) {
                break;
            }
            count += 1;
        }
        count
    }

    /// The chunk where `key` is or belongs; `None` only if there are no chunks.
    fn chunk_of(&self, key: &str) -> Option<usize> {
        let after = self.chunks.partition_point(|chunk| {
            chunk
                .objects
                .first()
                .is_some_and(|first| first.key().as_str() <= key)
        });
        if self.chunks.is_empty() {
            None
        } else {
            Some(after.saturating_sub(1))
        }
    }
}

fn find(chunk: &Chunk, key: &str) -> Result<usize, usize> {
    chunk
        .objects
        .binary_search_by(|object| ObjectKey::as_str(object.key()).cmp(key))
}

#[cfg(test)]
mod tests;
