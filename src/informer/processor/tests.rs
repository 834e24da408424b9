//! Handlers as an informer sees them.

pub(crate) mod samples;
