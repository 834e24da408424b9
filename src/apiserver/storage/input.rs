//! The input of a write: its target, its preconditions, and what is not deterministic.

use crate::resource::ObjectKey;

/// The input of a write that is not deterministic.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    /// The current time in RFC 3339 with whole seconds: `2026-11-21T08:16:18Z`.
    pub now: &'a str,
    /// The uid for a created object.
    pub uid: &'a str,
    /// Random bits for a generated name.
    pub entropy: u64,
}

/// The object, or the collection, that a write is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTarget {
    /// The kind's index in the catalogue.
    pub kind_index: usize,
    /// Namespace and name.
    pub key: ObjectKey,
    /// The part of the object that the write may change.
    pub part: WritablePart,
    /// Whether the result is stored.
    pub mode: WriteMode,
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritablePart {
    /// The whole object, without the status if the kind has a status subresource.
    Whole,
    /// Only the status; for compiled-in kinds also labels, annotations and finalizers. In kube-apiserver the rule differs between
    /// kinds; here it is the same for all of them, and it has not been compared.
    Status,
}

/// Whether the result of a write is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The result is stored.
    Keep,
    /// `dryRun=All`: the write is checked and answered, but not stored.
    DryRun,
}

/// The preconditions of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The uid that the stored object must have.
    pub uid: Option<String>,
    /// The version that the stored object must have; compared as text.
    pub resource_version: Option<String>,
}
