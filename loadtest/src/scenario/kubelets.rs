//! `kubelets`: nodes whose kubelet and kube-proxy open what those of Kubernetes 1.36 open, on one HTTP/2 connection each, while pods come
//! and go and endpoints change. Every reflector must end with exactly what its selector lets through.

mod backoff;
pub mod churn;
pub mod cluster;
mod figures;
pub mod node;
pub mod reflector;
pub mod selection;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use hyper::{Method, StatusCode};
use kube_fanout::quiet::BOUND;
use kube_fanout::resource::Encoding;
use tokio::sync::watch;

use super::watch_run::quiet::wait_for_goal;
use super::watch_run::window::latencies;
use super::watch_run::{done_wait, ready_wait};
use super::{Scenario, phase, swarm_config, targets};
use crate::cli::{ServerFlags, seconds};
use crate::client::Client;
use crate::http2::{Call, Http2Client};
use crate::process::raise_open_files;
use crate::recorder::{Control, Recorder};
use crate::recording::Recording;
use crate::results::Results;
use crate::swarm::{Accept, Member, Swarm, SwarmConfig, until_all};
use crate::target::Target;
use crate::verify::reference::{Fingerprints, Part, Reference};
use crate::wire::protobuf::MAGIC;
use churn::{ChurnRates, Controllers};
use figures::{Moment, Observer};
use node::{NodeClient, Nodes};
use reflector::Reflector;
use selection::Collection;

/// Connections of a node: its kubelet's and its kube-proxy's.
const CONNECTIONS_PER_NODE: usize = 2;
/// Time for the record of a collection to reach the server's state.
const SETTLE_WAIT: Duration = Duration::from_secs(60);
/// Share of the due writes that must have been made.
const RATE_MET: f64 = 0.95;

/// Nodes whose kubelet and kube-proxy watch and write as those of Kubernetes 1.36, while pods come and go and endpoints change.
#[derive(Debug, Clone, Parser)]
#[command(name = "kubelets")]
pub struct Kubelets {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Number of nodes; each has two connections.
    #[arg(long, default_value_t = 1_000)]
    pub nodes: usize,
    /// Number of services, each with a slice.
    #[arg(long, default_value_t = 200)]
    pub services: usize,
    /// ConfigMaps that the pods of each node use, and as many Secrets; each is watched by its name.
    #[arg(long, default_value_t = 2)]
    pub references: usize,
    /// Each kubelet and kube-proxy has a token of its own, as the embedded API server of the runner knows them.
    #[arg(long)]
    pub own_tokens: bool,
    /// New pods a second; each is created, bound, run and deleted.
    #[arg(long, default_value_t = 10.0)]
    pub pod_rate: f64,
    /// From a pod's creation to its deletion, such as 5s.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub pod_life: Duration,
    /// Changes of EndpointSlices a second; every kube-proxy gets each.
    #[arg(long, default_value_t = 2.0)]
    pub slice_rate: f64,
    /// Shortest timeout of a watch; each has up to twice as much. client-go's is 5m.
    #[arg(long, default_value = "5m", value_parser = seconds)]
    pub watch_timeout: Duration,
    /// Time between two renewals of a node's lease.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub heartbeat: Duration,
    /// Time between two reports of a node's status.
    #[arg(long, default_value = "5m", value_parser = seconds)]
    pub node_status: Duration,
    /// Churn before the measured window.
    #[arg(long, default_value = "2s", value_parser = seconds)]
    pub warm_up: Duration,
    /// Length of the measured window.
    #[arg(long, default_value = "30s", value_parser = seconds)]
    pub duration: Duration,
}

impl Scenario for Kubelets {
    async fn run(&self, results: &mut Results) -> Result<()> {
        raise_open_files(self.nodes * CONNECTIONS_PER_NODE)?;
        results.column("target");
        let (target, reference) = targets(&self.server)?;
        phase("objects are created");
        let mut cluster = ClusterRun::begin(self, &reference).await?;
        let observer = Observer::start(&self.server);
        let before = observer.snapshot(&cluster.control, 0).await?;
        phase(&format!("{} kubelets and kube-proxies start", self.nodes));
        let started = Instant::now();
        let clients = cluster.join(self, &target).await?;
        results.figure("all synced after, s", started.elapsed().as_secs_f64());
        let joined = observer.snapshot(&cluster.control, 0).await?;
        figures::report_join(results, &[before, joined]);
        let edges = cluster
            .measure(self, &reference, &observer, results)
            .await?;
        figures::report_window(results, &edges);
        phase("all writers have ended; every watch is compared");
        let recorder = cluster.finish(clients, results).await?;
        observer.report_series(results);
        latencies(results, &recorder);
        recorder.note_ends(results, "target");
        Ok(())
    }
}

