//! An API server and gateways in this process, clients of them, and writes through the gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, Client, Config, Resource};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::kube_rs::store_watcher::{Collection, WatchableKind};
use crate::support::gateway::Running;
use crate::support::history::unseen;
use crate::support::wire::Wire;

/// The number of object names, which are written in turn.
const NAME_COUNT: usize = 12;
const NAMESPACES: [&str; 2] = ["default", "other"];
/// The gateway's drain timeout. Short, because the clients do not stop before the test ends.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// An API server, one or two gateways, and clients.
pub(crate) struct Stage {
    pub(crate) server: Apiserver,
    pub(crate) gateway_client: Client,
    direct: Client,
    admin: Client,
    gateway: Running,
    first_gateway: Option<FirstGateway>,
    write_count: usize,
}

/// The gateway next to the API server, if clients use a second gateway behind it, and the network between the two.
struct FirstGateway {
    gateway: Option<Running>,
    address: SocketAddr,
    wire: Wire,
}

fn client(address: SocketAddr) -> Client {
    Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap()
}

pub(crate) fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

impl Stage {
    pub(crate) async fn start() -> Self {
        let server = apiserver().await;
        let upstream = server.address();
        Self::with_upstream(server, None, upstream).await
    }

    /// A stage with two gateways: clients use the second, which reads from the first.
    pub(crate) async fn behind_gateway() -> Self {
        let server = apiserver().await;
        let gateway = start(server.address(), Some(own_address())).await;
        let address = gateway.address;
        let wire = Wire::to(address).await;
        let upstream = wire.address;
        let first_gateway = FirstGateway {
            gateway: Some(gateway),
            address,
            wire,
        };
        Self::with_upstream(server, Some(first_gateway), upstream).await
    }

    async fn with_upstream(
        server: Apiserver,
        first_gateway: Option<FirstGateway>,
        upstream: SocketAddr,
    ) -> Self {
        let gateway = start(upstream, None).await;
        Self {
            gateway_client: client(gateway.address),
            direct: client(server.address()),
            admin: client(gateway.admin),
            server,
            gateway,
            first_gateway,
            write_count: 0,
        }
    }

    /// The network between the two gateways.
    pub(crate) fn wire(&self) -> &Wire {
        &self.first_gateway.as_ref().unwrap().wire
    }

    /// Stops the first gateway.
    pub(crate) async fn stop_first_gateway(&mut self) {
        let first_gateway = self.first_gateway.as_mut().unwrap();
        first_gateway.gateway.take().unwrap().ended().await;
    }

    /// Starts the first gateway again, on the same port.
    pub(crate) async fn start_first_gateway(&mut self) {
        let first_gateway = self.first_gateway.as_mut().unwrap();
        first_gateway.gateway =
            Some(start(self.server.address(), Some(first_gateway.address)).await);
    }

    /// All objects of a compiled-in kind.
    pub(crate) fn typed<K: WatchableKind + Resource<DynamicType = ()>>(&self) -> Collection<K> {
        Collection {
            watched: Api::all(self.gateway_client.clone()),
            reference: Api::all(self.direct.clone()),
            dynamic_type: (),
        }
    }

    /// The pods of one namespace.
    pub(crate) fn namespaced_pods(&self) -> Collection<Pod> {
        Collection {
            watched: Api::namespaced(self.gateway_client.clone(), NAMESPACES[1]),
            reference: Api::namespaced(self.direct.clone(), NAMESPACES[1]),
            dynamic_type: (),
        }
    }

    /// All objects of a kind, as dynamic objects.
    pub(crate) fn dynamic(&self, group: &str, kind: &str) -> Collection<DynamicObject> {
        let resource = resource(group, kind);
        Collection {
            watched: Api::all_with(self.gateway_client.clone(), &resource),
            reference: Api::all_with(self.direct.clone(), &resource),
            dynamic_type: resource,
        }
    }

    /// Writes pods, config maps and widgets through the gateway: `count` of each.
    pub(crate) async fn churn(&mut self, count: usize) {
        write_numbered(
            self.gateway_client.clone(),
            self.write_count..self.write_count + count,
        )
        .await;
        self.write_count += count;
    }

    /// Writes the same directly to the API server.
    pub(crate) async fn churn_directly(&mut self, count: usize) {
        write_numbered(
            self.direct.clone(),
            self.write_count..self.write_count + count,
        )
        .await;
        self.write_count += count;
    }

    /// Writes one red object of each kind `count` times, with `len` bytes of padding.
    pub(crate) async fn burst(&self, count: usize, len: usize) {
        let spec = json!({"containers": [{"name": "c"}]});
        let namespace = NAMESPACES[1];
        let widget = resource("example.com", "Widget");
        let pods = Api::<Pod>::namespaced(self.gateway_client.clone(), namespace);
        let maps = Api::<ConfigMap>::namespaced(self.gateway_client.clone(), namespace);
        let widgets =
            Api::<DynamicObject>::namespaced_with(self.gateway_client.clone(), namespace, &widget);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
        burst(&pods, pod, count, len).await;
        burst(
            &maps,
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            count,
            len,
        )
        .await;
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
        burst(&widgets, widget, count, len).await;
    }

