//! `hostile`: a witness alone, then beside an attack, then alone again. The attack should hardly affect the witness, and the server should
//! release the memory that the attack took.

pub mod witness;

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use hdrhistogram::Histogram;
use tokio::time::Instant;

use super::{Scenario, targets};
use crate::attack::{Attack, AttackConfig, AttackCounts, AttackThread};
use crate::cli::{ServerFlags, seconds};
use crate::process::Usage;
use crate::recorder::{latencies, now_ns};
use crate::report::TARGET_COLUMN;
use crate::results::{Results, mib};
use crate::target::Target;
use crate::texts::Texts;
use witness::{Operation, OperationRecord, Witness, WitnessReport};

/// Allowed p99 of the witness, or twice its p99 without the attack if that is more.
const P99_MAX: Duration = Duration::from_millis(20);
/// Memory that the server may keep after an attack, besides a quarter of what it had before: heaps do not shrink to the byte.
const KEPT_MAX: u64 = 16 << 20;
/// Time for the server to recover after the attack.
const RECOVERY: Duration = Duration::from_secs(1);
/// Share of the objects to be written that an attack must write.
const WRITES_MET: f64 = 0.9;
/// Longest time for the attack's clients to connect.
const BEGIN_WAIT: Duration = Duration::from_secs(20);
/// How often memory is read.
const LOOK: Duration = Duration::from_millis(50);
/// Address of the attack's clients, unless the attack is one from the witness's address.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Number of different failures of the witness that are reported.
const FAILURES_MAX: usize = 5;

/// The server's memory, bytes.
#[derive(Debug, Default)]
struct Memory {
    before: u64,
    peak: u64,
    after: u64,
}

/// Start and end of the attack, nanoseconds since the epoch.
#[derive(Debug)]
struct Times {
    attack: u64,
    end: u64,
}

/// A hostile client and a witness beside it: the witness's events, lists, writes and new connections, and the server's memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "hostile")]
pub struct Hostile {
    #[command(flatten)]
    pub server: ServerFlags,
    /// The attack.
    #[arg(long, value_enum)]
    pub attack: Attack,
    /// Time of the witness alone.
    #[arg(long, default_value = "5s", value_parser = seconds)]
    pub quiet: Duration,
    /// Time of the attack, after its clients have connected.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub duration: Duration,
    /// Time afterwards, at whose end memory is checked.
    #[arg(long, default_value = "10s", value_parser = seconds)]
    pub after: Duration,
    /// Clients of the attack: connections, or watches on few of them; the default depends on the attack.
    #[arg(long)]
    pub clients: Option<usize>,
    /// Requests or frames a second of all its clients together; the default depends on the attack.
    #[arg(long)]
    pub rate: Option<f64>,
}

impl Scenario for Hostile {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let (target, _) = targets(&self.server)?;
        let pid = self
            .server
            .server_pid
            .context("hostile needs --server-pid")?;
        results.column(TARGET_COLUMN);
        let witness = Witness::begin(&target, &self.server.path).await?;
        tokio::time::sleep(self.quiet).await;
        let mut memory = Memory {
            before: Usage::of(pid)?.rss,
            ..Memory::default()
        };
        let cpu = Usage::of(pid)?.cpu;
        let attack = now_ns();
        let started = Instant::now();
        let attacker = AttackThread::start(self.config()?)?;
        let deadline = started + BEGIN_WAIT;
        while !attacker.has_started() && Instant::now() < deadline {
            memory.sample(pid)?;
            tokio::time::sleep(LOOK).await;
        }
        let has_started = attacker.has_started();
        let deadline = Instant::now() + self.duration;
        while Instant::now() < deadline {
            memory.sample(pid)?;
            tokio::time::sleep(LOOK).await;
        }
        let seconds = started.elapsed().as_secs_f64();
        let cpu = (Usage::of(pid)?.cpu - cpu).as_secs_f64() / seconds;
        report_attack(results, self, attacker.counts(), seconds);
        attacker.finish().await?;
        let times = Times {
            attack,
            end: now_ns(),
        };
        tokio::time::sleep(self.after).await;
        memory.after = Usage::of(pid)?.rss;
        results.figure("witness: objects in a full list", witness.listed as f64);
        let WitnessReport { done, missing } = witness.finish().await;
        if missing > 0 {
            results.fault(format!(
                "behind at the end: the witness lacks {missing} of its events"
            ));
        }
        if !has_started {
            results.invalid(format!(
                "{}: not all clients of the attack connected within {BEGIN_WAIT:?}",
                self.attack.name()
            ));
        }
        results.figure("server CPU under attack, cores", cpu);
        let mut verdict = verdict(results, &done, &times);
        verdict.memory(results, &memory);
        verdict.report(results, self);
        Ok(())
    }
}

