//! Tests of the documents against excerpts of a real API server's.

use super::*;

fn catalogue() -> Catalogue {
    Catalogue::new(&["widgets.v1.example.com=Widget".parse().unwrap()])
}

#[track_caller]
fn check_contains(document: &Bytes, expected: &str) {
    let text = std::str::from_utf8(document).unwrap();
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_legacy_documents_look_as_a_real_server_s() {
    check_contains(
        &core_versions("127.0.0.1:16531"),
        r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:16531"}]}"#,
    );
    let groups = groups(&catalogue(), "127.0.0.1:17443");
    check_contains(
        &groups,
        r#"{"kind":"APIGroupList","groups":[{"name":"apiregistration.k8s.io","versions":[{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apiregistration.k8s.io/v1","version":"v1"},"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:17443"}]},{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"},"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"127.0.0.1:17443"}]},{"name":"batch","#,
    );
    check_contains(
        &group(&catalogue(), "apps").unwrap(),
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#,
    );
    assert_eq!(
        (
            group(&catalogue(), "nope"),
            resources(&catalogue(), "apps", "v2")
        ),
        (None, None)
    );
}

#[test]
fn resource_lists_name_subresources_and_short_names() {
    check_contains(
        &resources(&catalogue(), "", "v1").unwrap(),
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["cm"]},"#,
    );
    check_contains(
        &resources(&catalogue(), "example.com", "v1").unwrap(),
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"]},{"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get","patch","update"]}]}"#,
    );
}

#[test]
fn the_aggregated_documents_look_as_a_real_server_s() {
    let groups = aggregated_groups(&catalogue());
    check_contains(
        &groups,
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"apiregistration.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"apiservices","responseKind":{"group":"","version":"","kind":"APIService"},"scope":"Cluster","singularResource":"apiservice","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"APIService"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}]},{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"daemonsets","responseKind":{"group":"","version":"","kind":"DaemonSet"},"scope":"Namespaced","singularResource":"daemonset","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["ds"],"subresources":[{"subresource":"status","responseKind":{"group":"","version":"","kind":"DaemonSet"},"verbs":["get","patch","update"]}]},"#,
    );
    check_contains(
        &groups,
        r#"{"metadata":{"name":"discovery.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"endpointslices","responseKind":{"group":"","version":"","kind":"EndpointSlice"},"scope":"Namespaced","singularResource":"endpointslice","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]}],"freshness":"Current"}]}"#,
    );
    check_contains(
        &groups,
        r#"{"resource":"widgets","responseKind":{"group":"example.com","version":"v1","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"subresources":[{"subresource":"status","responseKind":{"group":"example.com","version":"v1","kind":"Widget"},"verbs":["get","patch","update"]}]}"#,
    );
    check_contains(
        &aggregated_core(&catalogue()),
        r#""metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"configmaps","#,
    );
}

#[test]
fn the_version_document_is_json() {
    let version: serde_json::Value = serde_json::from_slice(&version()).unwrap();
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&"1".into(), &"36".into())
    );
}
