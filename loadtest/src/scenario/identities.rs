//! `identities`: kubelets with certificates, and pods with a token each, watch through a gateway that checks them. How many reviews reach
//! the API server: while nothing changes, when the gateway starts again, when roles change, and how soon does a watch end whose right is
//! gone? All times are real: nothing is scaled but what the flags say.

mod client;
mod credential;
mod figures;
mod server;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::interval;

use super::kubelets::churn::Controllers;
use super::kubelets::node::NodeClient;
use super::kubelets::reflector::Reflector;
use super::kubelets::{ClusterRun, Kubelets};
use super::watch_run::ready_wait;
use super::watch_run::window::latencies;
use super::{Scenario, phase, swarm_config};
use crate::cli::{GatewayFlags, ServerFlags, seconds};
use crate::process::raise_open_files;
use crate::results::Results;
use crate::runner::arguments;
use crate::runner::gateway::GatewayProcess;
use crate::swarm::{Swarm, SwarmConfig, until_all};
use crate::target::Target;
use client::{ClientCredential, IdentityClient, ResponseCounts, Revocation};
use credential::{KubeletAuthority, PodToken};
use figures::Moment;
use server::{IdentityServer, Loss, REFERENCES};

/// Nodes for each account, and the fewest accounts: one for each right that is lost, and one that keeps its right.
const NODES_PER_ACCOUNT: usize = 25;
const ACCOUNTS_MIN: usize = 4;
/// Streams on each connection: of a kubelet, of a kube-proxy, and of pods, which would have a connection each.
const STREAMS: [usize; 3] = [10, 4, 100];
/// Longer than any run: kubelets do not write.
const NEVER: Duration = Duration::from_secs(86_400);
/// Between two changes of a ConfigMap that an account's pods watch; another account's each time.
const CHANGE_EVERY: Duration = Duration::from_secs(1);

/// Kubelets with certificates and pods with tokens watch through a gateway that the scenario starts before an API server of its own: how many
/// reviews reach it, and how soon do watches end whose right is gone?
#[derive(Debug, Clone, Parser)]
#[command(name = "identities")]
pub struct Identities {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Number of nodes; each has a kubelet with 10 watches, a kube-proxy with 4, and 8 pods with one each.
    #[arg(long, default_value_t = 100)]
    pub nodes: usize,
    /// How the gateway checks access: self-check, review or rbac.
    #[arg(long, default_value = "self-check")]
    pub auth: String,
    /// More flags of the gateway, such as "--reauthorize-interval 30s".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub gateway_options: String,
    /// The API server has a webhook authorizer, which denies nothing.
    #[arg(long)]
    pub webhook: bool,
    /// Shortest timeout of a watch; each has up to twice as much, those of single objects six times as much.
    #[arg(long, default_value = "5m", value_parser = seconds)]
    pub watch_timeout: Duration,
    /// Life of a token, which is replaced after four fifths of it.
    #[arg(long, default_value = "3607s", value_parser = seconds)]
    pub token_lifetime: Duration,
    /// Before the steady window.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub warm_up: Duration,
    /// Length of the steady window.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub duration: Duration,
    /// How long reviews are counted after the cluster role's label has changed.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub settle: Duration,
    /// Changes of the cluster role's rules.
    #[arg(long, default_value_t = 2)]
    pub edits: usize,
    /// Time from one to the next.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub edit_every: Duration,
    /// Longest time for watches to end after their right is gone.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub end_wait: Duration,
    #[command(flatten)]
    pub gateway: GatewayFlags,
}

impl Scenario for Identities {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let connections = self.nodes * 2 + self.nodes * server::PODS_PER_NODE / STREAMS[2];
        raise_open_files(connections)?;
        results.column("target");
        let mut run = IdentityRun::begin(self).await?;
        let joined = run.join(results).await?;
        let churn = run.churn().await?;
        tokio::time::sleep(self.warm_up).await;
        let usual = run.steady(results).await?;
        run.edit_roles(usual, results).await?;
        run.restart(results).await?;
        for loss in [Loss::RoleBinding, Loss::ServiceAccount, Loss::Pod] {
            run.lose(loss, results).await?;
        }
        churn.stop().await;
        figures::judge(results, &run.moment()?);
        figures::report_subjects(results, run.server.running.reviews());
        run.finish(joined, results).await
    }
}

