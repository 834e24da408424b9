//! One run of watchers under churn, from the first list to the verdict: the common part of all scenarios with watchers.

pub mod quiet;
pub mod verdicts;
pub mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::phase;
use super::population::{Population, set_goals};
use crate::client::Client;
use crate::process::{MachineCpu, Usage};
use crate::recorder::{Control, Recorder};
use crate::recording::Recording;
use crate::results::Results;
use crate::socket_loop::RATE_MET;
use crate::swarm::{Swarm, SwarmConfig};
use crate::target::Target;
use crate::verify::reference::Part;
use crate::watcher::{Plan, Watcher};
use crate::writer::{Churn, Writes};
use quiet::CatchUp;
use verdicts::WatchOutcome;
use window::Snapshot;

/// Number of start versions of a mixed population, and of the writes that they are spread over.
const STARTS: usize = 5;
const STARTS_SPREAD: usize = 100;
/// Time for the reference to receive the last write. Like the limits below it only ends a run that hangs: a machine with other work needs
/// many times what it needs alone.
const SETTLE_WAIT: Duration = Duration::from_secs(60);
/// How often the swarm's answer to an order is polled.
const LOOK: Duration = Duration::from_millis(5);
/// Time of live events after slow watchers read again.
const AFTER_WAKING: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct WatchRun<'a> {
    pub name: &'a str,
    /// Configuration of the swarm, with the server under test.
    pub swarm_config: SwarmConfig,
    /// The server of the reference.
    pub reference: Target,
    pub path: &'a str,
    /// The writer; `None` if the server churns by itself.
    pub churn: Option<Churn>,
    pub population: Population,
    /// Whether watchers start at different versions, some without bookmarks, and some writes go through the server under test.
    pub is_mixed: bool,
    /// Whether servers restart, so that streams end.
    pub is_rolling: bool,
    /// Churn before the measured window.
    pub warm_up: Duration,
    pub duration: Duration,
    /// Process of the server under test.
    pub server_pid: Option<u32>,
    /// Process of the API server behind it.
    pub upstream_pid: Option<u32>,
}

/// A run whose watchers are all connected.
#[derive(Debug)]
pub struct ActiveRun<'a> {
    pub run: &'a WatchRun<'a>,
    pub recording: Recording,
    /// Orders to the swarm, and its counters.
    pub control: Arc<Control>,
    swarm: Swarm<Watcher>,
    plans: Vec<Arc<Plan>>,
}

/// Time for this many watchers to connect and get their first response: TLS takes milliseconds each on a busy machine.
pub fn ready_wait(watchers: usize) -> Duration {
    Duration::from_secs(120)
        + Duration::from_millis(4) * u32::try_from(watchers).unwrap_or(u32::MAX)
}

/// Time for this many watchers to reach the reference.
pub fn done_wait(watchers: usize) -> Duration {
    Duration::from_secs(120)
        + Duration::from_millis(1) * u32::try_from(watchers).unwrap_or(u32::MAX)
}

/// Time of a run besides its window.
pub fn spare(watchers: usize) -> Duration {
    ready_wait(watchers) + done_wait(watchers) + SETTLE_WAIT * 2 + Duration::from_secs(10)
}

