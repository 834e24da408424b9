//! Lines of audit logs as clouds keep them: an event of kube-apiserver inside something else, or its parts under other names.

use serde::Deserialize;
use serde_json::{Value, json};

use super::audit_entry::{AuditedRead, InvalidEntry, entry};

/// What clouds make of an event. The first form that a line has is taken.
#[derive(Deserialize)]
#[serde(untagged)]
enum CloudEntry {
    /// Azure's category `kube-audit`: the event is a text.
    Azure { properties: AzureProperties },
    /// An event of AWS CloudWatch in JSON: the same.
    CloudWatch { message: String },
    /// Google's Cloud Logging.
    #[serde(rename_all = "camelCase")]
    Google {
        proto_payload: GooglePayload,
        timestamp: String,
        operation: GoogleOperation,
    },
}

#[derive(Deserialize)]
struct AzureProperties {
    log: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GooglePayload {
    /// For example `io.k8s.apps.v1.deployments.list`.
    method_name: String,
    /// For example `apps/v1/namespaces/a/deployments`; the group of Kubernetes itself is `core`.
    resource_name: String,
    #[serde(default)]
    authentication_info: Value,
    #[serde(default)]
    request_metadata: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct GoogleOperation {
    id: String,
    #[serde(default)]
    last: bool,
}

/// As [`entry`], of a line of a cloud's log as well. An export of CloudWatch has a time before each event.
pub(super) fn cloud_entry(line: &[u8]) -> Result<(f64, Option<AuditedRead>), InvalidEntry> {
    let is_dated = line.first().is_some_and(u8::is_ascii_digit);
    let begin = line.iter().position(|sign| is_dated && *sign == b'{');
    let line = &line[begin.unwrap_or_default()..];
    let plain = entry(line);
    // Most lines are plain ones, so that others are read twice.
    let Err(InvalidEntry::Json(_)) = plain else {
        return plain;
    };
    match serde_json::from_slice(line) {
        Ok(CloudEntry::Azure { properties }) => entry(properties.log.as_bytes()),
        Ok(CloudEntry::CloudWatch { message }) => entry(message.as_bytes()),
        Ok(CloudEntry::Google {
            proto_payload,
            timestamp,
            operation,
        }) => entry(&of_google(&proto_payload, &timestamp, &operation)),
        Err(_) => plain,
    }
}

/// The event of which Google has made this. It leaves out the query, so selectors and versions are not known, and the credential.
fn of_google(payload: &GooglePayload, time: &str, operation: &GoogleOperation) -> Vec<u8> {
    let mut parts = payload.resource_name.split('/');
    let group = parts.next().filter(|group| *group != "core");
    let mut place: Vec<&str> = parts.skip(1).collect();
    let mut namespace = None;
    if place.len() > 2 && place[0] == "namespaces" {
        namespace = Some(place[1]);
        place.drain(..2);
    }
    let part = |number: usize| place.get(number).copied().unwrap_or_default();
    let verb = payload.method_name.rsplit('.').next();
    let event = json!({
        "auditID": operation.id,
        "stage": if operation.last { "ResponseComplete" } else { "ResponseStarted" },
        "verb": verb.unwrap_or_default(),
        "requestURI": payload.resource_name,
        "user": {"username": payload.authentication_info["principalEmail"].as_str().unwrap_or_default()},
        "userAgent": payload.request_metadata["callerSuppliedUserAgent"],
        "sourceIPs": payload.request_metadata["callerIp"].as_str().as_slice(),
        "objectRef": {
            "apiGroup": group.unwrap_or_default(),
            "namespace": namespace.unwrap_or_default(),
            "resource": part(0),
            "name": part(1),
            "subresource": part(2),
        },
        // A code of gRPC, not of HTTP.
        "responseStatus": {"code": if payload.status["code"].as_u64().unwrap_or(0) == 0 { 200 } else { 500 }},
        "requestReceivedTimestamp": time,
        "stageTimestamp": time,
    });
    event.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