/// A run whose gateway serves.
struct IdentityRun<'a> {
    flags: &'a Identities,
    server: Arc<IdentityServer>,
    cluster: ClusterRun,
    gateway: GatewayProcess,
    gateway_flags: Vec<String>,
    authority: KubeletAuthority,
    /// The gateway, and the API server for writes and the reference.
    target: Target,
    reference: Target,
    /// The pods of all nodes.
    pods: Vec<server::NodePods>,
    counts: Arc<ResponseCounts>,
    revocations: Vec<(Loss, Arc<Revocation>, usize)>,
    folder: TempDir,
}

/// What changes objects during the run.
struct Churn {
    controllers: Controllers,
    stop: watch::Sender<bool>,
    configs: AbortHandle,
}

impl Churn {
    async fn stop(self) {
        self.configs.abort();
        self.stop.send_replace(true);
        self.controllers.finish().await;
    }
}

impl Identities {
    fn accounts(&self) -> usize {
        (self.nodes / NODES_PER_ACCOUNT).max(ACCOUNTS_MIN)
    }

    /// The nodes as the scenario of that name has them, with fewer changes.
    fn kubelets(&self) -> Kubelets {
        Kubelets {
            server: self.server.clone(),
            nodes: self.nodes,
            services: 20,
            references: REFERENCES,
            own_tokens: false,
            pod_rate: 1.0,
            pod_life: Duration::from_secs(5),
            slice_rate: 0.2,
            watch_timeout: self.watch_timeout,
            heartbeat: NEVER,
            node_status: NEVER,
            warm_up: self.warm_up,
            duration: self.duration,
        }
    }
}

/// The gateway's flags: it trusts kubelets' certificates, and caches Secrets, so that their watches are checked by it, too.
fn gateway_flags(
    flags: &Identities,
    server: &IdentityServer,
    authority: &KubeletAuthority,
    folder: &Path,
) -> Result<(Vec<String>, PathBuf)> {
    let serving = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let file = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        Ok::<_, anyhow::Error>(file)
    };
    let certificate = file("gateway.crt", &serving.cert.pem())?;
    let key = file("gateway.key", &serving.signing_key.serialize_pem())?;
    let clients = file("clients.crt", &authority.pem)?;
    let mut words = arguments::split(&flags.gateway_options);
    let named = [
        ("--auth", flags.auth.clone()),
        ("--kubeconfig", server.kubeconfig.display().to_string()),
        ("--client-ca-file", clients.display().to_string()),
        ("--tls-cert", certificate.display().to_string()),
        ("--tls-key", key.display().to_string()),
    ];
    words.extend(
        named
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value]),
    );
    words.push("--passthrough-resources=".to_owned());
    Ok((words, certificate))
}

impl<'a> IdentityRun<'a> {
    async fn begin(flags: &'a Identities) -> Result<Self> {
        phase("objects are created");
        let folder = tempfile::tempdir()?;
        let server = IdentityServer::start(flags.accounts(), folder.path()).await?;
        if flags.webhook {
            server.add_webhook();
        }
        let pods = (0..flags.nodes).map(|node| server.create_pods(node));
        let pods = pods.collect::<Result<_>>()?;
        let reference = Target::new(&server.url, Some(server::WRITER), None)?;
        let mut cluster = ClusterRun::begin(&flags.kubelets(), &reference).await?;
        cluster.nodes.is_staggered = true;
        let authority = KubeletAuthority::new()?;
        let (gateway_flags, certificate) =
            gateway_flags(flags, &server, &authority, folder.path())?;
        let program = flags.gateway.program()?;
        let gateway = GatewayProcess::start(&program, folder.path(), &gateway_flags).await?;
        let losses = [Loss::RoleBinding, Loss::ServiceAccount, Loss::Pod];
        Ok(Self {
            flags,
            cluster,
            target: Target::new(&gateway.url, None, Some(&certificate))?,
            gateway,
            gateway_flags,
            authority,
            reference,
            pods,
            counts: Arc::default(),
            revocations: losses.map(|loss| (loss, Arc::default(), 0)).into(),
            folder,
            server: Arc::new(server),
        })
    }

