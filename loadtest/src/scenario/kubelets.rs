//! `kubelets`: nodes whose kubelet and kube-proxy open what those of Kubernetes 1.36 open, on one HTTP/2 connection each, while pods come
//! and go and endpoints change. Every reflector must end with exactly what its selector lets through.

mod backoff;
mod churn;
mod cluster;
mod connection;
mod figures;
mod history;
mod node;
mod reflector;
mod selection;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use tokio::sync::watch;

use super::watch_run::window::latencies;
use super::watch_run::{done_wait, ready_wait, spare};
use super::{Scenario, phase, swarm_config, targets};
use crate::cli::{ServerFlags, seconds};
use crate::process::raise_open_files;
use crate::results::Results;
use crate::swarm::until_all;
use crate::target::Target;
use churn::{ChurnRates, Controllers};
use connection::Fleet;
use figures::{Observer, Window};
use history::History;
use node::{Node, NodeBehaviour};
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
    fn time_limit(&self) -> Duration {
        self.warm_up + self.duration + self.pod_life + spare(self.reflectors()) + SETTLE_WAIT * 9
    }

    async fn run(&self, results: &mut Results) -> Result<()> {
        raise_open_files(self.nodes * CONNECTIONS_PER_NODE)?;
        results.column("target");
        let (target, reference) = targets(&self.server)?;
        phase("objects are created");
        let mut cluster = ClusterRun::begin(self, target, &reference).await?;
        let observer = Observer::start(&self.server);
        let before = observer.snapshot(&cluster.fleet, 0).await?;
        phase(&format!("{} kubelets and kube-proxies start", self.nodes));
        let synced_after = cluster.join(self).await?;
        results.figure("all synced after, s", synced_after.as_secs_f64());
        let joined = observer.snapshot(&cluster.fleet, 0).await?;
        Window::between(&before, &joined).report_join(results);
        let edges = cluster
            .measure(self, &reference, &observer, results)
            .await?;
        edges.report(results);
        phase("all writers have ended; every watch is compared");
        let fleet = cluster.fleet.clone();
        cluster.finish(results).await?;
        observer.report_series(results);
        let recorder = fleet.recorder.lock();
        latencies(results, &recorder);
        recorder.note_ends(results, "target");
        Ok(())
    }
}

impl Kubelets {
    /// About as many watches as all clients open.
    fn reflectors(&self) -> usize {
        self.nodes * (10 + 2 * self.references)
    }

    fn rates(&self) -> ChurnRates {
        ChurnRates {
            nodes: self.nodes,
            services: self.services,
            pods: self.pod_rate,
            pod_life: self.pod_life,
            slices: self.slice_rate,
        }
    }
}

/// A run whose objects exist.
struct ClusterRun {
    fleet: Arc<Fleet>,
    histories: Vec<History>,
    nodes: Vec<Node>,
    behaviour: NodeBehaviour,
    stop: watch::Sender<bool>,
}

impl ClusterRun {
    /// Creates the objects, and records all collections.
    async fn begin(flags: &Kubelets, target: Target, reference: &Target) -> Result<Self> {
        let mut collections = Vec::new();
        for collection in Collection::ALL {
            if History::begin(reference, collection).await?.is_some() {
                collections.push(collection);
            }
        }
        cluster::prepare(reference, flags.nodes, flags.services, &collections).await?;
        let mut histories = Vec::new();
        for collection in &collections {
            let history = History::begin(reference, *collection).await?;
            histories.push(history.context("a collection has gone")?);
        }
        let behaviour = NodeBehaviour {
            timeout_min: flags.watch_timeout,
            heartbeat: flags.heartbeat,
            node_status: flags.node_status,
            references: flags.references,
            collections,
        };
        let swarm_config = swarm_config(&flags.server, None, target);
        let has_protobuf = connection::has_protobuf(reference).await?;
        let (stop, _) = watch::channel(false);
        Ok(Self {
            fleet: Arc::new(Fleet::new(swarm_config, has_protobuf)),
            histories,
            nodes: Vec::new(),
            behaviour,
            stop,
        })
    }

    /// Starts all nodes at once; returns after which time every reflector had its first state.
    async fn join(&mut self, flags: &Kubelets) -> Result<Duration> {
        let started = Instant::now();
        for number in 0..flags.nodes {
            let stop = self.stop.subscribe();
            let node = Node::start(&self.fleet, number, &self.behaviour, stop);
            self.nodes.push(node);
        }
        let count = self.nodes.iter().map(|node| node.reflectors.len()).sum();
        let reflectors = || self.nodes.iter().flat_map(|node| &node.reflectors);
        let synced = || reflectors().filter(|one| one.lock().is_synced()).count();
        let joined = until_all(
            ready_wait(count),
            count,
            "had a first state",
            synced,
            || false,
        )
        .await;
        let said = || {
            let recorder = self.fleet.recorder.lock();
            recorder.messages.lines().collect::<Vec<_>>().join("; ")
        };
        joined.with_context(said)?;
        Ok(started.elapsed())
    }

    /// The measured window. When this returns, nothing is written any more.
    async fn measure(
        &mut self,
        flags: &Kubelets,
        reference: &Target,
        observer: &Observer,
        results: &mut Results,
    ) -> Result<Window> {
        let controllers =
            Controllers::start(reference, flags.rates(), &self.stop.subscribe()).await?;
        let lasts = (flags.warm_up + flags.duration).as_secs();
        phase(&format!("pods and endpoints change, for {lasts} s"));
        tokio::time::sleep(flags.warm_up).await;
        self.fleet.control.measure_from_now();
        let from = observer.snapshot(&self.fleet, self.changes()).await?;
        tokio::time::sleep(flags.duration).await;
        self.fleet.control.measure_until_now();
        let until = observer.snapshot(&self.fleet, self.changes()).await?;
        let watches = observer.upstream_watches().await?;
        let open = self
            .nodes
            .iter()
            .map(|node| node.reflectors.len())
            .sum::<usize>();
        results.figure("nodes", flags.nodes as f64);
        results.figure("watches of clients", open as f64);
        results.figure(figures::WATCHES, watches.unwrap_or(open as f64));
        self.stop.send_replace(true);
        let written = controllers.finish().await;
        for node in &mut self.nodes {
            node.heartbeats_end().await?;
        }
        figures::report_writes(results, &written, RATE_MET);
        Ok(Window::between(&from, &until))
    }

    fn changes(&self) -> usize {
        self.histories.iter().map(History::changes).sum()
    }

    /// Waits until every reflector has everything, and compares all with what happened.
    async fn finish(mut self, results: &mut Results) -> Result<()> {
        let mut references = verdict::References::default();
        for history in &mut self.histories {
            history.is_complete(SETTLE_WAIT).await?;
            references.add(history);
        }
        let reflectors = self.nodes.iter().flat_map(|node| &node.reflectors);
        let reflectors: Vec<_> = reflectors.cloned().collect();
        let wait = done_wait(reflectors.len());
        verdict::quiet(&reflectors, &references, &self.fleet.control, wait)
            .await
            .report(results);
        verdict::judge(&reflectors, &references, results);
        Ok(())
    }
}
