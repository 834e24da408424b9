//! What is set up in the cluster, as far as the publisher needs it. Judges nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::api::{Api, ApiFailure, text};
use super::names::{LABEL, NAME, SERVICE, STANDBY};

/// The key of the ConfigMap with the authorities for injected pods.
pub(super) const BUNDLE: &str = "ca.crt";

/// The objects, `Null` if they are not there.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// The namespace of the gateways.
    pub(super) namespace: String,
    pub(super) service: Value,
    pub(super) standby: Value,
    pub(super) settings: Value,
    /// The EndpointSlices of the API servers.
    pub(super) servers: Vec<Value>,
    /// Namespaces with the label, and the authorities in the ConfigMap of each, if it has one. Read only if there is a bundle.
    pub(super) bundles: BTreeMap<String, Option<String>>,
}

impl Setup {
    pub(super) async fn read(api: &Api, namespace: &str) -> Result<Self, ApiFailure> {
        let servers = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes";
        let servers = api.get(servers).await?.unwrap_or_default();
        let servers = servers["items"].as_array().cloned().unwrap_or_default();
        let mut setup = Self {
            service: api.get(&service(namespace)).await?.unwrap_or_default(),
            standby: api.get(&standby(namespace)).await?.unwrap_or_default(),
            settings: api.get(&settings(namespace)).await?.unwrap_or_default(),
            namespace: namespace.to_owned(),
            servers,
            bundles: BTreeMap::new(),
        };
        if setup.bundle().is_some() {
            for name in labelled(api, namespace).await? {
                let copy = api.get(&settings(&name)).await?;
                let copy =
                    copy.map(|copy| copy["data"][BUNDLE].as_str().unwrap_or_default().to_owned());
                setup.bundles.insert(name, copy);
            }
        }
        Ok(setup)
    }

    /// A setting of the ConfigMap.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.settings["data"][key].as_str()
    }

    /// The authorities for injected pods, if they are not the cluster's own.
    pub(super) fn bundle(&self) -> Option<&str> {
        self.setting(BUNDLE)
    }
}

/// The namespaces whose pods are injected.
pub(super) async fn labelled(api: &Api, gateways: &str) -> Result<Vec<String>, ApiFailure> {
    let query = format!("labelSelector={}%3Dtrue", LABEL.replace('/', "%2F"));
    let namespaces = api.list("/api/v1/namespaces", &query).await?;
    let names = namespaces.iter().map(|one| text(one, "/metadata/name"));
    let names = names.filter(|name| *name != gateways);
    Ok(names.map(str::to_owned).collect())
}

pub(super) fn service(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services/{SERVICE}")
}

pub(super) fn standby(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{STANDBY}")
}

pub(super) fn settings(namespace: &str) -> String {
    format!("{}/{NAME}", config_maps(namespace))
}

pub(super) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}
