//! An API server that sends garbage, breaks connections, refuses requests, is slow or is not there.

use std::sync::Arc;

use http_body_util::BodyExt;
use kube_fanout::config::{ServeSettings, UpstreamSource};
use kube_fanout::resource::Gvr;
use kube_fanout_testkit::apiserver::faults::{Fault, FaultOrder};
use kube_fanout_testkit::apiserver::request::Verb;
use kube_fanout_testkit::apiserver::{self, Options};
use rustls_pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::hostile::relay::{Relay, Script};
use crate::hostile::stage::{Stage, apiserver, status, until, upstream_uri};
use crate::hostile::witness::Witness;
use crate::support::PATIENCE;

const PODS: &str = "/api/v1/pods";
/// The resource that the witness watches, and one that only these tests use.
const RESOURCES: [&str; 2] = ["configmaps", "pods"];
const REJECTED: &str = "kube_fanout_upstream_frames_rejected_total";
const RELISTS: &str = "kube_fanout_upstream_relists_total";
const OBJECTS: &str = "kube_fanout_cache_objects";
const GIVEN_UP: &str = "kube_fanout_cache_given_up_total";
const INITIALIZED: &str = "kube_fanout_cache_initializations_total";
const NODES: &str = "/api/v1/nodes";
const WATCH_ENDS: &str = "kube_fanout_upstream_watch_ends_total";

fn resource_label(resource: &str) -> String {
    format!("resource=\"{resource}\"")
}

/// Waits until lists of pods from the gateway and from the API server are equal.
async fn wait_until_current(stage: &Stage) {
    wait_until_current_on(stage, PODS).await;
}

/// Waits until lists of this path from the gateway and from the API server are equal.
async fn wait_until_current_on(stage: &Stage, path: &str) {
    until("the gateway has the API server's objects", async || {
        let (proxied, direct) = (
            stage.get(path).await,
            stage.send_to_apiserver("GET", path).await,
        );
        // While the cache is given up, requests are forwarded, and a relay may respond with something else than a list.
        let items =
            |body: &[u8]| Some(serde_json::from_slice::<Value>(body).ok()?["items"].clone());
        let expected = items(direct.body()).unwrap();
        proxied.status() == 200 && items(proxied.body()) == Some(expected)
    })
    .await;
}

