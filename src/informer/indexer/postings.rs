//! One index: from values to the objects that have them, and back, so that a change compares values without asking for the old.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::members::PostingSet;
use super::names::Names;

/// Stands for an object without a value.
const NO_VALUE: u32 = u32::MAX;
/// Stands for an object with several values.
const SEVERAL: u32 = u32::MAX - 1;

type Numbers = SmallVec<[u32; 2]>;

#[derive(Debug, Default)]
pub(super) struct Postings {
    values: Names<Arc<str>>,
    /// By the value's number. Only free numbers have no members.
    members: Vec<PostingSet>,
    /// By the object's slot: its value's number. Four bytes per object, since most indices give one value to each.
    value_of: Vec<u32>,
    /// By the object's slot, where there is more than one.
    several: HashMap<u32, Numbers, RandomState>,
}

impl Postings {
    /// Notes the values of the object in a slot, in place of those before.
    pub(super) fn assign(&mut self, slot: u32, mut values: Vec<String>) {
        if self.is_only_value(slot, &values) {
            return;
        }
        values.sort_unstable();
        values.dedup();
        let new: Numbers = values.iter().map(|value| self.number_of(value)).collect();
        let old = self.numbers(slot);
        for &number in old.iter().filter(|number| !new.contains(number)) {
            self.leave(slot, number);
        }
        for &number in new.iter().filter(|number| !old.contains(number)) {
            self.members[number as usize].add(slot);
        }
        self.note(slot, new);
    }

    /// The common case, which costs one comparison.
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

    fn numbers(&self, slot: u32) -> Numbers {
        match self.value_of.get(slot as usize) {
            None | Some(&NO_VALUE) => Numbers::new(),
            Some(&SEVERAL) => self.several.get(&slot).cloned().unwrap_or_default(),
            Some(&number) => Numbers::from_slice(&[number]),
        }
    }

    fn leave(&mut self, slot: u32, number: u32) {
        let members = &mut self.members[number as usize];
        members.remove(slot);
        if members.is_empty() {
            self.values.remove(number);
        }
    }

    fn note(&mut self, slot: u32, numbers: Numbers) {
        let at = slot as usize;
        if self.value_of.len() <= at {
            self.value_of.resize(at + 1, NO_VALUE);
        }
        let before = std::mem::replace(
            &mut self.value_of[at],
            match *numbers {
                [] => NO_VALUE,
                [number] => number,
                _ => SEVERAL,
            },
        );
        if self.value_of[at] == SEVERAL {
            self.several.insert(slot, numbers);
        } else if before == SEVERAL {
            self.several.remove(&slot);
        }
    }

    /// The slots of the objects that have a value.
    pub(super) fn members(&self, value: &str) -> Option<&PostingSet> {
        self.members.get(self.values.find(value)? as usize)
    }

    /// The values that objects have.
    pub(super) const fn values(&self) -> &Names<Arc<str>> {
        &self.values
    }
}
