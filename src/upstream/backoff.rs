//! How long to wait before trying again.
