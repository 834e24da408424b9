//! What a caller wants to do, in the words of authorization.

/// A question for an authorizer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// To resources.
    Resource(ResourceAccess),
    /// To a path that is no resource's, such as `/version`.
    Path {
        /// The method in lower case.
        verb: String,
        /// Without its query.
        path: String,
    },
}

/// A question about resources. What is empty is not limited: no name means the whole collection, no namespace all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAccess {
    /// `list`, `watch`, `impersonate` and the like.
    pub verb: String,
    /// The API group; empty for the core one.
    pub group: String,
    /// Its version.
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// Such as `status`.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's, also one that a field selector pins.
    pub name: String,
    /// As the client wrote it; authorizers other than roles may know it.
    pub field_selector: String,
    /// Likewise.
    pub label_selector: String,
}
