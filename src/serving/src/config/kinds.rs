//! The syntax of resources and kinds in settings.

use super::suggestion::{did_you_mean, nearest};
use crate::resource::Gvr;
use crate::resource::groups::{built_in_groups, stable_version};
use crate::resource::names::{is_dns_label, is_dns_subdomain};

/// A resource or kind does not have the required syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKind {
    /// Not `plural.version` or `plural.version.group`.
    #[error(
        "write plural.version or plural.version.group, such as pods.v1 or widgets.v1.example.com; resources of Kubernetes itself need no \
         version: pods, deployments.apps{}",
        did_you_mean(.meant.as_deref())
    )]
    Gvr {
        /// The resource of Kubernetes itself that was probably meant.
        meant: Option<String>,
    },
    /// Not `plural.version.group=Kind` with an optional `:cluster`.
    #[error("write plural.version.group=Kind or plural.version.group=Kind:cluster")]
    ExtraKind,
}

/// Like [`gvr`], but resources of Kubernetes itself need no version: `pods`, `deployments.apps`.
pub(super) fn named_resource(text: &str) -> Result<Gvr, InvalidKind> {
    gvr(text).or_else(|invalid| {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        if !is_dns_label(resource) || text.ends_with('.') {
            return Err(invalid);
        }
        let version = stable_version(group).ok_or_else(|| InvalidKind::Gvr {
            meant: nearest(group, built_in_groups()).map(|group| format!("{resource}.{group}")),
        })?;
        Ok(Gvr::new(group, version, resource))
    })
}

/// Parses `pods.v1` or `deployments.v1.apps`, the format in which [`Gvr`] is displayed.
fn gvr(text: &str) -> Result<Gvr, InvalidKind> {
    let mut parts = text.splitn(3, '.');
    let (resource, version) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let group = parts.next();
    if !is_dns_label(resource)
        || !is_version(version)
        || group.is_some_and(|group| !is_dns_subdomain(group))
    {
        return Err(InvalidKind::Gvr { meant: None });
    }
    Ok(Gvr::new(group.unwrap_or(""), version, resource))
}

/// Parses `widgets.v1.example.com=Widget`, followed by `:cluster` if its objects are in no namespace. The core group cannot be extended.
pub(super) fn extra_kind(text: &str) -> Result<ExtraKind, InvalidKind> {
    let (name, rest) = text.split_once('=').ok_or(InvalidKind::ExtraKind)?;
    let (kind, namespaced) = match rest.split_once(':') {
        None => (rest, true),
        Some((kind, "cluster")) => (kind, false),
        Some(_) => return Err(InvalidKind::ExtraKind),
    };
    let gvr = gvr(name).map_err(|_| InvalidKind::ExtraKind)?;
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.bytes().all(|b| b.is_ascii_alphanumeric());
    if gvr.group.is_empty() || !is_kind {
        return Err(InvalidKind::ExtraKind);
    }
    Ok(ExtraKind {
        gvr,
        kind: kind.to_owned(),
        namespaced,
    })
}

/// Whether `text` is `v` and a digit, with any label characters after them: `v1`, `v1beta2`.
pub(super) fn is_version(text: &str) -> bool {
    is_dns_label(text)
        && text
            .strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A kind that the embedded API server serves like a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraKind {
    /// Group, version and plural name.
    pub gvr: Gvr,
    /// The kind's name, such as `Widget`.
    pub kind: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}
