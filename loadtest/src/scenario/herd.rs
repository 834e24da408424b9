//! `relist-herd`: many clients list at once, as after an outage; every body must be whole, and alike.
//!
//! `gzip-herd`: the same, plain and then compressed: what the first costs that asks for it, and what those after it.
//!
//! `watch-list-herd`: the same as streams of initial events; `big-lists`: few clients and lists of a gigabyte.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{swarm_config, targets};
use crate::cli::HerdFlags;
use crate::cli::players::WatchListHerd;
use crate::client::Client;
use crate::lister::initial::WatchLister;
use crate::lister::{ListClient, ListResult, Lister, listed};
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, now_ns};
use crate::results::Results;
use crate::swarm::{Swarm, SwarmConfig};
use crate::target::Target;
use crate::texts::Texts;
use crate::verify::reference::{ObjectVersions, fingerprint};
use crate::watcher::state_entry;
use crate::writer::shape::Shape;
use crate::writer::{Churn, LANES};

/// What was measured around one round, or several.
#[derive(Clone, Copy)]
struct Round {
    begun_ns: u64,
    server: Option<(Usage, Usage)>,
    own: (Usage, Usage),
}

/// What a swarm did.
struct HerdResults {
    rounds: Vec<Round>,
    /// The lists of every client, one a round.
    listed: Vec<Vec<ListResult>>,
    /// Why it ended early, if it did.
    fault: Option<String>,
    messages: Texts,
}

