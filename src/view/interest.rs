//! Which views an event could concern, by the values that its object carries. Views are numbers here, and whether one
//! shows the event is for its selector to say: the index only leaves out those that cannot.
//!
//! A view stands in exactly one place: under a value that everything it shows must carry, or among those that have
//! no such value. An event is looked up by the values of its new state and by those of its previous one, because an object
//! that leaves a selector is told to those who saw it last.

use std::hash::{BuildHasher as _, Hash};

use hashbrown::HashTable;
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
    Label,
    Namespace,
}

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

    const fn label((key, value): (&'a str, &'a str)) -> Self {
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

/// Where a view stands, for it to keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Kind and hash of its value; `None` among the views without one.
    value: Option<(Kind, u64)>,
    /// Which one of the bucket.
    at: Number,
}

/// A view that stands elsewhere in its bucket, because another one left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    pub(super) number: Number,
    at: Number,
}

impl Moved {
    /// Corrects the place that the view keeps.
    pub(super) fn tell(self, place: &mut Place) {
        place.at = self.at;
    }
}

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
        let Some(value) = self.choose(selector) else {
            self.everything.push(number);
            let at = narrow(self.everything.len() - 1);
            return Place { value: None, at };
        };
        let hash = self.hasher.hash_one(value);
        *self.counts.of(value.kind) += 1;
        let same = |bucket: &Bucket| bucket.hash == hash;
        let bucket = self.buckets.entry(hash, same, |bucket| bucket.hash);
        let mut bucket = bucket.or_insert_with(|| Bucket {
            hash,
            views: SmallVec::new(),
        });
        let views = &mut bucket.get_mut().views;
        views.push(number);
        Place {
            value: Some((value.kind, hash)),
            at: narrow(views.len() - 1),
        }
    }

    /// Lets the view at `place` go; tells which one took its place, if one did.
    pub(super) fn remove(&mut self, place: Place) -> Option<Moved> {
        let at = place.at as usize;
        let moved = |number: &Number| Moved {
            number: *number,
            at: place.at,
        };
        let Some((kind, hash)) = place.value else {
            self.everything.swap_remove(at);
            return self.everything.get(at).map(moved);
        };
        *self.counts.of(kind) -= 1;
        let same = |bucket: &Bucket| bucket.hash == hash;
        let mut bucket = self.buckets.find_entry(hash, same).ok()?;
        let views = &mut bucket.get_mut().views;
        views.swap_remove(at);
        let moved = views.get(at).map(moved);
        if views.is_empty() {
            bucket.remove();
        }
        moved
    }

    /// Shows the views that an event could concern: each at least once, and again where an object has a label twice.
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
        if self.counts.labels > 0 {
            let earlier = previous.iter().flat_map(|previous| previous.labels());
            let earlier = earlier.filter(|(key, value)| object.label(key) != Some(value));
            for label in object.labels().chain(earlier) {
                let views = self.views_of(Value::label(label));
                views.iter().copied().for_each(&mut visit);
            }
        }
    }

    fn views_of(&self, value: Value<'_>) -> &[Number] {
        let hash = self.hasher.hash_one(value);
        let bucket = self.buckets.find(hash, |bucket| bucket.hash == hash);
        bucket.map_or(&[], |bucket| &bucket.views)
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
        let of_labels = selector.labels.pinned().map(Value::label);
        of_fields
            .chain(of_labels)
            .chain(of_namespace)
            .min_by_key(|value| self.views_of(*value).len())
    }
}

#[expect(clippy::expect_used, reason = "an index into memory that exists")]
fn narrow(at: usize) -> Number {
    Number::try_from(at).expect("views number fewer than 2^32")
}
