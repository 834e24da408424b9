//! An authorized read for which a cache and a format have been chosen.

use super::negotiation::Negotiation;
use super::permission::AuthorizedRead;
use crate::protocol::request::Representation;
use crate::resource::CacheKey;
use crate::view::{ObjectFormat, ServedResource};

/// An authorized read with the cache that it reads and the format of its response.
#[derive(Clone, Copy)]
pub(super) struct NegotiatedRead<'a> {
    pub(super) authorized: &'a AuthorizedRead,
    /// The key of the cache, with the encoding of its objects.
    pub(super) key: &'a CacheKey,
    pub(super) served: &'a ServedResource,
    pub(super) format: ObjectFormat,
    /// Whether a list is indented.
    pub(super) is_indented: bool,
}

impl<'a> NegotiatedRead<'a> {
    /// The read from this cache; `None` if the cache's objects cannot be written in the format that the client gets.
    pub(super) fn of(
        negotiation: &Negotiation,
        authorized: &'a AuthorizedRead,
        key: &'a CacheKey,
        served: &'a ServedResource,
    ) -> Option<Self> {
        let kind = served.cache.kind();
        let representation = negotiation.of_layout(kind.layout);
        Some(Self {
            authorized,
            key,
            served,
            format: negotiation.format_for(kind)?,
            is_indented: matches!(representation, Representation::Indented(_)),
        })
    }
}
