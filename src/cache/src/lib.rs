//! The watch cache of one Kubernetes resource, and the views of the watches that read it. Pure: no sockets, no clock, no `async`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cache`] | the newest snapshot and the history of events; one writer, readers without locks |
//! | [`view`] | selectors, and the events that watches with the same parameters share |
//! | [`fairness`] | bounded permits, and each client's share of them |
//! | [`sync`] | locks that loom can model |

#[cfg(all(feature = "loom", not(debug_assertions)))]
compile_error!("the feature `loom` replaces locks and atomics; it is for models only");

pub mod cache;
pub mod fairness;
pub mod sync;
pub mod view;

// Under the names that they have everywhere.
use kube_fanout_wire::{decode, resource, selector};
