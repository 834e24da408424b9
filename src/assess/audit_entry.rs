//! One line of kube-apiserver's audit log, as far as it tells of a list or a watch.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;

use super::client::{AuditedClient, CredentialKind};
use super::group_resource::GroupResource;
use crate::protocol::request::{
    Freshness, ListOptions, ListPlan, ListRead, Query, WatchPlan, WatchStart,
};

/// A line is no event of an audit log.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidEntry {
    #[error("not an audit event in JSON: {0}")]
    Json(String),
    #[error("the time {0:?} is not of the form 2026-01-02T03:04:05.678901Z")]
    Time(String),
}

/// A stage of a list or watch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AuditedRead {
    /// The same in all stages.
    pub(super) id: Box<str>,
    pub(super) progress: ReadProgress,
    pub(super) is_watch: bool,
    pub(super) client: AuditedClient,
    /// A token's id, such as `JTI=…`.
    pub(super) token: Option<Box<str>>,
    /// The node that the client's pod runs on.
    pub(super) node: Option<Box<str>>,
    pub(super) is_in_pod: bool,
    pub(super) resource: GroupResource,
    pub(super) scope: WatchScope,
    /// What authorization is asked about beside user, verb and resource.
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    /// Whether the client wants the newest state, which a gateway asks the API server for.
    pub(super) is_consistent: bool,
    /// Whether a gateway forwards it because it is not certain that the options are valid.
    pub(super) is_forwarded: bool,
    pub(super) is_refused: bool,
    /// Seconds of Unix time.
    pub(super) received_at: f64,
    pub(super) stage_at: f64,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadProgress {
    /// The response has begun: of watches only.
    Started,
    /// It has ended.
    Complete,
}

/// How much of a resource a watch selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchScope {
    /// Everything.
    Cluster,
    /// Labels or other fields, which may be most of it or next to nothing.
    Selected,
    Namespace,
    /// `spec.nodeName=…`
    Node,
    /// `metadata.name=…`
    Object,
}

impl WatchScope {
    pub(super) const COUNT: usize = 5;
}

/// What every stage of every request has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryDocument<'a> {
    #[serde(borrow, rename = "auditID")]
    audit_id: Cow<'a, str>,
    #[serde(borrow)]
    stage: Cow<'a, str>,
    #[serde(borrow)]
    verb: Cow<'a, str>,
    #[serde(borrow, rename = "requestURI")]
    request_uri: Cow<'a, str>,
    user: EntryUser,
    impersonated_user: Option<EntryUser>,
    user_agent: Option<String>,
    #[serde(default, rename = "sourceIPs")]
    source_ips: Vec<String>,
    object_ref: Option<EntryObject>,
    response_status: Option<EntryStatus>,
    #[serde(borrow)]
    request_received_timestamp: Cow<'a, str>,
    #[serde(borrow)]
    stage_timestamp: Cow<'a, str>,
}

#[derive(Deserialize)]
struct EntryUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: EntryExtra,
}

#[derive(Default, Deserialize)]
struct EntryExtra {
    #[serde(default, rename = "authentication.kubernetes.io/credential-id")]
    credential_id: Vec<String>,
    #[serde(default, rename = "authentication.kubernetes.io/node-name")]
    node_name: Vec<String>,
    #[serde(default, rename = "authentication.kubernetes.io/pod-name")]
    pod_name: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EntryObject {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize)]
struct EntryStatus {
    #[serde(default)]
    code: u16,
}

/// The time of an entry, and the list or watch that it tells of; most entries tell of other requests.
pub(super) fn entry(line: &[u8]) -> Result<(f64, Option<AuditedRead>), InvalidEntry> {
    let document: Result<EntryDocument<'_>, _> = serde_json::from_slice(line);
    let document = document.map_err(|error| InvalidEntry::Json(error.to_string()))?;
    let stage_at = seconds(&document.stage_timestamp)?;
    let received_at = seconds(&document.request_received_timestamp)?;
    Ok((stage_at, read(document, received_at, stage_at)))
}

fn read(entry: EntryDocument<'_>, received_at: f64, stage_at: f64) -> Option<AuditedRead> {
    let is_watch = &*entry.verb == "watch";
    let progress = match &*entry.stage {
        "ResponseStarted" if is_watch => ReadProgress::Started,
        "ResponseComplete" | "Panic" => ReadProgress::Complete,
        _ => return None,
    };
    let object = entry.object_ref?;
    if !(is_watch || &*entry.verb == "list") || !object.subresource.is_empty() {
        return None;
    }
    let query = entry.request_uri.split_once('?').map(|(_, query)| query);
    let options = ListOptions::from_query(&Query::parse(query));
    let state = options
        .as_ref()
        .and_then(|options| state(options, is_watch));
    let first = |values: Vec<String>| values.into_iter().next();
    let extra = entry.user.extra;
    let credential = first(extra.credential_id);
    let kind = CredentialKind::of(credential.as_deref());
    let user = entry
        .impersonated_user
        .map_or(entry.user.username, |user| user.username);
    Some(AuditedRead {
        id: entry.audit_id.into(),
        progress,
        is_watch,
        client: AuditedClient::new(&user, kind, entry.user_agent.as_deref().unwrap_or_default()),
        token: credential
            .filter(|_| kind == CredentialKind::Token)
            .map(Into::into),
        node: first(extra.node_name)
            .or_else(|| first(entry.source_ips))
            .map(Into::into),
        is_in_pod: !extra.pod_name.is_empty(),
        resource: GroupResource::new(&object.api_group, &object.resource)?,
        scope: scope(&object, &options.unwrap_or_default()),
        namespace: object.namespace.into(),
        name: object.name.into(),
        is_consistent: state == Some(Freshness::Latest),
        is_forwarded: state.is_none(),
        is_refused: entry
            .response_status
            .is_some_and(|status| status.code >= 400),
        received_at,
        stage_at,
    })
}

/// How new the state must be, by the gateway's own rules; `None` if it is not certain that the options are valid.
fn state(options: &ListOptions, is_watch: bool) -> Option<Freshness> {
    if is_watch {
        return Some(match WatchPlan::decide(options)?.start {
            WatchStart::Initial { freshness, .. } | WatchStart::FromNow { freshness } => freshness,
            WatchStart::After(_) => Freshness::Any,
        });
    }
    let is_latest = ListPlan::decide(options)?.read == ListRead::Latest;
    Some(if is_latest {
        Freshness::Latest
    } else {
        Freshness::Any
    })
}

/// The server gives the reference a name only if a field selector names a single object.
fn scope(object: &EntryObject, options: &ListOptions) -> WatchScope {
    let selects = |field| {
        let mut terms = options.field_selector.split(',');
        terms.any(|term| term.split_once('=').is_some_and(|(name, _)| name == field))
    };
    if !object.name.is_empty() || selects("metadata.name") {
        WatchScope::Object
    } else if selects("spec.nodeName") {
        WatchScope::Node
    } else if !object.namespace.is_empty() {
        WatchScope::Namespace
    } else if options.selectors_len() > 0 {
        WatchScope::Selected
    } else {
        WatchScope::Cluster
    }
}

fn seconds(text: &str) -> Result<f64, InvalidEntry> {
    let time: Result<Timestamp, _> = text.parse();
    let time = time.map_err(|_| InvalidEntry::Time(text.chars().take(40).collect()))?;
    Ok(time.as_second() as f64 + f64::from(time.subsec_nanosecond()) / 1e9)
}

#[cfg(test)]
mod tests;
