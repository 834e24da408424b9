//! The embedded API server for demos and tests: one global revision over an in-memory store.

mod body;
mod discovery;
pub mod faults;
pub mod kinds;
pub mod patch;
pub mod refusal;
mod render;
pub mod route;
pub mod storage;
mod validation;
