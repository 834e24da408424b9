//! The labels of requests, and the bounds of their number.

use http::Request;

use super::*;
use crate::metrics::Metrics;
use crate::protocol::request::RequestInfo;

fn request(method: &str, target: &str) -> Request<()> {
    let request = Request::builder().method(method).uri(target);
    request.body(()).unwrap()
}

const OK: u16 = 200;

/// Counts a request with this answer to the end.
fn count(metrics: &Metrics, request: &Request<()>, code: u16) {
    drop(begin(metrics, request, code));
}

fn begin(metrics: &Metrics, request: &Request<()>, code: u16) -> ForwardedRequest {
    let info = RequestInfo::of(request);
    let labels = ForwardedLabels::of(request, &info);
    let answer = ForwardedAnswer {
        code,
        is_own: false,
        started: Instant::now(),
        is_long_running: matches!(labels.verb, RequestVerb::Watch | RequestVerb::Connect),
    };
    let is_known = |gvr: &Gvr| &*gvr.resource != "strangers";
    metrics.forwarded().answered(&labels, answer, is_known)
}

/// The series of forwarded requests with this name, without the name of the metric.
fn series(metrics: &Metrics, name: &str) -> Vec<String> {
    let prefix = format!("kube_fanout_forwarded_{name}{{");
    let page = metrics.page().unwrap();
    let lines = page.lines().filter_map(|line| line.strip_prefix(&prefix));
    lines.map(str::to_owned).collect()
}

#[track_caller]
fn check_labels(request: &Request<()>, expected: [&str; 6]) {
    let info = RequestInfo::of(request);
    let set = ForwardedLabels::of(request, &info).to_set();
    assert_eq!(
        set.values(),
        expected,
        "{} {}",
        request.method(),
        request.uri()
    );
}

#[test]
fn requests_have_the_labels_that_kube_apiserver_gives_them() {
    let pod = "/api/v1/namespaces/a/pods/p";
    let of_pod = |verb, subresource| [verb, "", "v1", "pods", subresource, "resource"];
    check_labels(&request("GET", pod), of_pod("GET", ""));
    check_labels(&request("HEAD", pod), of_pod("GET", ""));
    check_labels(
        &request("PUT", &format!("{pod}/status")),
        of_pod("PUT", "status"),
    );
    check_labels(&request("DELETE", pod), of_pod("DELETE", ""));
    check_labels(&request("PATCH", pod), of_pod("PATCH", ""));
    check_labels(
        &request("GET", &format!("{pod}/log?follow=1")),
        of_pod("CONNECT", "log"),
    );
    check_labels(
        &request("POST", &format!("{pod}/exec")),
        of_pod("CONNECT", "exec"),
    );
    check_labels(
        &request("GET", &format!("{pod}/proxy/x")),
        of_pod("CONNECT", "proxy"),
    );
    check_labels(
        &request("POST", &format!("{pod}/nonsense-17")),
        of_pod("POST", "other"),
    );
    check_labels(&request("OPTIONS", pod), of_pod("other", ""));
    let in_namespace = "/apis/apps/v1/namespaces/a/deployments";
    let of_deployments = |verb, scope| [verb, "apps", "v1", "deployments", "", scope];
    check_labels(
        &request("POST", in_namespace),
        of_deployments("POST", "resource"),
    );
    check_labels(
        &request("GET", in_namespace),
        of_deployments("LIST", "namespace"),
    );
    check_labels(
        &request("DELETE", in_namespace),
        of_deployments("DELETE", "namespace"),
    );
    check_labels(
        &request("GET", "/apis/apps/v1/deployments?watch=1"),
        of_deployments("WATCH", "cluster"),
    );
    check_labels(
        &request("GET", "/apis/apps/v1/watch/deployments"),
        of_deployments("WATCH", "cluster"),
    );
    check_labels(&request("GET", "/version"), ["GET", "", "", "", "", ""]);
    check_labels(
        &request("GET", "/apis/apps/v1"),
        ["GET", "", "", "", "", ""],
    );
}

#[test]
fn a_server_side_apply_is_told_from_other_patches() {
    let mut apply = request("PATCH", "/api/v1/namespaces/a/configmaps/c");
    let media_type = http::HeaderValue::from_static("application/apply-patch+yaml");
    apply.headers_mut().insert("content-type", media_type);
    check_labels(&apply, ["APPLY", "", "v1", "configmaps", "", "resource"]);
}

#[test]
fn a_request_counts_when_its_response_is_complete() {
    let metrics = Metrics::new().unwrap();
    let watch = begin(&metrics, &request("GET", "/api/v1/pods?watch=1"), OK);
    let labels =
        r#"group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"}"#;
    let with_code = format!(r#"code="200",{labels}"#);
    assert_eq!(
        series(&metrics, "longrunning_requests"),
        [format!("{labels} 1")]
    );
    assert_eq!(
        series(&metrics, "request_total"),
        [format!("{with_code} 0")]
    );
    drop(watch);
    assert_eq!(
        series(&metrics, "longrunning_requests"),
        [format!("{labels} 0")]
    );
    assert_eq!(
        series(&metrics, "request_total"),
        [format!("{with_code} 1")]
    );
    assert_eq!(
        series(&metrics, "request_duration_seconds_count"),
        [format!("{labels} 1")]
    );
}

#[test]
fn what_no_handler_of_upstream_has_answered_creates_no_labels() {
    let metrics = Metrics::new().unwrap();
    for code in [401, 403, 405] {
        count(&metrics, &request("GET", "/api/v1/pods"), code);
    }
    count(&metrics, &request("GET", "/api/v1/strangers"), 404);
    let other = r#"group="",resource="other",scope="",subresource="",verb="LIST",version=""} 4"#;
    assert_eq!(series(&metrics, "request_duration_seconds_count"), [other]);
    // Once there are labels, refusals count with them.
    count(&metrics, &request("GET", "/api/v1/pods"), OK);
    count(&metrics, &request("GET", "/api/v1/pods"), 403);
    let pods =
        r#"group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 2"#;
    assert!(series(&metrics, "request_duration_seconds_count").contains(&pods.to_owned()));
}

#[test]
fn the_number_of_label_sets_is_bounded() {
    let metrics = Metrics::new().unwrap();
    for number in 0..LABEL_SETS_MAX + 7 {
        count(
            &metrics,
            &request("GET", &format!("/apis/g/v1/r{number}")),
            OK,
        );
    }
    let counts = series(&metrics, "request_duration_seconds_count");
    assert_eq!(counts.len(), LABEL_SETS_MAX + 1);
    let other = r#"group="",resource="other",scope="",subresource="",verb="LIST",version=""} 7"#;
    assert!(counts.contains(&other.to_owned()));
}

#[test]
fn the_series_of_a_resource_go_with_it_unless_a_request_is_open() {
    let metrics = Metrics::new().unwrap();
    count(&metrics, &request("GET", "/apis/g/v1/gone"), OK);
    count(&metrics, &request("GET", "/version"), OK);
    let watch = begin(&metrics, &request("GET", "/apis/g/v1/gone?watch=1"), OK);
    metrics.forwarded().forget_unknown(|_| false);
    assert_eq!(series(&metrics, "request_total").len(), 2);
    drop(watch);
    metrics.forwarded().forget_unknown(|_| false);
    let version =
        r#"code="200",group="",resource="",scope="",subresource="",verb="GET",version=""} 1"#;
    assert_eq!(series(&metrics, "request_total"), [version]);
    assert_eq!(series(&metrics, "longrunning_requests").len(), 0);
}
