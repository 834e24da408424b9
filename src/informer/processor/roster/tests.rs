//! Placeholder of tests.
