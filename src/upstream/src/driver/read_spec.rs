//! What a driver reads, and how.

use std::time::Duration;

use super::fetch::RequestPurpose;
use super::request::Collection;
use crate::resource::{Encoding, FieldTable};

/// What a driver reads, and how.
#[derive(Clone, Debug)]
pub struct ReadSpec {
    /// What is listed and watched.
    pub collection: Collection,
    /// Selectable fields to look for in each object.
    pub fields: FieldTable,
    /// Whether only the objects' metadata is read.
    pub metadata_only: bool,
    /// Encoding of the objects. Metadata alone is read in JSON only.
    pub encoding: Encoding,
    /// Whether a watch may begin with a catch-up, which leaves states out. If not, it counts as refused with 410.
    pub accepts_catch_up: bool,
    /// Longest watch frame, bytes.
    pub frame_len_max: usize,
    /// How long an open watch may bring nothing until the state is compared with upstream's: this, and up to a sixteenth more.
    pub silence_max: Duration,
}

/// The default of [`ReadSpec::silence_max`]. An API server that sends bookmarks sends one each minute, so nothing is compared while it does.
pub const SILENCE_MAX: Duration = Duration::from_secs(64);

impl ReadSpec {
    /// All objects of a resource, whole, with its selectable fields.
    #[must_use]
    pub fn all(gvr: &crate::resource::Gvr, frame_len_max: usize) -> Self {
        Self {
            collection: Collection::all(gvr),
            fields: FieldTable::of(gvr),
            metadata_only: false,
            encoding: Encoding::Json,
            accepts_catch_up: false,
            frame_len_max,
            silence_max: SILENCE_MAX,
        }
    }

    /// The same collection in another encoding.
    #[must_use]
    pub fn in_encoding(self, encoding: Encoding) -> Self {
        Self { encoding, ..self }
    }

    pub(super) const fn list_purpose(&self) -> RequestPurpose {
        if self.metadata_only {
            RequestPurpose::ReadMetadata
        } else {
            RequestPurpose::Read
        }
    }

    pub(super) const fn watch_purpose(&self) -> RequestPurpose {
        if self.metadata_only {
            RequestPurpose::WatchMetadata
        } else {
            RequestPurpose::Watch
        }
    }
}
