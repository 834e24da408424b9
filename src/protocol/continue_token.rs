//! Continue tokens in kube-apiserver's own format, so that a token is valid at every replica of the gateway and upstream.

use serde::Serialize;

use super::status::{Status, go_json};
use crate::resource::ResourceVersion;

mod base64;
mod fields;
mod syntax;

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

#[derive(Serialize)]
struct TokenFields<'a> {
    v: &'static str,
    rv: i64,
    start: &'a str,
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

    /// The token that continues at the same key but at the latest version, for [`Status::expired_continue`].
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
        let rv = match self.at {
            // etcd's revisions are signed, so no version is above the maximum.
            TokenVersion::Exact(version) => i64::try_from(version.0).unwrap_or(i64::MAX),
            TokenVersion::Latest => -1,
        };
        let start = format!("/{}", self.start);
        base64::encode(&go_json(&TokenFields {
            v: LAYOUT,
            rv,
            start: &start,
        }))
    }

    /// Parses a token of any replica or of upstream.
    ///
    /// # Errors
    /// 400 with the API server's message; the text after the common prefix says what is wrong.
    pub fn decode(token: &str) -> Result<Self, Status> {
        decode(token).map_err(|fault| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {fault}"
            ))
        })
    }
}

fn decode(token: &str) -> Result<ContinueToken, String> {
    let bytes = base64::decode(token.as_bytes())
        .map_err(|at| format!("illegal base64 data at input byte {at}"))?;
    let fields = fields::Fields::read(&bytes)?;
    if fields.v != LAYOUT {
        return Err(format!(
            "server does not recognize this encoded version {}",
            fields.v
        ));
    }
    let at = match fields.rv {
        0 => {
            return Err(format!(
                "incorrect encoded start resourceVersion (version {LAYOUT})"
            ));
        }
        rv => u64::try_from(rv).map_or(TokenVersion::Latest, |rv| {
            TokenVersion::Exact(ResourceVersion(rv))
        }),
    };
    if fields.start.is_empty() {
        return Err(format!("encoded start key empty (version {LAYOUT})"));
    }
    let start = fields.start.strip_prefix('/').unwrap_or(&fields.start);
    if !is_clean(start) {
        return Err(fields.start);
    }
    Ok(ContinueToken {
        at,
        start: start.to_owned(),
    })
}

/// Whether a key has no `.`, `..` or empty parts, which could lead out of the range.
fn is_clean(path: &str) -> bool {
    path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests;
