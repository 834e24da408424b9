//! Builds the hosts of a run, makes its faults happen, and judges its end.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use turmoil::{Builder, Sim};

use super::clients::{self, InformerClient, PORT};
use super::contract::{Contract, Counts, Report};
use super::contradictions;
use super::determinism;
use super::plan::{self, APISERVER, END_MS, Fault, Plan};
use super::writes::Server;
use kube_fanout::config::{HandoverSettings, ResourcePattern, ServeSettings, StateSettings};
use kube_fanout::gateway::Gateway;
use kube_fanout::net::{TcpListener, TcpStream, simulated};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::faults::{Fault as ServerFault, FaultOrder};
use kube_fanout_testkit::apiserver::{self, Listener, Options};

const API_PORT: u16 = 6_443;
const TICK: Duration = Duration::from_millis(5);
/// How long gateways have before the first fault, and clients after the last one.
const CONVERGENCE: Duration = Duration::from_secs(60);
/// Informers have longer: after an outage they wait 30 to 60 s before the next watch, as client-go's do, and again before the list that a
/// refused watch (410) leads to.
const INFORMER_CONVERGENCE: Duration = Duration::from_secs(150);
const DRAIN_TIME: Duration = Duration::from_secs(3);
/// How long only the gateway that has lost its history runs.
const OUTAGE_MS: u64 = 3_000;

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    counts: Counts,
    hash: u64,
    converged_after: Option<Duration>,
    faults: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            events,
            bookmarks,
            lists,
            expired,
            streams,
        } = self.counts;
        write!(
            formatter,
            "hash={:016x} faults={} events={events} bookmarks={bookmarks} lists={lists} streams={streams} expired={expired} \
             converged={:?}",
            self.hash, self.faults, self.converged_after
        )?;
        for violation in self.violations.iter().take(12) {
            write!(formatter, "\n    {violation}")?;
        }
        Ok(())
    }
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Outcome {
    determinism::begin(seed);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(panic);
    }));
    let plan = Plan::new(seed);
    let folder = std::env::temp_dir().join(format!("kube-fanout-sim-{}", std::process::id()));
    let outcome = Stage::new(seed, &plan, &folder).run(&plan);
    // The folder exists only if there were checkpoints.
    let _ = std::fs::remove_dir_all(&folder);
    outcome
}

struct Stage<'a> {
    sim: Sim<'a>,
    server: Server,
    report: Report,
    contracts: Vec<Contract>,
    informers: Vec<InformerClient>,
    drains: Vec<(String, Arc<Mutex<Option<Drain>>>)>,
    folder: PathBuf,
    /// What ends at which moment.
    endings: Vec<(Duration, Ending)>,
}

enum Ending {
    Release(String, String),
    Repair(String, String),
    Start(String),
    Kill(String),
    /// The API server discards its history, in which an object may be deleted last.
    Compact(bool),
}

/// Where the API server gets its connections from.
struct SimulatedListener(TcpListener);

