//! Paths and queries of a driver's requests. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::reflector::ListVersion;
use crate::resource::{Gvr, ResourceVersion};

/// Shortest and longest `timeoutSeconds` of a watch, as in client-go. The value is random, so that watches do not end at
/// the same time.
const TIMEOUT_SECONDS_MIN: u64 = 300;
const TIMEOUT_SECONDS_MAX: u64 = 600;
/// A server ends a watch at its timeout. A watch that has not ended by then is considered dead.
pub(super) const WATCH_DURATION_MAX: std::time::Duration =
    std::time::Duration::from_secs(TIMEOUT_SECONDS_MAX + 60);

/// What is listed and watched: a resource, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection {
    /// The resource.
    pub gvr: Gvr,
    /// One namespace; `None` for all and for cluster-scoped resources.
    pub namespace: Option<String>,
    /// `labelSelector`; empty for none.
    pub label_selector: String,
    /// `fieldSelector`; empty for none.
    pub field_selector: String,
}

impl Collection {
    /// All objects of a resource.
    #[must_use]
    pub fn all(gvr: &Gvr) -> Self {
        Self {
            gvr: gvr.clone(),
            namespace: None,
            label_selector: String::new(),
            field_selector: String::new(),
        }
    }

    fn path(&self) -> String {
        let path = self.gvr.collection_path();
        match (&self.namespace, path.rsplit_once('/')) {
            (Some(namespace), Some((head, resource))) => {
                format!("{head}/namespaces/{}/{resource}", escaped(namespace))
            }
            _ => path,
        }
    }

    /// Path and query of a request; the selectors come first in the query.
    fn request(&self, query: Vec<String>) -> String {
        let selectors = [
            ("labelSelector", &self.label_selector),
            ("fieldSelector", &self.field_selector),
        ];
        let mut pairs: Vec<String> = selectors
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("{name}={}", escaped(text)))
            .collect();
        pairs.extend(query);
        if pairs.is_empty() {
            return self.path();
        }
        format!("{}?{}", self.path(), pairs.join("&"))
    }
}

/// The bytes that may have a meaning in a path or query (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Percent-encodes every byte that may have a meaning in a path or query.
#[must_use]
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn timeout_seconds() -> u64 {
    TIMEOUT_SECONDS_MIN + crate::resource::random() % (TIMEOUT_SECONDS_MAX - TIMEOUT_SECONDS_MIN)
}

pub(super) fn watch(collection: &Collection, after: ResourceVersion) -> String {
    let timeout = timeout_seconds();
    collection.request(vec![format!(
        "allowWatchBookmarks=true&resourceVersion={after}&timeoutSeconds={timeout}&watch=true"
    )])
}

pub(super) fn watch_list(collection: &Collection, version: ListVersion) -> String {
    let timeout = timeout_seconds();
    let version = match version {
        ListVersion::Any => "&resourceVersion=0".to_owned(),
        ListVersion::Latest => String::new(),
        ListVersion::AtLeast(version) => format!("&resourceVersion={version}"),
    };
    collection.request(vec![format!(
        "allowWatchBookmarks=true{version}&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds={timeout}&watch=true"
    )])
}

pub(super) fn list(
    collection: &Collection,
    version: ListVersion,
    continue_token: Option<&str>,
    limit: Option<u32>,
) -> String {
    let mut query = Vec::new();
    match (continue_token, version) {
        // Tokens of kube-apiserver are base64url and need no escaping, but those of another server may.
        (Some(token), _) => query.push(format!("continue={}", escaped(token))),
        (None, ListVersion::Any) => query.push("resourceVersion=0".to_owned()),
        (None, ListVersion::Latest) => {}
        (None, ListVersion::AtLeast(version)) => query.push(format!(
            "resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        )),
    }
    query.extend(limit.map(|limit| format!("limit={limit}")));
    collection.request(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_the_reflector_wants() {
        let pods = Collection::all(&Gvr::new("", "v1", "pods"));
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
        assert_eq!(list(&pods, ListVersion::Latest, None, None), "/api/v1/pods");
        assert!(watch(&pods, seven).contains("allowWatchBookmarks=true&resourceVersion=7&"));
        let deployments = Collection::all(&Gvr::new("apps", "v1", "deployments"));
        let streamed = watch_list(&deployments, ListVersion::Latest);
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

    #[test]
    fn a_part_of_a_resource_is_named_by_namespace_and_selectors() {
        let some = Collection {
            namespace: Some("default".into()),
            label_selector: "app in (a,b),!old".into(),
            field_selector: "spec.nodeName=n1".into(),
            ..Collection::all(&Gvr::new("apps", "v1", "deployments"))
        };
        assert_eq!(
            list(&some, ListVersion::Any, None, None),
            "/apis/apps/v1/namespaces/default/deployments\
             ?labelSelector=app%20in%20%28a%2Cb%29%2C%21old&fieldSelector=spec.nodeName%3Dn1&resourceVersion=0"
        );
        assert!(watch(&some, ResourceVersion(7)).contains("%3Dn1&allowWatchBookmarks=true&"));
    }
}
