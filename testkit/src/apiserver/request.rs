//! What a method and a path mean: the verb and the object, as authorization and routing see them (docs/PROTOCOL.md §1).

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::query::{ListOptions, Query};
use super::selector::{is_label_selector, pinned_value};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of Kubernetes")]
pub enum Verb {
    List,
    Watch,
    Get,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// `proxy`, or a method that has no verb.
    #[serde(skip)]
    Other,
}

impl Verb {
    /// The verb's name in roles; empty for [`Verb::Other`].
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "",
        }
    }
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Resource(ResourceTarget),
    /// A path that is no resource's.
    Path(String),
}

/// An object or a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceTarget {
    pub(super) verb: Verb,
    /// Whether the path has the deprecated `watch` segment.
    pub(super) is_prefixed: bool,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) subresource: String,
    /// Whether there are segments beyond the subresource.
    pub(super) has_surplus: bool,
}

/// A path that ends where its kind should follow.
#[derive(Debug)]
pub(super) struct UnreadablePath;

impl Target {
    pub(super) fn parse(method: &Method, uri: &Uri, query: &Query) -> Result<Self, UnreadablePath> {
        let path = percent_decode_str(uri.path())
            .decode_utf8_lossy()
            .into_owned();
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(Self::Path(path)),
        };
        let (prefix, rest) = match rest {
            ["watch" | "proxy"] => return Err(UnreadablePath),
            [prefix @ ("watch" | "proxy"), rest @ ..] => (*prefix, rest),
            rest => ("", rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize", ..] => {
                (*namespace, rest)
            }
            ["namespaces", namespace, tail @ ..] => (*namespace, tail),
            rest => ("", rest),
        };
        let part = |index: usize| {
            rest.get(index)
                .map(|part| (*part).to_owned())
                .unwrap_or_default()
        };
        let mut target = ResourceTarget {
            verb: Verb::Other,
            is_prefixed: prefix == "watch",
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            resource: part(0),
            name: part(1),
            subresource: part(2),
            has_surplus: rest.len() > 3,
        };
        target.verb = match prefix {
            "watch" => Verb::Watch,
            "proxy" => Verb::Other,
            _ => verb(method, &target.name, query.flag("watch").unwrap_or(false)),
        };
        Ok(Self::Resource(target))
    }
}

fn verb(method: &Method, name: &str, is_watch: bool) -> Verb {
    match (method.as_str(), name.is_empty()) {
        ("GET" | "HEAD", false) => Verb::Get,
        ("GET" | "HEAD", true) if is_watch => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", false) => Verb::Delete,
        ("DELETE", true) => Verb::DeleteCollection,
        _ => Verb::Other,
    }
}

impl ResourceTarget {
    /// The name for authorization: that of the path, or the one that a field selector pins. As in kube-apiserver, a selector counts only
    /// if all options can be read, and the path has no `watch` segment.
    pub(super) fn authorized_name(&self, query: &Query) -> String {
        let has_selector = matches!(self.verb, Verb::List | Verb::Watch) && !self.is_prefixed;
        if !self.name.is_empty() || !has_selector || !has_readable_options(query) {
            return self.name.clone();
        }
        let name = pinned_value(query.first("fieldSelector"), "metadata.name");
        let name =
            name.filter(|name| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']));
        name.unwrap_or_default()
    }
}

fn has_readable_options(query: &Query) -> bool {
    ListOptions::parse(query).is_ok() && is_label_selector(query.first("labelSelector"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &Method, uri: &str, expected: &str) {
        let uri: Uri = uri.parse().unwrap();
        let found = match Target::parse(method, &uri, &Query::parse(uri.query())) {
            Ok(Target::Resource(target)) => format!(
                "{} {}/{}/{} {}/{}/{}",
                target.verb.as_str(),
                target.group,
                target.version,
                target.resource,
                target.namespace,
                target.name,
                target.subresource
            ),
            Ok(Target::Path(path)) => path,
            Err(UnreadablePath) => "unreadable".to_owned(),
        };
        assert_eq!(found, expected, "{method} {uri}");
    }

    #[test]
    fn methods_and_paths_name_a_verb_and_an_object() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/pods", "list /v1/pods //"),
            (Method::GET, "/api/v1/pods?watch", "watch /v1/pods //"),
            (Method::GET, "/api/v1/pods?watch=False", "list /v1/pods //"),
            (
                Method::GET,
                "/api/v1/watch/namespaces/ns/pods",
                "watch /v1/pods ns//",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns/pods/p?watch=1",
                "get /v1/pods ns/p/",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/ns",
                "get /v1/namespaces ns/ns/",
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/ns/status",
                "update /v1/namespaces ns/ns/status",
            ),
            (
                Method::POST,
                "/apis/apps/v1/namespaces/ns/deployments",
                "create apps/v1/deployments ns//",
            ),
            (
                Method::DELETE,
                "/apis/example.com/v1/gizmos",
                "deletecollection example.com/v1/gizmos //",
            ),
            (Method::GET, "/apis/apps/v1", "/apis/apps/v1"),
            (Method::GET, "/api/v1/watch", "unreadable"),
        ] {
            check(&method, uri, expected);
        }
    }
}
