//! Informers as a program has them, over sockets to the embedded API server. Chaos is elsewhere; here each behaviour stands alone.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

#[path = "informer/factory.rs"]
mod factory;
#[path = "informer/handlers.rs"]
mod handlers;
#[path = "staging/history.rs"]
mod history;
#[path = "informer/reading.rs"]
mod reading;
#[path = "informer/stage.rs"]
mod stage;
