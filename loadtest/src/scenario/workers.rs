//! The watchers of a run at work: in this process, or split over several processes of this program, which end with it.

pub mod process;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinHandle;

use super::population::Population;
use super::watch_run::verdicts::WatchOutcome;
use crate::cli::ServerFlags;
use crate::process::Usage;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Swarm, SwarmConfig, until_all};
use crate::verify::reference::{ObjectVersions, Reference};
use crate::watcher::{Plan, Watcher};
use process::{WorkerCounts, WorkerProcess, WorkerTask};

/// Configuration of the workers.
#[derive(Debug, Clone)]
pub struct WorkerConfig<'a> {
    /// The flags of the server, for other processes.
    pub server: &'a ServerFlags,
    /// Configuration of the swarm in this process.
    pub swarm_config: &'a SwarmConfig,
    pub population: &'a Population,
    pub processes: usize,
    /// Path of the collection.
    pub path: &'a str,
    /// Version that all watches start after.
    pub start: u64,
}

#[derive(Debug)]
pub enum Workers {
    Local(Swarm<Watcher>),
    /// In other processes. Each task relays orders and counters until its process has stopped.
    Remote(RemoteWorkers),
}

/// Running watchers in other processes.
#[derive(Debug)]
pub struct RemoteWorkers {
    control: Arc<Control>,
    count: usize,
    pids: Vec<u32>,
    relays: Vec<JoinHandle<Result<(WorkerProcess, WorkerCounts)>>>,
}

/// Watchers that have stopped and are to be judged.
#[derive(Debug)]
pub struct WorkerResults {
    pub recorder: Recorder,
    /// The newest version that any of them received.
    pub furthest: u64,
    judged: VerdictSource,
}

#[derive(Debug)]
enum VerdictSource {
    Local(Vec<Watcher>),
    Remote(Vec<WorkerProcess>),
}

impl Workers {
    pub async fn start(
        config: &WorkerConfig<'_>,
        plans: &[Arc<Plan>],
        initial: &Arc<ObjectVersions>,
        control: Arc<Control>,
    ) -> Result<Self> {
        let population = config.population;
        if config.processes <= 1 {
            let watchers = population.make_watchers(plans, initial);
            let swarm_config = SwarmConfig {
                accept: population.accept,
                ..config.swarm_config.clone()
            };
            let swarm = Swarm::start(watchers, &swarm_config, control)?;
            return Ok(Self::Local(swarm));
        }
        let (mut relays, mut pids) = (Vec::new(), Vec::new());
        for population in population.shares(config.processes) {
            let task = WorkerTask {
                population,
                path: config.path.to_owned(),
                start: config.start,
                initial: ObjectVersions::clone(initial),
                streams_per_connection: config.swarm_config.streams_per_connection,
                websocket: config.swarm_config.websocket,
                stream_window: config.swarm_config.stream_window,
            };
            let part = WorkerProcess::start(config.server, relays.len(), &task).await?;
            pids.extend(part.pid());
            relays.push(tokio::spawn(part.relay(plans.to_vec(), control.clone())));
        }
        Ok(Self::Remote(RemoteWorkers {
            control,
            count: population.watchers,
            pids,
            relays,
        }))
    }

    /// CPU time of the whole load test, and memory of this process.
    pub fn usage(&self) -> Result<Usage> {
        let mut all = Usage::own()?;
        let pids = match self {
            Self::Local(_) => &[][..],
            Self::Remote(remote) => &remote.pids,
        };
        for pid in pids {
            all.cpu += Usage::of(*pid)?.cpu;
        }
        Ok(all)
    }

    /// Waits until every watcher's first response has started.
    pub async fn ready(&self, wait: Duration) -> Result<()> {
        match self {
            Self::Local(swarm) => swarm.ready(wait).await,
            Self::Remote(remote) => {
                let ready = || remote.control.ready.load(Ordering::Relaxed);
                let has_failed = || remote.relays.iter().any(JoinHandle::is_finished);
                until_all(wait, remote.count, "got a response", ready, has_failed).await
            }
        }
    }

    /// Checks that all processes run.
    pub fn works(&self) -> Result<()> {
        match self {
            Self::Remote(remote) if remote.relays.iter().any(JoinHandle::is_finished) => {
                bail!("a part of the swarm has ended")
            }
            Self::Local(_) | Self::Remote(_) => Ok(()),
        }
    }

    pub async fn finish(self) -> Result<WorkerResults> {
        match self {
            Self::Local(swarm) => {
                let (watchers, recorder) = swarm.finish()?;
                let last = watchers.iter().map(|watcher| watcher.track().last());
                Ok(WorkerResults {
                    recorder,
                    furthest: last.max().unwrap_or(0),
                    judged: VerdictSource::Local(watchers),
                })
            }
            Self::Remote(remote) => {
                remote.control.stop.store(true, Ordering::Relaxed);
                let (mut recorder, mut furthest) = (Recorder::default(), 0);
                let mut parts = Vec::new();
                for relay in remote.relays {
                    let (part, counts) = relay.await??;
                    recorder.merge(&counts.recorder);
                    furthest = furthest.max(counts.furthest);
                    parts.push(part);
                }
                Ok(WorkerResults {
                    recorder,
                    furthest,
                    judged: VerdictSource::Remote(parts),
                })
            }
        }
    }
}

impl WorkerResults {
    /// Compares all watchers with the reference.
    pub async fn judge(
        self,
        population: &Population,
        plans: &[Arc<Plan>],
        reference: &Reference,
    ) -> Result<WatchOutcome> {
        match self.judged {
            VerdictSource::Local(watchers) => Ok(WatchOutcome::of(
                &watchers,
                plans,
                &population.parts(reference),
                population.first,
            )),
            VerdictSource::Remote(parts) => {
                let text = serde_json::to_string(reference).context("the reference as JSON")?;
                let mut all = WatchOutcome::default();
                for part in parts {
                    all.add(&part.judge(&text).await?);
                }
                Ok(all)
            }
        }
    }
}
