//! The content of a pod. The server adds version, uid, creation time and managed fields.

use serde_json::{Value, json};

use super::Fleet;

impl Fleet {
    /// The pod as its controller and its kubelet write it.
    pub fn pod(&self, number: usize) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.metadata(number),
            "spec": self.spec(number),
            "status": self.status(number),
        })
    }

    fn metadata(&self, number: usize) -> Value {
        let replica_set = self.replica_set(number);
        let template = format!("{:010x}", self.deployment(number));
        json!({
            "name": self.name(number),
            "generateName": format!("{replica_set}-"),
            "namespace": self.namespace(number),
            "labels": {
                "app.kubernetes.io/name": "orders-api",
                "app.kubernetes.io/instance": format!("orders-api-{}", self.deployment(number)),
                "pod-template-hash": template,
                "tier": if number.is_multiple_of(3) { "edge" } else { "core" },
            },
            "annotations": {
                "checksum/config": format!("{:064x}", self.deployment(number)),
                "prometheus.io/scrape": "true",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set,
                "uid": format!("6f1c2a9e-0000-4000-8000-{template}00"),
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    }

    fn spec(&self, number: usize) -> Value {
        json!({
            "volumes": [
                {"name": "config", "configMap": {"name": "orders-api", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {}},
            ],
            "containers": [application(), proxy()],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "orders-api", "nodeName": format!("node-{:03}", self.node(number)),
            "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "priority": 0,
        })
    }

    fn status(&self, number: usize) -> Value {
        let at = "2026-01-01T00:00:00Z";
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let container = |name: &str| {
            json!({
                "name": name, "ready": true, "started": true, "restartCount": 0,
                "image": format!("registry.example.com/shop/{name}:1.42.7"),
                "imageID": format!("sha256:{number:016x}"), "containerID": format!("containerd://{number:016x}"),
                "state": {"running": {"startedAt": at}},
            })
        };
        let address = format!(
            "10.{}.{}.{}",
            number >> 16 & 255,
            number >> 8 & 255,
            number & 255
        );
        json!({
            "phase": "Running",
            "conditions": [condition("PodScheduled"), condition("Ready")],
            "hostIP": format!("172.16.0.{}", self.node(number) % 250), "podIP": address, "podIPs": [{"ip": address}],
            "startTime": at,
            "containerStatuses": [container("orders-api"), container("proxy")],
            "qosClass": "Burstable",
        })
    }
}

fn application() -> Value {
    json!({
        "name": "orders-api", "image": "registry.example.com/shop/orders-api:1.42.7",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
        ],
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/orders", "readOnly": true}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http", "scheme": "HTTP"}, "periodSeconds": 5},
        "imagePullPolicy": "IfNotPresent",
    })
}

fn proxy() -> Value {
    json!({
        "name": "proxy", "image": "registry.example.com/shop/proxy:1.42.7",
        "env": [{"name": "UPSTREAM", "value": "127.0.0.1:8080"}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "imagePullPolicy": "IfNotPresent",
    })
}
