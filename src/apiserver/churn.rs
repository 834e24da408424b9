//! Load for demos and measurements: realistic objects, then a stream of changes to them. Pure: the same seed gives the
//! same steps; who takes them brings the time.

mod objects;

use std::str::FromStr;

use serde_json::{Value, json};

use super::kinds::Catalogue;
use super::store::Entropy;
use crate::resource::ObjectKey;

/// Annotation of every written object: nanoseconds since the epoch at the write, for measuring latency.
pub const WRITTEN_AT: &str = "kube-fanout.dev/written-at";

/// Of a hundred steps, how many delete and how many create; the rest update.
const DELETE_PERCENT: u64 = 5;
const CREATE_PERCENT: u64 = 5;
/// Most objects of one kind: names stay six digits, and a typing error does not take all memory.
const OBJECT_COUNT_MAX: u32 = 999_999;

/// `pods=1000`: how many objects of a kind to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialCount {
    /// Plural name.
    pub resource: String,
    /// Objects.
    pub count: u32,
}

/// Text that is no such count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not of the form resource=count with a count up to {OBJECT_COUNT_MAX}")]
pub struct InvalidObjectCount {
    text: String,
}

/// Objects of a kind that is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no resource {resource:?} is served")]
pub struct UnknownResource {
    resource: String,
}

/// What to write next.
#[derive(Clone, Debug, PartialEq)]
pub struct ChurnStep {
    /// Index into the catalogue.
    pub kind_index: usize,
    /// Namespace and name.
    pub key: ObjectKey,
    /// What to do with it.
    pub act: ChurnWrite,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum ChurnWrite {
    /// A new object.
    Create(Value),
    /// A merge patch.
    Patch(Value),
    /// Its end.
    Delete,
}

/// Generates steps.
#[derive(Debug)]
pub struct Churn {
    random: Entropy,
    object_len: usize,
    kinds: Vec<Population>,
}

/// The objects of one kind, by number.
#[derive(Debug)]
struct Population {
    kind_index: usize,
    shape: objects::ObjectTemplate,
    wanted: u32,
    live: Vec<u32>,
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
    /// A generator over these kinds; objects are about `object_len` bytes long.
    ///
    /// # Errors
    /// A resource that is not served.
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
                shape: objects::ObjectTemplate::of(catalogue.kind(kind_index)),
                wanted: count.count,
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

    /// The next object that is still missing from the beginning, kind by kind; none when all are there.
    pub fn seed(&mut self, now_ns: i128) -> Option<ChurnStep> {
        let object_len = self.object_len;
        let kind = self.kinds.iter_mut().find(|kind| kind.next < kind.wanted)?;
        Some(kind.create(object_len, now_ns))
    }

    /// The next change; none without objects. The number of objects stays near what it began with.
    pub fn step(&mut self, now_ns: i128) -> Option<ChurnStep> {
        let total: u64 = self.kinds.iter().map(|kind| u64::from(kind.wanted)).sum();
        if total == 0 {
            return None;
        }
        let mut pick = self.random.next() % total;
        let dice = self.random.next() % 100;
        let which = self.random.next();
        let kind = self.kinds.iter_mut().find(|kind| {
            let meant = pick < u64::from(kind.wanted);
            pick = pick.saturating_sub(u64::from(kind.wanted));
            meant
        })?;
        let fewer = kind.live.len() < kind.wanted as usize;
        let changing = dice < DELETE_PERCENT + CREATE_PERCENT;
        if kind.live.is_empty() || (changing && fewer) {
            return Some(kind.create(self.object_len, now_ns));
        }
        let at = usize::try_from(which % kind.live.len() as u64).unwrap_or_default();
        if changing {
            let number = kind.live.swap_remove(at);
            return Some(kind.step(number, ChurnWrite::Delete));
        }
        let number = kind.live[at];
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
        let object = self.shape.object(number, object_len, now_ns);
        self.step(number, ChurnWrite::Create(object))
    }

    fn step(&self, number: u32, act: ChurnWrite) -> ChurnStep {
        ChurnStep {
            kind_index: self.kind_index,
            key: self.shape.key(number),
            act,
        }
    }
}

#[cfg(test)]
mod tests;
