//! Discovery documents as a 1.36 server sends them, shortened.

use super::documents::{DiscoveryResponse, read};
use super::*;

const AGGREGATED: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
 {"metadata":{},"versions":[{"version":"v1","resources":[
   {"resource":"nodes","responseKind":{"group":"","version":"","kind":"Node"},"scope":"Cluster","singularResource":"node","verbs":["create","get","list","watch"]},
   {"resource":"bindings","responseKind":{"group":"","version":"","kind":"Binding"},"scope":"Namespaced","singularResource":"","verbs":["create"]}],"freshness":"Current"}]},
 {"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[
   {"resource":"daemonsets","responseKind":{"group":"","version":"","kind":"DaemonSet"},"scope":"Namespaced","singularResource":"daemonset","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["ds"],"subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"DaemonSet"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}]},
 {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale"}]}]}"#;

const GROUPS: &str = r#"{"kind":"APIGroupList","groups":[
 {"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"},"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:17443"}]},
 {"name":"example.com","versions":[{"groupVersion":"example.com/v2","version":"v2"},{"groupVersion":"example.com/v1","version":"v1"}]}]}"#;

const RESOURCES: &str = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[
 {"name":"daemonsets","singularName":"daemonset","namespaced":true,"kind":"DaemonSet","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["ds"],"storageVersionHash":"dd7pWHUlMKQ="},
 {"name":"daemonsets/status","singularName":"","namespaced":true,"kind":"DaemonSet","verbs":["get","patch","update"]}]}"#;

fn resource(gvr: Gvr, kind: &str, namespaced: bool, cached: bool) -> DiscoveredResource {
    DiscoveredResource {
        gvr,
        kind: kind.to_owned(),
        namespaced,
        list: cached,
        watch: cached,
    }
}

fn daemonsets() -> DiscoveredResource {
    resource(
        Gvr::new("apps", "v1", "daemonsets"),
        "DaemonSet",
        true,
        true,
    )
}

#[test]
fn the_aggregated_document_names_resources_and_sets_stale_groups_apart() {
    let DiscoveryResponse::Aggregated { found, stale } = read(AGGREGATED.as_bytes()).unwrap()
    else {
        panic!("not read as aggregated");
    };
    let core = |name| Gvr::new("", "v1", name);
    let expected = [
        resource(core("nodes"), "Node", false, true),
        resource(core("bindings"), "Binding", true, false),
        daemonsets(),
    ];
    assert_eq!(found, expected);
    let paths: Vec<_> = stale.iter().map(GroupVersionEntry::path).collect();
    assert_eq!(paths, ["/apis/metrics.k8s.io/v1beta1"]);
}

#[track_caller]
fn check_paths(document: &str, expected: &[&str]) {
    let DiscoveryResponse::Groups(entries) = read(document.as_bytes()).unwrap() else {
        panic!("not read as groups");
    };
    let paths: Vec<_> = entries.iter().map(GroupVersionEntry::path).collect();
    assert_eq!(paths, expected);
}

#[test]
fn plain_documents_say_where_to_ask_next() {
    check_paths(
        GROUPS,
        &[
            "/apis/apps/v1",
            "/apis/example.com/v2",
            "/apis/example.com/v1",
        ],
    );
    check_paths(r#"{"kind":"APIVersions","versions":["v1"]}"#, &["/api/v1"]);
    check_paths(r#"{"kind":"APIGroupList","groups":null}"#, &[]);
}

#[test]
fn a_plain_resource_list_leaves_out_subresources() {
    let answer = read(RESOURCES.as_bytes()).unwrap();
    assert_eq!(answer, DiscoveryResponse::Resources(vec![daemonsets()]));
}

#[test]
fn documents_of_other_kinds_are_refused() {
    for document in [
        r#"{"kind":"Status","code":403}"#,
        "{}",
        "404 page not found\n",
        "",
    ] {
        assert!(read(document.as_bytes()).is_err(), "{document:?}");
    }
}
