//! One run of watchers under churn, from the first list to the verdict: what `steady` and `stalled` have in common.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::Usage;
use crate::recorder::{Control, Recorder};
use crate::recording::Recording;
use crate::sheet::Sheet;
use crate::swarm::{Swarm, Wiring};
use crate::target::Target;
use crate::verify::reference::Reference;
use crate::watcher::{Habit, Plan, Watcher};
use crate::writer::{Churn, Written};

/// Time for connecting and the first responses.
const READY_WAIT: Duration = Duration::from_secs(25);
/// Time for the reference to see the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
/// Time for every watcher to get there.
const DONE_WAIT: Duration = Duration::from_secs(15);
/// Live events after the stalled have woken.
const AFTER_WAKING: Duration = Duration::from_secs(2);
/// One watcher in so many is sampled.
const SAMPLED_EVERY: usize = 50;
/// Share of the writes asked for that counts as having met the rate.
const RATE_MET: f64 = 0.95;
/// Faulty watchers that are described; the rest is counted.
const DESCRIBED_MAX: usize = 10;
/// Longer than any run: streams shall not end by themselves.
const STREAM_TIMEOUT_S: u64 = 3_600;

/// Everything a run needs.
#[derive(Debug)]
pub struct WatchRun<'a> {
    /// Name of the column.
    pub name: &'a str,
    /// How the swarm is wired to the server under test.
    pub wiring: Wiring,
    /// The server of the reference.
    pub reference: Target,
    /// Path of the collection.
    pub path: &'a str,
    /// The writer; `None` if the server churns by itself.
    pub churn: Option<Churn>,
    /// Number of watchers.
    pub watchers: usize,
    /// The first so many have no say in latency, whether they stall or not, so that two runs compare the same others.
    pub set_apart: usize,
    /// Receive buffer of those set apart, if they stall.
    pub receive_buffer: Option<usize>,
    /// Churn before the measured window.
    pub warm_up: Duration,
    /// The measured window.
    pub duration: Duration,
    /// Process under test.
    pub server_pid: Option<u32>,
    /// Process behind it.
    pub upstream_pid: Option<u32>,
}

/// State of things at one edge of the measured window.
#[derive(Debug)]
struct Edge {
    at: Instant,
    delivered: u64,
    bytes: u64,
    own: Usage,
    server: Option<Usage>,
    upstream: Option<Usage>,
}