impl Listener for SimulatedListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Stage<'_> {
    fn new(seed: u64, plan: &Plan, folder: &Path) -> Self {
        simulated::set_segment_len(plan.segment_len);
        let sim = Builder::new()
            .rng_seed(seed)
            .tick_duration(TICK)
            .simulation_duration(Duration::from_secs(1_000))
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(20))
            .tcp_capacity(plan.capacity)
            .build();
        let mut stage = Self {
            sim,
            server: Server::with_seed(seed),
            report: Report::default(),
            contracts: Vec::new(),
            informers: Vec::new(),
            drains: Vec::new(),
            folder: folder.to_owned(),
            endings: Vec::new(),
        };
        stage.add_apiserver(plan);
        for gateway in &plan.gateways {
            stage.add_gateway(plan, gateway);
        }
        stage.add_clients(plan);
        stage
    }

    fn add_apiserver(&mut self, plan: &Plan) {
        let (server, writes) = (self.server.clone(), plan.writes);
        self.sim.host(APISERVER, move || {
            let server = server.clone();
            async move {
                let listener = SimulatedListener(TcpListener::bind(any(API_PORT)).await?);
                let running = server.apiserver.lock().clone();
                let apiserver = match running {
                    Some(apiserver) => {
                        let _tasks = apiserver.serve_again(listener);
                        return server.write(&apiserver, writes).await;
                    }
                    None => Arc::new(apiserver::start(listener, Options::default())?),
                };
                let history = server.history.clone();
                apiserver
                    .store()
                    .observe(move |event| history.record(event));
                *server.apiserver.lock() = Some(Arc::clone(&apiserver));
                server.write(&apiserver, writes).await
            }
        });
    }

    fn add_gateway(&mut self, plan: &Plan, name: &str) {
        let drain: Arc<Mutex<Option<Drain>>> = Arc::default();
        self.drains.push((name.to_owned(), Arc::clone(&drain)));
        let upstream = format!("http://{APISERVER}:{API_PORT}").parse().unwrap();
        let mut settings = ServeSettings::embedded(upstream);
        settings.listen = any(PORT);
        settings.ring.events_max = plan.ring_events;
        settings.drift_interval = plan.drift_interval;
        settings.handover = plan.peer_of(name).map(handover_from);
        if plan.has_catch_up {
            settings.catch_up = vec![ResourcePattern::ALL];
        }
        settings.state = plan.has_state.then(|| StateSettings {
            directory: self.folder.join(name),
            key_file: None,
            len_max: 1 << 30,
            interval: Duration::from_millis(500),
            excluded: Vec::new(),
        });
        let report = self.report.clone();
        let name = name.to_owned();
        self.sim.host(name.clone(), move || {
            let (settings, drain) = (settings.clone(), Arc::clone(&drain));
            let (report, name) = (report.clone(), name.clone());
            async move {
                report.note(&name, "start");
                let gateway = Box::pin(Gateway::build(settings)).await?;
                let begun = Drain::with_timeout(DRAIN_TIME);
                *drain.lock() = Some(begun.clone());
                Box::pin(gateway.run(begun)).await;
                report.note(&name, "drained");
                Ok(())
            }
        });
    }

    fn add_clients(&mut self, plan: &Plan) {
        for (name, filter, habits) in &plan.clients {
            let contract = Contract::new(
                name.clone(),
                *filter,
                self.server.history.clone(),
                self.report.clone(),
            );
            self.contracts.push(contract.clone());
            let habits = habits.clone();
            self.sim.client(name.clone(), async move {
                clients::run(contract, habits).await;
                Ok(())
            });
        }
        for (index, gateway) in plan.informers.iter().enumerate() {
            let informer = InformerClient::default();
            self.informers.push(informer.clone());
            self.sim
                .client(plan::informer_name(index), informer.run(gateway.clone()));
        }
    }

    fn run(mut self, plan: &Plan) -> Outcome {
        let mut converged_after = None;
        let ended = self.run_faults(plan).and_then(|()| {
            self.heal(plan);
            converged_after = self.converge()?;
            Ok(())
        });
        if let Err(error) = ended {
            self.report
                .violation("simulation", &format!("a host failed: {error}"));
        } else if converged_after.is_none() {
            for behind in self.behind() {
                self.report.violation("convergence", &behind);
            }
        }
        let panics = PANICS.load(Ordering::Relaxed);
        if panics > 0 {
            self.report
                .violation("simulation", &format!("{panics} panics"));
        }
        let contradictions = contradictions::count();
        if contradictions > 0 && !plan.restores_backup() {
            let what = format!("{contradictions} times another history upstream");
            self.report.violation("simulation", &what);
        }
        let (violations, counts, hash) = self.report.end();
        Outcome {
            violations,
            counts,
            hash,
            converged_after,
            faults: plan.faults.len(),
        }
    }

    fn step(&mut self) -> turmoil::Result {
        determinism::set_now(self.sim.elapsed());
        self.sim.step()?;
        for (gateway, _) in self.drains.clone() {
            if !self.sim.is_host_running(gateway.as_str()) {
                self.disconnect(&gateway);
            }
        }
        Ok(())
    }

    /// Resets the connections of a process that has ended, as its kernel does.
    fn disconnect(&self, host: &str) {
        let address = self.sim.lookup(host);
        let streams = simulated::open_streams().into_iter();
        streams
            .filter(|(local, peer)| local.ip() == address || peer.ip() == address)
            .for_each(simulated::reset);
    }

    fn run_faults(&mut self, plan: &Plan) -> turmoil::Result {
        let mut faults = plan.faults.iter().peekable();
        while self.sim.elapsed() < Duration::from_millis(END_MS) {
            while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= self.sim.elapsed()) {
                self.report
                    .note("fault", &format!("{:?} {fault:?}", self.sim.elapsed()));
                self.begin(plan, fault.clone());
            }
            let now = self.sim.elapsed();
            self.finish(|at| at <= now);
            self.step()?;
        }
        Ok(())
    }

    /// Ends all faults and writes.
    fn heal(&mut self, plan: &Plan) {
        self.finish(|_| true);
        self.sim.set_max_message_latency(Duration::from_millis(20));
        self.order(ServerFault::Clear);
        for gateway in &plan.gateways {
            self.restart_if_ended(gateway);
        }
        self.server.end_writes();
    }

    fn order(&self, fault: ServerFault) {
        if let Some(apiserver) = &*self.server.apiserver.lock() {
            let order = FaultOrder {
                fault,
                verb: None,
                resource: None,
                count: 1,
            };
            // A full table of faults is no fault of its own.
            let _ = apiserver.order(order);
        }
    }

    fn restart_if_ended(&mut self, host: &str) {
        if !self.sim.is_host_running(host) {
            self.sim.bounce(host);
        }
    }

    /// Waits until every client has the newest state; `None` if that takes too long.
    fn converge(&mut self) -> Result<Option<Duration>, Box<dyn std::error::Error>> {
        let begun = self.sim.elapsed();
        while self.sim.elapsed() - begun < INFORMER_CONVERGENCE {
            for _ in 0..20 {
                self.step()?;
            }
            for (gateway, _) in self.drains.clone() {
                self.restart_if_ended(&gateway);
            }
            let behind = self.behind();
            if self.server.is_quiet() && behind.is_empty() {
                return Ok(Some(self.sim.elapsed() - begun));
            }
            let are_clients = behind.iter().any(|who| who.starts_with("client"));
            if are_clients && self.sim.elapsed() - begun >= CONVERGENCE {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn behind(&self) -> Vec<String> {
        let newest = self
            .server
            .history
            .at((self.server.history.life(), u64::MAX), None);
        let clients = self
            .contracts
            .iter()
            .map(|client| (client.name.clone(), client.behind()));
        let informers = self.informers.iter().enumerate();
        let informers = informers
            .map(|(index, informer)| (format!("informer{index}"), informer.behind(&newest)));
        let all = clients.chain(informers);
        all.filter_map(|(name, behind)| Some(format!("{name}: {}", behind?)))
            .collect()
    }

    fn begin(&mut self, plan: &Plan, fault: Fault) {
        let end = |ms: u64| self.sim.elapsed() + Duration::from_millis(ms);
        match fault {
            Fault::Reset(one, other) => self
                .streams(&one, &other)
                .into_iter()
                .for_each(simulated::reset),
            Fault::Cut(one, other, len) => {
                if let Some(stream) = self.streams(&one, &other).last() {
                    simulated::reset_after(*stream, len);
                }
            }
            Fault::Hold(one, other, ms) => {
                self.sim.hold(one.as_str(), other.as_str());
                self.endings.push((end(ms), Ending::Release(one, other)));
            }
            Fault::LoseHistory(gateway, ms, has_deletion) => {
                self.sim.partition(gateway.as_str(), APISERVER);
                self.endings.push((end(ms), Ending::Compact(has_deletion)));
                self.endings
                    .push((end(ms), Ending::Repair(gateway, APISERVER.to_owned())));
            }
            Fault::Takeover(gateway, ms) => {
                let others = plan.gateways.iter().filter(|name| **name != gateway);
                for other in others {
                    self.endings
                        .push((end(ms / 2), Ending::Kill(other.clone())));
                    self.endings
                        .push((end(ms + OUTAGE_MS), Ending::Start(other.clone())));
                }
                self.begin(plan, Fault::LoseHistory(gateway, ms, true));
            }
            Fault::Partition(one, other, ms) => {
                self.sim.partition(one.as_str(), other.as_str());
                self.endings.push((end(ms), Ending::Repair(one, other)));
            }
            Fault::Pause(gateway, ms) => {
                for peer in plan.peers_of(&gateway) {
                    self.sim.hold(gateway.as_str(), peer.as_str());
                    self.endings
                        .push((end(ms), Ending::Release(gateway.clone(), peer)));
                }
            }
            Fault::Kill(gateway, ms, is_torn) => {
                self.endings.push((end(ms), Ending::Start(gateway.clone())));
                self.sim.crash(gateway.as_str());
                if is_torn {
                    self.tear(&gateway);
                }
            }
            Fault::Roll(gateway) => {
                let drains = self.drains.iter().filter(|(name, _)| *name == gateway);
                drains
                    .filter_map(|(_, drain)| drain.lock().clone())
                    .for_each(|drain| drain.begin());
                self.endings.push((end(6_000), Ending::Start(gateway)));
            }
            Fault::KillServer(ms) => {
                self.endings
                    .push((end(ms), Ending::Start(APISERVER.to_owned())));
                self.sim.crash(APISERVER);
                self.disconnect(APISERVER);
            }
            Fault::Restore(ms) => {
                self.endings
                    .push((end(ms), Ending::Start(APISERVER.to_owned())));
                self.sim.crash(APISERVER);
                self.disconnect(APISERVER);
                *self.server.apiserver.lock() = None;
                self.server.history.begin_again();
            }
            Fault::Order(order) => {
                if let Some(apiserver) = &*self.server.apiserver.lock() {
                    // A full table of faults is no fault of its own.
                    let _ = apiserver.order(order);
                }
            }
            Fault::Latency(ms) => self.sim.set_max_message_latency(Duration::from_millis(ms)),
            Fault::WallClock(seconds) => determinism::jump_wall_clock(seconds),
        }
    }

    fn finish(&mut self, is_due: impl Fn(Duration) -> bool) {
        for (_, ending) in self
            .endings
            .extract_if(.., |(at, _)| is_due(*at))
            .collect::<Vec<_>>()
        {
            match ending {
                Ending::Release(one, other) => self.sim.release(one.as_str(), other.as_str()),
                Ending::Repair(one, other) => {
                    self.sim.repair(one.as_str(), other.as_str());
                    // Also those of which one end has gone: TCP would ask the other end whether it is still there.
                    for (from, to) in [(&one, &other), (&other, &one)] {
                        self.streams(from, to)
                            .into_iter()
                            .for_each(simulated::reset);
                    }
                }
                Ending::Start(host) => self.restart_if_ended(&host),
                Ending::Kill(host) => self.sim.crash(host),
                Ending::Compact(has_deletion) => {
                    if has_deletion {
                        self.server.delete_one();
                    }
                    self.order(ServerFault::Compact);
                }
            }
        }
    }

    /// The ends of connections on `one` whose other end is on `other`.
    fn streams(&self, one: &str, other: &str) -> Vec<simulated::OpenStream> {
        let hosts: [IpAddr; 2] = [self.sim.lookup(one), self.sim.lookup(other)];
        let mut streams = simulated::open_streams();
        streams.retain(|(local, peer)| [local.ip(), peer.ip()] == hosts);
        streams
    }

    /// Cuts what a machine that crashed had not written to its disk: the end of each checkpoint.
    fn tear(&self, gateway: &str) {
        let Ok(files) = std::fs::read_dir(self.folder.join(gateway)) else {
            return;
        };
        for file in files.flatten().filter(|file| {
            file.path()
                .extension()
                .is_some_and(|end| end == "checkpoint")
        }) {
            let len = file.metadata().unwrap().len();
            let cut = self.server.random.lock().u64(0..200).min(len);
            let file = std::fs::OpenOptions::new()
                .write(true)
                .open(file.path())
                .unwrap();
            file.set_len(len - cut).unwrap();
        }
    }
}

fn handover_from(peer: &str) -> HandoverSettings {
    HandoverSettings {
        from: format!("http://{peer}:{PORT}").parse().unwrap(),
        ca_file: None,
        server_name: None,
        token_file: None,
        timeout: Duration::from_secs(5),
        len_max: 1 << 30,
        rebalance_interval: None,
    }
}

fn any(port: u16) -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, port).into()
}
