//! One small list, before anything is cached: how the resource's lists are called and laid out, and its version now.

use super::lists::page;
use super::{Fetch, Purpose};
use crate::decode::scan_list;
use crate::resource::{Gvr, Layout, ResourceVersion};
use crate::upstream::reflector::Failure;

/// What one small consistent list tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `PodList`; custom resources may call theirs anything.
    pub list_kind: String,
    /// How the JSON is laid out.
    pub layout: Layout,
    /// The version that every read begun before must not be older than.
    pub version: ResourceVersion,
}

/// A probe that told nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Upstream refused it.
    #[error("upstream answered {code} ({message})")]
    Refused {
        /// HTTP status.
        code: u16,
        /// Upstream's words.
        message: String,
    },
    /// Upstream did not answer.
    #[error("upstream did not answer")]
    Unreachable,
    /// What came is no list.
    #[error("upstream's answer is no list")]
    Unreadable,
}

impl From<Failure> for ProbeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Status(status) => Self::Refused {
                code: status.code,
                message: status.message,
            },
            Failure::Transport => Self::Unreachable,
            Failure::Protocol => Self::Unreadable,
        }
    }
}

/// Asks for one item, consistently: costs upstream a few hundred bytes.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<Probe, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let body = page(fetch, path, Purpose::Read)
        .await
        .map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(&body).map_err(|_| ProbeError::Unreadable)?;
    Ok(Probe {
        list_kind: list.kind,
        layout: list.layout,
        version: list.resource_version,
    })
}
