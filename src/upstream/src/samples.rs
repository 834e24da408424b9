//! What tests of several crates share: certificates and TLS clients, and what a test logs.

#![allow(missing_docs, clippy::unwrap_used, reason = "only tests use them")]

pub mod captured_log;
pub mod certificates;
