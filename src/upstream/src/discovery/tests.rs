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

#[test]
fn failed_parts_of_discovery_are_kept_and_others_replaced() {
    let found = |names: &[(&str, &str)]| {
        let resources = names.iter();
        let resources = resources.map(|(group, version)| {
            resource(Gvr::new(group, version, "things"), "Thing", true, true)
        });
        resources.collect::<Discovery>()
    };
    let before = found(&[
        ("", "v1"),
        ("a", "v1"),
        ("a", "v10"),
        ("a.b", "v1"),
        ("b", "v1"),
    ]);
    for (failed, now, expected) in [
        (&[][..], &[("", "v1")][..], "things.v1"),
        (&["/api"], &[("b", "v1")], "things.v1 things.v1.b"),
        (
            &["/apis"],
            &[("", "v1")],
            "things.v1 things.v1.a things.v10.a things.v1.a.b things.v1.b",
        ),
        (&["/apis/a/v1"], &[("", "v1")], "things.v1 things.v1.a"),
        (&["/apis/a/v10"], &[("c", "v1")], "things.v10.a things.v1.c"),
    ] {
        let mut discovery = found(now);
        for path in failed {
            let error = AskError::Status(StatusCode::SERVICE_UNAVAILABLE);
            discovery.fail((*path).to_owned(), &error);
        }
        let kept = discovery.keeping(&before);
        let names: Vec<_> = kept.resources().map(|one| one.gvr.to_string()).collect();
        assert_eq!(names.join(" "), expected, "{failed:?}");
        assert_eq!(kept.failed().len(), failed.len());
    }
}

#[test]
fn failed_parts_are_kept_over_several_discoveries() {
    let mut before: Discovery = [daemonsets()].into_iter().collect();
    for _ in 0..3 {
        let mut now = Discovery::default();
        now.fail("/apis".to_owned(), &AskError::Timeout);
        before = now.keeping(&before);
    }
    assert!(before.resource(&daemonsets().gvr).is_some());
}