    fn moment(&self) -> Result<Moment> {
        let reviews = self.server.running.reviews();
        Moment::now(reviews, &self.counts, self.gateway.process.pid()?)
    }

    fn client(&self, reflector: Reflector, credential: &ClientCredential) -> IdentityClient {
        IdentityClient::new(reflector, credential.clone(), self.counts.clone(), None)
    }

    /// The clients of kubelets, of kube-proxies and of pods.
    fn clients(&mut self) -> Result<[Vec<IdentityClient>; 3]> {
        let lifetime = self.flags.token_lifetime;
        let token = |identity| {
            let token = PodToken::issue(identity, lifetime, fastrand::f64());
            ClientCredential::Token(Arc::new(Mutex::new(token)))
        };
        let tls = self.target.tls.clone().context("invariant: TLS")?;
        let mut clients: [Vec<IdentityClient>; 3] = Default::default();
        let reflectors =
            |clients: Vec<NodeClient>| clients.into_iter().filter_map(NodeClient::into_reflector);
        for (node, pods) in std::mem::take(&mut self.pods).into_iter().enumerate() {
            let kubelet = ClientCredential::Certificate(self.authority.kubelet(&tls, node)?);
            for reflector in reflectors(self.cluster.nodes.kubelet(node)) {
                clients[0].push(self.client(reflector, &kubelet));
            }
            let proxy = token(pods.proxy);
            for reflector in reflectors(self.cluster.nodes.proxy(node)) {
                clients[1].push(self.client(reflector, &proxy));
            }
            for (account, identity) in pods.readers {
                let namespace = server::namespace(account);
                let number = server::config_number(account);
                let is_first = clients[2].len() == account;
                let reflector = self.cluster.nodes.pod(&namespace, number);
                let mut client = self.client(reflector, &token(identity));
                client.revocation = self.revocation_of(account, is_first);
                clients[2].push(client);
            }
        }
        Ok(clients)
    }

    /// What the pods of an account lose: each of the first accounts loses something else.
    fn revocation_of(&mut self, account: usize, is_first: bool) -> Option<Arc<Revocation>> {
        let (loss, revocation, count) = self.revocations.get_mut(account)?;
        (*loss != Loss::Pod || is_first).then(|| {
            *count += 1;
            revocation.clone()
        })
    }

    /// Starts all clients at once; returns when each has a watch.
    async fn join(&mut self, results: &mut Results) -> Result<Vec<Swarm<IdentityClient>>> {
        let clients = self.clients()?;
        let count = clients.iter().map(Vec::len).sum();
        self.cluster.reflectors = count;
        results.figure("watches of clients", count as f64);
        phase(&format!(
            "{count} watches of {} nodes start",
            self.flags.nodes
        ));
        let (started, from) = (Instant::now(), self.moment()?);
        self.counts.starts.store(1, Ordering::Relaxed);
        let mut swarms = Vec::new();
        for (clients, streams) in clients.into_iter().zip(STREAMS) {
            let swarm_config = SwarmConfig {
                streams_per_connection: Some(streams),
                ..swarm_config(&self.flags.server, None, self.target.clone())
            };
            let control = self.cluster.control.clone();
            swarms.push(Swarm::start(clients, &swarm_config, control)?);
        }
        let served = || self.counts.served.load(Ordering::Relaxed);
        let has_failed = || swarms.iter().any(Swarm::has_failed);
        let wait = ready_wait(count);
        until_all(wait, count, "been served", served, has_failed).await?;
        let after = started.elapsed().as_secs_f64();
        results.figure("start: all served after, s", after);
        figures::report_total(results, "start", &from, &self.moment()?);
        Ok(swarms)
    }

    async fn churn(&self) -> Result<Churn> {
        let stop = watch::Sender::new(false);
        let rates = self.flags.kubelets().rates();
        let controllers = Controllers::start(&self.reference, rates, &stop.subscribe()).await?;
        let (server, accounts) = (self.server.clone(), self.flags.accounts());
        let configs = tokio::spawn(async move {
            let mut ticks = interval(CHANGE_EVERY);
            for account in (0..accounts).cycle() {
                ticks.tick().await;
                server.change_config(account).ok();
            }
        });
        Ok(Churn {
            controllers,
            stop,
            configs: configs.abort_handle(),
        })
    }

