//! Herds: many clients list at once, as after an outage. Every body must be complete, and bodies of one version equal.

pub mod gzip;
pub mod watch_list;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Parser};

use super::{Scenario, swarm_config, targets};
use crate::cli::{ServerFlags, seconds};
use crate::lister::{ListResult, Lister, list_once};
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, now_ns};
use crate::results::{Results, at_share, mib};
use crate::swarm::{Swarm, SwarmConfig};
use crate::target::Target;
use crate::texts::Texts;
use crate::writer::Churn;

/// Flags of all herds.
#[derive(Debug, Clone, Args)]
pub struct HerdFlags {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Number of clients.
    #[arg(long, default_value_t = 500)]
    pub clients: usize,
    /// Number of rounds, in each of which all clients list at once.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Number of objects; missing ones are created.
    #[arg(long, default_value_t = 10_000)]
    pub objects: usize,
    /// Size of a created object on the wire, bytes.
    #[arg(long, default_value_t = 2_900)]
    pub object_size: usize,
    /// Longest time for one round, such as 60s.
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub round_wait: Duration,
}

/// Many clients list at once, several times: every body complete.
#[derive(Debug, Clone, Parser)]
#[command(name = "relist-herd")]
pub struct RelistHerd {
    #[command(flatten)]
    pub herd: HerdFlags,
}

impl Scenario for RelistHerd {
    async fn run(&self, results: &mut Results) -> Result<()> {
        self.herd.play_lists(results).await
    }
}

/// What was measured around one round, or several.
#[derive(Clone, Copy)]
struct Round {
    begun_ns: u64,
    server: Option<(Usage, Usage)>,
    own: (Usage, Usage),
}

/// The lists of a herd and what they cost.
struct HerdResults {
    rounds: Vec<Round>,
    /// The lists of every client, one a round.
    lists: Vec<Vec<ListResult>>,
    /// Why a round did not complete.
    fault: Option<String>,
    messages: Texts,
}

impl HerdFlags {
    fn list_path(&self) -> Arc<str> {
        format!("{}?resourceVersion=0", self.server.path).into()
    }

    fn swarm_config(&self, target: Target) -> SwarmConfig {
        swarm_config(&self.server, None, target)
    }

    /// Creates the objects that are missing, and waits until the server under test has all of them. Returns the server under test, the
    /// reference and the reference's list.
    async fn prepare(&self) -> Result<(Target, Target, ListResult)> {
        raise_open_files(self.clients)?;
        let (target, reference) = targets(&self.server)?;
        let path = &self.server.path;
        let mut expected = list_once(&reference, path, self.round_wait).await?;
        if expected.items < self.objects as u64 {
            let churn = Churn {
                objects: self.objects,
                object_len: self.object_size,
                ..Churn::new(&reference, path, "herd")
            };
            churn.prepare().await?;
            expected = list_once(&reference, path, self.round_wait).await?;
        }
        self.warm_cache(&target, expected.items).await?;
        Ok((target, reference, expected))
    }

