//! Kubernetes' protobuf: watch frames, objects, lists and statuses (docs/PROTOCOL.md §4.11, §5.8). Knows the numbers of the
//! few fields that the gateway reads, and skips all others.
//!
//! If a scalar field occurs twice, the last one counts. Messages that occur twice, which the API server never writes, are
//! read one after the other into the same parts. The only recursion is along the paths of a field table.

mod envelope;
mod fields;
mod list;
mod object;
mod status;
mod unknown;

pub use envelope::{is_canonical_frame, scan_frame, scan_protobuf_event};
pub use list::scan_protobuf_list;
pub use object::scan_protobuf_object;
pub use status::scan_protobuf_status;

#[cfg(test)]
mod tests;
