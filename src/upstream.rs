//! Towards the API server: performs what the reflector decides.

pub mod backoff;
pub mod client;
pub mod discovery;
pub mod driver;
mod fetch;
pub mod reflector;
