//! The buffer in which a list or a streamed list collects until it is complete.

use std::collections::BTreeMap;

use crate::cache::{ObjectMap, SortedBuilder};
use crate::resource::{KeyRef, Object, ObjectKey};

/// The last received state of each object, by key.
///
/// Lists and streamed lists come in key order (docs/PROTOCOL.md §3.8), so nearly all objects are appended to a sorted map.
/// Two kinds of objects come in any order: changes that happen during a streamed list, and everything from a server that
/// does not sort.
#[derive(Debug, Default)]
pub(super) struct InitialBuffer {
    sorted: SortedBuilder,
    /// Objects that came out of order; they take precedence over `sorted`. `None` marks a deletion.
    late: BTreeMap<ObjectKey, Option<Object>>,
    /// Bytes of memory that the objects take, those included that were replaced since: there are few.
    objects_len: usize,
}

impl InitialBuffer {
    pub(super) fn put(&mut self, object: Object) {
        self.objects_len += object.allocated_len();
        let is_late =
            !self.late.is_empty() && self.late.contains_key(&ObjectKey::from(object.key()));
        let rejected = match is_late {
            true => Err(object),
            false => self.sorted.push(object),
        };
        if let Err(object) = rejected {
            self.late.insert(object.key().into(), Some(object));
        }
    }

    /// Bytes of memory that the buffer takes.
    pub(super) fn memory_len(&self) -> usize {
        self.objects_len
    }

    pub(super) fn remove(&mut self, object: &Object) {
        self.late.insert(object.key().into(), None);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes all objects, in key order, and leaves the buffer empty.
    pub(super) fn take(&mut self) -> ObjectMap {
        self.objects_len = 0;
        let sorted = std::mem::take(&mut self.sorted).finish();
        if self.late.is_empty() {
            return sorted;
        }
        let mut late = std::mem::take(&mut self.late).into_iter().peekable();
        let mut merged = Vec::with_capacity(sorted.len() + late.len());
        for object in sorted.iter() {
            while let Some((_, late)) =
                late.next_if(|(key, _)| KeyRef::of_joined(key.as_str()) < object.key())
            {
                merged.extend(late);
            }
            match late.next_if(|(key, _)| KeyRef::of_joined(key.as_str()) == object.key()) {
                Some((_, newer)) => merged.extend(newer),
                None => merged.push(object.clone()),
            }
        }
        merged.extend(late.filter_map(|(_, late)| late));
        ObjectMap::from_objects(merged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::samples::Sample;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(u64),
        Remove(u64),
        /// The initial data starts over.
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            16 => (0..12_u64).prop_map(Step::Put),
            4 => (0..12_u64).prop_map(Step::Remove),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn the_last_state_of_each_stays_whatever_the_order(
            steps in prop::collection::vec(step(), 0..60),
            sorted_count in 0..12_u64,
        ) {
            let first = (0..sorted_count).map(Step::Put);
            let mut buffer = InitialBuffer::default();
            let mut expected = BTreeMap::new();
            for (version, step) in (1..).zip(first.chain(steps)) {
                let key = |key| format!("a/{key:02}");
                let object = |key: &str| Sample::new(key, version).object();
                match step {
                    Step::Put(number) => {
                        let key = key(number);
                        buffer.put(object(&key));
                        expected.insert(key, version);
                    }
                    Step::Remove(number) => {
                        let key = key(number);
                        buffer.remove(&object(&key));
                        expected.remove(&key);
                    }
                    Step::Clear => {
                        buffer.clear();
                        expected.clear();
                    }
                }
            }
            let entry = |object: &Object| (object.key().to_string(), object.resource_version().0);
            let found: Vec<_> = buffer.take().iter().map(entry).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            prop_assert!(buffer.take().is_empty());
        }
    }
}
