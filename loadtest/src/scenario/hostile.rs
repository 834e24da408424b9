//! `hostile`: a witness alone, then beside an attack, then alone again. It ought to notice little of the attack, and the server ought to
//! give back the memory that the attack took.

mod attacker;
mod witness;

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::targets;
use crate::attack::Tally;
use crate::cli::hostile::Hostile;
use crate::process::Usage;
use crate::recorder::{latencies, now_ns};
use crate::report::TARGET_COLUMN;
use crate::sheet::Sheet;
use crate::texts::Texts;
use attacker::Attacking;
use witness::{Deed, Done, Witness};

/// What the witness may notice at its 99th percentile, or twice what it has without the attack if that is more.
const P99_MAX: Duration = Duration::from_millis(20);
/// What the server may keep of an attack's memory, besides a quarter of what it had before: heaps do not shrink to the byte.
const KEPT_MAX: u64 = 16 << 20;
/// Longest time for an attack's clients to come.
const BEGIN_WAIT: Duration = Duration::from_secs(20);
/// Besides the phases: the first answers, the last event.
const SPARE: Duration = Duration::from_secs(30);
/// How often memory is read.
const LOOK: Duration = Duration::from_millis(50);
/// Different failures of the witness that are told.
const FAILURES_MAX: usize = 5;

/// The server's memory, bytes.
#[derive(Debug, Default)]
struct Memory {
    before: u64,
    peak: u64,
    after: u64,
}

/// When the attack began and ended, nanoseconds since the epoch.
#[derive(Debug)]
struct Times {
    attack: u64,
    end: u64,
}

/// When a run is given up.
pub fn limit(flags: &Hostile) -> Duration {
    flags.quiet + BEGIN_WAIT + flags.duration + flags.after + SPARE
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Hostile) -> Result<Sheet> {
    let (target, _) = targets(&flags.server)?;
    let server = &flags.server;
    let reference = server.reference.as_deref().unwrap_or(&server.target);
    let pid = flags
        .server
        .server_pid
        .context("hostile needs --server-pid")?;
    let mut sheet = Sheet::new("hostile");
    sheet.column(TARGET_COLUMN);
    let witness = Witness::begin(&target, &flags.server.path).await?;
    tokio::time::sleep(flags.quiet).await;
    let mut memory = Memory {
        before: Usage::of(pid)?.rss,
        ..Memory::default()
    };
    let cpu = Usage::of(pid)?.cpu;
    let attack = now_ns();
    let begun = Instant::now();
    let attacking = Attacking::begin(flags, reference, limit(flags))?;
    let first = watch_memory(pid, &mut memory, BEGIN_WAIT, || attacking.has_begun()).await?;
    watch_memory(pid, &mut memory, flags.duration, || false).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = (Usage::of(pid)?.cpu - cpu).as_secs_f64() / seconds;
    let tally = attacking.end().await?;
    let times = Times {
        attack,
        end: now_ns(),
    };
    tokio::time::sleep(flags.after).await;
    memory.after = Usage::of(pid)?.rss;
    let (done, missing) = witness.finish().await;
    if missing > 0 {
        sheet.fault(format!(
            "behind at the end: the witness lacks {missing} of its events"
        ));
    }
    if !first {
        sheet.note(format!(
            "not all clients of the attack came within {BEGIN_WAIT:?}"
        ));
    }
    sheet.figure("server CPU under attack, cores", cpu);
    report_attack(&mut sheet, &tally, seconds);
    verdict(&mut sheet, flags, &done, &times, &memory);
    Ok(sheet)
}

/// Reads memory until something is so, for this long at most; whether it was.
async fn watch_memory(
    pid: u32,
    memory: &mut Memory,
    time: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<bool> {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        memory.peak = memory.peak.max(Usage::of(pid)?.rss);
        if is_over() {
            return Ok(true);
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(false)
}

fn report_attack(sheet: &mut Sheet, tally: &Tally, seconds: f64) {
    sheet.figure("attack: connections at its end", tally.connections as f64);
    sheet.figure("attack: done a second", tally.done as f64 / seconds);
    sheet.figure("attack: refused", tally.refused as f64);
    sheet.figure(
        "attack: connections closed by the server",
        tally.closed as f64,
    );
}

/// Puts the witness' figures and the server's memory into the sheet, and what is too much into its notes.
fn verdict(sheet: &mut Sheet, flags: &Hostile, done: &[Done], times: &Times, memory: &Memory) {
    let (mut missed, mut worst) = (Vec::new(), 0.0_f64);
    let mut failures = Texts::new(FAILURES_MAX);
    for deed in Deed::ALL {
        let name = deed.name();
        let all = |from: u64, until: u64| {
            done.iter()
                .filter(move |one| one.deed == deed && (from..until).contains(&one.due_ns))
        };
        let quiet = took(all(0, times.attack));
        let attacked = took(all(times.attack, times.end));
        let (quiet_p99, p99) = (quantile(&quiet, 0.99), quantile(&attacked, 0.99));
        let allowed = (2.0 * quiet_p99).max(P99_MAX.as_secs_f64() * 1e3);
        sheet.figure(&format!("{name}: alone p50, ms"), quantile(&quiet, 0.5));
        sheet.figure(&format!("{name}: alone p99, ms"), quiet_p99);
        sheet.figure(
            &format!("{name}: attacked p50, ms"),
            quantile(&attacked, 0.5),
        );
        sheet.figure(&format!("{name}: attacked p99, ms"), p99);
        let refused = all(times.attack, times.end).filter_map(|one| one.failure.as_deref());
        let refused = refused.inspect(|why| failures.add(name, why)).count();
        sheet.figure(&format!("{name}: refused"), refused as f64);
        worst = worst.max(p99 / allowed);
        if p99 > allowed {
            missed.push(format!("{name} p99 {p99:.0} ms, allowed {allowed:.0} ms"));
        }
        if refused > 0 {
            missed.push(format!("{refused} {name} refused"));
        }
        if attacked.is_empty() {
            worst = f64::INFINITY;
            missed.push(format!("no {name} at all"));
        }
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let kept_max = memory.before + memory.before / 4 + KEPT_MAX;
    sheet.figure("server RSS before, MiB", mib(memory.before));
    sheet.figure("server RSS peak, MiB", mib(memory.peak));
    sheet.figure("server RSS afterwards, MiB", mib(memory.after));
    sheet.figure(
        "server RSS afterwards / allowed",
        memory.after as f64 / kept_max as f64,
    );
    if memory.after > kept_max {
        let (after, allowed) = (mib(memory.after), mib(kept_max));
        missed.push(format!("{after:.0} MiB afterwards, allowed {allowed:.0}"));
    }
    sheet.figure("worst p99 / allowed", worst.min(1e6));
    sheet.figure("verdict (1 met)", f64::from(u8::from(missed.is_empty())));
    let verdict = if missed.is_empty() {
        "met".to_owned()
    } else {
        format!("missed: {}", missed.join("; "))
    };
    sheet.note(format!("{}: {verdict}", flags.attack.name()));
    for failure in failures.lines() {
        sheet.note(format!("witness: {failure}"));
    }
}

/// How long it took what was answered, in microseconds.
fn took<'a>(done: impl Iterator<Item = &'a Done>) -> Histogram<u64> {
    let mut histogram = latencies();
    for one in done.filter(|one| one.failure.is_none()) {
        histogram.saturating_record(u64::try_from(one.took.as_micros()).unwrap_or(u64::MAX));
    }
    histogram
}

fn quantile(of: &Histogram<u64>, quantile: f64) -> f64 {
    of.value_at_quantile(quantile) as f64 / 1e3
}
