//! What a client accepts, before and after it is known whether the resource is compiled in. Pure but for the request.

use http::Request;
use hyper::body::Incoming;

use super::read_request::{accept, prefers_indented};
use crate::protocol::request::{AcceptPurpose, Representation, Verb, negotiate};
use crate::resource::{Encoding, Layout, ResourceKind};
use crate::view::{ObjectFormat, ObjectPart};

/// The server's choice among media types, for either sort of resource.
pub(super) struct Negotiation {
    typed: Representation,
    dynamic: Representation,
}

impl Negotiation {
    pub(super) fn of(request: &Request<Incoming>, verb: Verb) -> Self {
        let accept = accept(request);
        let purpose = if verb == Verb::Watch {
            AcceptPurpose::Watch
        } else {
            AcceptPurpose::List
        };
        let of = |layout| {
            let wish = negotiate(&accept, layout, purpose);
            if purpose == AcceptPurpose::List && prefers_indented(request) {
                wish.indented()
            } else {
                wish
            }
        };
        Self {
            typed: of(Layout::Typed),
            dynamic: of(Layout::Dynamic),
        }
    }

    /// In which encoding a cache is looked for first; `None` if no cache can serve this client.
    pub(super) fn first_choice(&self) -> Option<Encoding> {
        use Representation::{Cached, Forward, Indented};
        match (self.typed, self.dynamic) {
            (Cached(rendition) | Indented(rendition), _) => Some(rendition.encoding),
            (Forward, Cached(_) | Indented(_)) => Some(Encoding::Json),
            (Forward, Forward) => None,
        }
    }

    fn of_layout(&self, layout: Layout) -> Representation {
        match layout {
            Layout::Typed => self.typed,
            Layout::Dynamic => self.dynamic,
        }
    }

    /// Whether lists of this kind are indented.
    pub(super) fn are_indented(&self, kind: &ResourceKind) -> bool {
        matches!(self.of_layout(kind.layout), Representation::Indented(_))
    }

    /// What the client gets from a cache of this kind; `None` if that cannot be made from it.
    pub(super) fn format_for(&self, kind: &ResourceKind) -> Option<ObjectFormat> {
        let rendition = match self.of_layout(kind.layout) {
            Representation::Cached(rendition) | Representation::Indented(rendition) => rendition,
            Representation::Forward => return None,
        };
        // Whole objects are never written in another encoding; of metadata the gateway knows every field.
        let is_written = kind.encoding == rendition.encoding
            || kind.encoding == Encoding::Json && matches!(rendition.form, ObjectPart::Metadata(_));
        is_written.then_some(rendition)
    }
}
