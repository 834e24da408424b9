//! A file that cannot be read.

use std::io;

/// Which file, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}")]
pub struct ReadError {
    /// The file.
    pub name: String,
    /// What the system says.
    pub source: io::Error,
}
