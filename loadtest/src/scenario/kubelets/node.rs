//! A node: what its kubelet and its kube-proxy watch, and what the kubelet writes. Each of the two has one HTTP/2 connection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube_fanout::resource::Encoding;
use parking_lot::Mutex;

use super::ComparedClient;
use super::cluster::{self, NAMESPACE};
use super::reflector::{Reflector, WatchTarget};
use super::selection::{Collection, PROXIED_SELECTOR, ROOT_CA, Selection, object_number};
use crate::client::excerpt;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Member, Next, ResponseEnd};
use crate::target::user_token;
use crate::verify::reference::Part;
use crate::watcher::Goal;
use crate::writer::shape::node_name;

/// Pods of a node whose status waits to be written; more are not started, and counted.
const PODS_WAITING_MAX: usize = 64;
/// The kubelet's managers of Secrets and ConfigMaps watch for 30 to 60 minutes where reflectors watch for 5 to 10.
const OBJECT_WATCH_FACTOR: u32 = 6;
/// Share by which a kubelet renews its lease later than due, at most.
const LEASE_JITTER: f64 = 0.04;
/// How often a kubelet looks for what is due; a pod takes longer to start.
const LOOK: Duration = Duration::from_millis(100);
/// The beginning of a response that is kept, for messages.
const RESPONSE_LEN_MAX: usize = 512;

/// The clients of all nodes, and what they share.
#[derive(Debug)]
pub struct Nodes {
    /// Shortest timeout of a watch.
    pub timeout_min: Duration,
    /// Time between two renewals of a node's lease.
    pub heartbeat: Duration,
    /// Time between two reports of a node's status.
    pub node_status: Duration,
    /// ConfigMaps that the pods of a node use, and as many Secrets.
    pub references: usize,
    /// Whether each kubelet and each kube-proxy has a token of its own.
    pub own_tokens: bool,
    /// The collections that the server has.
    pub collections: Vec<Collection>,
    pub encoding: Encoding,
    /// Whether first watches end early, as if the nodes had been running for some time.
    pub is_staggered: bool,
    /// The versions that the reflectors must reach.
    pub goals: HashMap<Selection, Arc<Goal>>,
    /// Reflectors that have had a complete state.
    pub synced: Arc<AtomicUsize>,
    pub orders: Arc<WriterOrders>,
}

/// Orders to the kubelets' writers.
#[derive(Debug, Default)]
pub struct WriterOrders {
    /// Relaxed: a writer sees it before its next write.
    pub stop: AtomicBool,
    /// Writers that have written their last.
    pub ended: AtomicUsize,
}

/// Pods that have been bound to a node and do not run yet.
#[derive(Debug, Default)]
pub struct NewPods {
    names: Mutex<VecDeque<String>>,
    /// Pods that were not kept because too many waited. Relaxed: it stands alone.
    left_out: AtomicUsize,
}

