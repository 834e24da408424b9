//! Audit events as lines of JSON, with the fields of `audit.k8s.io/v1` in the API server's order. Pure: times are arguments.

use core::net::IpAddr;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::auth::user::User;

/// The stage of a request at which an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum AuditStage {
    /// The request was received.
    RequestReceived,
    /// The response's head is about to be sent. Recorded only for watches and for requests that fail authentication.
    ResponseStarted,
    /// The response is complete, or the client has disconnected.
    ResponseComplete,
    /// The code that answered the request panicked.
    Panic,
}

impl AuditStage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [
        Self::RequestReceived,
        Self::ResponseStarted,
        Self::ResponseComplete,
        Self::Panic,
    ];

    /// The stage's name in policies and events.
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

/// The resource or object that a request is about. Unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The resource's plural name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: String,
    /// The object's name, also if it comes from the field selector `metadata.name=…`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_group: String,
    /// The group's version.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub api_version: String,
    /// The subresource, such as `status`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub subresource: String,
}

/// The result of a request: a `v1` Status without `kind`, `apiVersion` and `metadata`.
#[derive(Clone, Debug, Default)]
pub struct ResponseStatus {
    /// `Success` or `Failure`; empty if the response is not a Status.
    pub status: &'static str,
    /// The human-readable message.
    pub message: String,
    /// The machine-readable reason, such as `Forbidden`.
    pub reason: &'static str,
    /// The Status's `details`, as JSON.
    pub details: Option<Box<RawValue>>,
    /// The HTTP status code.
    pub code: u16,
}

impl ResponseStatus {
    /// The result of a response that is not a Status.
    #[must_use]
    pub fn of_code(code: u16) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// The result of a request that failed.
    #[must_use]
    pub fn failure(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            status: "Failure",
            message,
            reason,
            code,
            ..Self::default()
        }
    }

    /// The result if the client disconnected before the response began.
    #[must_use]
    pub fn closed_early() -> Self {
        Self {
            status: "Success",
            message: "Connection closed early".to_owned(),
            code: 200,
            ..Self::default()
        }
    }

    /// The result if the code that answered the request panicked.
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

/// The authorizer's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDecision {
    /// Allowed, with the authorizer's reason, which may be empty.
    Allow(String),
    /// Denied, with the authorizer's reason.
    Forbid(String),
    /// The authorizer failed. The event then has a reason and no decision, as in the API server.
    Error,
}

/// The fields of one audit event.
#[derive(Clone, Copy, Debug)]
pub struct AuditEvent<'a> {
    /// The request's audit id (`Audit-ID` header).
    pub audit_id: &'a str,
    /// The stage that this event records.
    pub stage: AuditStage,
    /// Path and query as they were sent.
    pub uri: &'a str,
    /// The verb as authorization names it.
    pub verb: &'a str,
    /// The authenticated user, if any.
    pub user: Option<&'a User>,
    /// The user that the request impersonates, if any.
    pub impersonated_user: Option<&'a User>,
    /// The client's addresses, from headers and from the connection.
    pub source_ips: &'a [IpAddr],
    /// The `User-Agent` header, truncated if it is long.
    pub user_agent: &'a str,
    /// The resource or object that the request is about, if it is about one.
    pub object: Option<&'a ObjectReference>,
    /// The result, once it is known.
    pub response: Option<&'a ResponseStatus>,
    /// When the request was received.
    pub received_at: Timestamp,
    /// When the request reached this stage.
    pub stage_at: Timestamp,
    /// The authorizer's decision, once it is known.
    pub decision: Option<&'a AuditDecision>,
}

impl AuditEvent<'_> {
    /// One line of JSON, newline included.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(1024);
        // Cannot fail: strings, numbers and lists always serialize, and writes to a vector succeed.
        let _ = serde_json::to_writer(&mut line, &self.fields());
        line.push(b'\n');
        line
    }

    fn fields(&self) -> EventFields<'_> {
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

/// The event as serde writes it. The order of the fields is the API server's.
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

/// A timestamp with microseconds, as Kubernetes' `MicroTime` is written.
struct MicroTime(Timestamp);

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"))
    }
}

#[cfg(test)]
mod tests;
