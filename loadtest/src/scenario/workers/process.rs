//! A share of the watchers in a process of its own. One line of JSON holds its task; then orders go one way and counters the other. The
//! process ends when its input does, so also when this program is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::cli::ServerFlags;
use crate::command::{Subcommand, block_on};
use crate::process::piped::PipedChild;
use crate::process::raise_open_files;
use crate::recorder::{Control, Recorder};
use crate::scenario::population::Population;
use crate::scenario::watch_run::verdicts::WatchOutcome;
use crate::scenario::{connections_of, swarm_config, targets};
use crate::swarm::Swarm;
use crate::verify::reference::{ObjectVersions, Reference};
use crate::watcher::Plan;

/// How often orders and counters are exchanged.
const RELAY_EVERY: Duration = Duration::from_millis(10);
/// Longest time for a verdict, which may be about millions of events.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Longest time for the process to end after its verdict.
const END_WAIT: Duration = Duration::from_secs(10);

/// A share of a swarm, in a process of its own; its task comes on standard input.
#[derive(Debug, Clone, Parser)]
#[command(name = "part", hide = true)]
pub struct Part {
    #[command(flatten)]
    server: ServerFlags,
}

impl Subcommand for Part {
    /// Ends with its input: the process that started it has the deadline.
    fn execute(&self) -> Result<bool> {
        block_on(run(&self.server)).map(|()| true)
    }
}

/// The task of a part.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerTask {
    pub population: Population,
    /// Path of the collection.
    pub path: String,
    /// Version that all watches start after.
    pub start: u64,
    /// The objects at that version.
    pub initial: ObjectVersions,
    /// As in [`SwarmConfig`](crate::swarm::SwarmConfig).
    pub streams_per_connection: Option<usize>,
    /// As in [`SwarmConfig`](crate::swarm::SwarmConfig).
    pub websocket: bool,
    /// As in [`SwarmConfig`](crate::swarm::SwarmConfig).
    pub stream_window: Option<u32>,
}

/// Orders to a running part.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Orders {
    stop: bool,
    stalled: bool,
    measure_from_ns: u64,
    measure_until_ns: u64,
    goals: Vec<u64>,
}

/// Counters of a running part.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
struct WorkerStatus {
    ready: usize,
    progress: usize,
    renewals: u64,
    delivered: u64,
    bytes: u64,
    arrivals: u64,
    last_delivery_ns: u64,
    behind: usize,
    behind_by: u64,
    empty_looks: u64,
}

/// Counters of a stopped part.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerCounts {
    pub recorder: Recorder,
    /// The newest version that any of its watchers received.
    pub furthest: u64,
}

/// A message of a part.
#[derive(Debug, Serialize, Deserialize)]
enum WorkerMessage {
    WorkerStatus(WorkerStatus),
    WorkerCounts(Box<WorkerCounts>),
    WatchOutcome(WatchOutcome),
}

#[derive(Debug)]
pub struct WorkerProcess {
    child: PipedChild,
}

impl WorkerProcess {
    /// Starts the process and sends its task. The second part uses the second 256 local addresses, and so on.
    pub async fn start(server: &ServerFlags, number: usize, task: &WorkerTask) -> Result<Self> {
        let source = u32::from(server.source) + u32::try_from(number)? * 256;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["part", "--target", &server.target])
            .args(["--threads", &server.threads.to_string()])
            .args(["--source", &std::net::Ipv4Addr::from(source).to_string()]);
        if let Some(ca) = &server.ca {
            command.arg("--ca").arg(ca);
        }
        if let Some(token) = &server.token {
            // Other users can read arguments.
            command.env("LOADTEST_TOKEN", token);
        }
        let mut child = PipedChild::spawn(&mut command)?;
        child.send_line(&serde_json::to_string(task)?).await?;
        Ok(Self { child })
    }

    /// The process id, until the process has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.pid()
    }

    /// Exchanges orders and counters until the part has stopped.
    pub async fn relay(
        mut self,
        plans: Vec<Arc<Plan>>,
        control: Arc<Control>,
    ) -> Result<(Self, WorkerCounts)> {
        let (mut sent, mut last) = (Orders::default(), WorkerStatus::default());
        let mut tick = tokio::time::interval(RELAY_EVERY);
        loop {
            tokio::select! {
                // Both can be cancelled without loss.
                said = self.child.line() => match parse(said?)? {
                    WorkerMessage::WorkerStatus(status) => {
                        status.add_since(&last, &control);
                        last = status;
                    }
                    WorkerMessage::WorkerCounts(counts) => return Ok((self, *counts)),
                    WorkerMessage::WatchOutcome(_) => bail!("a verdict before there is a reference"),
                },
                _ = tick.tick() => {
                    let orders = Orders::of(&plans, &control);
                    if orders != sent {
                        self.child.send_line(&serde_json::to_string(&orders)?).await?;
                        sent = orders;
                    }
                }
            }
        }
    }

    /// Lets a stopped part compare its watchers with the reference.
    pub async fn judge(mut self, reference: &str) -> Result<WatchOutcome> {
        let judging = async {
            self.child.send_line(reference).await?;
            loop {
                match parse(self.child.line().await?)? {
                    WorkerMessage::WatchOutcome(outcome) => return Ok(outcome),
                    WorkerMessage::WorkerStatus(_) | WorkerMessage::WorkerCounts(_) => {}
                }
            }
        };
        let outcome = tokio::time::timeout(ANSWER_WAIT, judging)
            .await
            .context("no verdict of a part")?;
        self.child.end(END_WAIT).await.context("a part")?;
        outcome
    }
}

