//! Compares two states: lists, or the initial events of watches. Pure.

use hashbrown::HashMap;

use super::object::{ComparedObject, ShadowList};
use super::recorder::Difference;
use crate::metrics::ShadowOutcome;

/// The objects of a state, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct ObjectSet {
    objects: Vec<ComparedObject>,
    has_next: bool,
}

impl ObjectSet {
    pub(crate) fn push(&mut self, object: ComparedObject) {
        self.objects.push(object);
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

impl From<ShadowList> for ObjectSet {
    fn from(list: ShadowList) -> Self {
        Self {
            objects: list.objects,
            has_next: list.has_next,
        }
    }
}

/// The first difference of each kind between two states.
pub(crate) fn differences(upstream: &ObjectSet, memory: &ObjectSet) -> Vec<Difference> {
    let mut unmatched: HashMap<&str, &ComparedObject> = memory
        .objects
        .iter()
        .map(|object| (&*object.key, object))
        .collect();
    let (mut missing, mut content) = (None, None);
    for object in &upstream.objects {
        match unmatched.remove(&*object.key) {
            // An object that upstream sends twice is missing once.
            None => {
                missing.get_or_insert_with(|| Difference::missing(object));
            }
            Some(other) if other != object => {
                content.get_or_insert_with(|| Difference::content(object, other));
            }
            Some(_) => {}
        }
    }
    let mut rest = memory.objects.iter();
    let extra = rest.find(|object| unmatched.contains_key(&*object.key));
    let found = [missing, extra.map(Difference::extra), content];
    let found: Vec<_> = found.into_iter().flatten().collect();
    if !found.is_empty() {
        return found;
    }
    let pairs = upstream.objects.iter().zip(&memory.objects);
    let moved = pairs.into_iter().find(|(one, other)| one.key != other.key);
    match moved {
        Some((one, other)) => vec![Difference::content(one, other)],
        // Both end at the same object, and only one of them knows of more.
        None if upstream.has_next != memory.has_next => {
            vec![Difference::of_answer(ShadowOutcome::Content)]
        }
        // One of them has an object twice.
        None if upstream.objects.len() != memory.objects.len() => {
            vec![Difference::of_answer(ShadowOutcome::Content)]
        }
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
