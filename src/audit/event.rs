//! Events as lines of JSON, with the fields of `audit.k8s.io/v1` and in the API server's order. Knows no clock and no request.

use core::net::IpAddr;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::auth::user::User;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AuditStage {
    /// It was received.
    RequestReceived,
    /// The head of its answer is on its way; recorded of watches, and of requests that are not authenticated.
    ResponseStarted,
    /// Its answer is complete, or its client has left.
    ResponseComplete,
    /// Answering it panicked.
    Panic,
}

impl AuditStage {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    /// Its name in policies and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }
}

/// What a request is about, if that is a resource. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Its plural name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: String,
    /// The object's name, also one that a field selector pins.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: String,
    /// The group's version.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: String,
    /// Such as `status`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subresource: String,
}

/// What came of a request: a `v1` Status without what identifies it.
#[derive(Clone, Debug, Default)]
pub struct ResponseStatus {
    /// `Success` or `Failure`; empty where the answer is no Status.
    pub status: &'static str,
    /// What a person reads.
    pub message: String,
    /// Such as `Forbidden`.
    pub reason: &'static str,
    /// As the Status has them.
    pub details: Option<Box<RawValue>>,
    /// Of HTTP.
    pub code: u16,
}

impl ResponseStatus {
    /// An answer that is no Status.
    #[must_use]
    pub fn of_code(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// Of a request whose client left before anything was answered.
    #[must_use]
    pub fn closed_early() -> Self {
        Self {
            status: "Success",
            message: "Connection closed early".to_owned(),
            code: 200,
            ..Self::default()
        }
    }

    /// Of a request whose answer panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self {
            status: "Failure",
            message: "the gateway panicked".to_owned(),
            reason: "InternalError",
            code: 500,
            ..Self::default()
        }
    }
}

/// What authorization said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDecision {
    /// Allowed, with the authorizer's reason, which may be empty.
    Allow(String),
    /// Denied.
    Forbid(String),
    /// It could not be decided.
    Error,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct AuditEvent<'a> {
    /// As on the wire.
    pub audit_id: &'a str,
    /// How far the request has come.
    pub stage: AuditStage,
    /// Path and query as they were sent.
    pub uri: &'a str,
    /// The verb as authorization names it.
    pub verb: &'a str,
    /// The authenticated user; `None` if there is none.
    pub user: Option<&'a User>,
    /// The user that the request acts as, if that is another one.
    pub impersonated_user: Option<&'a User>,
    /// Where it came from, as far as headers and the connection tell.
    pub source_ips: &'a [IpAddr],
    /// The header, cut if it is long.
    pub user_agent: &'a str,
    /// What it is about.
    pub object: Option<&'a ObjectReference>,
    /// What came of it, once that is known.
    pub response: Option<&'a ResponseStatus>,
    /// When it was received.
    pub received_at: Timestamp,
    /// When it came to this stage.
    pub stage_at: Timestamp,
    /// What authorization said, once that is known.
    pub decision: Option<&'a AuditDecision>,
}

impl AuditEvent<'_> {
    /// One line of JSON, newline included.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(1024);
        // Strings, numbers and their lists are always written.
        let _ = serde_json::to_writer(&mut line, &self.wire());
        line.push(b'\n');
        line
    }

    fn wire(&self) -> EventFields<'_> {
        EventFields {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: self.audit_id,
            stage: self.stage,
            request_uri: self.uri,
            verb: self.verb,
            user: self.user.map(AuditUser::of).unwrap_or_default(),
            impersonated_user: self.impersonated_user.map(AuditUser::of),
            source_ips: self.source_ips,
            user_agent: self.user_agent,
            object_ref: self.object,
            response_status: self.response.map(StatusWire::of),
            request_received_timestamp: MicroTime(self.received_at),
            stage_timestamp: MicroTime(self.stage_at),
            annotations: self.decision.map(Annotations::of),
        }
    }
}

/// The fields in the order of the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventFields<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: &'a str,
    stage: AuditStage,
    #[serde(rename = "requestURI")]
    request_uri: &'a str,
    verb: &'a str,
    user: AuditUser<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<AuditUser<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    source_ips: &'a [IpAddr],
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<&'a ObjectReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<StatusWire<'a>>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Annotations<'a>>,
}

#[derive(Serialize)]
struct StatusWire<'a> {
    metadata: EmptyMetadata,
    #[serde(skip_serializing_if = "str::is_empty")]
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a RawValue>,
    code: u16,
}

#[derive(Serialize)]
struct EmptyMetadata {}

impl<'a> StatusWire<'a> {
    fn of(status: &'a ResponseStatus) -> Self {
        Self {
            metadata: EmptyMetadata {},
            status: status.status,
            message: &status.message,
            reason: status.reason,
            details: status.details.as_deref(),
            code: status.code,
        }
    }
}

#[derive(Default, Serialize)]
struct AuditUser<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<&'a std::collections::BTreeMap<String, Vec<String>>>,
}

impl<'a> AuditUser<'a> {
    fn of(user: &'a User) -> Self {
        Self {
            username: &user.name,
            uid: &user.uid,
            groups: &user.groups,
            extra: Some(&user.extra).filter(|extra| !extra.is_empty()),
        }
    }
}

#[derive(Serialize)]
struct Annotations<'a> {
    #[serde(
        rename = "authorization.k8s.io/decision",
        skip_serializing_if = "str::is_empty"
    )]
    decision: &'static str,
    #[serde(rename = "authorization.k8s.io/reason")]
    reason: &'a str,
}

impl<'a> Annotations<'a> {
    fn of(decision: &'a AuditDecision) -> Self {
        let (decision, reason) = match decision {
            AuditDecision::Allow(reason) => ("allow", reason.as_str()),
            AuditDecision::Forbid(reason) => ("forbid", reason.as_str()),
            AuditDecision::Error => ("", "internal error"),
        };
        Self { decision, reason }
    }
}

/// A moment with six digits of a second, as Go's `MicroTime`.
struct MicroTime(Timestamp);

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    }
}

#[cfg(test)]
mod tests;
