//! The objects of the cluster: nodes, their leases, services with their slices, and what pods use. About as long as real ones.

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::selection::{Collection, ROOT_CA};
use crate::http2::create_all;
use crate::target::Target;
use crate::wire::event::{WRITTEN_AT, WriteTime};
use crate::writer::shape::node_name;

/// The namespace of pods, services and what they use.
pub const NAMESPACE: &str = "kubelets";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NAMESPACES: &str = "/api/v1/namespaces";
/// ConfigMaps, and as many Secrets, that the pods of all nodes share.
const SHARED_OBJECTS: usize = 64;
/// One service in this many is headless.
const HEADLESS_EVERY: usize = 10;
/// Addresses of a slice: a service of some replicas.
const ENDPOINTS: usize = 12;
/// Images that a node reports; a kubelet reports up to 50.
const IMAGES: usize = 10;
/// Length of a ConfigMap's or Secret's value.
const VALUE_LEN: usize = 1_024;

/// The path of a collection in a namespace.
pub fn namespaced(collection: Collection, namespace: &str) -> String {
    let path = collection.path();
    let (group, plural) = path.rsplit_once('/').unwrap_or_default();
    format!("{group}/namespaces/{namespace}/{plural}")
}

/// The shared objects that the pods of a node use.
pub fn references(node: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count.min(SHARED_OBJECTS)).map(move |number| (node * 7 + number) % SHARED_OBJECTS)
}

pub fn config_name(number: usize) -> String {
    format!("config-{number}")
}

pub fn secret_name(number: usize) -> String {
    format!("secret-{number}")
}

pub fn slice_name(service: usize) -> String {
    format!("service-{service}")
}

/// Creates the objects that are missing.
pub async fn prepare(
    target: &Target,
    nodes: usize,
    services: usize,
    collections: &[Collection],
) -> Result<()> {
    let namespaces = [NAMESPACE, "kube-node-lease"].map(|name| {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        (NAMESPACES.to_owned(), namespace)
    });
    create_all(target, namespaces.into_iter()).await?;
    let single = [
        (
            Collection::RuntimeClasses,
            json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "sandboxed"}, "handler": "sandboxed"}),
        ),
        (
            Collection::CsiDrivers,
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"}, "spec": {"attachRequired": true}}),
        ),
        (
            Collection::ServiceCidrs,
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}),
        ),
    ];
    let single = single
        .into_iter()
        .filter(|(of, _)| collections.contains(of));
    create_all(
        target,
        single.map(|(of, object)| (of.path().to_owned(), object)),
    )
    .await?;
    let root = (
        namespaced(Collection::ConfigMaps, NAMESPACE),
        config(ROOT_CA),
    );
    create_all(target, [root].into_iter()).await?;
    let shared = (0..SHARED_OBJECTS).flat_map(|number| {
        [
            (
                namespaced(Collection::ConfigMaps, NAMESPACE),
                config(&config_name(number)),
            ),
            (
                namespaced(Collection::Secrets, NAMESPACE),
                secret(&secret_name(number)),
            ),
        ]
    });
    create_all(target, shared).await?;
    let of_services = (0..services).flat_map(|number| {
        [
            (namespaced(Collection::Services, NAMESPACE), service(number)),
            (
                namespaced(Collection::EndpointSlices, NAMESPACE),
                slice(number, None),
            ),
        ]
    });
    create_all(target, of_services).await?;
    let of_nodes = (0..nodes).flat_map(|number| {
        [
            (Collection::Nodes.path().to_owned(), node(number)),
            (LEASES.to_owned(), lease(&node_name(number))),
        ]
    });
    create_all(target, of_nodes).await?;
    Ok(())
}

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": "x".repeat(VALUE_LEN)}})
}

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": "x".repeat(VALUE_LEN)}})
}

fn labels(service: usize) -> Value {
    let mut labels = json!({"app": format!("service-{service}"), "kubernetes.io/service-name": format!("service-{service}")});
    if service % HEADLESS_EVERY == HEADLESS_EVERY - 1 {
        labels["service.kubernetes.io/headless"] = json!("");
    }
    labels
}

