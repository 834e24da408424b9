//! Kubelets and kube-proxies against an embedded API server.

use kube_fanout_testkit::apiserver::Options;

use super::{play, proves, server};
use crate::scenario::kubelets::Kubelets;

/// The kinds that the embedded API server lacks.
fn options() -> Options {
    let kinds = [
        "runtimeclasses.v1.node.k8s.io=RuntimeClass:cluster",
        "csidrivers.v1.storage.k8s.io=CSIDriver:cluster",
        "servicecidrs.v1.networking.k8s.io=ServiceCIDR:cluster",
    ];
    Options {
        extra_kinds: kinds.iter().map(|kind| kind.parse().unwrap()).collect(),
        ..Options::default()
    }
}

const SMALL: &str = "kubelets --nodes 4 --services 5 --references 1 --pod-rate 20 --pod-life 0.3 --slice-rate 20 --watch-timeout 1 --heartbeat 0.2 --node-status 0.3 --warm-up 0.1 --duration 1";

#[tokio::test]
async fn every_kubelet_and_kube_proxy_ends_with_what_it_must_have() {
    let server = server(options()).await;
    let results = play::<Kubelets>(&server, SMALL).await;
    // Four nodes, each with eight watches of its kubelet and four of its kube-proxy.
    proves(&results, "watches of clients", 48.0);
    proves(&results, "quiet end: watches behind", 0.0);
    let value = |row| results.value(row, 0).unwrap_or_default();
    // Of a pod's three writes its kubelet has two, and every kube-proxy has every change of a slice that is not headless.
    assert!(value("writes of controllers") >= 4.0, "{results}");
    let events = value("events verified");
    assert!(events * 2.0 >= value("writes of controllers"), "{results}");
}

#[tokio::test]
async fn kinds_that_the_server_lacks_are_not_watched() {
    let server = server(Options::default()).await;
    let results = play::<Kubelets>(&server, SMALL).await;
    proves(&results, "watches of clients", 36.0);
}
