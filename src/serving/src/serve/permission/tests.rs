//! The attributes of requests that are authorized.

use http::Request;

use super::*;

#[test]
fn every_part_of_a_request_is_authorized() {
    let rows = [
        ("/api/v1/pods", ["list", "", "v1", "pods", "", "", "", ""]),
        (
            "/apis/apps/v1/namespaces/n/deployments?watch=1&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx",
            [
                "watch",
                "apps",
                "v1",
                "deployments",
                "n",
                "x",
                "metadata.name=x",
                "a=b",
            ],
        ),
        (
            "/api/v1/namespaces/n/pods?fieldSelector=spec.nodeName%3Dx&labelSelector=%21a",
            ["list", "", "v1", "pods", "n", "", "spec.nodeName=x", "!a"],
        ),
        // The API server reads no selectors with the `/watch/` prefix.
        (
            "/api/v1/watch/namespaces/n/pods?fieldSelector=metadata.name%3Dx&labelSelector=a",
            ["watch", "", "v1", "pods", "n", "", "", ""],
        ),
        (
            "/api/v1/watch/namespaces/n/pods/p?labelSelector=a",
            ["watch", "", "v1", "pods", "n", "p", "", ""],
        ),
    ];
    for (uri, expected) in rows {
        let info = RequestInfo::of(&Request::get(uri).body(()).unwrap());
        let Some(path) = info.resource() else {
            panic!("{uri} is not a resource path");
        };
        let Access::Resource(access) = access(path, &info) else {
            panic!("{uri} is a resource path");
        };
        let attributes = [
            access.verb,
            access.group,
            access.version,
            access.resource,
            access.namespace,
            access.name,
            access.field_selector,
            access.label_selector,
        ];
        assert_eq!(attributes, expected, "{uri}");
        assert_eq!(access.subresource, "");
    }
}