fn service(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("service-{number}"), "labels": labels(number)},
        "spec": {"type": "ClusterIP", "selector": {"app": format!("service-{number}")},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]},
    })
}

/// A slice; with a time if it is written while it is measured.
pub fn slice(service: usize, due: Option<Instant>) -> Value {
    let endpoint = |number: usize| {
        let address = format!(
            "10.{}.{}.{}",
            service / 250 % 250,
            service % 250,
            number + 1
        );
        json!({"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": format!("service-{service}-{number}")}, "zone": "zone-a"})
    };
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": slice_name(service), "labels": labels(service)},
        "endpoints": (0..ENDPOINTS).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    });
    if let Some(due) = due {
        slice["metadata"]["annotations"] = json!({WRITTEN_AT: WriteTime::now(due).to_string()});
    }
    slice
}

fn conditions() -> Value {
    let of = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "KubeletHasSufficient", "message": "kubelet has sufficient resources available",
            "lastHeartbeatTime": crate::runner::machine::now(), "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!([
        of("MemoryPressure", "False"),
        of("DiskPressure", "False"),
        of("PIDPressure", "False"),
        of("Ready", "True"),
    ])
}

fn node(number: usize) -> Value {
    let name = node_name(number);
    let resources =
        json!({"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let image = |number: usize| {
        json!({"names": [format!("registry.example.com/team/image-{number}@sha256:{}", "0".repeat(64)), format!("registry.example.com/team/image-{number}:v1")],
            "sizeBytes": 100_000_000})
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "zone-a"}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 100 + number / 250 % 100, number % 250)},
        "status": {"capacity": resources, "allocatable": resources, "conditions": conditions(),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Linux", "kernelVersion": "6.12", "containerRuntimeVersion": "containerd://2.1",
                "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "", "systemUUID": "", "kubeProxyVersion": ""},
            "images": (0..IMAGES).map(image).collect::<Vec<_>>()},
    })
}

fn lease(node: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renew_time()},
    })
}

fn renew_time() -> String {
    crate::runner::machine::now().replace('Z', ".000000Z")
}

/// A strategic merge patch that renews a node's lease.
pub fn lease_report() -> Vec<u8> {
    json!({"spec": {"renewTime": renew_time()}})
        .to_string()
        .into_bytes()
}

/// A strategic merge patch of a node's status.
pub fn node_report() -> Vec<u8> {
    json!({"status": {"conditions": conditions()}})
        .to_string()
        .into_bytes()
}

/// A new pod without a node.
pub fn pod(name: &str, due: Instant) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "churn"}, "annotations": {WRITTEN_AT: WriteTime::now(due).to_string()}},
        "spec": {"serviceAccountName": "default", "restartPolicy": "Always",
            "containers": [{"name": "main", "image": "registry.example.com/team/image-1:v1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]}],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}]},
        "status": {"phase": "Pending"},
    })
}

/// What the scheduler sends to bind a pod.
pub fn binding(pod: &str, node: &str, due: Instant) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "annotations": {WRITTEN_AT: WriteTime::now(due).to_string()}},
        "target": {"kind": "Node", "name": node}})
}

/// The same as a merge patch, for servers without bindings.
pub fn binding_patch(node: &str, due: Instant) -> Value {
    json!({"metadata": {"annotations": {WRITTEN_AT: WriteTime::now(due).to_string()}}, "spec": {"nodeName": node}})
}

/// A strategic merge patch of a pod's status: it runs.
pub fn pod_report() -> Vec<u8> {
    let now = crate::runner::machine::now();
    let ready = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    json!({
        "metadata": {"annotations": {WRITTEN_AT: WriteTime::now(Instant::now()).to_string()}},
        "status": {"phase": "Running", "podIP": "10.100.0.7", "startTime": now,
            "conditions": [ready("Initialized"), ready("Ready"), ready("ContainersReady"), ready("PodScheduled")],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "started": true,
                "image": "registry.example.com/team/image-1:v1", "imageID": "", "state": {"running": {"startedAt": now}}}]},
    })
    .to_string()
    .into_bytes()
}
