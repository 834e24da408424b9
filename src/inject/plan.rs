//! What is to be written so that pods can be injected and kube-proxy knows the API servers. Sends nothing.

use serde_json::{Map, Value, json};

use super::api::text;
use super::names::{NAME, SERVICE, STANDBY};
use super::setup::{self, BUNDLE, Setup};

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
        let mut plan = Self::default();
        let address = text(&setup.service, "/spec/clusterIP");
        match address {
            "" | "None" => plan.problem(format!("Service {SERVICE} is missing, or has no address")),
            address => plan.standby(setup, address),
        }
        plan.settings(setup, address);
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
        let mut slices = setup.servers.iter();
        let Some(servers) = slices.find(|slice| text(slice, "/addressType") == family) else {
            // The last addresses are better than none.
            let found = "the namespace default has no EndpointSlice of Service kubernetes";
            return self.problem(format!("{found} with {family} addresses"));
        };
        match text(&setup.standby, "/addressType") {
            "" => return self.problem(format!("EndpointSlice {STANDBY} is missing")),
            other if other != family => {
                return self.problem(format!(
                    "EndpointSlice {STANDBY} is of {other}, the Service of {family}: delete it and create it again"
                ));
            }
            _ => {}
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
        if setup.standby["ports"] != ports || setup.standby["endpoints"] != json!(endpoints) {
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
        if !matches!(address, "" | "None") && setup.setting("ip") != Some(address) {
            data.insert("ip".to_owned(), address.into());
        }
        let namespaces = setup.bundle().map(|bundle| self.bundles(setup, bundle));
        if setup.setting("namespaces") != namespaces.as_deref() {
            data.insert("namespaces".to_owned(), namespaces.into());
        }
        if !data.is_empty() {
            self.patch(setup::settings(&setup.namespace), json!({"data": data}));
        }
    }

    /// Copies the bundle. Returns the namespaces that have it already: pods are injected there.
    fn bundles(&mut self, setup: &Setup, bundle: &str) -> String {
        let mut ready = Vec::new();
        for (namespace, copy) in &setup.bundles {
            let data = json!({BUNDLE: bundle});
            match copy {
                Some(copy) if copy == bundle => ready.push(namespace.as_str()),
                Some(_) => self.patch(setup::settings(namespace), json!({"data": data})),
                None => self.writes.push(Write::Create(
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
