//! Chooses the position of a view in the index, and bounds the cost of views: an event costs the sum of the weights of the views
//! that it reaches, and that sum is bounded.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;
use smallvec::{SmallVec, smallvec};

use super::{Hasher, IndexPosition, IndexedValue, ValueKind};
use crate::fairness::{Peer, Share};
use crate::selector::{LabelValues, Selector};

/// A view that requires one of a set of values is indexed by each of them up to this number, and otherwise by the label's key.
const SET_LEN_MAX: usize = 16;

/// Weight, in addition to its terms, of a view that every event reaches: it is always evaluated, and probably shows most events.
const EVERYWHERE_WEIGHT: usize = 16;
/// Maximum total weight of the views under one value, and of the views without a value. A term takes about 30 ns for each of an
/// event's two states, so an event then costs a quarter of a millisecond.
const SHARED_WEIGHT_MAX: usize = 4_096;
/// Maximum total weight of all views: the cost of an event whose object has every value that views require.
const WEIGHT_MAX: usize = 65_536;

/// There is no room for another view of this weight, for all clients together or for this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selectors of the open watches have reached the cost limit")]
pub struct TooManyViews;

/// The cost that a view adds to each event that reaches it, in terms of its selector. The term that the index has already checked
/// is not counted. A view under a label's key must still evaluate that label's term, and a namespace is not counted as a term,
/// so nothing is subtracted for these two.
pub(in crate::view) fn weight(selector: &Selector, position: &IndexPosition) -> usize {
    let terms = selector.term_count();
    match position.first() {
        None if selector.is_everything() => 0,
        None => EVERYWHERE_WEIGHT + terms,
        Some((ValueKind::Key | ValueKind::Namespace, _)) => terms,
        Some(_) => terms.saturating_sub(1),
    }
}

/// The views under one value: their number and their total weight.
#[derive(Debug)]
struct Load {
    hash: u64,
    views: usize,
    weight: Share,
}

/// The number and the weight of the views at each position. A view's weight is charged to the client that opened it; no client
/// gets more than a share of the maximum.
#[derive(Debug)]
pub(in crate::view) struct Placement {
    loads: HashTable<Load>,
    hasher: Hasher,
    /// Weight of the views without a value, which any event may concern.
    everywhere: Share,
    /// Weight of all views.
    total: Share,
}

/// Values of which every object that a view shows has one.
type RequiredValues<'a> = SmallVec<[IndexedValue<'a>; 1]>;

impl Placement {
    pub(in crate::view) fn new(hasher: Hasher) -> Self {
        Self {
            loads: HashTable::new(),
            hasher,
            everywhere: Share::new(SHARED_WEIGHT_MAX),
            total: Share::new(WEIGHT_MAX),
        }
    }

    /// The best position for a view with this selector at the moment.
    pub(in crate::view) fn position_for(&self, selector: &Selector) -> IndexPosition {
        let mut position = IndexPosition::new();
        for value in self.choose(selector) {
            let entry = (value.kind, self.hasher.hash_one(value));
            // Different values of a set may have the same hash.
            if !position.contains(&entry) {
                position.push(entry);
            }
        }
        position
    }

    /// Whether there is room at this position for a view of this weight that `opener` opens. There always is for a view of weight
    /// 0; the limit on watches bounds their number.
    pub(in crate::view) fn has_room(
        &self,
        position: &IndexPosition,
        weight: usize,
        opener: Peer,
    ) -> bool {
        let fits = |share: &Share| share.has_room_for_many(opener, weight);
        let fits_there = if position.is_empty() {
            fits(&self.everywhere)
        } else {
            let mut loads = position.iter().filter_map(|(_, hash)| self.load(*hash));
            loads.all(|load| fits(&load.weight))
        };
        fits_there && fits(&self.total)
    }

    /// Adds a view to the counts.
    pub(in crate::view) fn add(&mut self, position: &IndexPosition, weight: usize, opener: Peer) {
        self.total.take_many(opener, weight);
        if position.is_empty() {
            self.everywhere.take_many(opener, weight);
        }
        for (_, hash) in position {
            let load = self
                .loads
                .entry(*hash, |load| load.hash == *hash, |load| load.hash);
            let mut load = load.or_insert_with(|| Load {
                hash: *hash,
                views: 0,
                weight: Share::new(SHARED_WEIGHT_MAX),
            });
            load.get_mut().views += 1;
            load.get_mut().weight.take_many(opener, weight);
        }
    }

    /// Removes a view from the counts.
    pub(in crate::view) fn remove(
        &mut self,
        position: &IndexPosition,
        weight: usize,
        opener: Peer,
    ) {
        self.total.give_back_many(opener, weight);
        if position.is_empty() {
            self.everywhere.give_back_many(opener, weight);
        }
        for (_, hash) in position {
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

    /// Chooses the values under which the view is probably evaluated least often: the name of its object if the selector has one,
    /// otherwise the candidate whose values have the fewest views so far. So a value that half of the objects have, such as a phase,
    /// does not collect views that have a better candidate. Among equals, one value is preferred to a set, and a set to a key.
    fn choose<'a>(&self, selector: &'a Selector) -> RequiredValues<'a> {
        let fields = &selector.fields;
        let namespace = selector
            .namespace
            .as_deref()
            .or_else(|| fields.pinned_namespace());
        match (namespace, fields.pinned_name()) {
            (Some(namespace), Some(name)) => return one(IndexedValue::object(namespace, name)),
            (None, Some(name)) => return one(IndexedValue::new(ValueKind::Name, name)),
            (_, None) => {}
        }
        let of_fields = fields
            .pinned_fields()
            .map(|(index, text)| one(IndexedValue::new(ValueKind::Field(index), text)));
        let of_namespace = namespace.map(|text| one(IndexedValue::new(ValueKind::Namespace, text)));
        let of_labels = selector
            .labels
            .required()
            .map(|(key, values)| of_label(key, values));
        of_fields
            .chain(of_labels)
            .chain(of_namespace)
            .min_by_key(|values| (self.views_max(values), rank(values)))
            .unwrap_or_default()
    }

    /// The number of views under the value that has most.
    fn views_max(&self, values: &RequiredValues<'_>) -> usize {
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
