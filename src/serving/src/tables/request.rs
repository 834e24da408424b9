//! Which watches of Tables can share an upstream watch, and the request of that watch. Pure.

use http::header::{ACCEPT, UPGRADE};
use http::{HeaderValue, Method, Request, Uri};

use crate::fairness::Peer;
use crate::protocol::request::{
    Bookmarks, CacheRead, ListOptions, PathForm, Query, ReadPlan, RequestInfo, WatchStart,
    WatchTimeout,
};
use crate::resource::{Encoding, Gvr, Layout, ResourceKind, ResourceVersion};
use crate::upstream::driver::escaped;
use crate::view::MetaVersion;

/// The parameters that kubectl and similar clients send. A watch with any other parameter is forwarded.
const KNOWN: [&str; 7] = [
    "allowWatchBookmarks",
    "fieldSelector",
    "includeObject",
    "labelSelector",
    "resourceVersion",
    "timeoutSeconds",
    "watch",
];

/// What two watches must have in common to share an upstream watch, and two lists to have the same rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The resource whose objects are the rows.
    pub gvr: Gvr,
    /// Path and selectors are compared as the clients wrote them.
    pub(super) path: String,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) include_object: &'static str,
    pub(super) version: MetaVersion,
}

/// One client's watch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableWatchRequest {
    /// Requests with equal keys share a stream.
    pub key: Key,
    /// The client knows everything up to this version.
    pub after: ResourceVersion,
    /// When the watch ends.
    pub timeout: WatchTimeout,
    /// The client whose share pays for a stream that is started for it.
    pub peer: Peer,
}

/// The resource of a request that may be a list or a watch of Tables; a cheap check that needs no discovery.
pub fn candidate<B>(request: &Request<B>, info: &RequestInfo) -> Option<Gvr> {
    let wants_table =
        |accept: &HeaderValue| memchr::memmem::find(accept.as_bytes(), b"as=Table").is_some();
    let path = info.resource()?;
    let fits =
        request.method() == Method::GET && request.headers().get(ACCEPT).is_some_and(wants_table);
    fits.then(|| path.gvr.clone())
}

impl TableWatchRequest {
    /// The same request, of this client.
    pub fn of_peer(self, peer: Peer) -> Self {
        Self { peer, ..self }
    }

    /// Reads a request; `None` if it must be forwarded: initial events, bookmarks, unusual parameters, upgrades, invalid requests.
    pub fn of<B>(request: &Request<B>, info: &RequestInfo, namespaced: bool) -> Option<Self> {
        if request.headers().contains_key(UPGRADE) {
            return None;
        }
        let (path, query) = (info.resource()?, &info.query);
        let mut names: Vec<&str> = query.names().collect();
        names.sort_unstable();
        let twice = names.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || !names.iter().all(|name| KNOWN.contains(name)) || path.form != PathForm::Plain {
            return None;
        }
        let version = info.accept.wanted_table()?;
        let options = ListOptions::from_query(query)?;
        let ReadPlan::Watch(plan) =
            CacheRead::decide(path, &options, &kind_of(&path.gvr, namespaced))?.plan
        else {
            return None;
        };
        let WatchStart::After(after) = plan.start else {
            return None;
        };
        // The shared watch's bookmarks come at other times than those of a watch of its own.
        if plan.timeout == WatchTimeout::Ended || plan.bookmarks == Bookmarks::On {
            return None;
        }
        Some(Self {
            key: Key {
                gvr: path.gvr.clone(),
                path: request.uri().path().to_owned(),
                label_selector: options.label_selector,
                field_selector: options.field_selector,
                include_object: include_object(query)?,
                version,
            },
            after,
            timeout: plan.timeout,
            peer: Peer::UNKNOWN,
        })
    }
}

