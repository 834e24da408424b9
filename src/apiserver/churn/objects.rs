//! The content of generated objects, by kind: they have the fields that selectors, tables and controllers use.

use serde_json::{Value, json};

use super::super::kinds::ServedKind;
use super::super::render;
use crate::resource::{Layout, ObjectKey};

/// Annotation of every written object: the time of the write in nanoseconds since the Unix epoch, for measuring latency.
pub const WRITTEN_AT: &str = "kube-fanout.dev/written-at";

/// Numbers of namespaces, nodes and applications that objects are spread over, as in a cluster of a hundred nodes.
const NAMESPACE_COUNT: u32 = 20;
const NODE_COUNT: u32 = 100;
const APP_COUNT: u32 = 50;
/// Approximate number of bytes that the server adds to metadata: uid, version, times, generation.
const SERVER_METADATA_LEN: usize = 160;
/// Annotation that pads an object to its length.
const PADDING: &str = "kube-fanout.dev/padding";

/// Generates the objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct ObjectTemplate {
    kind: ServedKind,
}

impl ObjectTemplate {
    pub(super) fn of(kind: &ServedKind) -> Self {
        Self { kind: kind.clone() }
    }

    /// Namespace and name of the object with this number.
    pub(super) fn key(&self, number: u32) -> ObjectKey {
        let namespace = if self.kind.resource.namespaced {
            format!("ns-{:02}", number % NAMESPACE_COUNT)
        } else {
            String::new()
        };
        let name = match (&*self.kind.resource.gvr.resource, number < NODE_COUNT) {
            // The nodes that `spec.nodeName` of generated pods refers to.
            ("nodes", true) => format!("node-{number:03}"),
            _ => format!("{}-{number:06}", self.kind.singular),
        };
        ObjectKey::new(&namespace, &name)
    }

    /// The object with this number, about `object_len` bytes long when it is stored.
    pub(super) fn object(&self, number: u32, object_len: usize, now_ns: i128) -> Value {
        let key = self.key(number);
        let tier = ["frontend", "backend", "batch"][number as usize % 3];
        let mut object = json!({
            "kind": self.kind.resource.kind,
            "apiVersion": self.kind.resource.gvr.api_version(),
            "metadata": {
                "name": key.name(),
                "labels": {
                    "app.kubernetes.io/name": format!("app-{:02}", number % APP_COUNT),
                    "tier": tier,
                },
                "annotations": {WRITTEN_AT: now_ns.to_string()},
            },
        });
        if self.kind.resource.namespaced {
            object["metadata"]["namespace"] = key.namespace().into();
        }
        for (field, value) in content(&self.kind, number) {
            object[field] = value;
        }
        self.pad(&mut object, object_len);
        object
    }

    fn pad(&self, object: &mut Value, object_len: usize) {
        object["metadata"]["annotations"][PADDING] = "".into();
        let len = render::object(Layout::Dynamic, object).len() + SERVER_METADATA_LEN;
        object["metadata"]["annotations"][PADDING] =
            "x".repeat(object_len.saturating_sub(len)).into();
    }
}

/// The members of an object beside kind, version and metadata.
fn content(kind: &ServedKind, number: u32) -> Vec<(&'static str, Value)> {
    let node = format!("node-{:03}", number % NODE_COUNT);
    let address = format!(
        "10.{}.{}.{}",
        number >> 16 & 0xff,
        number >> 8 & 0xff,
        number & 0xff
    );
    match &*kind.resource.gvr.resource {
        "pods" => pod(&node, &address),
        "nodes" => vec![
            ("spec", json!({"podCIDR": format!("{address}/24")})),
            (
                "status",
                json!({"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": address}]}),
            ),
        ],
        "namespaces" => vec![
            ("spec", json!({"finalizers": []})),
            ("status", json!({"phase": "Active"})),
        ],
        "services" => vec![
            (
                "spec",
                json!({"clusterIP": address, "type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}),
            ),
            ("status", json!({"loadBalancer": {}})),
        ],
        "endpointslices" => vec![
            ("addressType", json!("IPv4")),
            (
                "endpoints",
                json!([{"addresses": [address], "conditions": {"ready": true}, "nodeName": node}]),
            ),
            (
                "ports",
                json!([{"name": "http", "port": 8080, "protocol": "TCP"}]),
            ),
        ],
        "leases" => vec![(
            "spec",
            json!({"holderIdentity": node, "leaseDurationSeconds": 40}),
        )],
        "configmaps" => vec![("data", json!({"key": "value"}))],
        "secrets" => vec![
            ("data", json!({"key": "dmFsdWU="})),
            ("type", json!("Opaque")),
        ],
        "events" => vec![
            (
                "involvedObject",
                json!({"kind": "Pod", "name": format!("pod-{number:06}")}),
            ),
            ("reason", json!("Scheduled")),
            ("type", json!("Normal")),
        ],
        _ => vec![("spec", json!({"replicas": 1, "size": number}))],
    }
}

fn pod(node: &str, address: &str) -> Vec<(&'static str, Value)> {
    vec![
        (
            "spec",
            json!({
                "containers": [{"name": "main", "image": "registry.example.com/app:1.0", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
                "nodeName": node, "restartPolicy": "Always", "schedulerName": "default-scheduler", "serviceAccountName": "default",
            }),
        ),
        (
            "status",
            json!({
                "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            }),
        ),
    ]
}
