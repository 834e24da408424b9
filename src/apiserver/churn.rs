//! Generates load for demos and measurements: realistic objects, then a stream of changes to them. Pure: the same seed yields the
//! same steps; the caller passes the time and writes the steps.

mod objects;

use std::str::FromStr;

use serde_json::{Value, json};

use super::kinds::Catalogue;
use super::store::Entropy;
use crate::resource::ObjectKey;

pub use objects::WRITTEN_AT;

/// Percentages of deletions and creations among the steps; the rest are updates.
const DELETE_PERCENT: u64 = 5;
const CREATE_PERCENT: u64 = 5;
/// Maximum number of objects of one kind: names have six digits, and a typing error does not exhaust memory.
const OBJECT_COUNT_MAX: u32 = 999_999;

/// The initial number of objects of one kind, as in `pods=1000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialCount {
    /// The kind's plural name.
    pub resource: String,
    /// Number of objects.
    pub count: u32,
}

/// A text that is not of the form `resource=count`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not of the form resource=count with a count up to {OBJECT_COUNT_MAX}")]
pub struct InvalidObjectCount {
    text: String,
}

/// Objects were requested of a resource that is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no resource {resource:?} is served")]
pub struct UnknownResource {
    resource: String,
}

/// One write of the generator.
#[derive(Clone, Debug, PartialEq)]
pub struct ChurnStep {
    /// The kind's index in the catalogue.
    pub kind_index: usize,
    /// Namespace and name.
    pub key: ObjectKey,
    /// What to write.
    pub act: ChurnWrite,
}

/// What a step writes.
#[derive(Clone, Debug, PartialEq)]
pub enum ChurnWrite {
    /// A new object.
    Create(Value),
    /// A merge patch.
    Patch(Value),
    /// A deletion.
    Delete,
}

/// Generator of steps.
#[derive(Debug)]
pub struct Churn {
    random: Entropy,
    object_len: usize,
    kinds: Vec<Population>,
}

/// The generated objects of one kind. Each has a number, which determines its name and content.
#[derive(Debug)]
struct Population {
    kind_index: usize,
    template: objects::ObjectTemplate,
    target_count: u32,
    /// Numbers of the existing objects.
    live: Vec<u32>,
    /// Number of the next created object.
    next: u32,
}

impl FromStr for InitialCount {
    type Err = InvalidObjectCount;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidObjectCount {
            text: text.to_owned(),
        };
        let (resource, count) = text.split_once('=').ok_or_else(invalid)?;
        let count = count
            .parse()
            .ok()
            .filter(|count| *count <= OBJECT_COUNT_MAX)
            .ok_or_else(invalid)?;
        if resource.is_empty() {
            return Err(invalid());
        }
        Ok(Self {
            resource: resource.to_owned(),
            count,
        })
    }
}

impl Churn {
    /// A generator for these kinds. Objects are about `object_len` bytes long.
    ///
    /// # Errors
    /// [`UnknownResource`] if a resource is not served.
    pub fn new(
        catalogue: &Catalogue,
        counts: &[InitialCount],
        object_len: usize,
        seed: u64,
    ) -> Result<Self, UnknownResource> {
        let population = |count: &InitialCount| {
            let kind_index =
                catalogue
                    .index_of_plural(&count.resource)
                    .ok_or_else(|| UnknownResource {
                        resource: count.resource.clone(),
                    })?;
            Ok(Population {
                kind_index,
                template: objects::ObjectTemplate::of(catalogue.kind(kind_index)),
                target_count: count.count,
                live: Vec::new(),
                next: 0,
            })
        };
        Ok(Self {
            random: Entropy(seed),
            object_len,
            kinds: counts.iter().map(population).collect::<Result<_, _>>()?,
        })
    }

    /// Creates the next initial object, kind by kind; `None` when all have been created.
    pub fn seed(&mut self, now_ns: i128) -> Option<ChurnStep> {
        let object_len = self.object_len;
        let kind = self
            .kinds
            .iter_mut()
            .find(|kind| kind.next < kind.target_count)?;
        Some(kind.create(object_len, now_ns))
    }

    /// The next change; `None` if no objects are configured. The number of objects stays near the initial number.
    pub fn step(&mut self, now_ns: i128) -> Option<ChurnStep> {
        let total: u64 = self
            .kinds
            .iter()
            .map(|kind| u64::from(kind.target_count))
            .sum();
        if total == 0 {
            return None;
        }
        let mut pick = self.random.next() % total;
        let percent = self.random.next() % 100;
        let choice = self.random.next();
        let kind = self.kinds.iter_mut().find(|kind| {
            let is_picked = pick < u64::from(kind.target_count);
            pick = pick.saturating_sub(u64::from(kind.target_count));
            is_picked
        })?;
        let is_below_target = kind.live.len() < kind.target_count as usize;
        let is_resize = percent < DELETE_PERCENT + CREATE_PERCENT;
        if kind.live.is_empty() || (is_resize && is_below_target) {
            return Some(kind.create(self.object_len, now_ns));
        }
        let position = usize::try_from(choice % kind.live.len() as u64).unwrap_or_default();
        if is_resize {
            let number = kind.live.swap_remove(position);
            return Some(kind.step(number, ChurnWrite::Delete));
        }
        let number = kind.live[position];
        let annotations = json!({WRITTEN_AT: now_ns.to_string()});
        Some(kind.step(
            number,
            ChurnWrite::Patch(json!({"metadata": {"annotations": annotations}})),
        ))
    }
}

impl Population {
    fn create(&mut self, object_len: usize, now_ns: i128) -> ChurnStep {
        let number = self.next;
        self.next += 1;
        self.live.push(number);
        let object = self.template.object(number, object_len, now_ns);
        self.step(number, ChurnWrite::Create(object))
    }

    fn step(&self, number: u32, act: ChurnWrite) -> ChurnStep {
        ChurnStep {
            kind_index: self.kind_index,
            key: self.template.key(number),
            act,
        }
    }
}

#[cfg(test)]
mod tests;