impl WatchRun<'_> {
    /// Runs and fills one column; wrong answers become faults of the sheet.
    ///
    /// # Errors
    /// If the run could not be made at all.
    pub async fn run(&self, sheet: &mut Sheet) -> Result<()> {
        sheet.column(self.name);
        if let Some(churn) = &self.churn {
            churn.prepare().await?;
        }
        let mut recording = Recording::begin(self.reference.clone(), self.path).await?;
        let control = Arc::new(Control::default());
        let swarm = Swarm::start(self.watchers(&recording), &self.wiring, control.clone())?;
        let begun = Instant::now();
        swarm.ready(READY_WAIT).await?;
        sheet.figure("all watching after, s", begun.elapsed().as_secs_f64());
        let writing = self.churn.as_ref().map(Churn::start);
        control
            .stalled
            .store(self.receive_buffer.is_some(), Ordering::Relaxed);
        tokio::time::sleep(self.warm_up).await;
        let from = self.edge(&control)?;
        control.measure_from_now();
        tokio::time::sleep(self.duration).await;
        control.measure_until_now();
        let until = self.edge(&control)?;
        if control.stalled.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(AFTER_WAKING).await;
        }
        let written = match writing {
            Some(writing) => Some(writing.finish().await),
            None => None,
        };
        recording
            .reached(written.as_ref().map_or(0, Written::last), SETTLE_WAIT)
            .await?;
        let goal = recording.last();
        control.goal.store(goal, Ordering::Relaxed);
        if let Err(error) = swarm.at_goal(DONE_WAIT).await {
            sheet.fault(format!("{}: {error:#}", self.name));
        }
        let (watchers, recorder) = swarm.finish()?;
        let furthest = watchers
            .iter()
            .map(|watcher| watcher.track().last())
            .max()
            .unwrap_or(0);
        if let Err(error) = recording.reached(furthest, SETTLE_WAIT).await {
            // A list's version may be newer than the newest event; the verdict finds events that the reference lacks.
            sheet.note(format!("{}: {error:#}", self.name));
        }
        self.window(sheet, &from, &until);
        latencies(sheet, &recorder);
        let reference = recording.reference();
        self.judge(sheet, &watchers, &reference, goal);
        self.judge_writes(sheet, written.as_ref(), &reference, recording.start);
        for (cause, count) in &recorder.ends {
            sheet.note(format!("{}: {cause}: {count}", self.name));
        }
        for message in &recorder.messages {
            sheet.note(format!("{}: {message}", self.name));
        }
        Ok(())
    }

    fn watchers(&self, recording: &Recording) -> Vec<Watcher> {
        let plan = Arc::new(Plan {
            path: self.path.to_owned(),
            start: recording.start,
            timeout_s: STREAM_TIMEOUT_S,
        });
        let reference = recording.reference();
        let habit = |number: usize| match self.receive_buffer {
            Some(receive_buffer) if number < self.set_apart => Habit::Stalls { receive_buffer },
            _ if number < self.set_apart => Habit::SetApart,
            _ if number.is_multiple_of(SAMPLED_EVERY) || number + 1 == self.watchers => {
                Habit::Sampled
            }
            _ => Habit::Reads,
        };
        (0..self.watchers)
            .map(|number| Watcher::new(plan.clone(), habit(number), reference.initial()))
            .collect()
    }

    fn edge(&self, control: &Control) -> Result<Edge> {
        Ok(Edge {
            at: Instant::now(),
            delivered: control.delivered.load(Ordering::Relaxed),
            bytes: control.bytes.load(Ordering::Relaxed),
            own: Usage::own()?,
            server: self.server_pid.map(Usage::of).transpose()?,
            upstream: self.upstream_pid.map(Usage::of).transpose()?,
        })
    }

    fn window(&self, sheet: &mut Sheet, from: &Edge, until: &Edge) {
        let seconds = until.at.duration_since(from.at).as_secs_f64();
        let delivered = until.delivered - from.delivered;
        let per_event = |cpu: Duration| cpu.as_secs_f64() * 1e6 / (delivered.max(1) as f64);
        sheet.figure("watchers", self.watchers as f64);
        sheet.figure("events delivered in the window", delivered as f64);
        sheet.figure("events delivered a second", delivered as f64 / seconds);
        sheet.figure(
            "bytes an event",
            (until.bytes - from.bytes) as f64 / delivered.max(1) as f64,
        );
        if let (Some(a), Some(b)) = (from.server, until.server) {
            let cpu = b.cpu.saturating_sub(a.cpu);
            sheet.figure(
                "server CPU, % of a core",
                cpu.as_secs_f64() / seconds * 100.0,
            );
            sheet.figure(SERVER_PER_EVENT, per_event(cpu));
            sheet.figure("server RSS, MiB", b.rss as f64 / f64::from(1 << 20));
        }
        if let (Some(a), Some(b)) = (from.upstream, until.upstream) {
            sheet.figure(
                "upstream CPU, % of a core",
                b.cpu.saturating_sub(a.cpu).as_secs_f64() / seconds * 100.0,
            );
        }
        let own = until.own.cpu.saturating_sub(from.own.cpu);
        sheet.figure(
            "load test CPU, % of a core",
            own.as_secs_f64() / seconds * 100.0,
        );
        sheet.figure("load test CPU per delivered event, µs", per_event(own));
    }

    fn judge(&self, sheet: &mut Sheet, watchers: &[Watcher], reference: &Reference, goal: u64) {
        let mut faulty = 0;
        for (number, watcher) in watchers.iter().enumerate() {
            if let Some(fault) = watcher.verdict(reference, goal) {
                faulty += 1;
                if faulty <= DESCRIBED_MAX {
                    sheet.fault(format!(
                        "{}: watcher {number} ({:?}): {fault}",
                        self.name,
                        watcher.habit()
                    ));
                }
            }
        }
        if faulty > DESCRIBED_MAX {
            sheet.fault(format!(
                "{}: and {} more watchers",
                self.name,
                faulty - DESCRIBED_MAX
            ));
        }
        sheet.figure("reference events", reference.len() as f64);
        sheet.figure(
            "events verified",
            watchers
                .iter()
                .map(|watcher| watcher.track().count())
                .sum::<u64>() as f64,
        );
        sheet.figure(
            "watchers told 410",
            watchers
                .iter()
                .filter(|watcher| watcher.expired() > 0)
                .count() as f64,
        );
        let ended = |stalls: bool| {
            watchers
                .iter()
                .filter(|watcher| watcher.stalls() == stalls)
                .map(Watcher::streams_ended)
                .sum::<u64>()
        };
        sheet.figure("streams ended, readers", ended(false) as f64);
        sheet.figure("streams ended, stalled", ended(true) as f64);
        sheet.figure("faulty watchers", faulty as f64);
        if reference.len() == 0 {
            sheet.fault(format!(
                "{}: no events at all: nothing was proven",
                self.name
            ));
        }
    }

    fn judge_writes(
        &self,
        sheet: &mut Sheet,
        written: Option<&Written>,
        reference: &Reference,
        start: u64,
    ) {
        let Some(written) = written else { return };
        sheet.figure("writes", written.versions.len() as f64);
        let due = self.churn.as_ref().map_or(0.0, |churn| {
            churn.rate * (self.warm_up + self.duration).as_secs_f64()
        });
        if (written.versions.len() as f64) < due * RATE_MET {
            sheet.note(format!("{}: fewer writes than the {due:.0} asked for: the machine or the API server is too slow", self.name));
        }
        if let Some(version) = reference.first_missing(&written.versions, start) {
            sheet.fault(format!(
                "{}: version {version} was written, but the reference never saw it",
                self.name
            ));
        }
        if written.failed > 0 {
            sheet.note(format!(
                "{}: {} writes failed, first: {:?}",
                self.name, written.failed, written.first_failure
            ));
        }
    }
}

/// Row that compares servers.
pub const SERVER_PER_EVENT: &str = "server CPU per delivered event, µs";
/// Row that compares runs with and without stalled watchers.
pub const LATENCY_P99: &str = "latency p99, ms";

fn latencies(sheet: &mut Sheet, recorder: &Recorder) {
    let ms = |microseconds: u64| microseconds as f64 / 1e3;
    sheet.figure("latencies counted", recorder.latency.len() as f64);
    sheet.figure(
        "latency p50, ms",
        ms(recorder.latency.value_at_quantile(0.5)),
    );
    sheet.figure(
        "latency p90, ms",
        ms(recorder.latency.value_at_quantile(0.9)),
    );
    sheet.figure(LATENCY_P99, ms(recorder.latency.value_at_quantile(0.99)));
    sheet.figure(
        "latency p999, ms",
        ms(recorder.latency.value_at_quantile(0.999)),
    );
    sheet.figure("latency max, ms", ms(recorder.latency.max()));
    sheet.distribution("latency, ms", &recorder.latency);
    sheet.figure("bookmarks", recorder.bookmarks as f64);
}
