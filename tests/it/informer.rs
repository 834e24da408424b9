//! Informers over sockets to the embedded API server, one behaviour per test. `informer_chaos` tests them under random faults.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod factory;
mod handlers;
mod reading;
mod stage;
