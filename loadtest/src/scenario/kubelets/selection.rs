//! The collections that kubelets and kube-proxies watch, and the parts of them that one reflector must have.

use serde_json::Value;

use crate::recording::{PartsOf, whole};
use crate::scenario::population::of_node;
use crate::verify::reference::Part;
use crate::writer::shape::number_of;

/// The ConfigMap with the cluster's certificates, which every pod mounts.
pub const ROOT_CA: &str = "kube-root-ca.crt";
/// Its number, which no other object has.
const ROOT_CA_NUMBER: u32 = u32::MAX;
/// Labels of services and slices that a kube-proxy leaves alone.
const NOT_PROXIED: [&str; 2] = [
    "service.kubernetes.io/headless",
    "service.kubernetes.io/service-proxy-name",
];
/// The selector of kube-proxy's informers.
pub const PROXIED_SELECTOR: &str = "labelSelector=%21service.kubernetes.io%2Fheadless%2C%21service.kubernetes.io%2Fservice-proxy-name";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collection {
    Pods,
    Nodes,
    Services,
    EndpointSlices,
    ConfigMaps,
    Secrets,
    RuntimeClasses,
    CsiDrivers,
    ServiceCidrs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Selection {
    pub collection: Collection,
    pub part: Part,
}

impl Collection {
    pub const ALL: [Self; 9] = [
        Self::Pods,
        Self::Nodes,
        Self::Services,
        Self::EndpointSlices,
        Self::ConfigMaps,
        Self::Secrets,
        Self::RuntimeClasses,
        Self::CsiDrivers,
        Self::ServiceCidrs,
    ];

    /// Its path over all namespaces.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Pods => "/api/v1/pods",
            Self::Nodes => "/api/v1/nodes",
            Self::Services => "/api/v1/services",
            Self::EndpointSlices => "/apis/discovery.k8s.io/v1/endpointslices",
            Self::ConfigMaps => "/api/v1/configmaps",
            Self::Secrets => "/api/v1/secrets",
            Self::RuntimeClasses => "/apis/node.k8s.io/v1/runtimeclasses",
            Self::CsiDrivers => "/apis/storage.k8s.io/v1/csidrivers",
            Self::ServiceCidrs => "/apis/networking.k8s.io/v1/servicecidrs",
        }
    }

    /// The parts that reflectors have of it.
    pub const fn parts_of(self) -> PartsOf {
        match self {
            Self::Pods => of_node,
            Self::Nodes | Self::ConfigMaps | Self::Secrets => by_number,
            Self::Services | Self::EndpointSlices | Self::ServiceCidrs => proxied,
            Self::RuntimeClasses | Self::CsiDrivers => whole,
        }
    }
}

fn by_number(object: &Value) -> Vec<Part> {
    let name = object["metadata"]["name"].as_str();
    let number = name.and_then(object_number);
    number.map(Part::Number).into_iter().collect()
}

fn proxied(object: &Value) -> Vec<Part> {
    let labels = &object["metadata"]["labels"];
    let is_proxied = NOT_PROXIED.iter().all(|label| labels[label].is_null());
    is_proxied.then_some(Part::Proxied).into_iter().collect()
}

/// The number in the name of an object or a node.
pub fn object_number(name: &str) -> Option<u32> {
    if name == ROOT_CA {
        return Some(ROOT_CA_NUMBER);
    }
    number_of(name).and_then(|number| u32::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_belongs_to_its_node_once_it_is_bound() {
        let parts = Collection::Pods.parts_of();
        assert!(parts(&json!({"spec": {}})).is_empty());
        let bound = json!({"spec": {"nodeName": "node-00012"}});
        assert_eq!(parts(&bound), [Part::Number(12)]);
    }

    #[test]
    fn a_kube_proxy_has_no_headless_services() {
        let parts = Collection::Services.parts_of();
        let service = |labels| json!({"metadata": {"name": "service-1", "labels": labels}});
        let headless = service(json!({"service.kubernetes.io/headless": ""}));
        assert!(parts(&headless).is_empty());
        assert_eq!(parts(&service(json!({"app": "a"}))), [Part::Proxied]);
    }
}
