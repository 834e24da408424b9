//! The watchers of a run at work: in this process, or split over several of this program, which end with it.

pub mod part;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinHandle;

use super::crowd::Crowd;
use super::watch_run::verdicts::Outcome;
use crate::cli::Server;
use crate::process::Usage;
use crate::recorder::{Control, Recorder};
use crate::swarm::{Swarm, Wiring};
use crate::verify::reference::{Reference, State};
use crate::watcher::{Plan, Watcher};
use part::{Part, Stopped, Task};

/// How often it is looked how far they are.
const LOOK: Duration = Duration::from_millis(5);

/// What it takes to set watchers to work.
#[derive(Debug, Clone)]
pub struct Staffing<'a> {
    /// The server as the flags have it: other processes are told so.
    pub server: &'a Server,
    /// How this process is wired to it.
    pub wiring: &'a Wiring,
    /// Who watches.
    pub crowd: &'a Crowd,
    /// How many processes share the work.
    pub processes: usize,
    /// Path of the collection.
    pub path: &'a str,
    /// Version that all begin after.
    pub start: u64,
}

/// Watchers at work.
#[derive(Debug)]
pub enum Crew {
    /// Here.
    Here(Swarm<Watcher>),
    /// In other processes. Each task relays orders and counts until its process has stopped.
    Apart(Apart),
}

/// Watchers at work in other processes.
#[derive(Debug)]
pub struct Apart {
    control: Arc<Control>,
    count: usize,
    pids: Vec<u32>,
    relays: Vec<JoinHandle<Result<(Part, Stopped)>>>,
}

/// Watchers that have stopped, and have not been judged.
#[derive(Debug)]
pub struct Finished {
    /// What they counted.
    pub recorder: Recorder,
    /// The newest version that any of them saw.
    pub furthest: u64,
    judged: Judged,
}

#[derive(Debug)]
enum Judged {
    Here(Vec<Watcher>),
    Apart(Vec<Part>),
}

impl Crew {
    /// Begins.
    ///
    /// # Errors
    /// If threads or processes cannot be started.
    pub async fn start(
        staffing: &Staffing<'_>,
        plans: &[Arc<Plan>],
        initial: &Arc<State>,
        control: Arc<Control>,
    ) -> Result<Self> {
        let crowd = staffing.crowd;
        if staffing.processes <= 1 {
            let watchers = crowd.recruit(plans, initial);
            let wiring = Wiring {
                accept: crowd.accept,
                ..staffing.wiring.clone()
            };
            let swarm = Swarm::start(watchers, &wiring, control)?;
            return Ok(Self::Here(swarm));
        }
        let (mut relays, mut pids) = (Vec::new(), Vec::new());
        for crowd in crowd.shares(staffing.processes) {
            let task = Task {
                crowd,
                path: staffing.path.to_owned(),
                start: staffing.start,
                initial: State::clone(initial),
                streams_per_connection: staffing.wiring.streams_per_connection,
                websocket: staffing.wiring.websocket,
                stream_window: staffing.wiring.stream_window,
            };
            let part = Part::start(staffing.server, relays.len(), &task).await?;
            pids.extend(part.pid());
            relays.push(tokio::spawn(part.relay(plans.to_vec(), control.clone())));
        }
        Ok(Self::Apart(Apart {
            control,
            count: crowd.watchers,
            pids,
            relays,
        }))
    }

    /// CPU time of the whole load test, and memory of this process.
    ///
    /// # Errors
    /// If a process is gone.
    pub fn usage(&self) -> Result<Usage> {
        let mut all = Usage::own()?;
        let pids = match self {
            Self::Here(_) => &[][..],
            Self::Apart(apart) => &apart.pids,
        };
        for pid in pids {
            all.cpu += Usage::of(*pid)?.cpu;
        }
        Ok(all)
    }

    /// Waits until every watcher's first response has begun.
    ///
    /// # Errors
    /// If that takes longer than `wait`; says how far it came.
    pub async fn ready(&self, wait: Duration) -> Result<()> {
        match self {
            Self::Here(swarm) => swarm.ready(wait).await,
            Self::Apart(apart) => {
                let ready = |control: &Control| control.ready.load(Ordering::Relaxed);
                apart.until(wait, "got a response", ready).await
            }
        }
    }

    /// Whether all processes are still there.
    ///
    /// # Errors
    /// If one has ended.
    pub fn works(&self) -> Result<()> {
        match self {
            Self::Apart(apart) if apart.relays.iter().any(JoinHandle::is_finished) => {
                bail!("a part of the swarm has ended")
            }
            Self::Here(_) | Self::Apart(_) => Ok(()),
        }
    }

    /// Stops all.
    ///
    /// # Errors
    /// If a thread or a process has failed.
    pub async fn finish(self) -> Result<Finished> {
        match self {
            Self::Here(swarm) => {
                let (watchers, recorder) = swarm.finish()?;
                let last = watchers.iter().map(|watcher| watcher.track().last());
                Ok(Finished {
                    recorder,
                    furthest: last.max().unwrap_or(0),
                    judged: Judged::Here(watchers),
                })
            }
            Self::Apart(apart) => {
                apart.control.stop.store(true, Ordering::Relaxed);
                let (mut recorder, mut furthest) = (Recorder::default(), 0);
                let mut parts = Vec::new();
                for relay in apart.relays {
                    let (part, stopped) = relay.await??;
                    recorder.merge(&Recorder::from(&stopped.counts));
                    furthest = furthest.max(stopped.furthest);
                    parts.push(part);
                }
                Ok(Finished {
                    recorder,
                    furthest,
                    judged: Judged::Apart(parts),
                })
            }
        }
    }
}

impl Apart {
    async fn until(
        &self,
        wait: Duration,
        what: &str,
        count: impl Fn(&Control) -> usize,
    ) -> Result<()> {
        let deadline = Instant::now() + wait;
        while count(&self.control) < self.count {
            if Instant::now() > deadline || self.relays.iter().any(JoinHandle::is_finished) {
                let reached = count(&self.control);
                bail!(
                    "after {wait:?} only {reached} of {} clients have {what}",
                    self.count
                );
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Finished {
    /// Compares all with the reference.
    ///
    /// # Errors
    /// If a process has failed.
    pub async fn judge(
        self,
        crowd: &Crowd,
        plans: &[Arc<Plan>],
        reference: &Reference,
    ) -> Result<Outcome> {
        match self.judged {
            Judged::Here(watchers) => Ok(Outcome::of(
                &watchers,
                plans,
                &crowd.parts(reference),
                crowd.first,
            )),
            Judged::Apart(parts) => {
                let text = serde_json::to_string(reference).context("the reference as JSON")?;
                let mut all = Outcome::default();
                for part in parts {
                    all.add(&part.judge(&text).await?);
                }
                Ok(all)
            }
        }
    }
}
