//! Towards the API server: performs what the reflector decides.

pub mod backoff;
pub mod cache_sink;
pub mod client;
pub mod discovery;
pub mod driver;
mod fetch;
pub mod gates;
pub mod reflector;
pub mod sink;
