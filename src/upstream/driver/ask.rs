//! The requests that a driver sends: paths and queries. Pure.

use crate::resource::{Gvr, ResourceVersion};
use crate::upstream::reflector::ListVersion;

/// Shortest and longest watch, as client-go asks for; random between, so that watches don't end together.
const TIMEOUT_SECONDS_MIN: u64 = 300;
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// A server must end a watch by then; one that has not is gone.
pub(super) const WATCH_LASTS_AT_MOST: std::time::Duration =
    std::time::Duration::from_secs(TIMEOUT_SECONDS_MAX + 60);

fn timeout_seconds() -> u64 {
    TIMEOUT_SECONDS_MIN + crate::resource::random() % (TIMEOUT_SECONDS_MAX - TIMEOUT_SECONDS_MIN)
}

pub(super) fn watch(gvr: &Gvr, after: ResourceVersion) -> String {
    let (path, timeout) = (gvr.collection_path(), timeout_seconds());
    format!(
        "{path}?allowWatchBookmarks=true&resourceVersion={after}&timeoutSeconds={timeout}&watch=true"
    )
}

pub(super) fn watch_list(gvr: &Gvr, version: ListVersion) -> String {
    let (path, timeout) = (gvr.collection_path(), timeout_seconds());
    let version = match version {
        ListVersion::Any => "&resourceVersion=0".to_owned(),
        ListVersion::Latest => String::new(),
        ListVersion::AtLeast(version) => format!("&resourceVersion={version}"),
    };
    format!(
        "{path}?allowWatchBookmarks=true{version}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds={timeout}&watch=true"
    )
}

pub(super) fn list(
    gvr: &Gvr,
    version: ListVersion,
    continue_token: Option<&str>,
    limit: Option<u32>,
) -> String {
    let mut query = Vec::new();
    match (continue_token, version) {
        // Tokens are base64url: nothing in them needs escaping.
        (Some(token), _) => query.push(format!("continue={token}")),
        (None, ListVersion::Any) => query.push("resourceVersion=0".to_owned()),
        (None, ListVersion::Latest) => {}
        (None, ListVersion::AtLeast(version)) => query.push(format!(
            "resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        )),
    }
    query.extend(limit.map(|limit| format!("limit={limit}")));
    format!("{}?{}", gvr.collection_path(), query.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_the_reflector_wants() {
        let pods = Gvr::new("", "v1", "pods");
        let seven = ResourceVersion(7);
        assert_eq!(
            list(&pods, ListVersion::Latest, None, Some(500)),
            "/api/v1/pods?limit=500"
        );
        assert_eq!(
            list(&pods, ListVersion::Any, Some("abc"), Some(500)),
            "/api/v1/pods?continue=abc&limit=500"
        );
        assert_eq!(
            list(&pods, ListVersion::AtLeast(seven), None, None),
            "/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan"
        );
        assert!(watch(&pods, seven).contains("allowWatchBookmarks=true&resourceVersion=7&"));
        let streamed = watch_list(&Gvr::new("apps", "v1", "deployments"), ListVersion::Latest);
        assert!(
            streamed.starts_with("/apis/apps/v1/deployments?"),
            "{streamed}"
        );
        assert!(
            streamed.contains("&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&"),
            "{streamed}"
        );
        assert!(!streamed.contains("resourceVersion="), "{streamed}");
    }
}