/// A stage whose cache of pods is filled, so that faults affect only later requests.
async fn stage_with_pods(adjust: impl FnOnce(&mut ServeSettings)) -> Stage {
    let stage = Stage::with(adjust).await;
    assert_eq!(stage.get(PODS).await.status(), 200);
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_cannot_be_used_are_counted_and_lose_nothing() {
    let stage = stage_with_pods(|settings| settings.frame_len_max = 64 << 10).await;
    let witness = stage.witness().await;
    let cases = [
        (Fault::GarbageFrame, "reason=\"malformed\""),
        (
            Fault::OversizedFrame { len: 256 << 10 },
            "reason=\"too_long\"",
        ),
        (Fault::OversizedFrame { len: 4_096 }, "reason=\"malformed\""),
    ];
    stage.apiserver.set_churn(50);
    for (fault, reason) in cases {
        for resource in RESOURCES {
            let labels = [resource_label(resource), reason.to_owned()];
            let labels = labels.each_ref().map(String::as_str);
            let before = stage.metric(REJECTED, &labels).await;
            stage.order(fault, resource, 1);
            end_watches(&stage, resource);
            stage.metric_reaches(REJECTED, &labels, before + 1.0).await;
        }
    }
    stage.apiserver.set_churn(0);
    wait_until_current(&stage).await;
    stage.check_and_shut_down(witness).await;
}

fn end_watches(stage: &Stage, resource: &str) {
    stage.order(Fault::EndWatches, resource, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_cut_in_a_frame_is_counted_and_loses_nothing() {
    let stage = stage_with_pods(|_| {}).await;
    let witness = stage.witness().await;
    stage.apiserver.set_churn(50);
    for resource in RESOURCES {
        let labels = [
            resource_label(resource),
            "reason=\"disconnected\"".to_owned(),
        ];
        let labels = labels.each_ref().map(String::as_str);
        stage.order(Fault::CutWatch { after_bytes: 700 }, resource, 3);
        end_watches(&stage, resource);
        stage.metric_reaches(WATCH_ENDS, &labels, 3.0).await;
    }
    stage.apiserver.set_churn(0);
    wait_until_current(&stage).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_lived_through() {
    let stage = stage_with_pods(|_| {}).await;
    let witness = stage.witness().await;
    stage.apiserver.set_churn(50);
    for code in [429, 500, 503, 410] {
        for resource in RESOURCES {
            let before = stage.apiserver.fault_counts().refused;
            let order = FaultOrder {
                fault: Fault::Refuse {
                    code,
                    retry_after_seconds: 1,
                },
                verb: Some(Verb::Watch),
                resource: Some(resource.to_owned()),
                count: 1,
            };
            stage.apiserver.order(order).unwrap();
            end_watches(&stage, resource);
            until("a watch is refused", async || {
                stage.apiserver.fault_counts().refused > before
            })
            .await;
        }
        assert_eq!(
            stage.get(PODS).await.status(),
            200,
            "{code}: lists are no longer served"
        );
    }
    stage.apiserver.set_churn(0);
    wait_until_current(&stage).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_history_and_closed_connections_are_lived_through() {
    let stage = stage_with_pods(|_| {}).await;
    let witness = stage.witness().await;
    stage.apiserver.set_churn(50);
    for resource in RESOURCES {
        stage.order(Fault::CloseConnection, resource, 2);
        stage.order(Fault::Compact, resource, 1);
        end_watches(&stage, resource);
        let labels = resource_label(resource);
        stage.metric_reaches(WATCH_ENDS, &[&labels], 1.0).await;
    }
    stage.apiserver.set_churn(0);
    wait_until_current(&stage).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_hesitates_delays_its_resource_alone() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    stage.order(Fault::Delay { delay_ms: 60_000 }, "pods", 100);
    let slow = format!("http://{}{PODS}", stage.address);
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        requests.spawn(stage.client.get(slow.parse().unwrap()));
    }
    until("a request is delayed", async || {
        stage.apiserver.fault_counts().delayed > 0
    })
    .await;
    assert_eq!(stage.get("/api/v1/nodes").await.status(), 200);
    assert_eq!(stage.get("/api/v1/nodes/nobody").await.status(), 404);
    stage.check_and_shut_down(witness).await;
}

/// A forwarded list may be older than the cache that becomes ready afterwards. If watches from its version failed, all such clients would
/// list again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_list_was_forwarded_while_the_cache_was_filled_goes_on_watching() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    // This delays the gateway's own list. The client's page is forwarded after one second.
    stage.order(Fault::Delay { delay_ms: 3_000 }, "pods", 1);
    let list = stage.get(&format!("{PODS}?limit=500")).await;
    assert_eq!(list.status(), 200);
    let initializations = stage.metric(INITIALIZED, &[&resource_label("pods")]).await;
    assert!(initializations < 1.0, "the list was not forwarded");
    let list: Value = serde_json::from_slice(list.body()).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    stage
        .create("/api/v1/namespaces/default/pods", "later")
        .await;
    let watch = format!(
        "http://{}{PODS}?watch=1&resourceVersion={version}",
        stage.address
    );
    let watch = stage.client.get(watch.parse().unwrap()).await.unwrap();
    let mut body = watch.into_body();
    let frame = tokio::time::timeout(PATIENCE, body.frame()).await;
    let line = frame.unwrap().unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(event["type"], "ADDED", "{event}");
    assert_eq!(event["object"]["metadata"]["name"], "later");
    stage.check_and_shut_down(witness).await;
}

/// The start of an object, without its closing brace.
const ITEM: &str = r#"{"apiVersion":"v1","kind":"Pod""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_without_what_makes_an_object_are_rejected() {
    let apiserver = apiserver().await;
    let relay = Relay::start(apiserver.address()).await;
    let upstream = upstream_uri("http", &relay.address.to_string());
    let stage = Stage::with_upstream(apiserver, upstream).await;
    assert_eq!(stage.get(PODS).await.status(), 200);
    let witness = stage.witness().await;
    let cases = [
        format!(r#"{{"type":"MODIFIED","object":{ITEM}}}}}"#),
        format!(r#"{{"type":"MODIFIED","object":{ITEM},"metadata":null}}}}"#),
        format!(r#"{{"type":"MODIFIED","object":{ITEM},"metadata":{{"name":"a"}}}}}}"#),
        format!(
            r#"{{"type":"MODIFIED","object":{ITEM},"metadata":{{"name":7,"resourceVersion":[]}}}}}}"#
        ),
        format!(
            r#"{{"type":"MODIFIED","object":{ITEM},"metadata":{{"name":"a","resourceVersion":"x"}}}}}}"#
        ),
        r#"{"type":"MODIFIED"}"#.to_owned(),
        r#"{"type":"MODIFIED","object":null}"#.to_owned(),
        r#"{"type":"EXPLODED","object":{}}"#.to_owned(),
        r#"{"type":"BOOKMARK","object":{}}"#.to_owned(),
        "null".to_owned(),
        "[".repeat(10_000),
    ];
    let labels = resource_label("pods");
    for case in cases {
        let before = stage.metric(REJECTED, &[&labels]).await;
        relay.order("pods", Script::BeforeWatch(format!("{case}\n")));
        end_watches(&stage, "pods");
        until(&case, async || {
            relay.is_done() && stage.metric(REJECTED, &[&labels]).await > before
        })
        .await;
    }
    wait_until_current(&stage).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_are_no_lists_do_not_become_caches() {
    let apiserver = apiserver().await;
    let relay = Relay::start(apiserver.address()).await;
    let upstream = upstream_uri("http", &relay.address.to_string());
    let stage = Stage::with_upstream(apiserver, upstream).await;
    let witness = stage.witness().await;
    for body in [
        "",
        "garbage",
        "{}",
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#,
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{}]}"#,
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[{"metadata":null}]"#,
    ] {
        relay.order("pods", Script::Instead(body.to_owned()));
    }
    wait_until_current(&stage).await;
    assert!(relay.is_done());
    let given_up = [&*resource_label("pods"), r#"reason="undecodable""#];
    assert_eq!(stage.metric(GIVEN_UP, &given_up).await, 1.0);
    stage.check_and_shut_down(witness).await;
}

/// Creates a node whose watch events exceed the limit of a frame.
async fn create_large_node(stage: &Stage, name: &str) {
    let annotations = serde_json::json!({ "large": "x".repeat(100_000) });
    let node = serde_json::json!({"metadata": {"name": name, "annotations": annotations}});
    let uri = format!("http://{}{NODES}", stage.apiserver.address());
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .body(http_body_util::Full::from(node.to_string()))
        .unwrap();
    assert_eq!(stage.client.request(request).await.unwrap().status(), 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_keep_outgrowing_the_limit_cost_the_cache_and_not_the_answer() {
    let stage = stage_with_pods(|settings| settings.frame_len_max = 64 << 10).await;
    assert_eq!(stage.get(NODES).await.status(), 200);
    let witness = stage.witness().await;
    let nodes = resource_label("nodes");
    for count in [1.0, 2.0] {
        create_large_node(&stage, &format!("large-{count}")).await;
        let relists = [&*nodes, r#"reason="unparsable""#];
        stage.metric_reaches(RELISTS, &relists, count).await;
        // Waits for the cache, not only for the forwarded list, so that this relist does not also return the next node.
        stage.metric_reaches(OBJECTS, &[&nodes], 2.0 + count).await;
        wait_until_current_on(&stage, NODES).await;
    }
    create_large_node(&stage, "large-3").await;
    let given_up = [&*nodes, r#"reason="too_long""#];
    stage.metric_reaches(GIVEN_UP, &given_up, 1.0).await;
    wait_until_current_on(&stage, NODES).await;
    assert_eq!(stage.admin("/readyz").await.status(), 200);
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_comes_up_later_is_found() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = unused.local_addr().unwrap();
    drop(unused);
    let pods = Gvr::new("", "v1", "pods");
    let stage = Stage::with(|settings| {
        settings.upstream = UpstreamSource::Url(upstream_uri("http", &address.to_string()));
        settings.pin_resources = vec![pods];
    })
    .await;
    let response = stage.get(PODS).await;
    let refused = status(&response);
    assert_eq!(refused["code"], 503, "{refused}");
    assert_eq!(refused["reason"], "ServiceUnavailable", "{refused}");
    assert_eq!(response.headers()["retry-after"], "1");
    let ready = stage.admin("/readyz").await;
    assert_eq!(ready.status(), 503, "ready without the pinned cache");
    let checks = String::from_utf8_lossy(ready.body()).into_owned();
    let reason = "[-]upstream not ready: discovery failed: cannot connect to the API server\n";
    assert!(checks.contains(reason), "{checks}");

    let listener = TcpListener::bind(address).await.unwrap();
    let late = apiserver::start(listener, Options::default()).unwrap();
    until("pods are listed", async || {
        stage.get(PODS).await.status() == 200
    })
    .await;
    until("the pinned cache is ready", async || {
        let ready = stage.admin("/readyz?verbose").await;
        ready
            .body()
            .windows(13)
            .any(|text| text == b"[+]pods.v1 ok")
    })
    .await;
    let witness = Witness::start(stage.address, late.address()).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_accepts_and_says_nothing_holds_up_no_start() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let start = Stage::with(|settings| {
        settings.upstream = UpstreamSource::Url(upstream_uri("http", &address.to_string()));
    });
    let stage = tokio::time::timeout(PATIENCE, start).await.unwrap();
    assert_eq!(stage.admin("/livez").await.status(), 200);
    let ready = stage.admin("/readyz").await;
    assert_eq!(ready.status(), 503);
    let checks = String::from_utf8_lossy(ready.body()).into_owned();
    let reason = "[-]upstream not ready: discovery failed: the API server did not answer in time\n";
    assert!(checks.contains(reason), "{checks}");
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_certificate_that_does_not_verify_is_named() {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = Options {
        tls: Some(Arc::new(tls)),
        ..Options::default()
    };
    let _untrusted = apiserver::start(listener, options).unwrap();
    let stage = Stage::with(|settings| {
        let uri = upstream_uri("https", &format!("localhost:{port}"));
        settings.upstream = UpstreamSource::Url(uri);
    })
    .await;
    for target in [PODS, "/api/v1/namespaces/default/pods?watch=1", "/version"] {
        let refused = status(&stage.get(target).await);
        assert_eq!(refused["code"], 503, "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("not trusted"), "{message}");
    }
    let ready = stage.admin("/readyz").await;
    let checks = String::from_utf8_lossy(ready.body()).into_owned();
    let reason =
        "[-]upstream not ready: discovery failed: the API server's certificate is not trusted";
    assert!(checks.contains(reason), "{checks}");
}
