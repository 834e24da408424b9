//! The domain types: resource, key, resource version, object and kind of event. No I/O, and no parsing of peers' bytes.
//!
//! Start with [`Object`]: one object at one version, with its wire bytes and the positions of the parts that the gateway reads.
//! [`wire`] and [`protobuf`] hold the protobuf encoding that objects, caches and responses share.

mod allocation;
mod byte_span;
mod encoding;
mod event_kind;
mod fields;
mod gates;
pub mod groups;
mod key;
mod key_ref;
mod kind;
pub mod names;
mod object;
pub mod protobuf;
mod quote;
mod random;
mod version;
pub mod wire;

/// Header of a watch's response that begins with the latest state of what changed, not with the history: some states are left out. A client
/// that needs every change, or serves others from what it reads, has to list instead (decision 44).
pub const CATCH_UP_HEADER: &str = "kube-fanout-catch-up";
/// The content coding that a gateway asks the next one for. It is gzip under its older name (RFC 9110 §8.4.1.3), which kube-apiserver does
/// not know: it compresses nothing, as if it had not been asked.
pub const GATEWAY_GZIP: &str = "x-gzip";
/// Header of an answer of a gateway that found itself upstream, which no other server's 508 has.
pub const LOOP_HEADER: &str = "kube-fanout-loop";

pub use allocation::allocated_len;
pub use byte_span::ByteSpan;
pub use encoding::Encoding;
pub use event_kind::EventKind;
pub use fields::{FieldTable, FieldValue, SelectableField};
pub use gates::Gates;
pub use key::{CacheKey, Gvr, ObjectKey};
pub use key_ref::KeyRef;
pub use kind::{Layout, ResourceKind};
pub use object::{Object, ObjectParts};
pub use quote::quoted;
pub use random::{fraction, random, replay_random};
pub use version::{InvalidResourceVersion, ResourceVersion};
