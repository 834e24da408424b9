//! `overload`: more lists and watches than the server accepts. It must refuse them (429 with Retry-After, or 410 in a stream), stay within
//! its memory, deliver nothing wrong meanwhile, and answer at once after the load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use super::population::{Population, set_goals};
use super::watch_run::quiet::CatchUp;
use super::watch_run::verdicts::WatchOutcome;
use super::watch_run::{WatchRun, ready_wait};
use super::{Scenario, swarm_config};
use crate::cli::WatchRunFlags;
use crate::lister::{LIST_COMPLETE, Lister, list_once};
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, Recorder, SHED, SHED_SILENTLY};
use crate::recording::{Recording, whole};
use crate::results::{Results, mib};
use crate::swarm::Swarm;
use crate::verify::reference::Part;
use crate::watcher::{Plan, Watcher};
use crate::writer::{Churn, Writes};

/// How often memory is read.
const LOOK: Duration = Duration::from_millis(50);
/// Time between attempts to list after the load.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Longest time until the server answers a list after the load.
const RECOVERY: Duration = Duration::from_secs(5);
/// Size of each object that makes lists long, bytes.
const BALLAST_LEN: usize = 2_900;
/// Longest time for a list.
const LIST_WAIT: Duration = Duration::from_secs(120);
/// Time of live events for the late watchers.
const LATE_TIME: Duration = Duration::from_secs(2);
/// Time for the reference to receive the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(60);

/// Clients and counters of the load.
struct Load {
    rss_max: u64,
    stormers: Vec<Lister>,
    lists: Recorder,
    watchers: Vec<Watcher>,
    watches: Recorder,
    plans: Vec<Arc<Plan>>,
}

/// More lists and watches than the server accepts: it sheds load, stays within its memory, and recovers.
#[derive(Debug, Clone, Parser)]
#[command(name = "overload")]
#[command(mut_arg("watchers", |arg| arg.default_value("2000")))]
pub struct Overload {
    #[command(flatten)]
    pub setting: WatchRunFlags,
    /// Clients that list again and again.
    #[arg(long, default_value_t = 500)]
    pub listers: usize,
    /// Objects in these lists besides those that are written; missing ones are created.
    #[arg(long, default_value_t = 10_000)]
    pub ballast_objects: usize,
    /// Most memory that the server may have at any time, MiB.
    #[arg(long)]
    pub memory_max: Option<u64>,
    /// Number of watchers that start after the load.
    #[arg(long, default_value_t = 100)]
    pub late_watchers: usize,
    /// Refused clients retry after a second, as scripts do; without this flag they obey Retry-After, as client-go does, up to
    /// 30 s.
    #[arg(long)]
    pub impatient: bool,
}

impl Scenario for Overload {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let watching = &self.setting.watching;
        let population = Population::of(watching.watchers);
        let mut run = WatchRun::churning("overload", &self.setting, population)?;
        run.swarm_config.impatient = self.impatient;
        raise_open_files(watching.watchers + self.listers + self.late_watchers)?;
        ballast(self, &run).prepare().await?;
        results.column(run.name);
        if let Some(churn) = &run.churn {
            churn.prepare().await?;
        }
        let target = &run.swarm_config.target;
        let path: Arc<str> = format!("{}?resourceVersion=0", run.path).into();
        let started = Instant::now();
        list_once(target, &path, LIST_WAIT).await?;
        results.figure(
            "list before the load, ms",
            started.elapsed().as_secs_f64() * 1e3,
        );
        let mut recording = Recording::begin(run.reference.clone(), run.path, whole).await?;
        let writing = run.churn.as_ref().map(Churn::start);
        let load = press(self, &run, &recording, &path).await?;
        recover(&run, &path, results).await;
        let (late, plans) = late_watchers(self, &run, &recording, results).await?;
        tokio::time::sleep(LATE_TIME).await;
        let written = match writing {
            Some(writing) => writing.finish().await,
            None => Writes::default(),
        };
        recording.reached(written.last(), SETTLE_WAIT).await?;
        set_goals(&plans, &recording);
        let control = late.control();
        let count = self.late_watchers;
        match CatchUp::of(control, count, &recording, written.last_answer_ns).await {
            Ok(catch_up) => catch_up.report(results, "late watchers"),
            Err(error) => results.fault(format!("late watchers: {error:#}")),
        }
        let (late, _) = late.finish()?;
        let of_load = load.watchers.iter().map(|watcher| watcher.track().last());
        let furthest = of_load.max().unwrap_or(0);
        recording.reached(furthest, SETTLE_WAIT).await?;
        load.report(self, results);
        let parts = recording.parts();
        let events = parts[&Part::All].len();
        WatchOutcome::of(&load.watchers, &load.plans, &parts).report(results, "load", events);
        results.column("late watchers");
        let outcome = WatchOutcome::of(&late, &plans, &parts);
        outcome.report(results, "late", events);
        outcome.report_drops(results, "late");
        run.clean().await;
        Ok(())
    }
}

