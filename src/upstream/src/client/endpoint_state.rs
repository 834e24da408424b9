//! What is known of an API server.

/// The state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// Not checked yet: it gets no requests.
    Unchecked,
    /// It answers, is ready, and belongs to the cluster.
    Ready,
    /// It answers that it is not ready.
    Unready,
    /// It does not answer.
    Unreachable,
    /// It belongs to another cluster, or cannot be shown to belong to this one.
    Foreign,
}

/// Why an endpoint failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointFailure {
    /// No connection.
    Connect,
    /// Its certificate is not trusted.
    Certificate,
    /// The connection broke.
    Broken,
    /// It did not answer in time.
    Timeout,
    /// It answered with an error.
    Status,
    /// It belongs to another cluster.
    Foreign,
}
