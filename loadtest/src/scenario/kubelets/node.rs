//! A node: what its kubelet and its kube-proxy watch, and what the kubelet writes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::cluster::{self, NAMESPACE};
use super::connection::{Connection, Fleet};
use super::reflector::{Reflector, WatchTarget};
use super::selection::{Collection, PROXIED_SELECTOR, Part, ROOT_CA, Selection, object_number};
use crate::client::excerpt;
use crate::wire::event::first_version;
use crate::writer::shape::node_name;

/// Pods of a node whose status waits to be written; more are not started, and counted.
const PODS_WAITING_MAX: usize = 64;
/// The kubelet's managers of Secrets and ConfigMaps watch for 30 to 60 minutes where reflectors watch for 5 to 10.
const OBJECT_WATCH_FACTOR: u32 = 6;
/// Share by which a kubelet renews its lease later than due, at most.
const LEASE_JITTER: f64 = 0.04;

#[derive(Debug, Clone)]
pub struct NodeBehaviour {
    /// Shortest timeout of a watch.
    pub timeout_min: Duration,
    /// Time between two renewals of the lease.
    pub heartbeat: Duration,
    /// Time between two reports of the node's status.
    pub node_status: Duration,
    /// ConfigMaps that the pods of a node use, and as many Secrets.
    pub references: usize,
    /// The collections that the server has.
    pub collections: Vec<Collection>,
}

/// The clients of one node.
#[derive(Debug)]
pub struct Node {
    pub reflectors: Vec<Arc<Mutex<Reflector>>>,
    tasks: JoinSet<()>,
    heartbeats: JoinSet<Result<()>>,
}

impl Node {
    /// Starts kubelet and kube-proxy; they run until they are dropped.
    pub fn start(
        fleet: &Arc<Fleet>,
        number: usize,
        behaviour: &NodeBehaviour,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let kubelet = Connection::new(fleet.clone(), number * 2, "kubelet/v1.36.0");
        let proxy = Connection::new(fleet.clone(), number * 2 + 1, "kube-proxy/v1.36.0");
        let (pods, new_pods) = mpsc::channel(PODS_WAITING_MAX);
        let mut node = Self {
            reflectors: Vec::new(),
            tasks: JoinSet::new(),
            heartbeats: JoinSet::new(),
        };
        let kubelet = Arc::new(kubelet);
        let proxy = Arc::new(proxy);
        let has = |target: &WatchTarget| {
            let collection = target.selection.collection;
            behaviour.collections.contains(&collection)
        };
        for target in kubelet_targets(number, behaviour).into_iter().filter(has) {
            node.reflect(&kubelet, target, Some(pods.clone()));
        }
        for target in proxy_targets(number, behaviour).into_iter().filter(has) {
            node.reflect(&proxy, target, None);
        }
        let writer = KubeletWriter {
            connection: kubelet,
            name: node_name(number),
            lease_version: None,
        };
        let behaviour = behaviour.clone();
        node.heartbeats.spawn(writer.run(behaviour, new_pods, stop));
        node
    }

    fn reflect(
        &mut self,
        connection: &Arc<Connection>,
        target: WatchTarget,
        pods: Option<mpsc::Sender<String>>,
    ) {
        let reflector = Arc::new(Mutex::new(Reflector::new(target)));
        self.reflectors.push(reflector.clone());
        let connection = connection.clone();
        self.tasks.spawn(async move {
            let start_pods = |names: Vec<String>| {
                for name in names {
                    let sent = pods.as_ref().map(|pods| pods.try_send(name));
                    // Closed: the kubelet has been ordered to write nothing more.
                    if let Some(Err(TrySendError::Full(_))) = sent {
                        connection.fleet.recorder.lock().end("pod not started");
                    }
                }
            };
            connection.reflect(&reflector, start_pods).await;
        });
    }

    /// Waits until the kubelet has written its last; it has been ordered to stop.
    pub async fn heartbeats_end(&mut self) -> Result<()> {
        while let Some(ended) = self.heartbeats.join_next().await {
            ended??;
        }
        Ok(())
    }
}

fn target(collection: Collection, part: Part, selector: &str, timeout: Duration) -> WatchTarget {
    WatchTarget {
        path: collection.path().to_owned(),
        selector: selector.to_owned(),
        selection: Selection { collection, part },
        timeout_min: timeout,
        names_wanted: false,
    }
}

/// A watch of one object of a namespace by its name.
fn object_target(collection: Collection, name: &str, timeout: Duration) -> WatchTarget {
    let number = object_number(name).unwrap_or_default();
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    WatchTarget {
        path: cluster::namespaced(collection, NAMESPACE),
        ..target(
            collection,
            Part::Number(number),
            &selector,
            timeout * OBJECT_WATCH_FACTOR,
        )
    }
}

fn own_node(number: usize, timeout: Duration) -> WatchTarget {
    let name = node_name(number);
    let part = Part::Number(object_number(&name).unwrap_or_default());
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    target(Collection::Nodes, part, &selector, timeout)
}

