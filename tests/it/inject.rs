//! `kube-fanout inject`, run as a user runs it, before the embedded API server. What the policy does with pods is tested by `tests/real`.

mod off;

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use http_body_util::Full;
use hyper::body::Bytes;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::support::auth::until;
use crate::support::client::{send, text};

const SETTINGS: &str = "/api/v1/namespaces/kube-fanout/configmaps/kube-fanout-inject";
const SERVICE: &str = "/api/v1/namespaces/kube-fanout/services/kube-fanout-api";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-fanout/endpointslices";
const SERVERS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const PODS: &str = "/api/v1/namespaces/kube-fanout/pods";
const OFF: &str = "/spec/selector/kube-fanout.io~1off";
const NOTED: &str = "/metadata/annotations/kube-fanout.io~1off-gateways";

/// A cluster with what `deploy/inject` has, and two gateways.
struct Cluster(Apiserver);

impl Cluster {
    async fn new() -> Self {
        let cluster = Self::empty().await;
        for name in ["default", "kube-fanout", "a", "b"] {
            let labels = json!({"kube-fanout.io/inject": if name == "a" { "true" } else { "no" }});
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            cluster.create("/api/v1/namespaces", namespace).await;
        }
        let of = |name: &str, service: &str| json!({"name": name, "labels": {"kubernetes.io/service-name": service}});
        let port = json!([{"name": "https", "port": 6443, "protocol": "TCP"}]);
        let objects = [
            (
                parent(SETTINGS),
                json!({"metadata": {"name": "kube-fanout-inject"}}),
            ),
            (
                parent(SERVICE),
                json!({
                    "metadata": {"name": "kube-fanout-api"},
                    "spec": {
                        "clusterIP": "10.96.0.77",
                        "selector": {"app.kubernetes.io/name": "kube-fanout", "app.kubernetes.io/component": "gateway"},
                        "ports": [{"name": "https", "port": 443}],
                    },
                }),
            ),
            (
                SLICES,
                json!({
                    "metadata": of("kube-fanout-api-x", "kube-fanout-api"),
                    "addressType": "IPv4",
                    "endpoints": [
                        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                        {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                    ],
                }),
            ),
            (
                SERVERS,
                json!({
                    "metadata": of("kubernetes", "kubernetes"),
                    "addressType": "IPv4",
                    "ports": port,
                    "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
                }),
            ),
        ];
        for (path, object) in objects {
            cluster.create(path, object).await;
        }
        for (name, component) in [("g-1", "gateway"), ("g-2", "gateway"), ("p", "inject")] {
            cluster.create_pod(name, component).await;
        }
        cluster
    }

    async fn empty() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self(apiserver::start(listener, Options::default()).unwrap())
    }

    async fn create(&self, path: &str, object: Value) {
        self.write("POST", path, "application/json", object).await;
    }

    async fn create_pod(&self, name: &str, component: &str) {
        let labels = json!({"app.kubernetes.io/name": "kube-fanout", "app.kubernetes.io/component": component});
        let pod = json!({"metadata": {"name": name, "labels": labels}});
        self.create(PODS, pod).await;
    }

    async fn patch(&self, path: &str, patch: Value) {
        self.write("PATCH", path, "application/merge-patch+json", patch)
            .await;
    }