/// The objects that make lists long.
fn ballast(flags: &Overload, run: &WatchRun<'_>) -> Churn {
    Churn {
        prefix: "ballast".to_owned(),
        objects: flags.ballast_objects,
        object_len: BALLAST_LEN,
        ..super::steady::writer(&flags.setting.churning, &run.reference, run.path)
    }
}

/// Starts the load, and ends it after the duration.
async fn press(
    flags: &Overload,
    run: &WatchRun<'_>,
    recording: &Recording,
    path: &Arc<str>,
) -> Result<Load> {
    let plans = run.population.plans(run.path, recording.start);
    let watchers = run.population.make_watchers(&plans, &Arc::default());
    let watches = Swarm::start(watchers, &run.swarm_config, Arc::new(Control::default()))?;
    let items_min = flags.ballast_objects as u64;
    let stormers = (0..flags.listers)
        .map(|_| Lister::repeating(path.clone(), items_min))
        .collect();
    let mut to = swarm_config(&flags.setting.server, None, run.swarm_config.target.clone());
    to.impatient = flags.impatient;
    let lists = Swarm::start(stormers, &to, Arc::new(Control::default()))?;
    let deadline = Instant::now() + run.duration;
    let mut rss_max = 0;
    while Instant::now() < deadline {
        if let Some(pid) = run.server_pid {
            rss_max = rss_max.max(Usage::of(pid)?.rss);
        }
        tokio::time::sleep(LOOK).await;
    }
    let (stormers, lists) = lists.finish()?;
    let (watchers, watches) = watches.finish()?;
    Ok(Load {
        rss_max,
        stormers,
        lists,
        watchers,
        watches,
        plans,
    })
}

/// Waits until the server answers a list again.
async fn recover(run: &WatchRun<'_>, path: &str, results: &mut Results) {
    let started = Instant::now();
    let mut last = None;
    let answered = loop {
        match list_once(&run.swarm_config.target, path, LIST_WAIT).await {
            Ok(_) => break true,
            Err(error) => last = Some(error),
        }
        if started.elapsed() > RECOVERY {
            break false;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    };
    let elapsed = started.elapsed();
    results.figure("first list after the load, ms", elapsed.as_secs_f64() * 1e3);
    if !answered || elapsed > RECOVERY {
        results.fault(format!(
            "no list within {RECOVERY:?} after the load: {last:?}"
        ));
    }
}

/// Watchers that start after the load, at the reference's newest version.
async fn late_watchers(
    flags: &Overload,
    run: &WatchRun<'_>,
    recording: &Recording,
    results: &mut Results,
) -> Result<(Swarm<Watcher>, Vec<Arc<Plan>>)> {
    let population = Population::of(flags.late_watchers);
    let plans = population.plans(run.path, recording.last());
    let watchers = population.make_watchers(&plans, &Arc::default());
    let swarm = Swarm::start(watchers, &run.swarm_config, Arc::new(Control::default()))?;
    let started = Instant::now();
    swarm.ready(ready_wait(flags.late_watchers)).await?;
    let elapsed = started.elapsed().as_secs_f64();
    results.figure("late watchers all watching after, s", elapsed);
    Ok((swarm, plans))
}

impl Load {
    fn report(&self, flags: &Overload, results: &mut Results) {
        let count = |of: &Recorder, cause: &str| of.ends.get(cause).copied().unwrap_or(0) as f64;
        let watching = self
            .watchers
            .iter()
            .filter(|watcher| watcher.track().count() > 0);
        results.figure("lists complete", count(&self.lists, LIST_COMPLETE));
        results.figure("lists shed with 429", count(&self.lists, SHED));
        results.figure("watchers that got events", watching.count() as f64);
        results.figure("watches shed with 429", count(&self.watches, SHED));
        results.figure("streams ended with 410", count(&self.watches, "ERROR 410"));
        results.figure("server RSS peak, MiB", mib(self.rss_max));
        let silent = [&self.lists, &self.watches].map(|of| count(of, SHED_SILENTLY));
        if silent.iter().sum::<f64>() > 0.0 {
            results.fault("429 without Retry-After".to_owned());
        }
        if let Some(bound) = flags.memory_max
            && mib(self.rss_max) > bound as f64
        {
            results.fault(format!(
                "the server had {:.0} MiB, at most {bound} are allowed",
                mib(self.rss_max)
            ));
        }
        for (number, client) in self.stormers.iter().enumerate() {
            if let Some(wrong) = client.wrong() {
                results.fault_of(&format!("lister {number}"), wrong);
            }
        }
        self.lists.note_ends(results, "lists");
        self.watches.note_ends(results, "watches");
    }
}
