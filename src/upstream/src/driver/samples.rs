//! Servers that answer a driver as a test says, for the tests of all that drivers fill.

#![allow(missing_docs, clippy::unwrap_used, reason = "only tests use them")]

pub mod failures;
pub mod scripted;
pub mod simulation;
