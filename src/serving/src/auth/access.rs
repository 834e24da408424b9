//! The access that a caller requests: the attributes that an authorizer decides by.

/// An access that an authorizer allows or denies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Access to resources.
    Resource(ResourceAccess),
    /// Access to a path that belongs to no resource, such as `/version`.
    Path {
        /// The HTTP method in lower case.
        verb: String,
        /// The path without the query.
        path: String,
    },
}

/// An access to resources. An empty field does not restrict it: no name means the whole collection, no namespace means all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAccess {
    /// `list`, `watch`, `impersonate` and the like.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version, such as `v1`.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped resources.
    pub namespace: String,
    /// The object's name, also if it comes from a field selector `metadata.name=NAME`.
    pub name: String,
    /// The field selector as the client wrote it. Roles ignore it; other authorizers may use it.
    pub field_selector: String,
    /// The label selector as the client wrote it, used in the same way.
    pub label_selector: String,
}
