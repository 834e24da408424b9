//! `overload`: more lists and watches than the server takes. It must say so (429 with Retry-After, or 410 in a stream), stay within its
//! memory, deliver nothing wrong meanwhile, and answer at once when the load is gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::crowd::Crowd;
use super::watch_run::quiet::{self, Quiet};
use super::watch_run::verdicts::Outcome;
use super::watch_run::{WatchRun, done_wait, ready_wait};
use super::wiring;
use crate::cli::Setting;
use crate::cli::players::Overload;
use crate::lister::listed;
use crate::lister::storm::{LISTED, Stormer};
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, Recorder, SHED, SHED_SILENTLY};
use crate::recording::Recording;
use crate::sheet::Sheet;
use crate::swarm::Swarm;
use crate::watcher::{Plan, Watcher};
use crate::writer::{Churn, Written};

/// How often memory is read.
const LOOK: Duration = Duration::from_millis(50);
/// From one attempt to list to the next, when the load is over.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// A list that takes longer is none.
const LIST_WAIT: Duration = Duration::from_secs(30);
/// Live events for the late watchers.
const LATE_TIME: Duration = Duration::from_secs(2);
/// Time for the reference to see the last write.
const SETTLE_WAIT: Duration = Duration::from_secs(15);

/// What was seen while the load lasted.
struct Load {
    rss_max: u64,
    stormers: Vec<Stormer>,
    lists: Recorder,
    watchers: Vec<Watcher>,
    watches: Recorder,
    plans: Vec<Arc<Plan>>,
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Overload) -> Result<Sheet> {
    let Setting {
        watching, churning, ..
    } = &flags.setting;
    let crowd = Crowd::of(watching.watchers);
    let mut run = WatchRun::churning("overload", &flags.setting, crowd)?;
    run.wiring.impatient = flags.impatient;
    raise_open_files(watching.watchers + flags.listers + flags.late_watchers)?;
    ballast(flags, &run).prepare().await?;
    let mut sheet = Sheet::new("overload");
    sheet.column(run.name);
    if let Some(churn) = &run.churn {
        churn.prepare().await?;
    }
    let target = &run.wiring.target;
    let path: Arc<str> = format!("{}?resourceVersion=0", run.path).into();
    let begun = Instant::now();
    listed(target, &path, LIST_WAIT).await?;
    sheet.figure(
        "list before the load, ms",
        begun.elapsed().as_secs_f64() * 1e3,
    );
    let mut recording = Recording::begin(run.reference.clone(), run.path).await?;
    let writing = run.churn.as_ref().map(Churn::start);
    let load = press(flags, &run, &recording, &path).await?;
    recover(flags, &run, &path, &mut sheet).await;
    let (late, plans) = late_watchers(flags, &run, &recording, &mut sheet).await?;
    tokio::time::sleep(LATE_TIME).await;
    let written = match writing {
        Some(writing) => writing.finish().await,
        None => Written::default(),
    };
    recording.reached(written.last(), SETTLE_WAIT).await?;
    let start = recording.start;
    run.crowd.set_goals(&plans, &recording.reference(), start);
    let control = late.control();
    let count = flags.late_watchers;
    match quiet::settled(control, count, done_wait(count), || Ok(())).await {
        Ok(distance) => {
            let behind = distance.map(|distance| distance.in_events(&recording.reference()));
            let delivered_ns = control.last_delivery_ns.load(Ordering::Relaxed);
            Quiet::between(written.last_answer_ns, delivered_ns, behind)
                .report(&mut sheet, "late watchers");
        }
        Err(error) => sheet.fault(format!("late watchers: {error:#}")),
    }
    let (late, _) = late.finish()?;
    let of_load = load.watchers.iter().map(|watcher| watcher.track().last());
    let furthest = of_load.max().unwrap_or(0);
    recording.reached(furthest, SETTLE_WAIT).await?;
    load.report(flags, &mut sheet);
    let reference = recording.reference().clone();
    let parts = run.crowd.parts(&reference);
    Outcome::of(&load.watchers, &load.plans, &parts, 0).report(&mut sheet, "load", reference.len());
    sheet.column("late watchers");
    let outcome = Outcome::of(&late, &plans, &parts, 0);
    outcome.report(&mut sheet, "late", reference.len());
    outcome.report_drops(&mut sheet, "late");
    run.clean(churning).await;
    Ok(sheet)
}

