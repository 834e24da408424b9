//! The content of generated objects: the fields that selectors, tables and controllers use.

use serde_json::{Value, json};

use crate::apiserver::json;
use crate::apiserver::kinds::{ObjectKey, ServedKind};

/// The annotation of every generated write with its time, in nanoseconds since 1970, for measuring latency.
pub const WRITTEN_AT: &str = "kube-fanout.dev/written-at";
/// The annotation that pads an object to its length.
const PADDING: &str = "kube-fanout.dev/padding";
/// What the server adds to an object: uid, version, times, generation.
const SERVER_METADATA_LEN: usize = 160;

const NAMESPACE_COUNT: u32 = 20;
const NODE_COUNT: u32 = 100;
const APP_COUNT: u32 = 50;

/// The current time, in nanoseconds.
pub(super) fn now_ns() -> String {
    jiff::Timestamp::now().as_nanosecond().to_string()
}

/// Makes the objects of one kind.
#[derive(Debug)]
pub(super) struct Template {
    kind: ServedKind,
}

impl Template {
    pub(super) fn new(kind: ServedKind) -> Self {
        Self { kind }
    }

    pub(super) fn key(&self, number: u32) -> ObjectKey {
        let namespace = match self.kind.is_namespaced {
            true => format!("ns-{:02}", number % NAMESPACE_COUNT),
            false => String::new(),
        };
        let name = match self.kind.plural.as_str() {
            // The nodes that pods are on.
            "nodes" if number < NODE_COUNT => node_name(number),
            _ => format!("{}-{number:06}", self.kind.kind.to_lowercase()),
        };
        ObjectKey::new(&namespace, &name)
    }

    /// An object that is about `len` bytes long when it is stored.
    pub(super) fn object(&self, number: u32, len: usize) -> Value {
        let key = self.key(number);
        let tier = ["frontend", "backend", "batch"][number as usize % 3];
        let mut object = self.content(number);
        object["kind"] = self.kind.kind.clone().into();
        object["apiVersion"] = self.kind.api_version().into();
        object["metadata"] = json!({
            "name": key.name(),
            "labels": {
                "app.kubernetes.io/name": format!("app-{:02}", number % APP_COUNT),
                "tier": tier,
            },
            "annotations": {WRITTEN_AT: now_ns(), PADDING: ""},
        });
        if self.kind.is_namespaced {
            object["metadata"]["namespace"] = key.namespace().into();
        }
        let padding = len.saturating_sub(json::compact(&object).len() + SERVER_METADATA_LEN);
        object["metadata"]["annotations"][PADDING] = "x".repeat(padding).into();
        object
    }

    fn content(&self, number: u32) -> Value {
        let node = node_name(number % NODE_COUNT);
        let [_, high, middle, low] = number.to_be_bytes();
        let address = format!("10.{high}.{middle}.{low}");
        match self.kind.plural.as_str() {
            "pods" => pod(&node, &address),
            "nodes" => json!({
                "spec": {"podCIDR": format!("{address}/24")},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": address}],
                },
            }),
            "namespaces" => json!({"spec": {"finalizers": []}, "status": {"phase": "Active"}}),
            "services" => json!({
                "spec": {
                    "clusterIP": address,
                    "type": "ClusterIP",
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}],
                },
                "status": {"loadBalancer": {}},
            }),
            "endpointslices" => json!({
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "nodeName": node}],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }),
            "leases" => json!({"spec": {"holderIdentity": node, "leaseDurationSeconds": 40}}),
            "configmaps" => json!({"data": {"key": "value"}}),
            "secrets" => json!({"data": {"key": "dmFsdWU="}, "type": "Opaque"}),
            "events" => json!({
                "involvedObject": {"kind": "Pod", "name": format!("pod-{number:06}")},
                "reason": "Scheduled",
                "type": "Normal",
            }),
            _ => json!({"spec": {"replicas": 1, "size": number}}),
        }
    }
}

fn node_name(number: u32) -> String {
    format!("node-{number:03}")
}

fn pod(node: &str, address: &str) -> Value {
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    let image = "registry.example.com/app:1.0";
    json!({
        "spec": {
            "containers": [{"name": "main", "image": image, "resources": {"requests": requests}}],
            "nodeName": node,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True"},
            ],
        },
    })
}