    async fn write(&self, method: &str, path: &str, form: &str, body: Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "apiserver")
            .header("content-type", form)
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let status = send(self.0.address(), request).await.status();
        assert!(status.is_success(), "{method} {path}: {status}");
    }

    async fn get(&self, path: &str) -> Value {
        serde_json::from_str(&text(self.0.address(), path).await).unwrap()
    }

    async fn at(&self, path: &str, place: &str) -> Value {
        let object = self.get(path).await;
        object.pointer(place).cloned().unwrap_or_default()
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let list = self.get(path).await;
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect()
    }

    async fn inject(&self, arguments: &[&str]) -> Output {
        let mut command = command(self.0.address(), arguments);
        command.output().await.unwrap()
    }

    /// The lines of a command that does everything.
    async fn done(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.inject(arguments).await;
        assert!(output.status.success(), "{output:?}");
        lines(&output)
    }

    /// The lines of a command that does not do everything.
    async fn failed(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.inject(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        lines(&output)
    }

    /// A publisher, until it is dropped.
    fn publisher(&self) -> Child {
        command(self.0.address(), &["publish"])
            .kill_on_drop(true)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

fn command(apiserver: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-fanout"));
    command
        .arg("inject")
        .args(arguments)
        .arg(format!("--upstream=http://{apiserver}"))
        .env_clear();
    command
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_publisher_keeps_addresses_and_bundles() {
    let cluster = Cluster::new().await;
    let publisher = cluster.publisher();
    let standby = format!("{SLICES}/kube-fanout-api-direct");
    until("the API server is in the stand-by", async || {
        cluster.at(&standby, "/endpoints/0/addresses/0").await == "192.0.2.1"
    })
    .await;
    let conditions = cluster.at(&standby, "/endpoints/0/conditions").await;
    assert_eq!(
        conditions,
        json!({"ready": false, "serving": true, "terminating": true})
    );
    until("pods learn the address", async || {
        cluster.at(SETTINGS, "/data/ip").await == "10.96.0.77"
    })
    .await;
    drop(publisher);

    cluster
        .patch(
            SETTINGS,
            json!({"data": {"ca.crt": "both", "percent": "5"}}),
        )
        .await;
    let added = json!([{"addresses": ["192.0.2.1"]}, {"addresses": ["192.0.2.9"]}]);
    cluster
        .patch(
            &format!("{SERVERS}/kubernetes"),
            json!({"endpoints": added}),
        )
        .await;
    let _publisher = cluster.publisher();
    until("the namespace with the label is named", async || {
        cluster.at(SETTINGS, "/data/namespaces").await == "a"
    })
    .await;
    let copy = "/api/v1/namespaces/a/configmaps/kube-fanout-inject";
    assert_eq!(cluster.at(copy, "/data").await, json!({"ca.crt": "both"}));
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, "5");
    let second = cluster.at(&standby, "/endpoints/1/addresses/0").await;
    assert_eq!(second, "192.0.2.9");
    let others = cluster.names("/api/v1/namespaces/b/configmaps").await;
    assert!(!others.contains(&"kube-fanout-inject".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn off_leads_clients_away_and_on_leads_them_back() {
    let cluster = Cluster::new().await;
    let lines = cluster.done(&["percent", "10"]).await;
    assert_eq!(
        lines[0],
        "percent is set to 10; pods that run stay as they are"
    );
    let is_named = |line: &String| line.starts_with("wrong: this cluster knows no");
    assert!(lines.iter().any(is_named), "{lines:?}");
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, "10");

    let lines = cluster.done(&["off"]).await;
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(cluster.at(SERVICE, OFF).await, "true");
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, "0");
    assert_eq!(cluster.names(PODS).await, ["p"], "gateways drain");
    let report = cluster.inject(&["status"]).await;
    let report = self::lines(&report);
    assert!(report.contains(&"clients: at the API servers (off)".to_owned()));

    let standby = format!("{SLICES}/kube-fanout-api-direct");
    let address = cluster.at(&standby, "/endpoints/0/addresses/0").await;
    assert_eq!(address, "192.0.2.1", "written before the clients come");

    // Once more, while a gateway runs that came afterwards.
    let noted = cluster.at(SERVICE, NOTED).await;
    cluster.create_pod("g-3", "gateway").await;
    cluster.done(&["off"]).await;
    assert_eq!(cluster.names(PODS).await, ["g-3", "p"]);
    assert_eq!(cluster.at(SERVICE, NOTED).await, noted);
    cluster.done(&["on"]).await;
    assert_eq!(cluster.at(SERVICE, NOTED).await, Value::Null);
    assert_eq!(cluster.at(SERVICE, OFF).await, Value::Null);
    let selector = cluster.at(SERVICE, "/spec/selector").await;
    assert_eq!(selector.as_object().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_named_and_does_not_hide_the_others() {
    let cluster = Cluster::new().await;
    cluster
        .write("DELETE", SETTINGS, "application/json", json!({}))
        .await;
    let lines = cluster.failed(&["off"]).await;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("404") && line.contains("is deploy/inject applied")),
        "{lines:?}"
    );
    assert_eq!(cluster.at(SERVICE, OFF).await, "true");
    assert_eq!(cluster.names(PODS).await, ["p"]);

    // No client is led to nothing.
    let cluster = Cluster::new().await;
    cluster
        .patch(&format!("{SERVERS}/kubernetes"), json!({"endpoints": []}))
        .await;
    let lines = cluster.failed(&["off"]).await;
    assert!(
        lines
            .iter()
            .any(|line| line.contains("no API server is ready")),
        "{lines:?}"
    );
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, "0");
    assert_eq!(cluster.at(SERVICE, OFF).await, Value::Null);
    assert_eq!(cluster.names(PODS).await.len(), 3);

    // Gateways keep their clients while these would only come back.
    let cluster = Cluster::new().await;
    cluster
        .write("DELETE", SERVICE, "application/json", json!({}))
        .await;
    cluster.failed(&["off"]).await;
    assert_eq!(cluster.at(SETTINGS, "/data/percent").await, "0");
    assert_eq!(cluster.names(PODS).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_names_what_is_there_and_what_is_wrong() {
    let cluster = Cluster::new().await;
    let injected = json!({"kube-fanout.io/injected": "10"});
    for (name, annotations) in [("x", injected), ("y", json!({})), ("z", json!({}))] {
        let pod = json!({"metadata": {"name": name, "annotations": annotations}});
        cluster.create("/api/v1/namespaces/a/pods", pod).await;
    }
    let left = json!({"metadata": {"name": "l", "annotations": {"kube-fanout.io/injected": "1"}}});
    cluster.create("/api/v1/namespaces/b/pods", left).await;
    cluster
        .patch(
            SETTINGS,
            json!({"data": {"percent": "ten", "ip": "10.96.0.1"}}),
        )
        .await;
    let lines = cluster.failed(&["status"]).await;
    for expected in [
        "this cluster knows no MutatingAdmissionPolicy of v1",
        "percent is \"ten\", not a whole number from 0 to 100",
        "1 objects are not up to date",
        "recreate the Service with clusterIP 10.96.0.1",
        "pods of the cluster that are injected: 2",
        "namespace b: 1 pods injected, without the label",
        "gateways: 1 of 2 ready",
        "namespace a: 1 pods injected, 2 not",
    ] {
        let is_there = lines.iter().any(|line| line.contains(expected));
        assert!(is_there, "{expected}: {lines:?}");
    }

    let nothing = Cluster::empty().await;
    let lines = nothing.failed(&["status"]).await;
    for expected in [
        "Service kube-fanout-api is missing",
        "ConfigMap kube-fanout-inject is missing",
        "none has the label",
    ] {
        let is_there = lines.iter().any(|line| line.contains(expected));
        assert!(is_there, "{expected}: {lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_percentage_is_refused() {
    let cluster = Cluster::new().await;
    for arguments in [
        &["percent"][..],
        &["percent", "101"],
        &["percent", "1.5"],
        &["percent", "-1"],
        &["percent", "ten"],
        &["percent", "010"],
        &["percent", "+5"],
        &["off", "5"],
        &["status", "--namespace", "../x"],
    ] {
        let output = cluster.inject(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_eq!(cluster.at(SETTINGS, "/data").await, Value::Null);
}