/// The objects that make lists long.
fn ballast(flags: &Overload, run: &WatchRun<'_>) -> Churn {
    Churn {
        prefix: "ballast".to_owned(),
        objects: flags.ballast_objects,
        object_len: flags.ballast_size,
        ..super::steady::writer(&flags.setting.churning, &run.reference, run.path)
    }
}

/// Puts on the load, and takes it off again.
async fn press(
    flags: &Overload,
    run: &WatchRun<'_>,
    recording: &Recording,
    path: &Arc<str>,
) -> Result<Load> {
    let plans = run.crowd.plans(run.path, recording.start);
    let watchers = run.crowd.recruit(&plans, &Arc::default());
    let watches = Swarm::start(watchers, &run.wiring, Arc::new(Control::default()))?;
    let items_min = flags.ballast_objects as u64;
    let stormers = (0..flags.listers)
        .map(|_| Stormer::new(path.clone(), items_min))
        .collect();
    let mut to = wiring(&flags.setting.server, None, run.wiring.target.clone());
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
async fn recover(flags: &Overload, run: &WatchRun<'_>, path: &str, sheet: &mut Sheet) {
    let begun = Instant::now();
    let mut last = None;
    let answered = loop {
        match listed(&run.wiring.target, path, LIST_WAIT).await {
            Ok(_) => break true,
            Err(error) => last = Some(error),
        }
        if begun.elapsed() > flags.recovery {
            break false;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    };
    let took = begun.elapsed();
    sheet.figure("first list after the load, ms", took.as_secs_f64() * 1e3);
    if !answered || took > flags.recovery {
        sheet.fault(format!(
            "no list within {:?} after the load: {last:?}",
            flags.recovery
        ));
    }
}

/// Watchers that come after the load, from where the reference is now.
async fn late_watchers(
    flags: &Overload,
    run: &WatchRun<'_>,
    recording: &Recording,
    sheet: &mut Sheet,
) -> Result<(Swarm<Watcher>, Vec<Arc<Plan>>)> {
    let crowd = Crowd::of(flags.late_watchers);
    let plans = crowd.plans(run.path, recording.last());
    let watchers = crowd.recruit(&plans, &Arc::default());
    let swarm = Swarm::start(watchers, &run.wiring, Arc::new(Control::default()))?;
    let begun = Instant::now();
    swarm.ready(ready_wait(flags.late_watchers)).await?;
    let took = begun.elapsed().as_secs_f64();
    sheet.figure("late watchers all watching after, s", took);
    Ok((swarm, plans))
}

impl Load {
    fn report(&self, flags: &Overload, sheet: &mut Sheet) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let count = |of: &Recorder, cause: &str| of.ends.get(cause).copied().unwrap_or(0) as f64;
        let watching = self
            .watchers
            .iter()
            .filter(|watcher| watcher.track().count() > 0);
        sheet.figure("lists complete", count(&self.lists, LISTED));
        sheet.figure("lists shed with 429", count(&self.lists, SHED));
        sheet.figure("watchers that got events", watching.count() as f64);
        sheet.figure("watches shed with 429", count(&self.watches, SHED));
        sheet.figure("streams ended with 410", count(&self.watches, "ERROR 410"));
        sheet.figure("server RSS peak, MiB", mib(self.rss_max));
        let silent = [&self.lists, &self.watches].map(|of| count(of, SHED_SILENTLY));
        if silent.iter().sum::<f64>() > 0.0 {
            sheet.fault("429 without Retry-After".to_owned());
        }
        if let Some(bound) = flags.memory_max
            && mib(self.rss_max) > bound as f64
        {
            sheet.fault(format!(
                "the server had {:.0} MiB, at most {bound} are allowed",
                mib(self.rss_max)
            ));
        }
        for (number, client) in self.stormers.iter().enumerate() {
            if let Some(wrong) = client.wrong() {
                sheet.fault_of(&format!("lister {number}"), wrong);
            }
        }
        for (who, recorder) in [("lists", &self.lists), ("watches", &self.watches)] {
            for (cause, count) in &recorder.ends {
                sheet.note(format!("{who}: {cause}: {count}"));
            }
            for message in recorder.messages.lines() {
                sheet.note(format!("{who}: {message}"));
            }
        }
    }
}
