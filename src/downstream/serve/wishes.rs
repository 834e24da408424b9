//! What a client accepts, before and after it is known whether the resource is compiled in. Pure but for the request.

use http::Request;
use hyper::body::Incoming;

use super::accept;
use crate::downstream::request::{Purpose, Representation, Verb, negotiate};
use crate::resource::{Encoding, Layout, ResourceKind};
use crate::view::{Form, Rendition};

/// The server's choice among media types, for either sort of resource.
pub(super) struct Wishes {
    typed: Representation,
    dynamic: Representation,
}

impl Wishes {
    pub(super) fn of(request: &Request<Incoming>, verb: Verb) -> Self {
        let accept = accept(request);
        let purpose = if verb == Verb::Watch {
            Purpose::Watch
        } else {
            Purpose::List
        };
        Self {
            typed: negotiate(&accept, Layout::Typed, purpose),
            dynamic: negotiate(&accept, Layout::Dynamic, purpose),
        }
    }

    /// In which encoding a cache is looked for first; `None` if no cache can serve this client.
    pub(super) fn first_choice(&self) -> Option<Encoding> {
        match (self.typed, self.dynamic) {
            (Representation::Cached(rendition), _) => Some(rendition.encoding),
            (Representation::Forward, Representation::Cached(_)) => Some(Encoding::Json),
            (Representation::Forward, Representation::Forward) => None,
        }
    }

    /// What the client gets from a cache of this kind; `None` if that cannot be made from it.
    pub(super) fn granted(&self, kind: &ResourceKind) -> Option<Rendition> {
        let wish = match kind.layout {
            Layout::Typed => self.typed,
            Layout::Dynamic => self.dynamic,
        };
        let Representation::Cached(rendition) = wish else {
            return None;
        };
        // Whole objects are never written in another encoding; of metadata the gateway knows every field.
        let is_written = kind.encoding == rendition.encoding
            || kind.encoding == Encoding::Json && matches!(rendition.form, Form::Metadata(_));
        is_written.then_some(rendition)
    }
}
