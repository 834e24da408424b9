//! Decodes the bytes of upstream's responses into events and objects. Pure: no sockets, no clock.
//!
//! ```text
//! socket chunks ─▶ Frames ─▶ one line ─▶ scan_line ─▶ kind + ObjectParts | Bookmark | UpstreamStatus
//! list body     ─▶ scan_list  ─▶ item spans ─▶ ItemFraming ─▶ scan_object ─▶ ObjectParts
//!
//! protobuf      ─▶ Frames ─▶ one frame ─▶ scan_frame ─▶ as above
//! list body     ─▶ scan_protobuf_list ─▶ item spans ─▶ scan_protobuf_object ─▶ ObjectParts
//! ```
//!
//! Nothing here builds a tree. The scanner walks an object once and records the positions of the few parts that the gateway
//! reads. Everything else is skipped; only matching brackets and closed strings are checked. Clients get the bytes that the
//! API server wrote.
//!
//! Start with `frames.rs`, then `envelope.rs` and `scanner.rs`. `json.rs` is the cursor below them, and `protobuf.rs` holds
//! the same steps for protobuf.

mod blocks;
mod envelope;
mod frames;
mod item_framing;
mod json;
mod list;
mod managed_fields;
mod protobuf;
mod scanner;
mod status;
mod table;
mod walk;
mod write_time;

pub use envelope::{EventEnvelope, WatchLine, WireKind, scan_event, scan_line};
pub use frames::{FrameTooLong, Frames, object_in, scan_envelope, scan_watch};
pub use item_framing::{ItemFraming, watch_form};
pub use json::{DEPTH_MAX, ScanError};
pub use list::{ListPage, scan_list};
pub use managed_fields::without_managed_fields;
pub use protobuf::{
    is_canonical_frame, scan_frame, scan_protobuf_event, scan_protobuf_list, scan_protobuf_object,
    scan_protobuf_status,
};
pub use scanner::{Bookmark, scan_bookmark, scan_object};
pub use status::{UpstreamStatus, scan_status};
pub use table::{TableEvent, TableLine, scan_table};
pub use walk::{JsonMember, elements, member, members, value_of};
pub use write_time::{WriteTimeSource, write_time};
