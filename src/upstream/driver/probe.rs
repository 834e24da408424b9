//! Lists of one object, which answer questions about a resource: how its lists are named and laid out, its current version, and
//! whether upstream has it in protobuf. No object is kept.

use http::header::WARNING;

use super::lists::{fetch_body, fetch_whole};
use super::{Fetch, RequestPurpose};
use crate::decode::{UpstreamStatus, scan_list, scan_protobuf_list};
use crate::resource::{Encoding, Gvr, Layout, ResourceVersion};
use crate::upstream::reflector::Failure;

/// The format of a resource's lists, as a list of one object shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Kind of the list, such as `PodList`; custom resources may use any name.
    pub list_kind: String,
    /// Layout of the JSON.
    pub layout: Layout,
    /// Values of the `Warning` headers. Every reader of the resource gets them (docs/PROTOCOL.md §3.11).
    pub warnings: Vec<String>,
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Upstream responded with an error status.
    #[error("upstream answered {code} ({message})")]
    Refused {
        /// HTTP status.
        code: u16,
        /// Upstream's message.
        message: String,
    },
    /// Upstream did not respond, or the request was not sent because all permits for requests upstream are taken.
    #[error("no response from upstream")]
    Unreachable,
    /// The response is not a list, or is too long.
    #[error("upstream's response is not a list that can be read")]
    Unreadable,
}

impl ProbeError {
    /// The same failure, as the reflector knows it.
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

/// Reads the format of the resource's lists from a consistent list of one object. Upstream sends that object whole.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<Probe, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let response = fetch_whole(fetch, path, RequestPurpose::Read, Encoding::Json)
        .await
        .map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(response.body()).map_err(|_| ProbeError::Unreadable)?;
    let warnings = response.headers().get_all(WARNING).iter();
    let warnings = warnings.filter_map(|value| value.to_str().ok().map(str::to_owned));
    Ok(Probe {
        warnings: warnings.collect(),
        list_kind: list.kind,
        layout: list.layout,
    })
}

/// Reads the current version of the resource: a state of at least this version is fresh enough for every consistent read
/// that started before the call. This costs upstream the metadata of one object.
///
/// # Errors
/// See [`ProbeError`].
pub async fn newest_version<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<ResourceVersion, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    let body = fetch_body(fetch, path, RequestPurpose::ReadVersions, Encoding::Json).await;
    let body = body.map_err(|fault| ProbeError::from(fault.failure))?;
    let list = scan_list(&body).map_err(|_| ProbeError::Unreadable)?;
    Ok(list.resource_version)
}

/// Whether upstream lists the resource in protobuf, as it does for compiled-in kinds. Costs as much as a probe.
///
/// # Errors
/// See [`ProbeError`]. A refusal of the encoding is not an error.
pub async fn offers_protobuf<F: Fetch>(fetch: &F, gvr: &Gvr) -> Result<bool, ProbeError> {
    let path = format!("{}?limit=1", gvr.collection_path());
    match fetch_body(fetch, path, RequestPurpose::Read, Encoding::Protobuf).await {
        Ok(body) => Ok(scan_protobuf_list(&body).is_ok()),
        Err(fault) if fault.is_not_acceptable() || fault.rejection.is_some() => Ok(false),
        Err(fault) => Err(fault.failure.into()),
    }
}
