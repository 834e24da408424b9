//! Reads the `Status` object of an error response or an ERROR event. Does not decide how to react to it.

use serde::Deserialize;

/// Longest part of an unreadable body that is kept as the message, bytes.
const MESSAGE_LEN_MAX: usize = 256;

/// An error as upstream describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// HTTP status code; 500 if the bytes are not a Status.
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
    code: u16,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    details: Option<WireDetails>,
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
    let Ok(wire) = serde_json::from_slice::<StatusJson>(bytes) else {
        let head = &bytes[..bytes.len().min(MESSAGE_LEN_MAX)];
        return UpstreamStatus {
            reason: "InternalError".to_owned(),
            message: String::from_utf8_lossy(head).into_owned(),
            ..UpstreamStatus::of_code(500)
        };
    };
    let details = wire.details.unwrap_or_default();
    let message = wire.message.unwrap_or_default();
    let caused = |cause: &WireCause| cause.reason.as_deref() == Some("ResourceVersionTooLarge");
    UpstreamStatus {
        code: wire.code,
        reason: wire.reason.unwrap_or_default(),
        retry_after_seconds: details.retry_after_seconds.filter(|&seconds| seconds > 0),
        version_too_large: details.causes.iter().flatten().any(caused)
            // Servers before 1.18 send no cause.
            || message.contains("Too large resource version"),
        message,
    }
}
