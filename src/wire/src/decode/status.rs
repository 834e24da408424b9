//! Reads the `Status` object of an error response or an ERROR event. Does not decide how to react to it.

use serde::Deserialize;

/// Codes of errors. Any other one says nothing, so the reason counts.
const CODES: std::ops::RangeInclusive<u64> = 400..=599;
/// Longest part of an unreadable body that is kept as the message, bytes.
const MESSAGE_LEN_MAX: usize = 256;

/// An error as upstream describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// HTTP status code; that of the reason if the Status has none, 500 if the bytes are not a Status.
    pub code: u16,
    /// Machine-readable reason, such as `Expired`; may be empty.
    pub reason: String,
    /// Message for people; may be empty.
    pub message: String,
    /// How long upstream asks clients to wait.
    pub retry_after_seconds: Option<u32>,
    /// Whether upstream has not reached the requested version (cause `ResourceVersionTooLarge`).
    pub version_too_large: bool,
}

impl UpstreamStatus {
    /// A status without reason and message, for a response whose body says nothing.
    #[must_use]
    pub const fn of_code(code: u16) -> Self {
        Self {
            code,
            reason: String::new(),
            message: String::new(),
            retry_after_seconds: None,
            version_too_large: false,
        }
    }

    /// Replaces the body's code by that of the HTTP response, and its retry time by `Retry-After` if that was sent.
    #[must_use]
    pub fn over_http(mut self, code: u16, retry_after_seconds: Option<u32>) -> Self {
        self.code = code;
        self.retry_after_seconds = retry_after_seconds.or(self.retry_after_seconds);
        self
    }

    /// Whether the requested history is gone: 410, or reason `Expired` or `Gone`.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code == 410 || matches!(&*self.reason, "Expired" | "Gone")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusJson {
    #[serde(default)]
    code: serde_json::Value,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    details: serde_json::Value,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireDetails {
    #[serde(default)]
    retry_after_seconds: Option<u32>,
    #[serde(default)]
    causes: Option<Vec<WireCause>>,
}

#[derive(Deserialize)]
struct WireCause {
    #[serde(default)]
    reason: Option<String>,
}

/// Reads a `Status`. Other bytes become an internal error with their beginning as the message, as in client-go.
#[must_use]
pub fn scan_status(bytes: &[u8]) -> UpstreamStatus {
    let wire = serde_json::from_slice::<StatusJson>(bytes).ok();
    let coded =
        wire.and_then(|wire| Some((code_of(wire.code.as_u64(), wire.reason.as_deref())?, wire)));
    let Some((code, wire)) = coded else {
        let head = &bytes[..bytes.len().min(MESSAGE_LEN_MAX)];
        return UpstreamStatus {
            reason: "InternalError".to_owned(),
            message: String::from_utf8_lossy(head).into_owned(),
            ..UpstreamStatus::of_code(500)
        };
    };
    // Details that cannot be read do not hide the code.
    let details = WireDetails::deserialize(wire.details).unwrap_or_default();
    let message = wire.message.unwrap_or_default();
    UpstreamStatus {
        code,
        reason: wire.reason.unwrap_or_default(),
        retry_after_seconds: details.retry_after_seconds.filter(|&seconds| seconds > 0),
        // Servers before 1.18 send no cause.
        version_too_large: message.contains("Too large resource version")
            || details
                .causes
                .iter()
                .flatten()
                .any(|cause| cause.reason.as_deref() == Some("ResourceVersionTooLarge")),
        message,
    }
}

/// The code of a Status, which is that of its reason if it has no code of its own. `None` if it has neither.
pub(super) fn code_of(code: Option<u64>, reason: Option<&str>) -> Option<u16> {
    if let Some(code) = code.filter(|code| CODES.contains(code)) {
        return u16::try_from(code).ok();
    }
    Some(match reason.filter(|reason| !reason.is_empty())? {
        "BadRequest" => 400,
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "NotFound" => 404,
        "MethodNotAllowed" => 405,
        "NotAcceptable" => 406,
        "AlreadyExists" | "Conflict" => 409,
        "Expired" | "Gone" => 410,
        "RequestEntityTooLarge" => 413,
        "UnsupportedMediaType" => 415,
        "Invalid" => 422,
        "TooManyRequests" => 429,
        "ServiceUnavailable" => 503,
        "Timeout" => 504,
        // `InternalError`, `ServerTimeout`, and reasons that nobody knows.
        _ => 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_without_a_code_is_judged_by_its_reason() {
        for (body, code) in [
            (r#"{"kind":"Status","reason":"Expired"}"#, 410),
            (r#"{"kind":"Status","reason":"Gone","code":0}"#, 410),
            (
                r#"{"kind":"Status","reason":"TooManyRequests","code":null}"#,
                429,
            ),
            (r#"{"kind":"Status","reason":"NotFound","code":"404"}"#, 404),
            (r#"{"kind":"Status","reason":"Expired","code":200}"#, 410),
            (r#"{"kind":"Status","reason":"Timeout","code":99999}"#, 504),
            (r#"{"kind":"Status","reason":"InternalError"}"#, 500),
            (r#"{"kind":"Status","reason":"SomethingNew"}"#, 500),
            (r#"{"kind":"Status","code":503}"#, 503),
            (
                r#"{"reason":"Expired","details":{"retryAfterSeconds":-1}}"#,
                410,
            ),
            (r#"{"kind":"Status"}"#, 500),
            ("", 500),
        ] {
            assert_eq!(scan_status(body.as_bytes()).code, code, "{body}");
        }
        let expired = scan_status(br#"{"kind":"Status","reason":"Expired"}"#);
        assert!(expired.is_expired());
    }
}
