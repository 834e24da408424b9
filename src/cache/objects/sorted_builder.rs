//! Objects that come one by one in the order of keys, as lists do, become a map while each of them is at hand. Sorts nothing.

use std::sync::Arc;

use super::ObjectMap;
use super::chunk::{Chunk, ChunkCapacity};
use crate::resource::Object;

/// A map that grows at its end.
///
/// All that objects have to be looked at for is done as they come: at the end of a long list the first ones have left the
/// processor's caches, and who waits for the list would wait for that too.
#[derive(Debug, Default)]
pub struct SortedBuilder {
    chunks: Vec<Arc<Chunk>>,
    count: usize,
    /// What comes behind the chunks: no more than one holds.
    open: Vec<Object>,
    open_len: usize,
}

impl SortedBuilder {
    /// Puts an object behind all others.
    ///
    /// # Errors
    /// Gives back an object that belongs elsewhere: its key is not above the last one's.
    pub fn push(&mut self, object: Object) -> Result<(), Object> {
        let last = self.last();
        if last.is_some_and(|last| last.key() >= object.key()) {
            return Err(object);
        }
        let len = object.frame_len();
        if ChunkCapacity::LOADED.is_full(self.open.len(), self.open_len, len) {
            self.close();
        }
        self.open.push(object);
        self.open_len += len;
        self.count += 1;
        Ok(())
    }

    fn last(&self) -> Option<&Object> {
        let closed = || self.chunks.last()?.objects().last();
        self.open.last().or_else(closed)
    }

    /// The map of all that were put here.
    #[must_use]
    pub fn finish(mut self) -> ObjectMap {
        if !self.open.is_empty() {
            self.close();
        }
        ObjectMap {
            chunks: self.chunks,
            count: self.count,
        }
    }

    fn close(&mut self) {
        let next = Vec::with_capacity(self.open.len());
        let mut objects = std::mem::replace(&mut self.open, next);
        objects.shrink_to_fit();
        let frames_len = std::mem::take(&mut self.open_len);
        self.chunks.push(Arc::new(Chunk::new(objects, frames_len)));
    }
}
