//! Helpers that several suites share: gateways and API servers in this process, a connection that can go silent or break,
//! clients that resume, and the check that no event is missing once writes have stopped.

pub(crate) mod auth;
pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod history;
pub(crate) mod http_server;
pub(crate) mod process;
pub(crate) mod protobuf_relay;
pub(crate) mod quiet;
pub(crate) mod random;
pub(crate) mod resuming;
pub(crate) mod wire;

/// The limit of a single wait for a state. It fails a test that hangs and measures nothing, so it is far more than a busy machine needs.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(180);