impl Kubelets {
    pub fn rates(&self) -> ChurnRates {
        ChurnRates {
            nodes: self.nodes,
            services: self.services,
            pods: self.pod_rate,
            pod_life: self.pod_life,
            slices: self.slice_rate,
        }
    }
}

/// A client whose store is compared with the API server's at the end, if it is a reflector.
pub trait ComparedClient: Member {
    fn reflector(&self) -> Option<&Reflector>;
}

/// The swarms of kubelets and of kube-proxies.
type ClientSwarms = [Swarm<NodeClient>; 2];

/// A run whose objects exist.
pub struct ClusterRun {
    /// Orders to all swarms, and their counters.
    pub control: Arc<Control>,
    recordings: Vec<(Collection, Recording)>,
    pub nodes: Nodes,
    /// Number of watches that are compared.
    pub reflectors: usize,
    stop: watch::Sender<bool>,
}

/// Whether the server has a collection.
async fn has(server: &Target, collection: Collection) -> Result<bool> {
    let path = format!("{}?limit=1", collection.path());
    let mut client = Client::new(server.clone());
    let (status, _) = client.call(Method::GET, &path, Vec::new()).await?;
    ensure!(
        status.is_success() || status == StatusCode::NOT_FOUND,
        "GET {path}: {status}"
    );
    Ok(status.is_success())
}

/// The encoding in which the API server has its built-in kinds, if it is asked for protobuf. A gateway would forward what its API server lacks.
async fn encoding(server: &Target) -> Result<Encoding> {
    let client = Http2Client::connect(server).await?;
    let path = format!("{}?limit=1", Collection::Pods.path());
    let call = Call::get(&path, Accept::Protobuf.header());
    Ok(match client.demand(call, &[]).await?.starts_with(MAGIC) {
        true => Encoding::Protobuf,
        false => Encoding::Json,
    })
}

impl ClusterRun {
    /// Creates the objects, and records all collections.
    pub async fn begin(flags: &Kubelets, reference: &Target) -> Result<Self> {
        let mut collections = Vec::new();
        for collection in Collection::ALL {
            if has(reference, collection).await? {
                collections.push(collection);
            }
        }
        cluster::prepare(reference, flags.nodes, flags.services, &collections).await?;
        let mut recordings = Vec::new();
        for collection in &collections {
            let parts_of = collection.parts_of();
            let recording = Recording::begin(reference.clone(), collection.path(), parts_of);
            recordings.push((*collection, recording.await?));
        }
        let nodes = Nodes {
            timeout_min: flags.watch_timeout,
            heartbeat: flags.heartbeat,
            node_status: flags.node_status,
            references: flags.references,
            own_tokens: flags.own_tokens,
            collections,
            encoding: encoding(reference).await?,
            is_staggered: false,
            goals: HashMap::new(),
            synced: Arc::default(),
            orders: Arc::default(),
        };
        Ok(Self {
            control: Arc::default(),
            recordings,
            nodes,
            reflectors: 0,
            stop: watch::channel(false).0,
        })
    }

    /// Starts all nodes at once; returns when every reflector has had its first state.
    async fn join(&mut self, flags: &Kubelets, target: &Target) -> Result<ClientSwarms> {
        let kubelets: Vec<_> = (0..flags.nodes)
            .map(|number| self.nodes.kubelet(number))
            .collect();
        let proxies: Vec<_> = (0..flags.nodes)
            .map(|number| self.nodes.proxy(number))
            .collect();
        let start = |clients: Vec<Vec<NodeClient>>, user_agent| {
            let swarm_config = SwarmConfig {
                streams_per_connection: clients.first().map(Vec::len),
                accept: match self.nodes.encoding {
                    Encoding::Json => Accept::Json,
                    Encoding::Protobuf => Accept::Protobuf,
                },
                user_agent,
                ..swarm_config(&flags.server, None, target.clone())
            };
            let clients = clients.into_iter().flatten().collect();
            Swarm::start(clients, &swarm_config, self.control.clone())
        };
        let streams = kubelets.iter().chain(&proxies).flatten();
        self.reflectors = streams.filter(|one| one.reflector().is_some()).count();
        let swarms = [
            start(kubelets, "kubelet/v1.36.0")?,
            start(proxies, "kube-proxy/v1.36.0")?,
        ];
        let count = self.reflectors;
        let synced = || self.nodes.synced.load(Ordering::Relaxed);
        let has_failed = || swarms.iter().any(Swarm::has_failed);
        until_all(
            ready_wait(count),
            count,
            "had a first state",
            synced,
            has_failed,
        )
        .await?;
        Ok(swarms)
    }

