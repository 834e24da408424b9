//! Responses to reviews that no API server sends, with the status code of success.

use bytes::Bytes;
use http::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::apiserver::render;
use crate::apiserver::review_kinds::Review;

/// The kinds of invalid responses to a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Nonsense {
    /// An empty body.
    Empty,
    /// A body that is not JSON.
    NotJson,
    /// The first half of the valid response.
    Truncated,
    /// The valid response with another `kind`.
    WrongKind,
    /// A review without `status`.
    NoStatus,
    /// A `status` that is a string instead of an object.
    StatusText,
    /// Booleans as strings, such as `"true"`.
    Text,
    /// Both allowed and denied, or authenticated with an error.
    Contradiction,
    /// Authenticated as a user with an empty name.
    NoName,
    /// A response that is too long.
    Oversized {
        /// Length in bytes, without the closing brackets.
        len: usize,
    },
    /// A `status` of nested arrays.
    Deep {
        /// Number of arrays.
        depth: usize,
    },
}

impl Nonsense {
    /// Replaces the body of a successful response; an error stays unchanged.
    pub(in crate::apiserver) fn instead_of(
        self,
        answer: Response<Bytes>,
        review: Review,
    ) -> Response<Bytes> {
        if !answer.status().is_success() {
            return answer;
        }
        answer.map(|body| self.body(&body, review))
    }

    fn body(self, answer: &Bytes, review: Review) -> Bytes {
        let mut object: Value = serde_json::from_slice(answer).unwrap_or_default();
        let (api_version, kind) = review.type_names();
        let with_status = |status: Value| {
            render::json(&json!({"kind": kind, "apiVersion": api_version, "status": status}))
        };
        match self {
            Self::Empty => Bytes::new(),
            Self::NotJson => Bytes::from_static(b"<html>certainly</html>"),
            Self::Truncated => answer.slice(..answer.len() / 2),
            Self::WrongKind => {
                object["kind"] = "Pod".into();
                render::json(&object)
            }
            Self::NoStatus => render::json(&json!({"kind": kind, "apiVersion": api_version})),
            Self::StatusText => with_status(json!("allowed")),
            Self::Text => with_status(json!({
                "allowed": "true", "authenticated": "true", "user": {"username": "root"},
                "userInfo": "root",
            })),
            Self::Contradiction => with_status(json!({
                "allowed": true, "denied": true, "authenticated": true, "error": "no such token",
                "user": {"username": "root"}, "userInfo": {},
            })),
            Self::NoName => with_status(json!({
                "authenticated": true, "user": {"username": "", "groups": ["system:masters"]},
                "userInfo": {"groups": ["system:masters"]},
            })),
            Self::Oversized { len } => {
                let mut body = br#"{"status":{"allowed":true,"reason":""#.to_vec();
                body.resize(len.max(body.len()), b'x');
                body.extend_from_slice(b"\"}}");
                body.into()
            }
            Self::Deep { depth } => {
                let open = "[".repeat(depth);
                let close = "]".repeat(depth);
                format!(r#"{{"status":{open}{close}}}"#).into()
            }
        }
    }
}
