//! What is to be written so that pods can be injected and kube-proxy knows the API servers. Sends nothing.

use core::net::IpAddr;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::api::text;
use super::names::{NAME, SERVICE, STANDBY};
use super::setup::{self, BUNDLE, BundleCopy, Setup};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Into the object of this path.
    Patch(String, Value),
    /// Into the collection of this path.
    Create(String, Value),
}

/// The writes that are needed, and what no write repairs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) writes: Vec<Write>,
    pub(super) problems: Vec<String>,
}

impl Plan {
    pub(super) fn of(setup: &Setup) -> Self {
        let mut plan = Self::of_standby(setup);
        plan.settings(setup, text(&setup.service, "/spec/clusterIP"));
        plan.problems.extend(setup.failures.iter().cloned());
        plan
    }

    /// What the stand-by needs, without which nobody may be led to it.
    pub(super) fn of_standby(setup: &Setup) -> Self {
        let mut plan = Self::default();
        match text(&setup.service, "/spec/clusterIP") {
            "" | "None" => plan.problem(format!("Service {SERVICE} is missing, or has no address")),
            address => plan.standby(setup, address),
        }
        plan
    }

    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    /// The API servers, in the EndpointSlice of the Service.
    fn standby(&mut self, setup: &Setup, address: &str) {
        let family = match address.contains(':') {
            true => "IPv6",
            false => "IPv4",
        };
        let servers = &setup.servers;
        if text(servers, "/addressType") != family {
            // The last addresses are better than none.
            return self.problem(format!(
                "the namespace default has no EndpointSlice kubernetes with {family} addresses"
            ));
        }
        let other = text(&setup.standby, "/addressType");
        if !setup.standby.is_null() && other != family {
            return self.problem(format!(
                "EndpointSlice {STANDBY} is of {other}, the Service of {family}: delete it"
            ));
        }
        let port = servers.pointer("/ports/0/port");
        let mut addresses: Vec<&str> = endpoints(servers)
            .filter(|endpoint| endpoint["conditions"]["ready"] != false)
            .filter_map(|endpoint| endpoint["addresses"][0].as_str())
            .collect();
        addresses.sort_unstable();
        let Some(port) = port.filter(|_| !addresses.is_empty()) else {
            return self.problem("no API server is ready in the namespace default".to_owned());
        };
        let ports = json!([{
            // kube-proxy joins ports and endpoints by this name.
            "name": text(&setup.service, "/spec/ports/0/name"),
            "port": port,
            "protocol": "TCP",
        }]);
        let conditions = json!({"ready": false, "serving": true, "terminating": true});
        let endpoints: Vec<Value> = addresses
            .iter()
            .map(|address| json!({"addresses": [address], "conditions": conditions}))
            .collect();
        if setup.standby.is_null() {
            self.writes.push(Write::Create(
                setup::slices(&setup.namespace),
                json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {"name": STANDBY, "namespace": setup.namespace, "labels": {
                        "app.kubernetes.io/name": "kube-fanout",
                        "kubernetes.io/service-name": SERVICE,
                        "endpointslice.kubernetes.io/managed-by": "kube-fanout",
                    }},
                    "addressType": family,
                    "ports": ports,
                    "endpoints": endpoints,
                }),
            ));
        } else if setup.standby["ports"] != ports || setup.standby["endpoints"] != json!(endpoints)
        {
            let patch = json!({"ports": ports, "endpoints": endpoints});
            self.patch(setup::standby(&setup.namespace), patch);
        }
    }

    /// The Service's address, and the namespaces that have the bundle.
    fn settings(&mut self, setup: &Setup, address: &str) {
        if setup.settings.is_null() {
            return self.problem(format!("ConfigMap {NAME} is missing"));
        }
        let mut data = Map::new();
        if let Ok(new) = address.parse::<IpAddr>() {
            match setup.setting("ip").map(str::parse::<IpAddr>) {
                Some(Ok(known)) if known == new => {}
                // Pods that run have it, and know no other.
                Some(Ok(known)) => self.problem(format!(
                    "pods were given the address {known}, and Service {SERVICE} has {new}: recreate the Service with clusterIP {known}"
                )),
                _ => drop(data.insert("ip".to_owned(), address.into())),
            }
        }
        let namespaces = match (setup.bundle(), &setup.copies) {
            (None, _) => None,
            // They are not known: what was found last holds.
            (_, None) => setup.setting("namespaces").map(str::to_owned),
            (Some(bundle), Some(copies)) => Some(self.bundles(setup, bundle, copies)),
        };
        if setup.setting("namespaces") != namespaces.as_deref() {
            data.insert("namespaces".to_owned(), namespaces.into());
        }
        if !data.is_empty() {
            self.patch(setup::settings(&setup.namespace), json!({"data": data}));
        }
    }

    /// Copies the bundle. Returns the namespaces that have it already: pods are injected there.
    fn bundles(
        &mut self,
        setup: &Setup,
        bundle: &str,
        copies: &BTreeMap<String, BundleCopy>,
    ) -> String {
        let known = setup.setting("namespaces").unwrap_or_default();
        let mut ready = Vec::new();
        for (namespace, copy) in copies {
            let data = json!({BUNDLE: bundle});
            match copy {
                BundleCopy::Equal => ready.push(namespace.as_str()),
                BundleCopy::Unknown => ready.extend(known.split(',').find(|one| one == namespace)),
                BundleCopy::Different => {
                    self.patch(setup::settings(namespace), json!({"data": data}));
                }
                BundleCopy::Absent => self.writes.push(Write::Create(
                    setup::config_maps(namespace),
                    json!({
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": NAME, "namespace": namespace},
                        "data": data,
                    }),
                )),
            }
        }
        ready.join(",")
    }

    fn patch(&mut self, path: String, patch: Value) {
        self.writes.push(Write::Patch(path, patch));
    }
}

/// The endpoints of a slice.
pub(super) fn endpoints(slice: &Value) -> impl Iterator<Item = &Value> {
    slice["endpoints"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