impl<'a> WatchRun<'a> {
    /// Runs with steady churn and fills one column; wrong answers become faults of the results. Returns the counters.
    pub async fn run(&self, results: &mut Results) -> Result<Recorder> {
        let running = self.begin(results).await?;
        let writing = self.churn.as_ref().map(Churn::start);
        let slowness = self.population.slowness;
        running
            .control
            .stalled
            .store(slowness.is_some(), Ordering::Relaxed);
        let edges = running.measure(self.warm_up, self.duration).await?;
        if slowness.is_some_and(|slow| slow.renews_every.is_some()) {
            running.renewed().await;
        }
        if running.control.stalled.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(AFTER_WAKING).await;
        }
        let written = match writing {
            Some(writing) => Some(writing.finish().await),
            None => None,
        };
        self.window(results, &edges);
        running.finish(results, written.as_ref()).await
    }

    /// Starts a column, the reference and the swarm.
    pub async fn begin(&'a self, results: &mut Results) -> Result<ActiveRun<'a>> {
        results.column(self.name);
        if let Some(churn) = &self.churn {
            churn.prepare().await?;
        }
        if self.swarm_config.target.address != self.reference.address {
            // A list through a gateway fills its cache, so that the reference's version is within its history.
            let first = format!("{}?resourceVersion=0&limit=1", self.path);
            Client::new(self.swarm_config.target.clone())
                .json(&first)
                .await?;
        }
        let mut recording = Recording::begin(
            self.reference.clone(),
            self.path,
            self.population.parts_of(),
        )
        .await?;
        let control = Arc::new(Control::default());
        let mut population = self.population.clone();
        if let Some(churn) = self.churn.as_ref().filter(|_| self.is_mixed) {
            population.starts = starts(churn, &mut recording).await?;
        }
        let plans = population.plans(self.path, recording.start);
        let initial = Arc::new(recording.reference().initial().clone());
        let watchers = self.population.watchers;
        phase(&format!("{}: {watchers} watchers connect", self.name));
        let started = Instant::now();
        let swarm_config = SwarmConfig {
            accept: population.accept,
            ..self.swarm_config.clone()
        };
        let swarm = Swarm::start(
            population.make_watchers(&plans, &initial),
            &swarm_config,
            control.clone(),
        )?;
        swarm.ready(ready_wait(watchers)).await?;
        results.figure("all watching after, s", started.elapsed().as_secs_f64());
        Ok(ActiveRun {
            run: self,
            recording,
            control,
            swarm,
            plans,
        })
    }

    fn judge_writes(&self, results: &mut Results, written: &Writes, recording: &Recording) {
        let reference = recording.reference();
        results.figure("writes", written.versions.len() as f64);
        if let Some(version) = reference.first_missing(&written.versions, recording.start) {
            results.fault(format!(
                "{}: version {version} was written, but the reference never received it",
                self.name
            ));
        }
        if written.failed > 0 {
            results.note(format!(
                "{}: {} writes failed, first: {:?}",
                self.name, written.failed, written.first_failure
            ));
        }
        let due = self.churn.as_ref().map_or(0.0, |churn| {
            churn.rate * (self.warm_up + self.duration).as_secs_f64()
        });
        if (written.versions.len() as f64) < due * RATE_MET {
            results.invalid(format!(
                "{}: {} writes out of the {due:.0} that were due: the machine or the API server is too slow for this rate",
                self.name,
                written.versions.len()
            ));
        }
    }
}

/// Versions of some unwatched writes, evenly spaced.
async fn starts(churn: &Churn, recording: &mut Recording) -> Result<Vec<u64>> {
    let written = churn.burst(STARTS_SPREAD).await;
    recording.reached(written.last(), SETTLE_WAIT).await?;
    let reference = recording.reference();
    let entries = reference.after(recording.start, written.last());
    let mut starts = vec![recording.start];
    let every = (entries.len() / STARTS).max(1);
    starts.extend(entries.iter().step_by(every).map(|entry| entry.version));
    Ok(starts)
}

