//! The `Status` object of a refused request or an ERROR event. Does not decide what to do about it.

use serde::Deserialize;

/// Longest piece of an unreadable body that is kept as a message.
const MESSAGE_LEN_MAX: usize = 256;

/// What upstream says about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// HTTP code, as in `code`; 500 where the bytes are no Status.
    pub code: u16,
    /// Machine-readable reason, such as `Expired`; may be empty.
    pub reason: String,
    /// For people.
    pub message: String,
    /// How long upstream asks to wait.
    pub retry_after_seconds: Option<u32>,
    /// Whether upstream has not reached the version it was asked for (cause `ResourceVersionTooLarge`).
    pub version_too_large: bool,
}

impl UpstreamStatus {
    /// A status without words, for a response whose body says nothing.
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

    /// Puts the HTTP response's own code and `Retry-After` over what the body said.
    #[must_use]
    pub fn over_http(mut self, code: u16, retry_after_seconds: Option<u32>) -> Self {
        self.code = code;
        self.retry_after_seconds = retry_after_seconds.or(self.retry_after_seconds);
        self
    }

    /// Whether the history asked for is gone: 410, reason `Expired` or `Gone`.
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

/// Reads a `Status`. Bytes that are none become an internal error with their beginning as message, as client-go does.
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
            // Servers before 1.18 give no cause.
            || message.contains("Too large resource version"),
        message,
    }
}