    /// Ends and refuses all upstream watches while objects are written, and then compacts the history of these writes.
    pub(crate) async fn lose_history(&mut self, count: usize) {
        let (server, gateway_client) = (&self.server, self.gateway_client.clone());
        unseen(
            server,
            write_numbered(gateway_client, self.write_count..self.write_count + count),
        )
        .await;
        self.write_count += count;
    }

    /// Lists pods, config maps and widgets until the gateway has caches of them.
    pub(crate) async fn fill_caches(&self) {
        let list = ListParams::default();
        while self.metric("kube_fanout_cache_initializations_total").await < 3.0 {
            for collection in [
                self.dynamic("", "Pod"),
                self.dynamic("", "ConfigMap"),
                self.dynamic("example.com", "Widget"),
            ] {
                collection.watched.list(&list).await.unwrap();
            }
        }
    }

    /// The sum of a gateway metric over all its series.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.admin.request_text(request).await.unwrap();
        let series = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        series.map(value).sum()
    }

    /// Shuts the gateways down.
    pub(crate) async fn shut_down(self) {
        self.gateway.ended().await;
        if let Some(gateway) = self
            .first_gateway
            .and_then(|first_gateway| first_gateway.gateway)
        {
            gateway.ended().await;
        }
    }
}

async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        extra_kinds: vec!["widgets.v1.example.com=Widget".parse().unwrap()],
        ..Options::default()
    };
    apiserver::start(listener, options).unwrap()
}

/// A loopback address that no other process uses, so that a port on it is still free when the gateway restarts.
fn own_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, high | 0x80, middle, low), 0).into()
}

/// Starts a gateway, on a free port if there is no listen address.
async fn start(upstream: SocketAddr, listen: Option<SocketAddr>) -> Running {
    let upstream = format!("http://{upstream}/").parse().unwrap();
    let mut settings = ServeSettings::embedded(upstream);
    settings.listen = listen.unwrap_or(settings.listen);
    Running::start(settings, Drain::with_timeout(DRAIN_TIMEOUT)).await
}

async fn burst<K: WatchableKind + DeserializeOwned>(
    api: &Api<K>,
    mut object: Value,
    count: usize,
    len: usize,
) {
    object["metadata"] = json!({"name": "quiet", "labels": {"colour": "red"}});
    let object = serde_json::from_value(object).unwrap();
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => panic!("create the object of a burst: {error:?}"),
    }
    for number in 0..count {
        let padding = format!("{number}{}", "x".repeat(len));
        let change = json!({"metadata": {"annotations": {"padding": padding}}});
        let patch = Patch::Merge(change);
        api.patch("quiet", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

async fn write_numbered(client: Client, numbers: Range<usize>) {
    for number in numbers {
        let namespace = NAMESPACES[number % NAMESPACES.len()];
        let write = NumberedWrite::of(number);
        write.apply(&Api::<Pod>::namespaced(client.clone(), namespace), json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}], "nodeName": "n"}})).await;
        write.apply(&Api::<ConfigMap>::namespaced(client.clone(), namespace), json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "a \"quoted\" \u{1F600} value"}})).await;
        let widgets: Api<DynamicObject> = Api::namespaced_with(
            client.clone(),
            namespace,
            &resource("example.com", "Widget"),
        );
        write
            .apply(
                &widgets,
                json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": number}}),
            )
            .await;
    }
}

/// One write. Each object is created, changed so that the selector no longer matches, changed back and deleted; the names are in different
/// phases.
struct NumberedWrite {
    name: String,
    number: usize,
    phase: usize,
}

impl NumberedWrite {
    fn of(number: usize) -> Self {
        let name_index = number % NAME_COUNT;
        Self {
            name: format!("o{name_index}"),
            number,
            phase: (number / NAME_COUNT + name_index / 2) % 4,
        }
    }

    async fn apply<K>(&self, api: &Api<K>, object: Value)
    where
        K: WatchableKind + DeserializeOwned,
    {
        let name = &self.name;
        let colour_patch = |colour: &str| {
            json!({"metadata": {
                "labels": {"colour": colour},
                "annotations": {"number": self.number.to_string()},
            }})
        };
        let error = match self.phase {
            0 => {
                let mut object = object;
                object["metadata"] = json!({"name": name, "labels": {"colour": "red"}});
                let object = serde_json::from_value(object).unwrap();
                api.create(&PostParams::default(), &object).await.err()
            }
            phase @ (1 | 2) => {
                let colour = if phase == 1 { "blue" } else { "red" };
                let patch = Patch::Merge(colour_patch(colour));
                let patched = api.patch(name, &PatchParams::default(), &patch).await;
                patched.err()
            }
            _ => {
                let deleted = api.delete(name, &DeleteParams::default()).await;
                deleted.err()
            }
        };
        match error {
            None => {}
            // A name whose first phase is not the creation does not exist yet.
            Some(kube::Error::Api(status))
                if status.code == 404 && self.number < 4 * NAME_COUNT => {}
            Some(error) => panic!("write {} of {name}: {error:?}", self.number),
        }
    }
}