impl ActiveRun<'_> {
    /// Measures latencies for a while, after a warm-up; returns the snapshots at both ends.
    pub async fn measure(&self, warm_up: Duration, duration: Duration) -> Result<[Snapshot; 2]> {
        let lasts = (warm_up + duration).as_secs();
        phase(&format!("{}: objects change, for {lasts} s", self.run.name));
        tokio::time::sleep(warm_up).await;
        let from = self.measure_begin()?;
        tokio::time::sleep(duration).await;
        Ok([from, self.measure_end()?])
    }

    /// Waits until a slow watcher has renewed its stream, which a busy machine may not manage within the window.
    async fn renewed(&self) {
        let deadline = Instant::now() + done_wait(self.run.population.watchers);
        while self.control.renewals.load(Ordering::Relaxed) == 0 && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts to count latencies; returns a snapshot.
    pub fn measure_begin(&self) -> Result<Snapshot> {
        self.run
            .server_pid
            .iter()
            .for_each(|pid| Usage::forget_peak(*pid));
        let edge = self.edge();
        self.control.measure_from_now();
        edge
    }

    /// Stops to count latencies of later writes; returns a snapshot.
    pub fn measure_end(&self) -> Result<Snapshot> {
        self.control.measure_until_now();
        self.edge()
    }

    /// The current counters and usage.
    pub fn edge(&self) -> Result<Snapshot> {
        Ok(Snapshot {
            at: Instant::now(),
            upstream_events: self.recording.reference().len(),
            delivered: self.control.delivered.load(Ordering::Relaxed),
            bytes: self.control.bytes.load(Ordering::Relaxed),
            requests: self.control.requests.load(Ordering::Relaxed),
            machine: MachineCpu::now()?,
            own: Usage::own()?,
            server: self.run.server_pid.map(Usage::of).transpose()?,
            upstream: self.run.upstream_pid.map(Usage::of).transpose()?,
        })
    }

    /// After the last write: waits until every watcher has all events of the reference, which must have reached the last of `written`, or
    /// until nothing more arrives.
    pub async fn quiet(&mut self, written: Option<&Writes>) -> Result<CatchUp> {
        let written_ns = quiet::since(written.map(|written| written.last_answer_ns));
        let version = written.map_or(0, Writes::last);
        self.recording.reached(version, SETTLE_WAIT).await?;
        self.forget_goals().await?;
        set_goals(&self.plans, &self.recording);
        let count = self.run.population.watchers;
        CatchUp::of(&self.control, count, &self.recording, written_ns).await
    }

    /// Waits until no watcher is counted as having reached an earlier goal.
    async fn forget_goals(&self) -> Result<()> {
        let deadline = Instant::now() + SETTLE_WAIT;
        self.plans.iter().for_each(|plan| plan.goal.set(0));
        while self.control.progress.load(Ordering::Relaxed) != 0 {
            if Instant::now() > deadline {
                bail!("the swarm does not carry out its orders");
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits until all watchers have everything, stops them, and compares them with the reference. Returns the counters.
    pub async fn finish(
        mut self,
        results: &mut Results,
        written: Option<&Writes>,
    ) -> Result<Recorder> {
        let name = self.run.name;
        phase(&format!(
            "{name}: quiet end, then every watcher is compared"
        ));
        match self.quiet(written).await {
            Ok(quiet) if written.is_some() => quiet.report(results, name),
            // The server goes on writing: later events push out pending ones.
            Ok(_) => results.note(format!("{name}: the server writes by itself: no quiet end")),
            Err(error) => results.fault(format!("{name}: {error:#}")),
        }
        let (watchers, mut recorder) = self.swarm.finish()?;
        let last = watchers.iter().map(|watcher| watcher.track().last());
        let furthest = last.max().unwrap_or(0);
        if let Err(error) = self.recording.reached(furthest, SETTLE_WAIT).await {
            // A list's version may be newer than the newest event; the verdict finds events that the reference lacks.
            results.note(format!("{name}: {error:#}"));
        }
        recorder.tick(&self.control);
        let writes = self.recording.writes();
        for watcher in &watchers {
            watcher.record_latencies(&writes, &mut recorder);
        }
        window::latencies(results, &recorder);
        let from_ns = self.control.measure_from_ns.load(Ordering::Relaxed);
        let until_ns = self.control.measure_until_ns.load(Ordering::Relaxed);
        window::latencies_at_reference(results, &self.recording.latency(from_ns..until_ns));
        let parts = self.recording.parts();
        let outcome = WatchOutcome::of(&watchers, &self.plans, &parts);
        outcome.report(results, name, parts[&Part::All].len());
        if !self.run.is_rolling {
            outcome.report_drops(results, name);
        }
        if let Some(written) = written {
            self.run.judge_writes(results, written, &self.recording);
        }
        recorder.note_ends(results, name);
        Ok(recorder)
    }
}
