//! Continue tokens in kube-apiserver's own format, so that a token is valid at every replica of the gateway and upstream.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::status::go_json;
use crate::resource::ResourceVersion;

const LAYOUT: &str = "meta.k8s.io/v1";

/// The position at which a paged list continues (docs/PROTOCOL.md §3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The version at which the list continues.
    pub at: TokenVersion,
    /// First key of the next page, relative to the list's range (`NAMESPACE/NAME\0` or `NAME\0`), without a leading slash. The NUL
    /// sorts it right after the last key returned.
    pub start: String,
}

/// The version at which the next page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVersion {
    /// This version, so that all pages are one snapshot.
    Exact(ResourceVersion),
    /// The latest version: the rest of a list whose version has expired.
    Latest,
}

/// The token's JSON. Go also reads other fields, as these in another case; such a token is upstream's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFields {
    v: String,
    rv: i64,
    start: String,
}

impl ContinueToken {
    /// The token of the page after `last_key`, a key relative to the list's range.
    #[must_use]
    pub fn after(last_key: &str, version: ResourceVersion) -> Self {
        Self {
            at: TokenVersion::Exact(version),
            start: format!("{last_key}\0"),
        }
    }

    /// The token that continues at the same key but at the latest version.
    #[must_use]
    pub fn at_latest(&self) -> Self {
        Self {
            at: TokenVersion::Latest,
            start: self.start.clone(),
        }
    }

    /// The token's text. Its key has the leading slash that kube-apiserver writes when it answers from its cache.
    #[must_use]
    pub fn encode(&self) -> String {
        let fields = TokenFields {
            v: LAYOUT.to_owned(),
            rv: match self.at {
                // etcd's revisions are signed, so no version is above the maximum.
                TokenVersion::Exact(version) => i64::try_from(version.0).unwrap_or(i64::MAX),
                TokenVersion::Latest => -1,
            },
            start: format!("/{}", self.start),
        };
        URL_SAFE_NO_PAD.encode(go_json(&fields))
    }

    /// Parses a token of any replica or of upstream; `None` if it is not certain to be valid, so that upstream must decide.
    #[must_use]
    pub fn decode(token: &str) -> Option<Self> {
        let json = URL_SAFE_NO_PAD.decode(token).ok()?;
        // serde would take the fields from an array, too.
        if !json.starts_with(b"{") {
            return None;
        }
        let fields: TokenFields = serde_json::from_slice(&json).ok()?;
        if fields.v != LAYOUT || fields.rv == 0 || fields.start.is_empty() {
            return None;
        }
        let at = u64::try_from(fields.rv).map_or(TokenVersion::Latest, |rv| {
            TokenVersion::Exact(ResourceVersion(rv))
        });
        let start = fields.start.strip_prefix('/').unwrap_or(&fields.start);
        is_clean(start).then(|| Self {
            at,
            start: start.to_owned(),
        })
    }
}

/// Whether a key has no `.`, `..` or empty parts, which could lead out of the range.
fn is_clean(path: &str) -> bool {
    path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(json: &str) -> Option<ContinueToken> {
        ContinueToken::decode(&URL_SAFE_NO_PAD.encode(json))
    }

    #[test]
    fn tokens_are_byte_equal_to_upstreams() {
        let token = ContinueToken::after("ns1/cm1", ResourceVersion(14));
        let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTQsInN0YXJ0IjoiL25zMS9jbTFcdTAwMDAifQ";
        assert_eq!(token.encode(), text);
        assert_eq!(ContinueToken::decode(text), Some(token));
    }

    #[test]
    fn tokens_of_etcd_served_pages_lack_the_slash() {
        let text = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoicDJcdTAwMDAifQ";
        let token = ContinueToken::after("p2", ResourceVersion(214)).at_latest();
        assert_eq!(ContinueToken::decode(text), Some(token));
    }

    #[test]
    fn tokens_that_upstream_may_read_differently_are_upstreams() {
        let whole = r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a"}"#;
        assert!(decoded(whole).is_some());
        for json in [
            "",
            "{}",
            "null",
            r#"["meta.k8s.io/v1",1,"/a"]"#,
            r#"{"v":"meta.k8s.io/v2","rv":1,"start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1.5,"start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":null,"start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":99999999999999999999,"start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","start":"/a"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a","start":"/b"}"#,
            r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a","RV":2}"#,
            &format!("{whole}x"),
        ] {
            assert_eq!(decoded(json), None, "{json}");
        }
        for token in ["garbage", "a", "YQ==", "YW+", "abcdé", "ab\ncd", "YWJ"] {
            assert_eq!(ContinueToken::decode(token), None, "{token}");
        }
    }

    #[test]
    fn keys_that_could_leave_the_range_are_upstreams() {
        for start in ["../a", "a//b", "a/", "//a", "a/../b", "."] {
            let json = format!(r#"{{"v":"meta.k8s.io/v1","rv":1,"start":"{start}"}}"#);
            assert_eq!(decoded(&json), None, "{start}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_token_comes_back(key in "[a-z0-9.-]{0,3}[a-z]/[a-z<&\"é]{1,5}", rv in 1..u64::MAX / 2) {
            let token = ContinueToken::after(&key, ResourceVersion(rv));
            proptest::prop_assert_eq!(ContinueToken::decode(&token.encode()), Some(token));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64), text in "[-_a-zA-Z0-9=+\n]{0,20}") {
            let _ = ContinueToken::decode(&URL_SAFE_NO_PAD.encode(&bytes));
            let _ = ContinueToken::decode(&text);
        }
    }
}
