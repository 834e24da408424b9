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
    /// The EndpointSlice of the API servers.
    pub(super) servers: Value,
    /// Namespaces with the label, and what each has of the bundle. `None` if they are not known, or there is no bundle.
    pub(super) copies: Option<BTreeMap<String, BundleCopy>>,
    /// What could not be read about copies.
    pub(super) failures: Vec<String>,
}

/// What a namespace has of the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BundleCopy {
    Equal,
    Different,
    Absent,
    /// It could not be read.
    Unknown,
}

impl Setup {
    pub(super) async fn read(api: &Api, namespace: &str) -> Result<Self, ApiFailure> {
        let servers = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        let mut setup = Self {
            service: api.get(&service(namespace)).await?.unwrap_or_default(),
            standby: api.get(&standby(namespace)).await?.unwrap_or_default(),
            settings: api.get(&settings(namespace)).await?.unwrap_or_default(),
            namespace: namespace.to_owned(),
            servers: api.get(servers).await?.unwrap_or_default(),
            copies: None,
            failures: Vec::new(),
        };
        if let Some(bundle) = setup.bundle().map(str::to_owned) {
            setup.read_copies(api, &bundle).await;
        }
        Ok(setup)
    }

    /// Looks for the bundle in the namespaces. What cannot be read hides nothing else.
    async fn read_copies(&mut self, api: &Api, bundle: &str) {
        let names = match labelled(api, &self.namespace).await {
            Ok(names) => names,
            Err(failure) => return self.failures.push(failure.to_string()),
        };
        let mut copies = BTreeMap::new();
        for name in names {
            let copy = match api.get(&settings(&name)).await {
                Ok(None) => BundleCopy::Absent,
                Ok(Some(copy)) if copy["data"][BUNDLE] == bundle => BundleCopy::Equal,
                Ok(Some(_)) => BundleCopy::Different,
                Err(failure) => {
                    self.failures.push(failure.to_string());
                    BundleCopy::Unknown
                }
            };
            copies.insert(name, copy);
        }
        self.copies = Some(copies);
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
    let name = |namespace: &Value| text(namespace, "/metadata/name").to_owned();
    let mut names = api.list("/api/v1/namespaces", &query, name).await?;
    names.retain(|name| name != gateways);
    Ok(names)
}

pub(super) fn service(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services/{SERVICE}")
}

pub(super) fn standby(namespace: &str) -> String {
    format!("{}/{STANDBY}", slices(namespace))
}

pub(super) fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

pub(super) fn settings(namespace: &str) -> String {
    format!("{}/{NAME}", config_maps(namespace))
}

pub(super) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}
