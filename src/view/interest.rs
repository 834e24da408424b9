//! Which views an event could concern, by the values that its object carries. Views are numbers here, and whether one
//! shows the event is for its selector to say: the index only leaves out those that cannot.
//!
//! A view stands in exactly one place: under a value that everything it shows must carry, or among those that have
//! no such value. An event is looked up by the values of its new state and by those of its previous one, because an object
//! that leaves a selector is told to those who saw it last.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;

use super::selector::Selector;
use crate::cache::Event;
use crate::resource::Object;

/// A view's number.
pub(super) type Number = u32;

/// What a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Namespace and name.
    Object,
    Name,
    /// Of the resource's field table.
    Field(usize),
    Namespace,
}

/// A value that objects carry; of an object's own name the namespace too.
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
}

/// The views under one value.
#[derive(Debug)]
struct Bucket {
    kind: Kind,
    text: Box<str>,
    second: Box<str>,
    views: Vec<Number>,
}

impl Bucket {
    fn value(&self) -> Value<'_> {
        Value {
            kind: self.kind,
            text: &self.text,
            second: &self.second,
        }
    }
}

/// Where a view stands, for it to keep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// `None` among the views without a value.
    bucket: Option<Number>,
    /// Which one of the bucket.
    at: Number,
}

/// A view that stands elsewhere now, because another one left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) number: Number,
    pub(super) place: Place,
}

/// The index of one resource's views.
#[derive(Debug, Default)]
pub(super) struct Interest {
    buckets: Slab<Bucket>,
    /// The buckets by their values.
    by_value: HashTable<Number>,
    hasher: foldhash::fast::RandomState,
    /// Buckets of each kind: what nobody asks for is not looked up.
    counts: Counts,
    /// Views that any event may concern.
    everything: Vec<Number>,
}

#[derive(Debug, Default)]
struct Counts {
    objects: usize,
    names: usize,
    namespaces: usize,
    /// In the order of the field table, as far as there ever was one.
    fields: SmallVec<[usize; 4]>,
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Object => &mut self.objects,
            Kind::Name => &mut self.names,
            Kind::Namespace => &mut self.namespaces,
            Kind::Field(index) => {
                if self.fields.len() <= index {
                    self.fields.resize(index + 1, 0);
                }
                &mut self.fields[index]
            }
        }
    }

    /// The values of an object that some view stands under, perhaps.
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
        let bucket = self.choose(selector).map(|value| self.bucket(value));
        let views = match bucket {
            Some(bucket) => &mut self.buckets[bucket as usize].views,
            None => &mut self.everything,
        };
        views.push(number);
        let at = narrow(views.len() - 1);
        Place { bucket, at }
    }

    /// Lets the view at `place` go; tells which one took its place, if one did.
    pub(super) fn remove(&mut self, place: Place) -> Option<Moved> {
        let views = match place.bucket {
            Some(bucket) => &mut self.buckets[bucket as usize].views,
            None => &mut self.everything,
        };
        views.swap_remove(place.at as usize);
        let moved = views.get(place.at as usize).copied();
        if views.is_empty()
            && let Some(bucket) = place.bucket
        {
            self.forget(bucket);
        }
        moved.map(|number| Moved { number, place })
    }

    /// Shows the views that an event could concern, each once.
    pub(super) fn concerned(&self, event: &Event, mut visit: impl FnMut(Number)) {
        self.everything.iter().copied().for_each(&mut visit);
        if self.by_value.is_empty() {
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
    }

    fn views_of(&self, value: Value<'_>) -> &[Number] {
        let hash = self.hasher.hash_one(value);
        let same = |bucket: &Number| self.buckets[*bucket as usize].value() == value;
        self.by_value
            .find(hash, same)
            .map_or(&[], |bucket| &self.buckets[*bucket as usize].views)
    }

    /// The value under which a view of this selector is looked at least, as far as can be told: its objects' own name, or
    /// else the value with the fewest views so far. So no value that half of the objects carry, such as a phase, gathers
    /// views that have something better.
    fn choose<'a>(&self, selector: &'a Selector) -> Option<Value<'a>> {
        let fields = &selector.fields;
        let namespace = selector.namespace.as_deref();
        let namespace = namespace.or_else(|| fields.pinned_namespace());
        match (namespace, fields.pinned_name()) {
            (Some(namespace), Some(name)) => return Some(Value::object(namespace, name)),
            (None, Some(name)) => return Some(Value::new(Kind::Name, name)),
            (_, None) => {}
        }
        let of_fields = fields.pinned_fields();
        let of_fields = of_fields.map(|(index, text)| Value::new(Kind::Field(index), text));
        let of_namespace = namespace.map(|text| Value::new(Kind::Namespace, text));
        of_fields
            .chain(of_namespace)
            .min_by_key(|value| self.views_of(*value).len())
    }

    fn bucket(&mut self, value: Value<'_>) -> Number {
        let Self {
            buckets,
            by_value,
            hasher,
            counts,
            ..
        } = self;
        let hash = hasher.hash_one(value);
        let same = |bucket: &Number| buckets[*bucket as usize].value() == value;
        if let Some(bucket) = by_value.find(hash, same) {
            return *bucket;
        }
        *counts.of(value.kind) += 1;
        let bucket = narrow(buckets.insert(Bucket {
            kind: value.kind,
            text: value.text.into(),
            second: value.second.into(),
            views: Vec::with_capacity(1),
        }));
        let rehash = |bucket: &Number| hasher.hash_one(buckets[*bucket as usize].value());
        by_value.insert_unique(hash, bucket, rehash);
        bucket
    }

    fn forget(&mut self, bucket: Number) {
        let gone = self.buckets.remove(bucket as usize);
        *self.counts.of(gone.kind) -= 1;
        let hash = self.hasher.hash_one(gone.value());
        if let Ok(entry) = self.by_value.find_entry(hash, |other| *other == bucket) {
            entry.remove();
        }
    }
}

#[expect(clippy::expect_used, reason = "an index into memory that exists")]
fn narrow(at: usize) -> Number {
    Number::try_from(at).expect("views number fewer than 2^32")
}
