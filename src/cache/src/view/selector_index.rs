//! An index of views by the values that their selectors require: it finds the views that an event could concern.
//!
//! Views are numbers here. The index only leaves out views that cannot show an event; the view's selector decides about the others.
//! A view is indexed by a value that every object it shows must have, or by each of a few values of which every such object has one.
//! A view without such values is a candidate for every event. An event is looked up by the values of its new state and by those of its
//! previous state, because the watches of a view must learn that an object has left the selection.

mod placement;

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::cache::Event;
use crate::resource::Object;
pub use placement::TooManyViews;
pub(super) use placement::{Placement, weight};

/// The place of a view in the table of views; reused once the view is gone.
pub(super) type Number = u32;

/// The kind of an indexed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueKind {
    /// Namespace and name together.
    Object,
    Name,
    /// A field, by its index in the resource's field table.
    Field(usize),
    Label,
    /// A label's key, with any value.
    Key,
    Namespace,
}

/// A value that objects have. `second` is the namespace of an object's full name, or the key of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct IndexedValue<'a> {
    kind: ValueKind,
    text: &'a str,
    second: &'a str,
}

impl<'a> IndexedValue<'a> {
    const fn new(kind: ValueKind, text: &'a str) -> Self {
        let second = "";
        Self { kind, text, second }
    }

    const fn object(namespace: &'a str, name: &'a str) -> Self {
        Self {
            kind: ValueKind::Object,
            text: name,
            second: namespace,
        }
    }

    const fn label(key: &'a str, value: &'a str) -> Self {
        Self {
            kind: ValueKind::Label,
            text: value,
            second: key,
        }
    }
}

/// The views under one value. Values with the same hash share a bucket: an additional candidate does no harm, so only the
/// hash is stored and compared.
#[derive(Debug)]
struct Bucket {
    hash: u64,
    views: SmallVec<[Number; 4]>,
}

/// A view's position in the index: kind and hash of each of its values. Empty for a view without values.
pub(super) type IndexPosition = SmallVec<[(ValueKind, u64); 1]>;

/// The hasher of values, which the placement and the index must share.
pub(super) type Hasher = foldhash::fast::RandomState;

/// The index of one resource's views.
#[derive(Debug)]
pub(super) struct SelectorIndex {
    buckets: HashTable<Bucket>,
    hasher: Hasher,
    /// Number of entries for each kind of value. A kind without entries is not looked up.
    counts: IndexCounts,
    /// Views without a value, which any event may concern.
    everything: Vec<Number>,
}

#[derive(Debug, Default)]
struct IndexCounts {
    objects: usize,
    names: usize,
    namespaces: usize,
    labels: usize,
    keys: usize,
    /// By index in the field table; as long as the highest index that was ever used.
    fields: SmallVec<[usize; 4]>,
}

impl IndexCounts {
    fn of(&mut self, kind: ValueKind) -> &mut usize {
        match kind {
            ValueKind::Object => &mut self.objects,
            ValueKind::Name => &mut self.names,
            ValueKind::Namespace => &mut self.namespaces,
            ValueKind::Label => &mut self.labels,
            ValueKind::Key => &mut self.keys,
            ValueKind::Field(index) => {
                if self.fields.len() <= index {
                    self.fields.resize(index + 1, 0);
                }
                &mut self.fields[index]
            }
        }
    }

    /// The object's values, except labels, of the kinds that have entries.
    fn values<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = IndexedValue<'a>> {
        let key = object.key();
        let fields = self
            .fields
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, _)| IndexedValue::new(ValueKind::Field(index), object.field(index)));
        (self.objects > 0)
            .then(|| IndexedValue::object(key.namespace(), key.name()))
            .into_iter()
            .chain((self.names > 0).then(|| IndexedValue::new(ValueKind::Name, key.name())))
            .chain(
                (self.namespaces > 0)
                    .then(|| IndexedValue::new(ValueKind::Namespace, key.namespace())),
            )
            .chain(fields)
    }
}

