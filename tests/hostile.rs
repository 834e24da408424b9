//! What hostile, broken and unlucky peers do to the gateway, while one well-behaved watcher must notice nothing.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[allow(dead_code, reason = "not every binary of tests uses all of it")]
#[path = "staging/auth.rs"]
mod auth;
#[path = "hostile/certificates.rs"]
mod certificates;
#[path = "hostile/connections.rs"]
mod connections;
#[path = "hostile/depth.rs"]
mod depth;
#[path = "hostile/descriptors.rs"]
mod descriptors;
#[path = "hostile/fairness.rs"]
mod fairness;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/frames.rs"]
mod frames;
#[path = "staging/gateway.rs"]
mod gateway;
#[path = "hostile/http2.rs"]
mod http2;
#[path = "hostile/identity.rs"]
mod identity;
#[path = "hostile/memory.rs"]
mod memory;
#[path = "hostile/multiplexed.rs"]
mod multiplexed;
#[path = "hostile/operators.rs"]
mod operators;
#[path = "hostile/quiet.rs"]
mod quiet;
#[path = "staging/quiet.rs"]
mod quiet_end;
#[path = "hostile/recorder.rs"]
mod recorder;
#[path = "hostile/relay.rs"]
mod relay;
#[path = "hostile/requests.rs"]
mod requests;
#[path = "hostile/rights.rs"]
mod rights;
#[path = "hostile/selectors.rs"]
mod selectors;
#[path = "hostile/stage.rs"]
mod stage;
#[path = "hostile/start.rs"]
mod start;
#[path = "hostile/tls.rs"]
mod tls;
#[path = "hostile/upstream.rs"]
mod upstream;
#[path = "hostile/websocket.rs"]
mod websocket;
#[path = "hostile/windows.rs"]
mod windows;
#[path = "hostile/wire.rs"]
mod wire;
#[path = "hostile/witness.rs"]
mod witness;
