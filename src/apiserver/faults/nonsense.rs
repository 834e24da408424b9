//! Answers to reviews that no API server gives, with the code of success.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::apiserver::answer::{ApiBody, whole_body};
use crate::apiserver::render;
use crate::apiserver::reviews::Review;

/// What a review is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Nonsense {
    /// Nothing.
    Empty,
    /// Text.
    NotJson,
    /// The first half of the answer.
    Truncated,
    /// The answer under another kind's name.
    WrongKind,
    /// The answer without its status.
    NoStatus,
    /// A status that is not an object.
    StatusText,
    /// Yes and no as text instead of true and false.
    Text,
    /// Allowed and denied, or authenticated with an error.
    Contradiction,
    /// Authenticated as a user without a name.
    NoName,
    /// So many bytes.
    Oversized {
        /// How many.
        len: usize,
    },
    /// A status of so many arrays in one another.
    Deep {
        /// How many.
        depth: usize,
    },
}

impl Nonsense {
    /// The nonsense that stands in for an answer; a refusal stays as it is.
    pub(in crate::apiserver) async fn instead_of(
        self,
        answer: Response<ApiBody>,
        review: Review,
    ) -> Response<ApiBody> {
        if !answer.status().is_success() {
            return answer;
        }
        let (head, body) = answer.into_parts();
        let whole = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes);
        let body = self.body(&whole.unwrap_or_default(), review);
        whole_body(Response::from_parts(head, body))
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