impl SelectorIndex {
    pub(super) fn new(hasher: Hasher) -> Self {
        Self {
            buckets: HashTable::new(),
            hasher,
            counts: IndexCounts::default(),
            everything: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.buckets.is_empty() && self.everything.is_empty()
    }

    pub(super) fn insert(&mut self, number: Number, position: &IndexPosition) {
        for (kind, hash) in position {
            self.put(number, *kind, *hash);
        }
        if position.is_empty() {
            self.everything.push(number);
        }
    }

    fn put(&mut self, number: Number, kind: ValueKind, hash: u64) {
        *self.counts.of(kind) += 1;
        let bucket = self
            .buckets
            .entry(hash, |bucket| bucket.hash == hash, |bucket| bucket.hash);
        let mut bucket = bucket.or_insert_with(|| Bucket {
            hash,
            views: SmallVec::new(),
        });
        bucket.get_mut().views.push(number);
    }

    /// Removes a view from its position. Returns the number of entries that were searched for it.
    pub(super) fn remove(&mut self, number: Number, position: &IndexPosition) -> usize {
        let mut searched = 0;
        if position.is_empty() {
            searched += self.everything.len();
            let at = self.everything.iter().position(|other| *other == number);
            at.map(|at| self.everything.swap_remove(at));
        }
        for (kind, hash) in position {
            *self.counts.of(*kind) -= 1;
            let Ok(mut bucket) = self
                .buckets
                .find_entry(*hash, |bucket| bucket.hash == *hash)
            else {
                continue;
            };
            let views = &mut bucket.get_mut().views;
            searched += views.len();
            let at = views.iter().position(|other| *other == number);
            at.map(|at| views.swap_remove(at));
            if views.is_empty() {
                bucket.remove();
            }
        }
        searched
    }

    /// Visits the views that an event could concern, each at least once. A view with several values may be visited several times.
    pub(super) fn concerned(&self, event: &Event, mut visit: impl FnMut(Number)) {
        self.everything.iter().copied().for_each(&mut visit);
        if self.buckets.is_empty() {
            return;
        }
        let (object, previous) = (event.object(), event.previous());
        let mut before = previous.map(|previous| self.counts.values(previous));
        for value in self.counts.values(object) {
            self.views_of(value).iter().copied().for_each(&mut visit);
            // Both iterators go through the same kinds of values in the same order, and the values seldom differ.
            let earlier = before.as_mut().and_then(Iterator::next);
            if let Some(earlier) = earlier.filter(|earlier| *earlier != value) {
                self.views_of(earlier).iter().copied().for_each(&mut visit);
            }
        }
        if self.counts.labels + self.counts.keys > 0 {
            let earlier = previous
                .into_iter()
                .flat_map(|previous| lost_labels(previous, object));
            for (key, value) in object.labels().chain(earlier) {
                let of_value = (self.counts.labels > 0).then(|| IndexedValue::label(key, value));
                let of_key = (self.counts.keys > 0).then(|| IndexedValue::new(ValueKind::Key, key));
                for value in of_value.into_iter().chain(of_key) {
                    self.views_of(value).iter().copied().for_each(&mut visit);
                }
            }
        }
    }

    fn views_of(&self, value: IndexedValue<'_>) -> &[Number] {
        let hash = self.hasher.hash_one(value);
        let bucket = self.buckets.find(hash, |bucket| bucket.hash == hash);
        bucket.map_or(&[], |bucket| &bucket.views)
    }
}

/// The labels of `previous` that `object` does not have, or has with another value. Both are sorted by key, so one pass over
/// each is enough.
fn lost_labels<'a>(
    previous: &'a Object,
    object: &'a Object,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut now = object.labels().peekable();
    previous.labels().filter(move |(key, value)| {
        while now.next_if(|(other, _)| other < key).is_some() {}
        now.peek() != Some(&(*key, *value))
    })
}

#[cfg(test)]
mod tests;
