//! Initial data on its way. Publishes nothing.

use std::collections::BTreeMap;

use crate::cache::{ObjectMap, SortedBuilder};
use crate::resource::{KeyRef, Object, ObjectKey};

/// Objects by key, the last state of each.
///
/// Lists and streamed lists come in the order of keys (docs/PROTOCOL.md §3.8), so nearly all are put at the end of a map. What
/// happens while a streamed list is on its way comes between them in any order, and so does everything of a server that
/// does not sort.
#[derive(Debug, Default)]
pub(super) struct InitialBuffer {
    sorted: SortedBuilder,
    /// What came out of order, over what is in `sorted`; `None` for what was deleted.
    late: BTreeMap<ObjectKey, Option<Object>>,
}

impl InitialBuffer {
    pub(super) fn put(&mut self, object: Object) {
        let is_late =
            !self.late.is_empty() && self.late.contains_key(&ObjectKey::from(object.key()));
        let refused = match is_late {
            true => Err(object),
            false => self.sorted.push(object),
        };
        if let Err(object) = refused {
            self.late.insert(object.key().into(), Some(object));
        }
    }

    pub(super) fn remove(&mut self, object: &Object) {
        self.late.insert(object.key().into(), None);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All objects in the order of keys; leaves none.
    pub(super) fn take(&mut self) -> ObjectMap {
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
    use crate::cache::tests::samples::Sample;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Put(u64),
        Remove(u64),
        /// Initial data begins anew.
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
            told in prop::collection::vec(step(), 0..60),
            rising in 0..12_u64,
        ) {
            let first = (0..rising).map(Step::Put);
            let mut side = InitialBuffer::default();
            let mut expected = BTreeMap::new();
            for (version, step) in (1..).zip(first.chain(told)) {
                let key = |key| format!("a/{key:02}");
                let object = |key: &str| Sample::new(key, version).object();
                match step {
                    Step::Put(number) => {
                        let key = key(number);
                        side.put(object(&key));
                        expected.insert(key, version);
                    }
                    Step::Remove(number) => {
                        let key = key(number);
                        side.remove(&object(&key));
                        expected.remove(&key);
                    }
                    Step::Clear => {
                        side.clear();
                        expected.clear();
                    }
                }
            }
            let entry = |object: &Object| (object.key().to_string(), object.resource_version().0);
            let found: Vec<_> = side.take().iter().map(entry).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
            prop_assert!(side.take().is_empty());
        }
    }
}
