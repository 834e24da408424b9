//! The format that a client accepts. It is negotiated for compiled-in kinds and custom resources alike, because the kind is not
//! known before a cache is chosen.

use crate::protocol::request::{AcceptPurpose, Representation, RequestInfo, Verb};
use crate::resource::{Encoding, Gates, Layout, ResourceKind};
use crate::view::{ObjectFormat, ObjectPart};

/// The API server's choice among media types, for each layout that a resource can have.
pub(super) struct Negotiation {
    typed: Representation,
    dynamic: Representation,
}

impl Negotiation {
    pub(super) fn of(info: &RequestInfo, gates: Gates) -> Self {
        // Only upstream writes CBOR.
        if gates.cbor && info.accept.names_cbor() {
            return Self {
                typed: Representation::Forward,
                dynamic: Representation::Forward,
            };
        }
        let purpose = if info.verb == Verb::Watch {
            AcceptPurpose::Watch
        } else {
            AcceptPurpose::List
        };
        let of = |layout| {
            let representation = info.accept.negotiate(layout, purpose);
            if purpose == AcceptPurpose::List && info.prefers_indented {
                representation.indented()
            } else {
                representation
            }
        };
        Self {
            typed: of(Layout::Typed),
            dynamic: of(Layout::Dynamic),
        }
    }

    /// The encoding in which a cache is looked for first; `None` if no cache can serve this client.
    pub(super) fn first_choice(&self) -> Option<Encoding> {
        use Representation::{Cached, Forward, Indented};
        match (self.typed, self.dynamic) {
            (Cached(format) | Indented(format), _) => Some(format.encoding),
            (Forward, Cached(_) | Indented(_)) => Some(Encoding::Json),
            (Forward, Forward) => None,
        }
    }

    /// What the client gets of resources with this layout.
    pub(super) fn of_layout(&self, layout: Layout) -> Representation {
        match layout {
            Layout::Typed => self.typed,
            Layout::Dynamic => self.dynamic,
        }
    }

    /// The format that the client gets from a cache of this kind; `None` if the cache's objects cannot be written in it.
    pub(super) fn format_for(&self, kind: &ResourceKind) -> Option<ObjectFormat> {
        let format = match self.of_layout(kind.layout) {
            Representation::Cached(format) | Representation::Indented(format) => format,
            Representation::Forward => return None,
        };
        // Whole objects are never converted to another encoding. Metadata is, because the gateway knows all of its fields.
        let is_written = kind.encoding == format.encoding
            || kind.encoding == Encoding::Json && matches!(format.form, ObjectPart::Metadata(_));
        is_written.then_some(format)
    }
}
