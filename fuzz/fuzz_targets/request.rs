//! A request line of method and URL: nothing panics up to the plan, and the spelling of a URL does not change decisions that it must not
//! change.
#![no_main]

use http::{Method, Uri};
use kube_fanout::protocol::request::{
    CacheRead, ListOptions, PathForm, Query, RequestTarget, ResourcePath, Spelling, Verb,
    authorized_name, verb, wants_pretty,
};
use kube_fanout::resource::{Encoding, Layout, ResourceKind};
use libfuzzer_sys::fuzz_target;

const PARAMETERS: [&str; 12] = [
    "labelSelector",
    "fieldSelector",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "resourceVersion",
    "resourceVersionMatch",
    "limit",
    "continue",
    "timeoutSeconds",
    "shardSelector",
    "pretty",
];

fuzz_target!(|line: &str| {
    let (method, uri) = line.split_once(' ').unwrap_or(("GET", line));
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), uri.parse::<Uri>()) else {
        return;
    };
    let query = Query::parse(uri.query());
    let _ = wants_pretty(&query, None);
    let options = ListOptions::from_query(&query);
    let rewritten = rewritten(&query);
    let again = Query::parse(Some(&rewritten));
    assert_eq!(ListOptions::from_query(&again), options, "{rewritten}");
    let RequestTarget::Resource(path) = RequestTarget::parse(&uri) else {
        return;
    };
    // Upstream decides how to interpret a proxied path.
    if path.spelling == Spelling::Clean && path.form != PathForm::ProxyPrefix {
        assert_eq!(spelled(&path), uri.path());
    }
    let verb = verb(&method, &path, &query);
    let name = authorized_name(&path, verb, &query);
    assert_eq!(authorized_name(&path, verb, &again), name);
    let Some(options) = options else {
        return;
    };
    for namespaced in [true, false] {
        let kind = ResourceKind {
            gvr: path.gvr.clone(),
            kind: "Thing".into(),
            list_kind: "ThingList".into(),
            namespaced,
            layout: Layout::Typed,
            encoding: Encoding::Json,
            warnings: Vec::new(),
        };
        let Some(read) = CacheRead::decide(&path, &options, &kind) else {
            continue;
        };
        assert_eq!(path.spelling, Spelling::Clean);
        assert!(method != Method::GET || matches!(verb, Verb::List | Verb::Watch));
        // A caller that may read one name receives nothing but that name.
        if method == Method::GET && name.is_some() {
            assert_eq!(read.selector.fields.pinned_name(), name.as_deref());
        }
        if namespaced {
            assert_eq!(read.selector.namespace, path.namespace);
        }
    }
});

/// The parameters that are read, with every byte of their values escaped.
fn rewritten(query: &Query) -> String {
    let mut rewritten = String::new();
    for name in PARAMETERS {
        if let Some(value) = query.first(name) {
            let value: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
            rewritten.push_str(&format!("&{name}={value}"));
        }
    }
    rewritten
}

/// The canonical spelling of a path.
fn spelled(path: &ResourcePath) -> String {
    let gvr = &path.gvr;
    let mut text = if gvr.group.is_empty() {
        format!("/api/{}", gvr.version)
    } else {
        format!("/apis/{}/{}", gvr.group, gvr.version)
    };
    if path.form == PathForm::WatchPrefix {
        text.push_str("/watch");
    }
    // The path of a single Namespace has no resource below the namespace.
    let is_namespace = &*gvr.resource == "namespaces" && path.namespace == path.name;
    if let Some(namespace) = path.namespace.as_ref().filter(|_| !is_namespace) {
        text.push_str(&format!("/namespaces/{namespace}"));
    }
    text.push_str(&format!("/{}", gvr.resource));
    for part in [&path.name, &path.subresource].into_iter().flatten() {
        text.push_str(&format!("/{part}"));
    }
    text
}