fn parse(line: Option<String>) -> Result<WorkerMessage> {
    let line = line.context("a part of the swarm has ended")?;
    serde_json::from_str(&line).with_context(|| line.chars().take(200).collect::<String>())
}

impl Orders {
    fn of(plans: &[Arc<Plan>], control: &Control) -> Self {
        Self {
            stop: control.stop.load(Ordering::Relaxed),
            stalled: control.stalled.load(Ordering::Relaxed),
            measure_from_ns: control.measure_from_ns.load(Ordering::Relaxed),
            measure_until_ns: control.measure_until_ns.load(Ordering::Relaxed),
            goals: plans.iter().map(|plan| plan.goal().unwrap_or(0)).collect(),
        }
    }

    fn give(&self, plans: &[Arc<Plan>], control: &Control) {
        control.stalled.store(self.stalled, Ordering::Relaxed);
        let (from, until) = (self.measure_from_ns, self.measure_until_ns);
        control.measure_until_ns.store(until, Ordering::Relaxed);
        control.measure_from_ns.store(from, Ordering::Relaxed);
        for (plan, goal) in plans.iter().zip(&self.goals) {
            plan.set_goal(*goal);
        }
    }
}

impl WorkerStatus {
    fn of(control: &Control) -> Self {
        Self {
            ready: control.ready.load(Ordering::Relaxed),
            progress: control.progress.load(Ordering::Relaxed),
            renewals: control.renewals.load(Ordering::Relaxed),
            delivered: control.delivered.load(Ordering::Relaxed),
            bytes: control.bytes.load(Ordering::Relaxed),
            arrivals: control.arrivals.load(Ordering::Relaxed),
            last_delivery_ns: control.last_delivery_ns.load(Ordering::Relaxed),
            behind: control.behind.load(Ordering::Relaxed),
            behind_by: control.behind_by.swap(0, Ordering::Relaxed),
            empty_looks: control.empty_looks.load(Ordering::Relaxed),
        }
    }

    fn add_since(&self, last: &Self, control: &Control) {
        let count =
            |of: &AtomicU64, now: u64, then: u64| of.fetch_add(now - then, Ordering::Relaxed);
        count(&control.renewals, self.renewals, last.renewals);
        count(&control.delivered, self.delivered, last.delivered);
        count(&control.bytes, self.bytes, last.bytes);
        count(&control.arrivals, self.arrivals, last.arrivals);
        count(&control.empty_looks, self.empty_looks, last.empty_looks);
        control
            .last_delivery_ns
            .fetch_max(self.last_delivery_ns, Ordering::Relaxed);
        control
            .ready
            .fetch_add(self.ready.saturating_sub(last.ready), Ordering::Relaxed);
        // Wraps around if a counter is smaller than before.
        let progress = self.progress.wrapping_sub(last.progress);
        control.progress.fetch_add(progress, Ordering::Relaxed);
        let behind = self.behind.wrapping_sub(last.behind);
        control.behind.fetch_add(behind, Ordering::Relaxed);
        control
            .behind_by
            .fetch_max(self.behind_by, Ordering::Relaxed);
    }
}

/// The work of a part's process.
async fn run(server: &ServerFlags) -> Result<()> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    let line = input.next_line().await?.context("no task")?;
    let task: WorkerTask = serde_json::from_str(&line)?;
    let (target, _) = targets(server)?;
    let mut swarm_config = swarm_config(server, None, target);
    swarm_config.streams_per_connection = task.streams_per_connection;
    swarm_config.stream_window = task.stream_window;
    (swarm_config.websocket, swarm_config.accept) = (task.websocket, task.population.accept);
    raise_open_files(connections_of(
        task.population.watchers,
        task.streams_per_connection,
    ))?;
    let plans = task.population.plans(&task.path, task.start);
    let watchers = task
        .population
        .make_watchers(&plans, &Arc::new(task.initial));
    let control = Arc::new(Control::default());
    let swarm = Swarm::start(watchers, &swarm_config, control.clone())?;
    let mut tick = tokio::time::interval(RELAY_EVERY);
    loop {
        tokio::select! {
            // Both can be cancelled without loss.
            line = input.next_line() => {
                let orders: Orders = serde_json::from_str(&line?.context("the parent process has ended")?)?;
                orders.give(&plans, &control);
                if orders.stop {
                    break;
                }
            }
            _ = tick.tick() => say(&mut output, &WorkerMessage::WorkerStatus(WorkerStatus::of(&control))).await?,
        }
    }
    let (watchers, recorder) = swarm.finish()?;
    let last = watchers.iter().map(|watcher| watcher.track().last());
    let counts = Box::new(WorkerCounts {
        recorder,
        furthest: last.max().unwrap_or(0),
    });
    say(&mut output, &WorkerMessage::WorkerCounts(counts)).await?;
    let line = input
        .next_line()
        .await?
        .context("the parent process has ended")?;
    let reference: Reference = serde_json::from_str(&line)?;
    let parts = task.population.parts(&reference);
    let outcome = WatchOutcome::of(&watchers, &plans, &parts, task.population.first);
    say(&mut output, &WorkerMessage::WatchOutcome(outcome)).await
}

async fn say(output: &mut tokio::io::Stdout, said: &WorkerMessage) -> Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    output.write_all(line.as_bytes()).await?;
    Ok(output.flush().await?)
}
