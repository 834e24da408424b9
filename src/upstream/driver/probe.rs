//! Small lists: how the resource's lists are called and laid out, before anything is cached, and its version now.

use http::header::WARNING;

use super::lists::{page, whole};
use super::{Fetch, RequestPurpose};
use crate::decode::{UpstreamStatus, scan_list, scan_protobuf_list};
use crate::resource::{Encoding, Gvr, Layout, ResourceVersion};
use crate::upstream::reflector::Failure;

/// What one small consistent list tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `PodList`; custom resources may call theirs anything.
    pub list_kind: String,
    /// How the JSON is laid out.
    pub layout: Layout,
    /// Values of `Warning` headers: every reader of the resource gets them (docs/PROTOCOL.md §3.11).
    pub warnings: Vec<String>,
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

impl ProbeError {
    /// The same as the reflector is told of it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Refused { code, .. } => Failure::Status(UpstreamStatus::of_code(*code)),
            Self::Unreachable => Failure::Transport,
            Self::Unreadable => Failure::Protocol,
        }
    }
}

impl From<Failure> for ProbeError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Status(status) => Self::Refused {
                code: status.code,
                message: status.message,
            },
            Failure::Transport | Failure::Saturated => Self::Unreachable,
            Failure::Protocol | Failure::TooLong => Self::Unreadable,
        }
    }
}

/// Asks for one item, consistently: costs upstream a few hundred bytes.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<Probe, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let answer = whole(fetch, path, RequestPurpose::Read, Encoding::Json)
        .await
        .map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(answer.body()).map_err(|_| ProbeError::Unreadable)?;
    let warnings = answer.headers().get_all(WARNING).iter();
    let warnings = warnings.filter_map(|value| value.to_str().ok().map(str::to_owned));
    Ok(Probe {
        warnings: warnings.collect(),
        list_kind: list.kind,
        layout: list.layout,
    })
}

/// Asks for the version that every read begun before must not be older than: costs upstream the metadata of one object.
///
/// # Errors
/// See [`ProbeError`].
pub async fn newest_version<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<ResourceVersion, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let body = page(fetch, path, RequestPurpose::ReadVersions, Encoding::Json).await;
    let body = body.map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(&body).map_err(|_| ProbeError::Unreadable)?;
    Ok(list.resource_version)
}

/// Whether upstream lists the resource in protobuf, as it does compiled-in kinds. Costs as much as a probe.
///
/// # Errors
/// See [`ProbeError`]; a refusal of the encoding is an answer.
pub async fn offers_protobuf<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<bool, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    match page(fetch, path, RequestPurpose::Read, Encoding::Protobuf).await {
        Ok(body) => Ok(scan_protobuf_list(&body).is_ok()),
        Err(fault) if fault.is_not_acceptable() || fault.rejection.is_some() => Ok(false),
        Err(fault) => Err(fault.failure.into()),
    }
}
