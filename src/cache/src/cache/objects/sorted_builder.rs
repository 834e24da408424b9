//! Builds a map from objects that arrive one by one in key order, as in a list. It does not sort.

use std::sync::Arc;

use super::ObjectMap;
use super::chunk::{Chunk, ChunkCapacity};
use crate::resource::Object;

/// An [`ObjectMap`] under construction, to which objects are appended in key order.
///
/// All work on an object is done when it arrives. At the end of a long list the first objects have left the processor's caches,
/// and requests that wait for the list would wait longer.
#[derive(Debug, Default)]
pub struct SortedBuilder {
    chunks: Vec<Arc<Chunk>>,
    count: usize,
    /// The objects after the last chunk, fewer than fill a chunk's capacity.
    open: Vec<Object>,
    open_len: usize,
}

impl SortedBuilder {
    /// Appends an object.
    ///
    /// # Errors
    /// Returns the object if its key is not above that of the last object.
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
        self.open
            .last()
            .or_else(|| self.chunks.last()?.objects().last())
    }

    /// The map of all objects that were appended.
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
