//! Tests with hostile, broken and slow peers, clients as well as API servers. In most of them a well-behaved watcher (`witness.rs`)
//! runs beside the hostile peer and must receive every event. `stage.rs` has the gateway, the API server and the helpers of most tests.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod adopted;
pub(crate) mod certificates;
mod connections;
mod depth;
mod descriptors;
mod endless;
mod fairness;
mod floods;
mod frames;
mod holders;
mod http2;
pub(crate) mod identity;
mod memory;
mod multiplexed;
mod operators;
mod quiet;
mod recorder;
mod relay;
mod requests;
mod rights;
mod selectors;
mod stage;
mod start;
pub(crate) mod tls;
mod upstream;
mod websocket;
mod windows;
pub(crate) mod wire;
mod witness;
