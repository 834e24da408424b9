//! API server and gateway in this process, clients of both, and writes through the gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, Client, Config, Resource};
use kube_fanout::apiserver::{self, Apiserver, Options};
use kube_fanout::config::ServeSettings;
use kube_fanout::shutdown::Drain;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::kube_rs::follower::{Collection, Followed};
use crate::support::gateway::Running;
use crate::support::history::unseen;
use crate::support::wire::Wire;

/// Names that are written in turn.
const NAME_COUNT: usize = 12;
const NAMESPACES: [&str; 2] = ["default", "other"];
/// The gateway's end; its clients end with the test.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// API server, gateway and clients.
pub(crate) struct Stage {
    pub(crate) server: Apiserver,
    pub(crate) through: Client,
    direct: Client,
    admin: Client,
    gateway: Running,
    lower: Option<Lower>,
    written: usize,
}

/// Another gateway, between the API server and the one that clients ask, and the network between the two.
struct Lower {
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
    pub(crate) async fn set() -> Self {
        let server = apiserver().await;
        let upstream = server.address();
        Self::before(server, None, upstream).await
    }

    /// A stage whose gateway is behind another one.
    pub(crate) async fn behind_gateway() -> Self {
        let server = apiserver().await;
        let gateway = start(server.address(), Some(own_address())).await;
        let address = gateway.address;
        let wire = Wire::to(address).await;
        let upstream = wire.address;
        let lower = Lower {
            gateway: Some(gateway),
            address,
            wire,
        };
        Self::before(server, Some(lower), upstream).await
    }

    async fn before(server: Apiserver, lower: Option<Lower>, upstream: SocketAddr) -> Self {
        let gateway = start(upstream, None).await;
        Self {
            through: client(gateway.address),
            direct: client(server.address()),
            admin: client(gateway.admin),
            server,
            gateway,
            lower,
            written: 0,
        }
    }

    /// The network to the other gateway.
    pub(crate) fn wire(&self) -> &Wire {
        &self.lower.as_ref().unwrap().wire
    }

    /// Ends the other gateway.
    pub(crate) async fn stop_lower(&mut self) {
        let lower = self.lower.as_mut().unwrap();
        lower.gateway.take().unwrap().ended().await;
    }

    /// Starts it again, on the same port.
    pub(crate) async fn start_lower(&mut self) {
        let lower = self.lower.as_mut().unwrap();
        lower.gateway = Some(start(self.server.address(), Some(lower.address)).await);
    }

    /// All objects of a compiled-in kind.
    pub(crate) fn typed<K: Followed + Resource<DynamicType = ()>>(&self) -> Collection<K> {
        Collection {
            watched: Api::all(self.through.clone()),
            truth: Api::all(self.direct.clone()),
            dynamic_type: (),
        }
    }

    /// The pods of one namespace.
    pub(crate) fn namespaced_pods(&self) -> Collection<Pod> {
        Collection {
            watched: Api::namespaced(self.through.clone(), NAMESPACES[1]),
            truth: Api::namespaced(self.direct.clone(), NAMESPACES[1]),
            dynamic_type: (),
        }
    }

    /// All objects of a kind by its name.
    pub(crate) fn dynamic(&self, group: &str, kind: &str) -> Collection<DynamicObject> {
        let resource = resource(group, kind);
        Collection {
            watched: Api::all_with(self.through.clone(), &resource),
            truth: Api::all_with(self.direct.clone(), &resource),
            dynamic_type: resource,
        }
    }

    /// Writes pods, config maps and widgets through the gateway: `count` of each.
    pub(crate) async fn churn(&mut self, count: usize) {
        churned(self.through.clone(), self.written..self.written + count).await;
        self.written += count;
    }

    /// The same without a gateway.
    pub(crate) async fn churn_directly(&mut self, count: usize) {
        churned(self.direct.clone(), self.written..self.written + count).await;
        self.written += count;
    }