    /// Waits until the herd's kind of list has all objects at the server under test.
    async fn warm_cache(&self, target: &Target, expected: u64) -> Result<()> {
        const TRIES_MAX: usize = 50;
        let mut items = 0;
        for _ in 0..TRIES_MAX {
            let list = list_once(target, &self.list_path(), self.round_wait).await?;
            items = list.items;
            if items == expected {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("the server under test lists {items} objects, the reference {expected}")
    }

    /// Plays rounds of plain lists, a column for each.
    async fn play_lists(&self, results: &mut Results) -> Result<()> {
        let (target, _, expected) = self.prepare().await?;
        let path = self.list_path();
        let config = self.swarm_config(target);
        let herd = self.play(config, || Lister::new(path.clone())).await?;
        herd.report_rounds(results);
        herd.judge(results, self.clients, expected.items);
        Ok(())
    }

    /// Plays all rounds with clients of one kind.
    async fn play(&self, config: SwarmConfig, client: impl Fn() -> Lister) -> Result<HerdResults> {
        let pid = self.server.server_pid;
        let clients = (0..self.clients).map(|_| client()).collect();
        let swarm = Swarm::start(clients, &config, Arc::new(Control::default()))?;
        let (mut rounds, mut fault) = (Vec::new(), None);
        for number in 1..=self.rounds {
            pid.into_iter().for_each(Usage::forget_peak);
            let server_before = pid.map(Usage::of).transpose()?;
            let (own_before, begun_ns) = (Usage::own()?, now_ns());
            if let Err(error) = swarm.play_round(number, self.round_wait).await {
                fault = Some(format!("round {number}: {error:#}"));
                break;
            }
            let server_after = pid.map(Usage::of).transpose()?;
            rounds.push(Round {
                begun_ns,
                server: server_before.zip(server_after),
                own: (own_before, Usage::own()?),
            });
        }
        let (clients, recorder) = swarm.finish()?;
        Ok(HerdResults {
            rounds,
            lists: clients.into_iter().map(Lister::into_lists).collect(),
            fault,
            messages: recorder.messages,
        })
    }
}

impl HerdResults {
    /// The lists of a round, counted from one.
    fn lists_of(&self, number: usize) -> Vec<&ListResult> {
        let clients = self.lists.iter();
        clients.filter_map(|all| all.get(number - 1)).collect()
    }

    /// A column for each round.
    fn report_rounds(&self, results: &mut Results) {
        for number in 1..=self.rounds.len() {
            results.column(&format!("round {number}"));
            self.report(results, number..=number);
        }
    }

    /// The figures of some rounds: CPU of all of them, times of the last.
    fn report(&self, results: &mut Results, numbers: RangeInclusive<usize>) {
        let (Some(first), Some(last)) = (
            self.rounds.get(numbers.start() - 1),
            self.rounds.get(numbers.end() - 1),
        ) else {
            return;
        };
        let servers = first.server.zip(last.server);
        let round = Round {
            begun_ns: last.begun_ns,
            server: servers.map(|(first, last)| (first.0, last.1)),
            own: (first.own.0, last.own.1),
        };
        round.report(results, &self.lists_of(*numbers.end()), numbers.count());
    }

    /// Adds a fault for every client without a complete list, and for every list that differs from the others.
    fn judge(&self, results: &mut Results, clients: usize, expected: u64) {
        self.fault
            .iter()
            .for_each(|fault| results.fault(fault.clone()));
        for number in 1..=self.rounds.len() {
            let lists = self.lists_of(number);
            if lists.len() != clients {
                let count = lists.len();
                results.fault(format!(
                    "round {number}: {count} of {clients} clients have listed"
                ));
            }
            judge_round(results, &lists, expected, number);
        }
        for message in self.messages.lines() {
            results.note(message);
        }
    }
}

impl Round {
    fn report(&self, results: &mut Results, lists: &[&ListResult], count: usize) {
        let after = |one: &&ListResult| one.ended_at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let mut ends: Vec<f64> = lists.iter().map(after).collect();
        ends.sort_by(f64::total_cmp);
        let all = at_share(&ends, 1.0);
        let received = mib(lists.iter().map(|one| one.wire_bytes).sum());
        let first = lists.first();
        results.figure("lists", lists.len() as f64);
        results.figure("first list after, s", at_share(&ends, 0.0));
        results.figure("half of the lists after, s", at_share(&ends, 0.5));
        results.figure("all lists after, s", all);
        results.figure("MiB received", received);
        results.figure("MiB a second", received / all.max(1e-9));
        let decoded = mib(first.map_or(0, |one| one.bytes));
        results.figure("MiB of one list, decompressed", decoded);
        results.figure("items a list", first.map_or(0.0, |one| one.items as f64));
        let per_list = |(before, after): (Usage, Usage)| {
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3
                / (lists.len() * count).max(1) as f64
        };
        if let Some(server) = self.server {
            results.figure("server CPU per list, ms", per_list(server));
            results.figure("server RSS before, MiB", mib(server.0.rss));
            results.figure("server RSS, MiB", mib(server.1.rss));
            results.figure("server RSS peak, MiB", mib(server.1.peak_rss));
        }
        results.figure("load test CPU per list, ms", per_list(self.own));
    }
}

fn judge_round(results: &mut Results, lists: &[&ListResult], expected: u64, round: usize) {
    let mut by_version: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    for (number, one) in lists.iter().enumerate() {
        let who = format!("round {round}: client {number}");
        let body = (one.bytes, one.digest);
        if let Some(failure) = &one.failure {
            results.fault_of(&who, failure);
        } else if one.items != expected {
            let what = format!("{} items instead of {expected}", one.items);
            results.fault_of(&who, &what);
        } else if *by_version.entry(one.version).or_insert(body) != body {
            let what = format!("the body differs from others of version {:?}", one.version);
            results.fault_of(&who, &what);
        }
    }
}
