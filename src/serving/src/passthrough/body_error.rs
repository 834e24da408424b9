//! Why a forwarded response was not completed.

use crate::upstream::client::ResponseBodyError;

/// Why a response was not completed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Upstream's connection failed.
    #[error("the API server broke off its response")]
    Broken(#[from] ResponseBodyError),
    /// Upstream has sent nothing for the time limit.
    #[error("the API server did not continue its response in time")]
    Silent,
    /// The gateway has ended the response: its deadline has passed, or the caller may no longer read it.
    #[error("the gateway ended the response")]
    Ended,
}
