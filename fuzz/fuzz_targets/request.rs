//! No URL makes the way from path and query to a plan panic.
#![no_main]

use http::{Method, Uri};
use kube_fanout::downstream::request::{
    ListOptions, Query, Read, Target, authorized_name, verb, wants_pretty,
};
use kube_fanout::resource::{Gvr, Layout, ResourceKind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|uri: &str| {
    let Ok(uri) = uri.parse::<Uri>() else {
        return;
    };
    let query = Query::parse(uri.query());
    let _ = wants_pretty(&query, None);
    let Ok(Target::Resource(path)) = Target::parse(&uri) else {
        return;
    };
    let verb = verb(&Method::GET, &path, &query);
    let _ = authorized_name(&path, verb, &query);
    let Ok(options) = ListOptions::from_query(&query) else {
        return;
    };
    for namespaced in [true, false] {
        let kind = ResourceKind {
            gvr: Gvr::new("", "v1", "pods"),
            kind: "Pod".into(),
            list_kind: "PodList".into(),
            namespaced,
            layout: Layout::Typed,
        };
        let _ = Read::decide(&path, &options, &kind);
    }
});
