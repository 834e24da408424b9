//! A Status in protobuf, byte for byte as the API server writes it: strings and numbers are written even if they are empty.

use bytes::Bytes;

use crate::resource::protobuf::{answer_end, answer_head, frame_around, type_meta};
use crate::resource::wire::{put_bytes, put_integer};

use super::{Status, StatusCause, StatusDetails};

impl Status {
    /// A response body of `application/vnd.kubernetes.protobuf`.
    #[must_use]
    pub fn to_protobuf(&self) -> Bytes {
        let raw = self.message();
        let mut body = answer_head(&type_meta("v1", "Status"), raw.len());
        body.extend_from_slice(&raw);
        body.extend_from_slice(answer_end());
        body.into()
    }

    /// The ERROR event that ends a watch stream with this failure (docs/PROTOCOL.md §4.11).
    #[must_use]
    pub(super) fn error_frame(&self) -> Bytes {
        let (frame, _) = frame_around("ERROR", &type_meta("v1", "Status"), &self.message());
        frame.into()
    }

    fn message(&self) -> Vec<u8> {
        let mut metadata = Vec::new();
        put_bytes(&mut metadata, 1, b"");
        put_bytes(&mut metadata, 2, b"");
        put_bytes(&mut metadata, 3, b"");
        let mut out = Vec::with_capacity(64 + metadata.len() + self.message.len());
        put_bytes(&mut out, 1, &metadata);
        put_bytes(&mut out, 2, b"Failure");
        put_bytes(&mut out, 3, self.message.as_bytes());
        put_bytes(&mut out, 4, self.reason.as_bytes());
        if let Some(details) = &self.details {
            put_bytes(&mut out, 5, &details_message(details));
        }
        put_integer(&mut out, 6, self.code.into());
        out
    }
}

fn details_message(details: &StatusDetails) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, details.name.as_bytes());
    put_bytes(&mut out, 2, details.group.as_bytes());
    put_bytes(&mut out, 3, details.kind.as_bytes());
    for cause in &details.causes {
        put_bytes(&mut out, 4, &cause_message(cause));
    }
    put_integer(&mut out, 5, details.retry_after_seconds.into());
    put_bytes(&mut out, 6, b"");
    out
}

fn cause_message(cause: &StatusCause) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, cause.reason.as_bytes());
    put_bytes(&mut out, 2, cause.message.as_bytes());
    put_bytes(&mut out, 3, b"");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(name: &str) -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captured");
        std::fs::read(format!("{folder}/{name}")).unwrap()
    }

    /// Parses a captured JSON response.
    fn parse_status(json: &[u8]) -> Status {
        let tree: serde_json::Value = serde_json::from_slice(json).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let leaked = |value: &serde_json::Value| &*text(value).leak();
        let details = tree.get("details").map(|details| {
            let causes = details["causes"].as_array().into_iter().flatten();
            Box::new(StatusDetails {
                name: text(&details["name"]),
                group: text(&details["group"]),
                kind: text(&details["kind"]),
                causes: causes
                    .map(|cause| StatusCause {
                        reason: leaked(&cause["reason"]),
                        message: text(&cause["message"]).into(),
                    })
                    .collect(),
                retry_after_seconds: details["retryAfterSeconds"]
                    .as_u64()
                    .map_or(0, |seconds| seconds.try_into().unwrap()),
            })
        });
        let status = Status {
            code: tree["code"].as_u64().unwrap().try_into().unwrap(),
            reason: leaked(&tree["reason"]),
            message: text(&tree["message"]),
            details,
        };
        assert_eq!(
            String::from_utf8_lossy(&status.to_json()),
            String::from_utf8_lossy(json)
        );
        status
    }

    #[test]
    fn bodies_are_those_of_the_server() {
        for name in ["400", "404", "404-group", "404-bare", "410-exact", "504"] {
            let status = parse_status(&captured(&format!("status-{name}.json")));
            let body = captured(&format!("status-{name}.pb"));
            assert_eq!(
                status.to_protobuf().escape_ascii().to_string(),
                body.escape_ascii().to_string(),
                "{name}"
            );
        }
        let message = "only the following media types are accepted: application/json, \
            application/yaml, application/vnd.kubernetes.protobuf";
        let not_acceptable = Status {
            code: 406,
            reason: "NotAcceptable",
            message: message.into(),
            details: None,
        };
        assert_eq!(not_acceptable.to_protobuf(), captured("status-406.pb"));
    }

    #[test]
    fn an_error_frame_is_that_of_the_server() {
        let line = captured("expired.lines");
        let object = line
            .strip_prefix(b"{\"type\":\"ERROR\",\"object\":".as_slice())
            .and_then(|rest| rest.strip_suffix(b"}\n".as_slice()));
        let status = parse_status(&[object.unwrap(), b"\n"].concat());
        assert_eq!(status.error_frame(), captured("expired.frames"));
    }
}
