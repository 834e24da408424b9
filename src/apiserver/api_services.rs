//! The APIServices of the catalogue: the server stores all of its kinds itself, so they name no service. Tests register others.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::storage::Storage;
use super::store::Entropy;

const GROUP: &str = "apiregistration.k8s.io";

/// Stores a local APIService for each group and version, as kube-apiserver does when it starts. Does nothing if the catalogue has none.
pub(super) fn put_local(storage: &mut Storage) {
    let catalogue = Arc::clone(storage.catalogue());
    let Some(kind_index) = catalogue.index_of(GROUP, "v1", "apiservices") else {
        return;
    };
    let kinds = catalogue.kinds().iter().map(|kind| &kind.resource.gvr);
    let served: BTreeSet<_> = kinds.map(|gvr| (&*gvr.group, &*gvr.version)).collect();
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut entropy = Entropy(0);
    for (group, version) in served {
        let name = format!("{version}.{group}");
        let object = json!({
            "kind": "APIService",
            "apiVersion": format!("{GROUP}/v1"),
            "metadata": {
                "name": name,
                "uid": entropy.uuid(),
                "creationTimestamp": now,
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"},
            },
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 1_000,
                "versionPriority": 100,
            },
            "status": {"conditions": [{
                "type": "Available",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "Local",
                "message": "Local APIServices are always available",
            }]},
        });
        storage.put_initial(kind_index, &name, object);
    }
}
