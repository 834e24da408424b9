//! One index: from values to objects, and from objects to their values, so that a change does not compute the old values again.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::members::PostingSet;
use super::names::Names;

/// Marks an object without a value.
const NO_VALUE: u32 = u32::MAX;
/// Marks an object with several values.
const SEVERAL: u32 = u32::MAX - 1;

type Numbers = SmallVec<[u32; 2]>;

#[derive(Debug, Default)]
pub(super) struct Postings {
    values: Names<Arc<str>>,
    /// Indexed by the number of the value. Empty only for free numbers.
    members: Vec<PostingSet>,
    /// Indexed by the object's slot: the number of its value. Four bytes per object, because most indices have one value per object.
    value_of: Vec<u32>,
    /// By the object's slot: the numbers of all its values, if it has more than one.
    several: HashMap<u32, Numbers, RandomState>,
}

impl Postings {
    /// Replaces the values of the object in a slot.
    pub(super) fn assign(&mut self, slot: u32, mut values: Vec<String>) {
        if self.is_only_value(slot, &values) {
            return;
        }
        values.sort_unstable();
        values.dedup();
        let new: Numbers = values.iter().map(|value| self.number_of(value)).collect();
        let old = self.numbers(slot);
        for &number in old.iter().filter(|number| !new.contains(number)) {
            self.remove_member(slot, number);
        }
        for &number in new.iter().filter(|number| !old.contains(number)) {
            self.members[number as usize].add(slot);
        }
        self.set_numbers(slot, new);
    }

    /// Whether the values are unchanged, if there is at most one. This is the common case, and costs one comparison.
    fn is_only_value(&self, slot: u32, values: &[String]) -> bool {
        let number = self.value_of.get(slot as usize).copied();
        match (values, number) {
            ([], None | Some(NO_VALUE)) => true,
            ([value], Some(number)) => self
                .values
                .text(number)
                .is_some_and(|text| **text == **value),
            _ => false,
        }
    }

    /// The number of a value; assigns one if it has none.
    fn number_of(&mut self, value: &str) -> u32 {
        if let Some(number) = self.values.find(value) {
            return number;
        }
        let number = self.values.insert(value.into());
        if number as usize == self.members.len() {
            self.members.push(PostingSet::default());
        }
        number
    }

    /// The numbers of the values of the object in a slot.
    fn numbers(&self, slot: u32) -> Numbers {
        match self.value_of.get(slot as usize) {
            None | Some(&NO_VALUE) => Numbers::new(),
            Some(&SEVERAL) => self.several.get(&slot).cloned().unwrap_or_default(),
            Some(&number) => Numbers::from_slice(&[number]),
        }
    }

    fn remove_member(&mut self, slot: u32, number: u32) {
        let members = &mut self.members[number as usize];
        members.remove(slot);
        if members.is_empty() {
            self.values.remove(number);
        }
    }

    fn set_numbers(&mut self, slot: u32, numbers: Numbers) {
        let index = slot as usize;
        if self.value_of.len() <= index {
            self.value_of.resize(index + 1, NO_VALUE);
        }
        let before = std::mem::replace(
            &mut self.value_of[index],
            match *numbers {
                [] => NO_VALUE,
                [number] => number,
                _ => SEVERAL,
            },
        );
        if self.value_of[index] == SEVERAL {
            self.several.insert(slot, numbers);
        } else if before == SEVERAL {
            self.several.remove(&slot);
        }
    }

    /// The slots of the objects that have a value.
    pub(super) fn members(&self, value: &str) -> Option<&PostingSet> {
        self.members.get(self.values.find(value)? as usize)
    }

    /// All values that some object has.
    pub(super) const fn values(&self) -> &Names<Arc<str>> {
        &self.values
    }
}
