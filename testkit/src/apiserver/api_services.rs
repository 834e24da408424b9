//! The APIServices of the served groups: kube-apiserver has one for each, and the gateway learns from them which groups are local.

use std::collections::BTreeSet;

use serde_json::json;

use super::store::{Store, now_text};

const GROUP: &str = "apiregistration.k8s.io";

/// Stores a local APIService for each group and version.
pub(super) fn put_local(store: &Store) {
    let catalogue = store.catalogue();
    let Some(kind_index) = catalogue.index_of(GROUP, "v1", "apiservices") else {
        return;
    };
    let kinds = catalogue.kinds().iter();
    let served: BTreeSet<_> = kinds.map(|kind| (&kind.group, &kind.version)).collect();
    for (group, version) in served {
        let uid = store.locked().random.uuid();
        let condition = json!({
            "type": "Available",
            "status": "True",
            "lastTransitionTime": now_text(),
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        let service = json!({
            "kind": "APIService",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": {
                "name": format!("{version}.{group}"),
                "uid": uid,
                "creationTimestamp": now_text(),
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
            },
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 1_000,
                "versionPriority": 100,
            },
            "status": {"conditions": [condition]},
        });
        store.put_initial(kind_index, service);
    }
}
