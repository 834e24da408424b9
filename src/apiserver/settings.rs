//! The options of a server.

use std::sync::Arc;

use super::auth::AuthOptions;
use super::churn::InitialCount;
use super::kinds::ServedKind;

/// The options of an embedded API server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds that are served in addition to the built-in ones.
    pub extra_kinds: Vec<ServedKind>,
    /// How many objects of each kind the server creates at start; churn changes these objects.
    pub objects: Vec<InitialCount>,
    /// Approximate length of each of these objects, in bytes.
    pub object_len: usize,
    /// Changes per second to these objects; 0 for none.
    pub churn_per_second: u32,
    /// Seed of the objects and changes; random if absent.
    pub seed: Option<u64>,
    /// TLS configuration; plain HTTP if absent.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Authentication and authorization; every request is allowed if absent.
    pub auth: Option<AuthOptions>,
}