    /// Writes one red object of each kind so many times, this long.
    pub(crate) async fn burst(&self, count: usize, len: usize) {
        let spec = json!({"containers": [{"name": "c"}]});
        let namespace = NAMESPACES[1];
        let widget = resource("example.com", "Widget");
        let pods = Api::<Pod>::namespaced(self.through.clone(), namespace);
        let maps = Api::<ConfigMap>::namespaced(self.through.clone(), namespace);
        let widgets =
            Api::<DynamicObject>::namespaced_with(self.through.clone(), namespace, &widget);
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

    /// Breaks all upstream watches and keeps them away while objects are written whose history is then forgotten.
    pub(crate) async fn tear_history(&mut self, count: usize) {
        let (server, through) = (&self.server, self.through.clone());
        unseen(server, churned(through, self.written..self.written + count)).await;
        self.written += count;
    }

    /// Lists pods, config maps and widgets until the gateway has them.
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

    /// Sum of one of the gateway's metrics over all its series.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.admin.request_text(request).await.unwrap();
        let series = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")));
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        series.map(value).sum()
    }

    /// Ends the gateways.
    pub(crate) async fn strike(self) {
        self.gateway.ended().await;
        if let Some(gateway) = self.lower.and_then(|lower| lower.gateway) {
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

/// An address that nobody else of this machine binds or connects from, so that a port on it is still free a second time.
fn own_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, high | 0x80, middle, low), 0).into()
}

/// A gateway, on any port if no address is given.
async fn start(upstream: SocketAddr, listen: Option<SocketAddr>) -> Running {
    let upstream = format!("http://{upstream}/").parse().unwrap();
    let mut settings = ServeSettings::embedded(upstream);
    settings.listen = listen.unwrap_or(settings.listen);
    Running::start(settings, Drain::with_timeout(DRAIN_TIMEOUT)).await
}

async fn burst<K: Followed + DeserializeOwned>(
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
        Err(error) => panic!("quiet: {error:?}"),
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

async fn churned(client: Client, numbers: Range<usize>) {
    for number in numbers {
        let namespace = NAMESPACES[number % NAMESPACES.len()];
        let turn = Turn::of(number);
        turn.play(&Api::<Pod>::namespaced(client.clone(), namespace), json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c"}], "nodeName": "n"}})).await;
        turn.play(&Api::<ConfigMap>::namespaced(client.clone(), namespace), json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "a \"quoted\" \u{1F600} value"}})).await;
        let widgets: Api<DynamicObject> = Api::namespaced_with(
            client.clone(),
            namespace,
            &resource("example.com", "Widget"),
        );
        turn.play(
            &widgets,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": number}}),
        )
        .await;
    }
}

/// One write. Each name is created, leaves the selector, comes back and is deleted, each at another time.
struct Turn {
    name: String,
    number: usize,
    phase: usize,
}

impl Turn {
    fn of(number: usize) -> Self {
        let name_index = number % NAME_COUNT;
        Self {
            name: format!("o{name_index}"),
            number,
            phase: (number / NAME_COUNT + name_index / 2) % 4,
        }
    }

    async fn play<K>(&self, api: &Api<K>, object: Value)
    where
        K: Followed + DeserializeOwned,
    {
        let name = &self.name;
        let repaint = |colour: &str| {
            json!({"metadata": {
                "labels": {"colour": colour},
                "annotations": {"number": self.number.to_string()},
            }})
        };
        let answer = match self.phase {
            0 => {
                let mut object = object;
                object["metadata"] = json!({"name": name, "labels": {"colour": "red"}});
                let object = serde_json::from_value(object).unwrap();
                api.create(&PostParams::default(), &object).await.err()
            }
            phase @ (1 | 2) => {
                let colour = if phase == 1 { "blue" } else { "red" };
                let patch = Patch::Merge(repaint(colour));
                let patched = api.patch(name, &PatchParams::default(), &patch).await;
                patched.err()
            }
            _ => {
                let deleted = api.delete(name, &DeleteParams::default()).await;
                deleted.err()
            }
        };
        match answer {
            None => {}
            // Names that begin in another phase are not there yet.
            Some(kube::Error::Api(status))
                if status.code == 404 && self.number < 4 * NAME_COUNT => {}
            Some(error) => panic!("write {} of {name}: {error:?}", self.number),
        }
    }
}
