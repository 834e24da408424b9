//! Answers to reviews that no API server gives, with the code of success.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::apiserver::reviews::Review;

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Nonsense {
    /// It is empty.
    Empty,
    /// It is no JSON.
    NotJson,
    /// It is the first half of the right one.
    Truncated,
    /// It is the right one with another `kind`.
    WrongKind,
    /// It has no `status`.
    NoStatus,
    /// Its `status` is a text.
    StatusText,
    /// Its booleans are texts.
    Text,
    /// It says both yes and no.
    Contradiction,
    /// The user has an empty name.
    NoName,
    /// It is too long.
    Oversized {
        /// Length in bytes, without the closing brackets.
        len: usize,
    },
    /// Its `status` is nested.
    Deep {
        /// Number of arrays.
        depth: usize,
    },
}

impl Nonsense {
    /// The body in place of the right one.
    pub(in crate::apiserver) fn instead_of(self, right: &Bytes, review: Review) -> Bytes {
        let kind = review.kind();
        let mut object = json!({"kind": kind.kind, "apiVersion": kind.api_version()});
        match self {
            Self::Empty => return Bytes::new(),
            Self::NotJson => return Bytes::from_static(b"<html>certainly</html>"),
            Self::Truncated => return right.slice(..right.len() / 2),
            Self::WrongKind => {
                object = serde_json::from_slice::<Value>(right).unwrap_or_default();
                object["kind"] = "Pod".into();
            }
            Self::NoStatus => {}
            Self::StatusText => object["status"] = "allowed".into(),
            Self::Text => {
                object["status"] = json!({
                    "allowed": "true", "authenticated": "true", "user": {"username": "root"},
                    "userInfo": "root",
                });
            }
            Self::Contradiction => {
                object["status"] = json!({
                    "allowed": true, "denied": true, "authenticated": true, "error": "no such token",
                    "user": {"username": "root"}, "userInfo": {},
                });
            }
            Self::NoName => {
                let user = json!({"username": "", "groups": ["system:masters"]});
                let info = json!({"groups": ["system:masters"]});
                object["status"] = json!({"authenticated": true, "user": user, "userInfo": info});
            }
            Self::Oversized { len } => {
                let mut body = br#"{"status":{"allowed":true,"reason":""#.to_vec();
                body.resize(len.max(body.len()), b'x');
                body.extend_from_slice(b"\"}}");
                return body.into();
            }
            Self::Deep { depth } => {
                let (open, close) = ("[".repeat(depth), "]".repeat(depth));
                return format!(r#"{{"status":{open}{close}}}"#).into();
            }
        }
        object.to_string().into()
    }
}
