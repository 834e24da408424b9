//! Which views an event could concern, by the values that its object carries. Views are numbers here, and whether one
//! shows the event is for its selector to say: the index only leaves out those that cannot.
//!
//! A view stands under a value that everything it shows must carry, or under each of a few of which all that it shows carries
//! one, or among those that have no such value. An event is looked up by the values of its new state and by those of its previous one, because an object
//! that leaves a selector is told to those who saw it last.

mod placement;

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::cache::Event;
use crate::resource::Object;
pub use placement::TooManyViews;
pub(super) use placement::{Placement, weight};

/// A view's number.
pub(super) type Number = u32;

/// What a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ValueKind {
    /// Namespace and name.
    Object,
    Name,
    /// Of the resource's field table.
    Field(usize),
    Label,
    /// A label's key, whatever its value.
    Key,
    Namespace,
}

/// A value that objects carry; of an object's own name its namespace too, of a label its key.
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

/// The views under one value, or under several whose hashes are equal: a view more to look at does no harm, so that nothing
/// but the hash is kept and compared.
#[derive(Debug)]
struct Bucket {
    hash: u64,
    views: SmallVec<[Number; 4]>,
}

/// Where a view stands, for it to keep: kind and hash of its values; among the views without one if there is none.
pub(super) type IndexPosition = SmallVec<[(ValueKind, u64); 1]>;

/// How values are hashed, alike by who places views and by who looks them up.
pub(super) type Hasher = foldhash::fast::RandomState;

/// The index of one resource's views.
#[derive(Debug)]
pub(super) struct SelectorIndex {
    buckets: HashTable<Bucket>,
    hasher: Hasher,
    /// Views under each kind of value: what nobody asks for is not looked up.
    counts: IndexCounts,
    /// Views that any event may concern.
    everything: Vec<Number>,
}

#[derive(Debug, Default)]
struct IndexCounts {
    objects: usize,
    names: usize,
    namespaces: usize,
    labels: usize,
    keys: usize,
    /// In the order of the field table, as far as there ever was one.
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

    /// The values of an object that some view stands under, perhaps; all but labels.
    fn values<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = IndexedValue<'a>> {
        let key = object.key();
        let named = || IndexedValue::new(ValueKind::Name, key.name());
        let placed = || IndexedValue::new(ValueKind::Namespace, key.namespace());
        let exact = || IndexedValue::object(key.namespace(), key.name());
        let fields = self.fields.iter().enumerate();
        let fields = fields
            .filter(|(_, count)| **count > 0)
            .map(|(index, _)| IndexedValue::new(ValueKind::Field(index), object.field(index)));
        (self.objects > 0)
            .then(exact)
            .into_iter()
            .chain((self.names > 0).then(named))
            .chain((self.namespaces > 0).then(placed))
            .chain(fields)
    }
}

impl SelectorIndex {
    /// An index without views.
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

    /// Takes a view in.
    pub(super) fn insert(&mut self, number: Number, place: &IndexPosition) {
        for stand in place {
            self.put(number, *stand);
        }
        if place.is_empty() {
            self.everything.push(number);
        }
    }

    fn put(&mut self, number: Number, (kind, hash): (ValueKind, u64)) {
        *self.counts.of(kind) += 1;
        let same = |bucket: &Bucket| bucket.hash == hash;
        let bucket = self.buckets.entry(hash, same, |bucket| bucket.hash);
        let mut bucket = bucket.or_insert_with(|| Bucket {
            hash,
            views: SmallVec::new(),
        });
        bucket.get_mut().views.push(number);
    }

    /// Lets a view go from its place. It is looked for among those that stand with it; returns how many these are.
    pub(super) fn remove(&mut self, number: Number, place: &IndexPosition) -> usize {
        let mut searched = 0;
        if place.is_empty() {
            searched += self.everything.len();
            let at = self.everything.iter().position(|other| *other == number);
            at.map(|at| self.everything.swap_remove(at));
        }
        for (kind, hash) in place {
            *self.counts.of(*kind) -= 1;
            let same = |bucket: &Bucket| bucket.hash == *hash;
            let Ok(mut bucket) = self.buckets.find_entry(*hash, same) else {
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

    /// Shows the views that an event could concern: each at least once, and again where it stands under several values.
    pub(super) fn concerned(&self, event: &Event, mut visit: impl FnMut(Number)) {
        self.everything.iter().copied().for_each(&mut visit);
        if self.buckets.is_empty() {
            return;
        }
        let (object, previous) = (event.object(), event.previous());
        let mut before = previous.map(|previous| self.counts.values(previous));
        for value in self.counts.values(object) {
            self.views_of(value).iter().copied().for_each(&mut visit);
            // The two go through the same kinds in the same order, and seldom differ.
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

/// The labels of `previous` that `object` does not have, or has with another value. Both are in the order of keys, so one pass
/// over each tells.
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