    /// The measured window. When this returns, nothing is written any more.
    async fn measure(
        &self,
        flags: &Kubelets,
        reference: &Target,
        observer: &Observer,
        results: &mut Results,
    ) -> Result<[Moment; 2]> {
        let controllers =
            Controllers::start(reference, flags.rates(), &self.stop.subscribe()).await?;
        let lasts = (flags.warm_up + flags.duration).as_secs();
        phase(&format!("pods and endpoints change, for {lasts} s"));
        tokio::time::sleep(flags.warm_up).await;
        self.control.measure_from_now();
        let from = observer.snapshot(&self.control, self.changes()).await?;
        tokio::time::sleep(flags.duration).await;
        self.control.measure_until_now();
        let until = observer.snapshot(&self.control, self.changes()).await?;
        let watches = observer.upstream_watches().await?;
        let open = self.reflectors as f64;
        results.figure("nodes", flags.nodes as f64);
        results.figure("watches of clients", open);
        results.figure(figures::WATCHES, watches.unwrap_or(open));
        self.stop.send_replace(true);
        let written = controllers.finish().await;
        let orders = &self.nodes.orders;
        orders.stop.store(true, Ordering::Relaxed);
        let ended = || orders.ended.load(Ordering::Relaxed);
        until_all(
            SETTLE_WAIT,
            flags.nodes,
            "written their last",
            ended,
            || false,
        )
        .await?;
        figures::report_writes(results, &written, RATE_MET);
        Ok([from, until])
    }

    fn changes(&self) -> usize {
        let changes = |(_, recording): &(_, Recording)| recording.reference().len();
        self.recordings.iter().map(changes).sum()
    }

    /// Waits until every reflector has everything, and compares all with what happened. Returns the counters.
    pub async fn finish<C: ComparedClient>(
        mut self,
        swarms: impl IntoIterator<Item = Swarm<C>>,
        results: &mut Results,
    ) -> Result<Recorder> {
        for (_, recording) in &mut self.recordings {
            recording.caught_up(SETTLE_WAIT).await?;
        }
        for (selection, goal) in &self.nodes.goals {
            let of = |(collection, _): &&(_, _)| *collection == selection.collection;
            if let Some((_, recording)) = self.recordings.iter().find(of) {
                // Without an event any state will do.
                goal.set(recording.last_of(selection.part).max(1));
            }
        }
        let (started, count) = (Instant::now(), self.reflectors);
        let lag = wait_for_goal(&self.control, count, done_wait(count)).await;
        results.figure(
            "quiet end: all have everything after, ms",
            started.elapsed().as_secs_f64() * 1e3,
        );
        match lag.map(|lag| lag.map_or(0, |lag| lag.watchers)) {
            Ok(behind) => {
                results.figure("quiet end: watches behind", behind as f64);
                if behind > 0 {
                    results.fault(format!(
                        "target: behind at the end: {behind} watches; nothing came for {BOUND:?}"
                    ));
                }
            }
            Err(error) => results.fault(format!("target: {error:#}")),
        }
        let mut recorder = Recorder::default();
        let mut verified = 0;
        let references = self.references();
        let empty = Reference::default();
        let empty = (empty.fingerprints(), empty);
        for swarm in swarms {
            let (clients, of_swarm) = swarm.finish()?;
            recorder.merge(&of_swarm);
            for reflector in clients.iter().filter_map(C::reflector) {
                let selection = reflector.selection();
                let part = references[&selection.collection].get(&selection.part);
                let (prints, reference) = part.unwrap_or(&empty);
                verified += reflector.event_count();
                if let Some(fault) = reflector.verdict(reference, prints) {
                    let who = format!("target: a watch of {:?}", selection.collection);
                    results.fault_of(&who, &fault.to_string());
                }
            }
        }
        results.figure("events verified", verified as f64);
        Ok(recorder)
    }

    /// What the reflectors of each part must have.
    fn references(&self) -> HashMap<Collection, HashMap<Part, (Fingerprints, Reference)>> {
        let with_prints =
            |(part, reference): (Part, Reference)| (part, (reference.fingerprints(), reference));
        let recordings = self.recordings.iter();
        recordings
            .map(|(collection, recording)| {
                let parts = recording.parts().into_iter().map(with_prints);
                (*collection, parts.collect())
            })
            .collect()
    }
}
