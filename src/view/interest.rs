//! Which views an event could concern, by the values that its object carries. Views are numbers here, and whether one
//! shows the event is for its selector to say: the index only leaves out those that cannot.
//!
//! A view stands under a value that everything it shows must carry, or under each of a few of which all that it shows carries
//! one, or among those that have no such value. An event is looked up by the values of its new state and by those of its previous one, because an object
//! that leaves a selector is told to those who saw it last.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};

use super::selector::{Selector, Values};
use crate::cache::Event;
use crate::resource::Object;

/// A view's number.
pub(super) type Number = u32;

/// What a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
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

/// A view of a set stands under each value of it, up to so many; of a larger one, under the label's key.
const SET_LEN_MAX: usize = 16;

/// A value that objects carry; of an object's own name its namespace too, of a label its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Value<'a> {
    kind: Kind,
    text: &'a str,
    second: &'a str,
}

impl<'a> Value<'a> {
    const fn new(kind: Kind, text: &'a str) -> Self {
        let second = "";
        Self { kind, text, second }
    }

    const fn object(namespace: &'a str, name: &'a str) -> Self {
        Self {
            kind: Kind::Object,
            text: name,
            second: namespace,
        }
    }

    const fn label(key: &'a str, value: &'a str) -> Self {
        Self {
            kind: Kind::Label,
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
pub(super) type Place = SmallVec<[(Kind, u64); 1]>;

/// Values of which everything that a view shows carries one.
type Choice<'a> = SmallVec<[Value<'a>; 1]>;

/// The index of one resource's views.
#[derive(Debug, Default)]
pub(super) struct Interest {
    buckets: HashTable<Bucket>,
    hasher: foldhash::fast::RandomState,
    /// Views under each kind of value: what nobody asks for is not looked up.
    counts: Counts,
    /// Views that any event may concern.
    everything: Vec<Number>,
}

#[derive(Debug, Default)]
struct Counts {
    objects: usize,
    names: usize,
    namespaces: usize,
    labels: usize,
    keys: usize,
    /// In the order of the field table, as far as there ever was one.
    fields: SmallVec<[usize; 4]>,
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Object => &mut self.objects,
            Kind::Name => &mut self.names,
            Kind::Namespace => &mut self.namespaces,
            Kind::Label => &mut self.labels,
            Kind::Key => &mut self.keys,
            Kind::Field(index) => {
                if self.fields.len() <= index {
                    self.fields.resize(index + 1, 0);
                }
                &mut self.fields[index]
            }
        }
    }

    /// The values of an object that some view stands under, perhaps; all but labels.
    fn values<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = Value<'a>> {
        let key = object.key();
        let named = || Value::new(Kind::Name, key.name());
        let placed = || Value::new(Kind::Namespace, key.namespace());
        let exact = || Value::object(key.namespace(), key.name());
        let fields = self.fields.iter().enumerate();
        let fields = fields
            .filter(|(_, count)| **count > 0)
            .map(|(index, _)| Value::new(Kind::Field(index), object.field(index)));
        (self.objects > 0)
            .then(exact)
            .into_iter()
            .chain((self.names > 0).then(named))
            .chain((self.namespaces > 0).then(placed))
            .chain(fields)
    }
}

impl Interest {
    /// Takes a view in.
    pub(super) fn insert(&mut self, number: Number, selector: &Selector) -> Place {
        let mut place = Place::new();
        for value in self.choose(selector) {
            let stand = (value.kind, self.hasher.hash_one(value));
            // Values of one set may have one hash.
            if !place.contains(&stand) {
                self.put(number, stand);
                place.push(stand);
            }
        }
        if place.is_empty() {
            self.everything.push(number);
        }
        place
    }

    fn put(&mut self, number: Number, (kind, hash): (Kind, u64)) {
        *self.counts.of(kind) += 1;
        let same = |bucket: &Bucket| bucket.hash == hash;
        let bucket = self.buckets.entry(hash, same, |bucket| bucket.hash);
        let mut bucket = bucket.or_insert_with(|| Bucket {
            hash,
            views: SmallVec::new(),
        });
        bucket.get_mut().views.push(number);
    }

    /// Lets a view go from its place. It is looked for among those that stand with it: an event that reaches these costs more.
    pub(super) fn remove(&mut self, number: Number, place: &Place) {
        if place.is_empty() {
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
            let at = views.iter().position(|other| *other == number);
            at.map(|at| views.swap_remove(at));
            if views.is_empty() {
                bucket.remove();
            }
        }
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
                let of_value = (self.counts.labels > 0).then(|| Value::label(key, value));
                let of_key = (self.counts.keys > 0).then(|| Value::new(Kind::Key, key));
                for value in of_value.into_iter().chain(of_key) {
                    self.views_of(value).iter().copied().for_each(&mut visit);
                }
            }
        }
    }

    fn views_of(&self, value: Value<'_>) -> &[Number] {
        let hash = self.hasher.hash_one(value);
        let bucket = self.buckets.find(hash, |bucket| bucket.hash == hash);
        bucket.map_or(&[], |bucket| &bucket.views)
    }

    /// The values under which a view of this selector is looked at least, as far as can be told: its objects' own name, or
    /// else those with the fewest views so far. So no value that half of the objects carry, such as a phase, gathers
    /// views that have something better. Of equals one value goes before a set, and a set before a key.
    fn choose<'a>(&self, selector: &'a Selector) -> Choice<'a> {
        let fields = &selector.fields;
        let namespace = selector.namespace.as_deref();
        let namespace = namespace.or_else(|| fields.pinned_namespace());
        match (namespace, fields.pinned_name()) {
            (Some(namespace), Some(name)) => return one(Value::object(namespace, name)),
            (None, Some(name)) => return one(Value::new(Kind::Name, name)),
            (_, None) => {}
        }
        let of_fields = fields.pinned_fields();
        let of_fields = of_fields.map(|(index, text)| one(Value::new(Kind::Field(index), text)));
        let of_namespace = namespace.map(|text| one(Value::new(Kind::Namespace, text)));
        let of_labels = selector.labels.required();
        let of_labels = of_labels.map(|(key, values)| of_label(key, values));
        of_fields
            .chain(of_labels)
            .chain(of_namespace)
            .min_by_key(|values| (self.most_beside(values), rank(values)))
            .unwrap_or_default()
    }

    /// Views under the value that has most.
    fn most_beside(&self, values: &Choice<'_>) -> usize {
        let counts = values.iter().map(|value| self.views_of(*value).len());
        counts.max().unwrap_or(0)
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

fn one(value: Value<'_>) -> Choice<'_> {
    smallvec![value]
}

fn of_label<'a>(key: &'a str, values: Option<&'a Values>) -> Choice<'a> {
    match values.filter(|values| values.len() <= SET_LEN_MAX) {
        Some(values) => values
            .iter()
            .map(|value| Value::label(key, value))
            .collect(),
        None => one(Value::new(Kind::Key, key)),
    }
}

fn rank(values: &Choice<'_>) -> usize {
    match values.first() {
        Some(value) if value.kind == Kind::Key => usize::MAX,
        _ => values.len(),
    }
}