/// What a kubelet of Kubernetes 1.36 watches, with the objects that its pods use.
fn kubelet_targets(number: usize, behaviour: &NodeBehaviour) -> Vec<WatchTarget> {
    let timeout = behaviour.timeout_min;
    let name = node_name(number);
    let part = Part::Number(object_number(&name).unwrap_or_default());
    let selector = format!("fieldSelector=spec.nodeName%3D{name}");
    let mut targets = vec![
        WatchTarget {
            names_wanted: true,
            ..target(Collection::Pods, part, &selector, timeout)
        },
        own_node(number, timeout),
        target(Collection::Services, Part::All, "", timeout),
        target(Collection::RuntimeClasses, Part::All, "", timeout),
        target(Collection::CsiDrivers, Part::All, "", timeout),
        object_target(Collection::ConfigMaps, ROOT_CA, timeout),
    ];
    for object in cluster::references(number, behaviour.references) {
        let config = cluster::config_name(object);
        targets.push(object_target(Collection::ConfigMaps, &config, timeout));
        let secret = cluster::secret_name(object);
        targets.push(object_target(Collection::Secrets, &secret, timeout));
    }
    targets
}

/// What a kube-proxy of Kubernetes 1.36 watches.
fn proxy_targets(number: usize, behaviour: &NodeBehaviour) -> Vec<WatchTarget> {
    let timeout = behaviour.timeout_min;
    let proxied = |collection| target(collection, Part::Proxied, PROXIED_SELECTOR, timeout);
    vec![
        proxied(Collection::Services),
        proxied(Collection::EndpointSlices),
        proxied(Collection::ServiceCidrs),
        own_node(number, timeout),
    ]
}

struct KubeletWriter {
    connection: Arc<Connection>,
    name: String,
    /// Version of its lease, once it has one.
    lease_version: Option<u64>,
}

impl KubeletWriter {
    async fn run(
        mut self,
        behaviour: NodeBehaviour,
        mut new_pods: mpsc::Receiver<String>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        let every = |period: Duration| {
            // Kubelets have not started at the same moment.
            let first = Instant::now() + period.mul_f64(fastrand::f64());
            let mut ticks =
                interval_at(first, period.mul_f64(1.0 + LEASE_JITTER * fastrand::f64()));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let mut leases = every(behaviour.heartbeat);
        let mut statuses = every(behaviour.node_status);
        while !*stop.borrow_and_update() {
            let written = tokio::select! {
                biased;
                changed = stop.changed() => match changed {
                    Ok(()) => continue,
                    // The run has ended.
                    Err(_) => return Ok(()),
                },
                _ = leases.tick() => self.renew_lease().await,
                _ = statuses.tick() => self.report_node().await,
                Some(pod) = new_pods.recv() => self.report_pod(&pod).await,
            };
            if let Err(error) = written {
                // As a kubelet, which tries again when it is due the next time.
                let mut recorder = self.connection.fleet.recorder.lock();
                recorder.end("kubelet's write failed");
                recorder.message(&format!("{}: {error:#}", self.name));
            }
        }
        Ok(())
    }

    async fn renew_lease(&mut self) -> Result<()> {
        let collection = cluster::LEASES;
        let path = format!("{collection}/{}", self.name);
        if self.lease_version.is_none() {
            let (status, body) = self.call(Method::GET, &path, Vec::new()).await?;
            if status == StatusCode::NOT_FOUND {
                let lease = cluster::lease(&self.name, None);
                let (status, body) = self.call(Method::POST, collection, lease).await?;
                self.lease_version = first_version(&body);
                return accepted(status, &body);
            }
            accepted(status, &body)?;
            self.lease_version = first_version(&body);
        }
        let lease = cluster::lease(&self.name, self.lease_version);
        let (status, body) = self.call(Method::PUT, &path, lease).await?;
        // After a conflict the lease is read again.
        self.lease_version = first_version(&body).filter(|_| status.is_success());
        accepted(status, &body)
    }

    async fn report_node(&self) -> Result<()> {
        let path = format!("{}/{}/status", Collection::Nodes.path(), self.name);
        let (status, body) = self
            .call(Method::PATCH, &path, cluster::node_report())
            .await?;
        accepted(status, &body)
    }

    async fn report_pod(&self, namespaced_name: &str) -> Result<()> {
        let (namespace, name) = namespaced_name.split_once('/').unwrap_or_default();
        let pods = cluster::namespaced(Collection::Pods, namespace);
        let path = format!("{pods}/{name}/status");
        let (status, body) = self
            .call(Method::PATCH, &path, cluster::pod_report())
            .await?;
        // It may have been deleted meanwhile.
        match status {
            StatusCode::NOT_FOUND => Ok(()),
            status => accepted(status, &body),
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, bytes::Bytes)> {
        self.connection.call(method, path, body).await
    }
}

fn accepted(status: StatusCode, body: &[u8]) -> Result<()> {
    ensure!(status.is_success(), "{status}: {}", excerpt(body));
    Ok(())
}