    /// The window in which no right changes. Returns the reviews a second, and the gateway's CPU in % of a core.
    async fn steady(&self, results: &mut Results) -> Result<(f64, f64)> {
        let lasts = self.flags.duration.as_secs();
        phase(&format!("nothing but objects changes, for {lasts} s"));
        self.cluster.control.measure_from_now();
        let from = self.moment()?;
        tokio::time::sleep(self.flags.duration).await;
        let until = self.moment()?;
        self.cluster.control.measure_until_now();
        figures::report_rates(results, "steady", &from, &until);
        Ok((until.rate_since(&from), until.cpu_percent_since(&from)))
    }

    /// Changes of the accounts' cluster role that take no right away.
    async fn edit_roles(&self, (rate, cpu): (f64, f64), results: &mut Results) -> Result<()> {
        phase("the cluster role's label changes, then its rules");
        let before = self.moment()?;
        self.server.label_role()?;
        tokio::time::sleep(self.flags.settle).await;
        let labelled = self.moment()?;
        figures::report_beyond(results, "label changed", [&before, &labelled], rate);
        if self.flags.edits == 0 {
            return Ok(());
        }
        for number in 1..=self.flags.edits {
            self.server.edit_role(number)?;
            tokio::time::sleep(self.flags.edit_every).await;
        }
        let edited = self.moment()?;
        figures::report_rates(results, "rules changed", &labelled, &edited);
        figures::report_beyond(results, "rules changed", [&labelled, &edited], rate);
        results.figure(
            "rules changed: gateway CPU beyond the steady, % of a core",
            (edited.cpu_percent_since(&labelled) - cpu).max(0.0),
        );
        Ok(())
    }

    /// Kills the gateway, so that all clients come back at once to one that knows nobody.
    async fn restart(&mut self, results: &mut Results) -> Result<()> {
        phase("the gateway is killed and started again");
        let mut flags = self.gateway_flags.clone();
        flags.extend(["--listen".to_owned(), self.target.address.to_string()]);
        let program = self.flags.gateway.program()?;
        self.gateway.process.kill().await?;
        self.counts.served.store(0, Ordering::Relaxed);
        self.counts.starts.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        self.gateway = GatewayProcess::start(&program, self.folder.path(), &flags).await?;
        let from = self.moment()?;
        let count = self.cluster.reflectors;
        let served = || self.counts.served.load(Ordering::Relaxed);
        until_all(
            ready_wait(count),
            count,
            "been served again",
            served,
            || false,
        )
        .await?;
        let after = started.elapsed().as_secs_f64();
        results.figure("restart: all served after, s", after);
        figures::report_total(results, "restart", &from, &self.moment()?);
        Ok(())
    }

    /// Takes a right away, and waits until the watches end that rested on it.
    async fn lose(&mut self, loss: Loss, results: &mut Results) -> Result<()> {
        phase(&format!("what is deleted: {loss:?}"));
        let account = self.revocations.iter().position(|(of, ..)| *of == loss);
        let account = account.context("invariant: every loss has its account")?;
        let (_, revocation, count) = &self.revocations[account];
        revocation.at.get_or_init(Instant::now);
        self.server.revoke(account, loss)?;
        let ended = || revocation.ends.lock().len();
        let waited = until_all(self.flags.end_wait, *count, "ended", ended, || false).await;
        if let Err(error) = waited {
            results.note(format!("target: {loss:?}: {error:#}"));
        }
        let name = match loss {
            Loss::RoleBinding => "role binding deleted",
            Loss::ServiceAccount => "service account deleted",
            Loss::Pod => "pod deleted",
        };
        let ends = revocation.ends.lock().clone();
        figures::report_ends(results, name, &ends, *count);
        Ok(())
    }

    /// Compares all watches that have kept their right.
    async fn finish(
        mut self,
        swarms: Vec<Swarm<IdentityClient>>,
        results: &mut Results,
    ) -> Result<()> {
        phase("all writers have ended; every watch is compared");
        let revoked: usize = self.revocations.iter().map(|(_, _, count)| count).sum();
        self.cluster.reflectors -= revoked;
        let recorder = self.cluster.finish(swarms, results).await?;
        latencies(results, &recorder);
        recorder.note_ends(results, "target");
        self.gateway.process.stop().await
    }
}