impl Hostile {
    fn config(&self) -> Result<AttackConfig> {
        let Self { server, attack, .. } = self;
        let reference = server.reference.as_ref().unwrap_or(&server.target);
        Ok(AttackConfig {
            // An attacker has no credentials.
            target: Target::new(&server.target, None, server.ca.as_deref())?,
            reference: reference.clone(),
            attack: *attack,
            clients: self.clients.unwrap_or(attack.size().clients),
            rate: self.rate.unwrap_or(attack.size().rate),
            source: match attack.shares_address() {
                true => Ipv4Addr::LOCALHOST,
                false => ELSEWHERE,
            },
        })
    }
}

impl Memory {
    fn sample(&mut self, pid: u32) -> Result<()> {
        self.peak = self.peak.max(Usage::of(pid)?.rss);
        Ok(())
    }
}

fn report_attack(results: &mut Results, flags: &Hostile, counts: &AttackCounts, seconds: f64) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    results.figure("attack: connections at its end", of(&counts.connections));
    results.figure("attack: done a second", of(&counts.done) / seconds);
    results.figure("attack: refused", of(&counts.refused));
    results.figure(
        "attack: connections closed by the server",
        of(&counts.closed),
    );
    if let Some(rate) = flags.attack.size().writes {
        let written = of(&counts.written) / seconds;
        results.figure("attack: objects written a second", written);
        if written < rate * WRITES_MET {
            results.invalid(format!(
                "{}: the attack wrote {written:.1} objects a second instead of {rate}",
                flags.attack.name()
            ));
        }
    }
}

#[derive(Debug, Default)]
struct WitnessVerdict {
    missed: Vec<String>,
    /// The worst p99, as a share of the allowed one.
    worst: f64,
    failures: Option<Texts>,
}

/// The witness's operations of one kind in one phase.
struct Phase<'a> {
    name: &'static str,
    done: Vec<&'a OperationRecord>,
    waits: Histogram<u64>,
}

impl<'a> Phase<'a> {
    fn of(
        name: &'static str,
        done: &'a [OperationRecord],
        operation: Operation,
        due_ns: Range<u64>,
    ) -> Self {
        let done: Vec<_> = done
            .iter()
            .filter(|one| one.operation == operation && due_ns.contains(&one.due_ns))
            .collect();
        let mut waits = latencies();
        for wait in done.iter().filter_map(|one| one.wait()) {
            waits.saturating_record(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        }
        Self { name, done, waits }
    }

    fn quantile(&self, quantile: f64) -> f64 {
        self.waits.value_at_quantile(quantile) as f64 / 1e3
    }

    fn failures(&self) -> impl Iterator<Item = &str> {
        self.done.iter().filter_map(|one| one.failure.as_deref())
    }

    fn report(&self, results: &mut Results, operation: Operation) {
        let name = format!("{}: {}", operation.name(), self.name);
        results.quantiles(&name, &self.waits, &[("p50", 0.5), ("p99", 0.99)]);
    }
}

/// Adds the witness's figures to the results.
fn verdict(results: &mut Results, done: &[OperationRecord], times: &Times) -> WitnessVerdict {
    let mut verdict = WitnessVerdict::default();
    let mut failures = Texts::new(FAILURES_MAX);
    let recovered = times.end + u64::try_from(RECOVERY.as_nanos()).unwrap_or(0);
    for operation in Operation::ALL {
        let name = operation.name();
        let alone = Phase::of("alone", done, operation, 0..times.attack);
        let attacked = Phase::of("attacked", done, operation, times.attack..times.end);
        let after = Phase::of("afterwards", done, operation, recovered..u64::MAX);
        let allowed = (2.0 * alone.quantile(0.99)).max(P99_MAX.as_secs_f64() * 1e3);
        for spell in [&alone, &attacked, &after] {
            spell.report(results, operation);
            let refused = spell.failures().inspect(|why| failures.add(name, why));
            let refused = refused.count();
            if refused > 0 {
                let missed = format!("{refused} {name} refused or not done {}", spell.name);
                verdict.missed.push(missed);
            }
        }
        results.figure(
            &format!("{name}: refused"),
            attacked.failures().count() as f64,
        );
        verdict.worst = verdict.worst.max(attacked.quantile(0.99) / allowed);
        for spell in [&attacked, &after] {
            let p99 = spell.quantile(0.99);
            if p99 > allowed {
                let spell = spell.name;
                let missed = format!("{name} {spell} p99 {p99:.0} ms, allowed {allowed:.0} ms");
                verdict.missed.push(missed);
            }
        }
        if attacked.waits.is_empty() {
            verdict.worst = f64::INFINITY;
            verdict.missed.push(format!("no {name} at all"));
        }
    }
    verdict.failures = Some(failures);
    verdict
}

impl WitnessVerdict {
    fn memory(&mut self, results: &mut Results, memory: &Memory) {
        let kept_max = memory.before + memory.before / 4 + KEPT_MAX;
        results.figure("server RSS before, MiB", mib(memory.before));
        results.figure("server RSS peak, MiB", mib(memory.peak));
        results.figure("server RSS afterwards, MiB", mib(memory.after));
        results.figure(
            "server RSS afterwards / allowed",
            memory.after as f64 / kept_max as f64,
        );
        if memory.after > kept_max {
            let (after, allowed) = (mib(memory.after), mib(kept_max));
            let missed = format!("{after:.0} MiB afterwards, allowed {allowed:.0}");
            self.missed.push(missed);
        }
    }