impl Key {
    /// The URI of the upstream watch after version `after`. It allows bookmarks, so that a quiet watch can be resumed. Upstream chooses
    /// its duration.
    pub(super) fn uri(&self, after: ResourceVersion) -> Option<Uri> {
        let mut text = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={after}&includeObject={}",
            self.path, self.include_object
        );
        self.push_selectors(&mut text);
        text.parse().ok()
    }

    /// Appends the selectors to a query.
    pub(super) fn push_selectors(&self, query: &mut String) {
        for (name, selector) in [
            ("labelSelector", &self.label_selector),
            ("fieldSelector", &self.field_selector),
        ] {
            if !selector.is_empty() {
                query.push_str(&format!("&{name}={}", escaped(selector)));
            }
        }
    }

    /// The Accept header of the upstream watch: the one Table format of this key.
    pub(super) fn accept(&self) -> HeaderValue {
        HeaderValue::from_static(match self.version {
            MetaVersion::V1 => "application/json;as=Table;v=v1;g=meta.k8s.io",
            MetaVersion::V1Beta1 => "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        })
    }
}

/// The parts of the kind that option validation reads.
fn kind_of(gvr: &Gvr, namespaced: bool) -> ResourceKind {
    ResourceKind {
        gvr: gvr.clone(),
        kind: String::new(),
        list_kind: String::new(),
        namespaced,
        layout: Layout::Typed,
        encoding: Encoding::Json,
        warnings: Vec::new(),
    }
}

/// `None` for values that upstream refuses.
pub(super) fn include_object(query: &Query) -> Option<&'static str> {
    match query.first("includeObject").unwrap_or_default() {
        "" | "Metadata" => Some("Metadata"),
        "Object" => Some("Object"),
        "None" => Some("None"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

    fn parse(query: &str, headers: &[(&'static str, &str)]) -> Option<TableWatchRequest> {
        let mut request = Request::get(format!("/api/v1/namespaces/a/pods?{query}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        TableWatchRequest::of(&request, &RequestInfo::of(&request), true)
    }

    #[test]
    fn a_watch_as_kubectl_sends_it_is_shared() {
        let accept = [("accept", KUBECTL)];
        let request = parse(
            "labelSelector=a%3Db%2Cc&resourceVersion=4&watch=true",
            &accept,
        )
        .unwrap();
        assert_eq!(request.after, ResourceVersion(4));
        assert_eq!(
            request.key.uri(ResourceVersion(9)).unwrap().to_string(),
            "/api/v1/namespaces/a/pods?watch=true&allowWatchBookmarks=true&resourceVersion=9&includeObject=Metadata&labelSelector=a%3Db%2Cc"
        );
        assert_eq!(
            request.key.accept(),
            "application/json;as=Table;v=v1;g=meta.k8s.io"
        );
    }

    #[track_caller]
    fn check_same(left: &str, right: &str, expected: bool) {
        let accept = [("accept", KUBECTL)];
        let (left, right) = (
            parse(left, &accept).unwrap(),
            parse(right, &accept).unwrap(),
        );
        assert_eq!(left.key == right.key, expected);
    }

    #[test]
    fn versions_and_timeouts_are_each_clients_own() {
        let plain = "watch=1&resourceVersion=4";
        check_same(plain, "watch=true&resourceVersion=9", true);
        check_same(
            plain,
            "resourceVersion=4&timeoutSeconds=5&allowWatchBookmarks=0&watch=1",
            true,
        );
        check_same(
            plain,
            "watch=1&resourceVersion=4&includeObject=Metadata",
            true,
        );
        check_same(plain, "watch=1&resourceVersion=4&includeObject=None", false);
        check_same(plain, "watch=1&resourceVersion=4&labelSelector=a", false);
        check_same(
            plain,
            "watch=1&resourceVersion=4&fieldSelector=metadata.name=a",
            false,
        );
    }

    #[test]
    fn an_unusual_watch_is_not_shared() {
        let accept = ("accept", KUBECTL);
        for query in [
            "watch=1",
            "watch=1&resourceVersion=0",
            "watch=1&resourceVersion=x",
            "resourceVersion=4",
            "watch=1&resourceVersion=4&limit=1",
            "watch=1&resourceVersion=4&allowWatchBookmarks=1",
            "watch=1&resourceVersion=4&pretty=1",
            "watch=1&resourceVersion=4&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            "watch=1&resourceVersion=4&includeObject=X",
            "watch=1&resourceVersion=4&timeoutSeconds=-1",
            "watch=1&resourceVersion=4&labelSelector=%3D%3D",
            "watch=1&resourceVersion=4&fieldSelector=spec.nope%3D1",
            "watch=1&watch=1&resourceVersion=4",
        ] {
            assert_eq!(parse(query, &[accept]), None, "{query}");
        }
        let query = "watch=1&resourceVersion=4";
        assert_eq!(parse(query, &[("accept", "application/json")]), None);
        assert_eq!(parse(query, &[accept, ("upgrade", "websocket")]), None);
    }
}