impl NewPods {
    pub fn push(&self, name: &str) {
        let mut names = self.names.lock();
        if names.len() < PODS_WAITING_MAX {
            names.push_back(name.to_owned());
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn pop(&self) -> Option<String> {
        self.names.lock().pop_front()
    }
}

/// A stream of a node's connection.
#[derive(Debug)]
pub struct NodeClient {
    role: NodeRole,
    /// That of its kubelet or kube-proxy, if it has one of its own.
    token: Option<String>,
}

/// What a stream carries.
#[derive(Debug)]
enum NodeRole {
    Reflector(Box<Reflector>),
    Writer(Box<KubeletWriter>),
}

impl Nodes {
    /// What a kubelet of Kubernetes 1.36 watches, with the objects that its pods use; and its writer.
    pub fn kubelet(&mut self, number: usize) -> Vec<NodeClient> {
        let timeout = self.timeout_min;
        let name = node_name(number);
        let new_pods = Arc::<NewPods>::default();
        let selector = format!("fieldSelector=spec.nodeName%3D{name}");
        let part = Part::Number(object_number(&name).unwrap_or_default());
        let mut targets = vec![
            WatchTarget {
                new_pods: Some(new_pods.clone()),
                ..self.target(Collection::Pods, part, &selector)
            },
            self.own_node(number),
            self.target(Collection::Services, Part::All, ""),
            self.target(Collection::RuntimeClasses, Part::All, ""),
            self.target(Collection::CsiDrivers, Part::All, ""),
        ];
        let shared: Vec<_> = cluster::references(number, self.references).collect();
        let of_pods = shared.into_iter().flat_map(|object| {
            [
                (Collection::ConfigMaps, cluster::config_name(object)),
                (Collection::Secrets, cluster::secret_name(object)),
            ]
        });
        let root = (Collection::ConfigMaps, ROOT_CA.to_owned());
        for (collection, name) in [root].into_iter().chain(of_pods) {
            targets.push(WatchTarget {
                path: cluster::namespaced(collection, NAMESPACE),
                timeout_min: timeout * OBJECT_WATCH_FACTOR,
                ..self.named(collection, &name)
            });
        }
        let writer = KubeletWriter {
            orders: self.orders.clone(),
            new_pods,
            lease: Schedule::begin(self.heartbeat),
            node_status: Schedule::begin(self.node_status),
            current: None,
            response: Vec::new(),
            name,
        };
        let token = self.token(number * 2);
        let mut clients = self.reflectors(targets, &token);
        clients.push(NodeClient {
            role: NodeRole::Writer(Box::new(writer)),
            token,
        });
        clients
    }

    /// What a kube-proxy of Kubernetes 1.36 watches.
    pub fn proxy(&mut self, number: usize) -> Vec<NodeClient> {
        let mut targets = vec![self.own_node(number)];
        for collection in [
            Collection::Services,
            Collection::EndpointSlices,
            Collection::ServiceCidrs,
        ] {
            targets.push(self.target(collection, Part::Proxied, PROXIED_SELECTOR));
        }
        self.reflectors(targets, &self.token(number * 2 + 1))
    }

    fn token(&self, user: usize) -> Option<String> {
        self.own_tokens.then(|| user_token(user))
    }

    /// What a pod watches: the ConfigMap with this number, which is the only one in its namespace.
    pub fn pod(&mut self, namespace: &str, number: u32) -> Reflector {
        let target = WatchTarget {
            path: cluster::namespaced(Collection::ConfigMaps, namespace),
            lists_first: true,
            ..self.target(Collection::ConfigMaps, Part::Number(number), "")
        };
        Reflector::new(target, self.encoding)
    }

    fn reflectors(&self, targets: Vec<WatchTarget>, token: &Option<String>) -> Vec<NodeClient> {
        let is_there =
            |target: &WatchTarget| self.collections.contains(&target.selection.collection);
        let targets = targets.into_iter().filter(is_there);
        let reflectors = targets.map(|target| Reflector::new(target, self.encoding));
        let clients = reflectors.map(|reflector| NodeClient {
            role: NodeRole::Reflector(Box::new(reflector)),
            token: token.clone(),
        });
        clients.collect()
    }

    fn own_node(&mut self, number: usize) -> WatchTarget {
        self.named(Collection::Nodes, &node_name(number))
    }

    /// A watch of one object by its name.
    fn named(&mut self, collection: Collection, name: &str) -> WatchTarget {
        let part = Part::Number(object_number(name).unwrap_or_default());
        self.target(
            collection,
            part,
            &format!("fieldSelector=metadata.name%3D{name}"),
        )
    }

    fn target(&mut self, collection: Collection, part: Part, selector: &str) -> WatchTarget {
        let selection = Selection { collection, part };
        WatchTarget {
            path: collection.path().to_owned(),
            selector: selector.to_owned(),
            selection,
            timeout_min: self.timeout_min,
            new_pods: None,
            lists_first: false,
            is_staggered: self.is_staggered,
            goal: self.goals.entry(selection).or_default().clone(),
            synced: self.synced.clone(),
        }
    }
}

/// Something that is due at an even rate.
#[derive(Debug)]
struct Schedule {
    due: Instant,
    period: Duration,
}

impl Schedule {
    /// Kubelets have not started at the same moment.
    fn begin(period: Duration) -> Self {
        Self {
            due: Instant::now() + period.mul_f64(fastrand::f64()),
            period: period.mul_f64(1.0 + LEASE_JITTER * fastrand::f64()),
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due = now + self.period;
        }
        is_due
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Report {
    /// It renews its lease.
    Lease,
    Node,
    /// A pod of this namespaced name runs.
    Pod(String),
}

/// What a kubelet writes: its lease, and the status of its node and pods, one after the other. Kubelets replace leases; a patch needs no
/// version.
#[derive(Debug)]
pub struct KubeletWriter {
    name: String,
    orders: Arc<WriterOrders>,
    new_pods: Arc<NewPods>,
    lease: Schedule,
    node_status: Schedule,
    current: Option<Report>,
    /// The beginning of a response.
    response: Vec<u8>,
}

impl KubeletWriter {
    fn due(&mut self) -> Option<Report> {
        let now = Instant::now();
        if self.lease.is_due(now) {
            return Some(Report::Lease);
        }
        if self.node_status.is_due(now) {
            return Some(Report::Node);
        }
        self.new_pods.pop().map(Report::Pod)
    }

    fn path(&self, report: &Report) -> String {
        match report {
            Report::Lease => format!("{}/{}", cluster::LEASES, self.name),
            Report::Node => format!("{}/{}/status", Collection::Nodes.path(), self.name),
            Report::Pod(pod) => {
                let (namespace, name) = pod.split_once('/').unwrap_or_default();
                let pods = cluster::namespaced(Collection::Pods, namespace);
                format!("{pods}/{name}/status")
            }
        }
    }
}

impl Member for KubeletWriter {
    fn next(&mut self, _: &Control) -> Next {
        if self.orders.stop.load(Ordering::Relaxed) {
            self.orders.ended.fetch_add(1, Ordering::Relaxed);
            return Next::Done;
        }
        let Some(report) = self.due() else {
            return Next::Wait(LOOK);
        };
        let path = self.path(&report);
        self.current = Some(report);
        Next::Send(path)
    }

    fn patch(&mut self) -> Option<Vec<u8>> {
        Some(match self.current.as_ref()? {
            Report::Lease => cluster::lease_report(),
            Report::Node => cluster::node_report(),
            Report::Pod(_) => cluster::pod_report(),
        })
    }

    fn body(&mut self, _: u16, data: &[u8], _: &mut Recorder) {
        let room = RESPONSE_LEN_MAX.saturating_sub(self.response.len());
        self.response
            .extend_from_slice(&data[..data.len().min(room)]);
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        let report = self.current.take();
        let response = std::mem::take(&mut self.response);
        for _ in 0..self.new_pods.left_out.swap(0, Ordering::Relaxed) {
            recorder.end("pod not started");
        }
        match (how, &report) {
            (ResponseEnd::Complete(200), _) => {}
            // It has been deleted meanwhile.
            (ResponseEnd::Complete(404), Some(Report::Pod(_))) => {}
            // As a kubelet, which tries again when it is due the next time.
            _ => {
                recorder.end("kubelet's write failed");
                let said = excerpt(&response);
                recorder.message(&format!("{}: {report:?}: {how:?}: {said}", self.name));
            }
        }
    }

    fn progress(&self, _: &Control) -> usize {
        0
    }
}

impl ComparedClient for NodeClient {
    fn reflector(&self) -> Option<&Reflector> {
        match &self.role {
            NodeRole::Reflector(reflector) => Some(reflector),
            NodeRole::Writer(_) => None,
        }
    }
}

impl NodeClient {
    fn member(&mut self) -> &mut dyn Member {
        match &mut self.role {
            NodeRole::Reflector(reflector) => &mut **reflector,
            NodeRole::Writer(writer) => &mut **writer,
        }
    }

    /// The reflector, if it is one.
    pub fn into_reflector(self) -> Option<Reflector> {
        match self.role {
            NodeRole::Reflector(reflector) => Some(*reflector),
            NodeRole::Writer(_) => None,
        }
    }
}

impl Member for NodeClient {
    fn next(&mut self, control: &Control) -> Next {
        self.member().next(control)
    }

    fn patch(&mut self) -> Option<Vec<u8>> {
        self.member().patch()
    }

    fn token(&mut self) -> Option<String> {
        self.token.clone()
    }

    fn response_started(&mut self) {
        self.member().response_started();
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        self.member().body(status, data, recorder);
    }

    fn response_ended(&mut self, how: ResponseEnd<'_>, recorder: &mut Recorder) {
        self.member().response_ended(how, recorder);
    }

    fn progress(&self, control: &Control) -> usize {
        self.reflector().map_or(0, |one| one.progress(control))
    }

    fn behind_by(&self) -> Option<u64> {
        self.reflector()?.behind_by()
    }
}