    fn report(&self, results: &mut Results, flags: &Hostile) {
        let is_met = self.missed.is_empty();
        results.figure("worst p99 / allowed", self.worst.min(1e6));
        results.figure("verdict (1 met)", f64::from(u8::from(is_met)));
        let verdict = if is_met {
            "met".to_owned()
        } else {
            format!("missed: {}", self.missed.join("; "))
        };
        results.note(format!("{}: {verdict}", flags.attack.name()));
        for failure in self.failures.iter().flat_map(Texts::lines) {
            results.note(format!("witness: {failure}"));
        }
    }
}

#[cfg(test)]
mod tests {
    //! Failed operations make the witness's figures worse, never better.

    use super::*;

    const MS: u64 = 1_000_000;

    fn done(due_ms: u64, took_ms: u64, failure: Option<&str>) -> OperationRecord {
        OperationRecord {
            operation: Operation::List,
            due_ns: due_ms * MS,
            duration: Some(Duration::from_millis(took_ms)),
            failure: failure.map(str::to_owned),
        }
    }

    /// The verdict about lists at rest, and then these lists beside the attack.
    fn judged(attacked: &[OperationRecord]) -> (WitnessVerdict, Results) {
        let times = Times {
            attack: 1_000 * MS,
            end: 2_000 * MS,
        };
        let mut all: Vec<_> = (0..20).map(|number| done(number * 50, 2, None)).collect();
        all.extend_from_slice(attacked);
        let mut results = Results::new("hostile");
        results.column(TARGET_COLUMN);
        let mut verdict = verdict(&mut results, &all, &times);
        // The records have lists only.
        verdict.missed.retain(|missed| missed.contains("lists"));
        verdict.missed.retain(|missed| !missed.contains("full"));
        (verdict, results)
    }

    #[test]
    fn quick_answers_are_met() {
        let (verdict, results) = judged(&[done(1_100, 3, None), done(3_500, 3, None)]);
        assert!(verdict.missed.is_empty(), "{verdict:?}");
        assert_eq!(results.value("lists: refused", 0), Some(0.0));
    }

    #[test]
    fn a_refusal_is_no_quick_answer() {
        let (verdict, results) = judged(&[done(1_100, 1, Some("429"))]);
        assert!(results.value("lists: attacked p99, ms", 0) >= Some(10_000.0));
        assert_eq!(verdict.missed.len(), 2, "{verdict:?}");
    }

    #[test]
    fn a_server_that_stays_slow_when_the_attack_is_over_has_missed() {
        let (verdict, _) = judged(&[done(1_100, 3, None), done(3_500, 900, None)]);
        assert_eq!(verdict.missed.len(), 1, "{verdict:?}");
        assert!(verdict.missed[0].contains("afterwards"), "{verdict:?}");
    }
}
