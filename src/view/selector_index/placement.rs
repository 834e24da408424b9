//! Where a view stands in the index, and whether there is room for it: what an event costs is the sum of what the views cost
//! that it reaches, and that sum is bounded.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};

use super::{Hasher, IndexPosition, IndexedValue, ValueKind};
use crate::fairness::{Peer, Share};
use crate::view::selector::{LabelValues, Selector};

/// A view of a set stands under each value of it, up to so many; of a larger one, under the label's key.
const SET_LEN_MAX: usize = 16;

/// What a view costs that every event reaches, besides its terms: it is looked at each time, and likely shows most events.
const EVERYWHERE_WEIGHT: usize = 16;
/// Most that the views under one value weigh together, and those without any. A term takes some 30 ns, on the new state and on
/// the old one: an event costs a quarter of a millisecond then.
const SHARED_WEIGHT_MAX: usize = 4_096;
/// Most that all views weigh together: what an event costs whose object carries every value that views ask for.
const WEIGHT_MAX: usize = 65_536;

/// There is no room for another view as dear as this one, for all clients or for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selectors of the open watches cost as much as they may")]
pub struct TooManyViews;

/// What a view adds to the cost of each event that reaches it, in terms of its selector. The value that leads there is met,
/// so that it counts for nothing, but it may only be one of many that have the same key, or the namespace.
pub(in crate::view) fn weight(selector: &Selector, place: &IndexPosition) -> usize {
    let terms = selector.term_count();
    match place.first() {
        None if selector.is_everything() => 0,
        None => EVERYWHERE_WEIGHT + terms,
        Some((ValueKind::Key | ValueKind::Namespace, _)) => terms,
        Some(_) => terms.saturating_sub(1),
    }
}

/// The views under one value.
#[derive(Debug)]
struct Load {
    hash: u64,
    views: usize,
    weight: Share,
}

/// How many views stand where, and what they weigh. The weight of a view is its opener's: no client gets more than a share of
/// what views may weigh.
#[derive(Debug)]
pub(in crate::view) struct Placement {
    loads: HashTable<Load>,
    hasher: Hasher,
    /// Weight of the views that any event may concern.
    everywhere: Share,
    /// Weight of all views.
    total: Share,
}

/// Values of which everything that a view shows carries one.
type RequiredValues<'a> = SmallVec<[IndexedValue<'a>; 1]>;

impl Placement {
    /// No views.
    pub(in crate::view) fn new(hasher: Hasher) -> Self {
        Self {
            loads: HashTable::new(),
            hasher,
            everywhere: Share::new(SHARED_WEIGHT_MAX),
            total: Share::new(WEIGHT_MAX),
        }
    }

    /// Where a view of this selector stands best as things are.
    pub(in crate::view) fn place(&self, selector: &Selector) -> IndexPosition {
        let mut place = IndexPosition::new();
        for value in self.choose(selector) {
            let stand = (value.kind, self.hasher.hash_one(value));
            // Values of one set may have one hash.
            if !place.contains(&stand) {
                place.push(stand);
            }
        }
        place
    }

    /// Whether a view of this weight that `opener` opens may stand there. One that weighs nothing always may: how many there
    /// are, the bound on watches says.
    pub(in crate::view) fn has_room(
        &self,
        place: &IndexPosition,
        weight: usize,
        opener: Peer,
    ) -> bool {
        let fits = |share: &Share| share.has_room_for_many(opener, weight);
        let fits_there = if place.is_empty() {
            fits(&self.everywhere)
        } else {
            let mut loads = place.iter().filter_map(|(_, hash)| self.load(*hash));
            loads.all(|load| fits(&load.weight))
        };
        fits_there && fits(&self.total)
    }

    /// Counts a view in.
    pub(in crate::view) fn add(&mut self, place: &IndexPosition, weight: usize, opener: Peer) {
        self.total.take_many(opener, weight);
        if place.is_empty() {
            self.everywhere.take_many(opener, weight);
        }
        for (_, hash) in place {
            let same = |load: &Load| load.hash == *hash;
            let load = self.loads.entry(*hash, same, |load| load.hash);
            let mut load = load.or_insert_with(|| Load {
                hash: *hash,
                views: 0,
                weight: Share::new(SHARED_WEIGHT_MAX),
            });
            load.get_mut().views += 1;
            load.get_mut().weight.take_many(opener, weight);
        }
    }

    /// Counts a view out that was counted in.
    pub(in crate::view) fn remove(&mut self, place: &IndexPosition, weight: usize, opener: Peer) {
        self.total.give_back_many(opener, weight);
        if place.is_empty() {
            self.everywhere.give_back_many(opener, weight);
        }
        for (_, hash) in place {
            let Ok(mut load) = self.loads.find_entry(*hash, |load| load.hash == *hash) else {
                continue;
            };
            load.get_mut().views -= 1;
            load.get_mut().weight.give_back_many(opener, weight);
            if load.get().views == 0 {
                load.remove();
            }
        }
    }

    fn load(&self, hash: u64) -> Option<&Load> {
        self.loads.find(hash, |load| load.hash == hash)
    }

    /// The values under which a view of this selector is looked at least, as far as can be told: its objects' own name, or
    /// else those with the fewest views so far. So no value that half of the objects carry, such as a phase, gathers
    /// views that have something better. Of equals one value goes before a set, and a set before a key.
    fn choose<'a>(&self, selector: &'a Selector) -> RequiredValues<'a> {
        let fields = &selector.fields;
        let namespace = selector.namespace.as_deref();
        let namespace = namespace.or_else(|| fields.pinned_namespace());
        match (namespace, fields.pinned_name()) {
            (Some(namespace), Some(name)) => return one(IndexedValue::object(namespace, name)),
            (None, Some(name)) => return one(IndexedValue::new(ValueKind::Name, name)),
            (_, None) => {}
        }
        let of_fields = fields.pinned_fields();
        let of_fields =
            of_fields.map(|(index, text)| one(IndexedValue::new(ValueKind::Field(index), text)));
        let of_namespace = namespace.map(|text| one(IndexedValue::new(ValueKind::Namespace, text)));
        let of_labels = selector.labels.required();
        let of_labels = of_labels.map(|(key, values)| of_label(key, values));
        of_fields
            .chain(of_labels)
            .chain(of_namespace)
            .min_by_key(|values| (self.most_beside(values), rank(values)))
            .unwrap_or_default()
    }

    /// Views under the value that has most.
    fn most_beside(&self, values: &RequiredValues<'_>) -> usize {
        let counts = values.iter().map(|value| {
            let hash = self.hasher.hash_one(*value);
            self.load(hash).map_or(0, |load| load.views)
        });
        counts.max().unwrap_or(0)
    }
}

fn one(value: IndexedValue<'_>) -> RequiredValues<'_> {
    smallvec![value]
}

fn of_label<'a>(key: &'a str, values: Option<&'a LabelValues>) -> RequiredValues<'a> {
    match values.filter(|values| values.len() <= SET_LEN_MAX) {
        Some(values) => values
            .iter()
            .map(|value| IndexedValue::label(key, value))
            .collect(),
        None => one(IndexedValue::new(ValueKind::Key, key)),
    }
}

fn rank(values: &RequiredValues<'_>) -> usize {
    match values.first() {
        Some(value) if value.kind == ValueKind::Key => usize::MAX,
        _ => values.len(),
    }
}

#[cfg(test)]
mod tests;