/// Runs the scenario under this title: `relist-herd` or `big-lists`.
///
/// # Errors
/// If it could not be run; faults of the server are in the results.
pub async fn run(flags: &HerdFlags, title: &str) -> Result<Results> {
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(&flags.server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(&target, flags, &expected).await?;
    let path = list_path(flags);
    let herded = herd(flags, swarm_config(&flags.server, None, target), || {
        Lister::new(path.clone())
    })
    .await?;
    let mut results = Results::new(title);
    for number in 1..=herded.rounds.len() {
        results.column(&format!("round {number}"));
        herded.report(&mut results, number..=number);
    }
    herded.judge(&mut results, flags.clients, expected.items);
    Ok(results)
}

/// Runs the scenario with streams of initial events.
///
/// # Errors
/// As [`run`].
pub async fn run_watch_list(flags: &WatchListHerd) -> Result<Results> {
    let WatchListHerd {
        herd: flags,
        streams_per_connection,
    } = flags;
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(&flags.server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(&target, flags, &expected).await?;
    let mut swarm_config = swarm_config(&flags.server, None, target);
    swarm_config.streams_per_connection = *streams_per_connection;
    let path: Arc<str> = format!(
        "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&{}",
        flags.server.path, flags.query
    )
    .into();
    let herded = herd(flags, swarm_config, || WatchLister::new(path.clone())).await?;
    let mut results = Results::new("watch-list-herd");
    for number in 1..=herded.rounds.len() {
        results.column(&format!("round {number}"));
        herded.report(&mut results, number..=number);
    }
    herded.judge(&mut results, flags.clients, expected.items);
    let print = fingerprint(&state_of(&reference, &flags.server.path).await?);
    for (client, one) in herded
        .listed
        .iter()
        .enumerate()
        .flat_map(|(client, all)| all.iter().map(move |one| (client, one)))
        .filter(|(_, one)| one.failure.is_none() && one.digest != print)
    {
        let (items, version) = (one.items, one.version);
        let what = format!("its {items} objects at version {version:?} are not the server's");
        results.fault_of(&format!("client {client}"), &what);
    }
    Ok(results)
}

/// What the server holds; nothing is written while herds list.
async fn state_of(target: &Target, path: &str) -> Result<ObjectVersions> {
    let list = Client::new(target.clone()).json(path).await?;
    let items = list["items"].as_array().context("a list without items")?;
    Ok(items.iter().filter_map(state_entry).collect())
}

fn list_path(flags: &HerdFlags) -> Arc<str> {
    format!("{}?{}", flags.server.path, flags.query).into()
}

/// Runs the scenario with compression.
///
/// # Errors
/// As [`run`].
pub async fn run_gzip(flags: &HerdFlags) -> Result<Results> {
    if flags.rounds < 2 {
        bail!("at least two rounds: one is the first");
    }
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(&flags.server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(&target, flags, &expected).await?;
    let path = list_path(flags);
    let to = |target: Target| swarm_config(&flags.server, None, target);
    let plain = herd(flags, to(target.clone()), || Lister::new(path.clone())).await?;
    let compressed = herd(flags, to(target.compressing()), || {
        Lister::compressed(path.clone())
    })
    .await?;
    let mut results = Results::new("gzip-herd");
    results.column("plain");
    plain.report(&mut results, 2..=flags.rounds);
    results.column("gzip, first");
    compressed.report(&mut results, 1..=1);
    results.column("gzip, later");
    compressed.report(&mut results, 2..=flags.rounds);
    plain.judge(&mut results, flags.clients, expected.items);
    compressed.judge(&mut results, flags.clients, expected.items);
    // Nothing is written meanwhile: both say the same.
    let sample = |herded: &HerdResults| {
        let listed = herded.listed.first().and_then(|all| all.first());
        listed.map(|one| (one.version, one.bytes, one.digest))
    };
    if sample(&plain) != sample(&compressed) {
        results.fault("the compressed list is another than the plain one".to_owned());
    }
    Ok(results)
}

/// Plays all rounds with clients of one kind.
async fn herd<M: ListClient>(
    flags: &HerdFlags,
    swarm_config: SwarmConfig,
    client: impl Fn() -> M,
) -> Result<HerdResults> {
    let server = &flags.server;
    let clients = (0..flags.clients).map(|_| client()).collect();
    let control = Arc::new(Control::default());
    let swarm = Swarm::start(clients, &swarm_config, control)?;
    let (mut rounds, mut fault) = (Vec::new(), None);
    for number in 1..=flags.rounds {
        server.server_pid.into_iter().for_each(Usage::forget_peak);
        let server_before = server.server_pid.map(Usage::of).transpose()?;
        let (own_before, begun_ns) = (Usage::own()?, now_ns());
        if let Err(error) = swarm.play_round(number, flags.round_wait).await {
            fault = Some(format!("round {number}: {error:#}"));
            break;
        }
        let server_after = server.server_pid.map(Usage::of).transpose()?;
        rounds.push(Round {
            begun_ns,
            server: server_before.zip(server_after),
            own: (own_before, Usage::own()?),
        });
    }
    let (clients, recorder) = swarm.finish()?;
    Ok(HerdResults {
        rounds,
        listed: clients.into_iter().map(ListClient::into_listed).collect(),
        fault,
        messages: recorder.messages,
    })
}

impl HerdResults {
    /// The lists of a round, counted from one.
    fn listed(&self, number: usize) -> Vec<&ListResult> {
        self.listed
            .iter()
            .filter_map(|all| all.get(number - 1))
            .collect()
    }

    /// The figures of some rounds: CPU over all of them, times of the last.
    fn report(&self, results: &mut Results, numbers: RangeInclusive<usize>) {
        let (Some(first), Some(last)) = (
            self.rounds.get(numbers.start() - 1),
            self.rounds.get(numbers.end() - 1),
        ) else {
            return;
        };
        let round = Round {
            begun_ns: last.begun_ns,
            server: first
                .server
                .zip(last.server)
                .map(|(first, last)| (first.0, last.1)),
            own: (first.own.0, last.own.1),
        };
        round.report(results, &self.listed(*numbers.end()), numbers.count());
    }

    fn judge(&self, results: &mut Results, clients: usize, expected: u64) {
        self.fault
            .iter()
            .for_each(|fault| results.fault(fault.clone()));
        for number in 1..=self.rounds.len() {
            let listed = self.listed(number);
            if listed.len() != clients {
                results.fault(format!(
                    "round {number}: {} of {clients} clients have listed",
                    listed.len()
                ));
            }
            judge(results, &listed, expected, number);
        }
        for message in self.messages.lines() {
            results.note(message);
        }
    }
}

/// Creates the objects that are missing; returns what there is.
async fn prepare(flags: &HerdFlags, reference: &Target) -> Result<ListResult> {
    let path = &flags.server.path;
    let before = listed(reference, path, flags.round_wait).await?;
    if before.items >= flags.objects as u64 {
        return Ok(before);
    }
    let churn = Churn {
        target: reference.clone(),
        path: path.clone(),
        prefix: "herd".to_owned(),
        objects: flags.objects,
        object_len: flags.object_size,
        shape: Shape::ConfigMap,
        rate: 0.0,
        lanes: LANES,
        at_once: false,
        also: None,
    };
    churn.prepare().await?;
    listed(reference, path, flags.round_wait).await
}

/// Waits until the server under test has all objects, as the herd's kind of list shows them.
async fn warm_cache(target: &Target, flags: &HerdFlags, expected: &ListResult) -> Result<()> {
    const TRIES_MAX: usize = 50;
    let mut items = 0;
    for _ in 0..TRIES_MAX {
        items = listed(target, &list_path(flags), flags.round_wait)
            .await?
            .items;
        if items == expected.items {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let expected = expected.items;
    bail!("the server under test lists {items} objects, the reference {expected}")
}

impl Round {
    fn report(&self, results: &mut Results, listed: &[&ListResult], count: usize) {
        let after = |one: &&ListResult| one.ended_at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let mut ends: Vec<f64> = listed.iter().map(after).collect();
        ends.sort_by(f64::total_cmp);
        let all = ends.last().copied().unwrap_or(0.0);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let received = mib(listed.iter().map(|one| one.wire_bytes).sum());
        results.figure("lists", listed.len() as f64);
        results.figure("first list after, s", ends.first().copied().unwrap_or(0.0));
        results.figure(
            "half of the lists after, s",
            ends.get(ends.len() / 2).copied().unwrap_or(0.0),
        );
        results.figure("all lists after, s", all);
        results.figure("MiB received", received);
        results.figure("MiB a second", received / all.max(1e-9));
        let decoded = mib(listed.first().map_or(0, |one| one.bytes));
        results.figure("MiB of one list, decompressed", decoded);
        results.figure(
            "items a list",
            listed.first().map_or(0.0, |one| one.items as f64),
        );
        let per_list = |(before, after): (Usage, Usage)| {
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3
                / (listed.len() * count).max(1) as f64
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

fn judge(results: &mut Results, listed: &[&ListResult], expected: u64, round: usize) {
    let mut alike: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    for (number, one) in listed.iter().enumerate() {
        let who = format!("round {round}: client {number}");
        if let Some(failure) = &one.failure {
            results.fault_of(&who, failure);
        } else if one.items != expected {
            let what = format!("{} items instead of {expected}", one.items);
            results.fault_of(&who, &what);
        } else if *alike.entry(one.version).or_insert((one.bytes, one.digest))
            != (one.bytes, one.digest)
        {
            let what = format!("another body than others of version {:?}", one.version);
            results.fault_of(&who, &what);
        }
    }
}
