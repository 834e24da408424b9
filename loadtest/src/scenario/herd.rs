//! `relist-herd`: many clients list at once, as after an outage; every body must be whole, and alike.
//!
//! `gzip-herd`: the same, plain and then compressed: what the first costs that asks for it, and what those after it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{targets, wiring};
use crate::cli::Herd;
use crate::client::Client;
use crate::lister::{Listed, Lister};
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, now_ns};
use crate::sheet::Sheet;
use crate::swarm::Swarm;
use crate::target::Target;
use crate::writer::Churn;

/// What was measured around one round, or several.
#[derive(Clone, Copy)]
struct Round {
    begun_ns: u64,
    server: Option<(Usage, Usage)>,
    own: (Usage, Usage),
}

/// What a swarm did.
struct Herded {
    rounds: Vec<Round>,
    listers: Vec<Lister>,
    /// Why it ended early, if it did.
    fault: Option<String>,
    messages: Vec<String>,
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Herd) -> Result<Sheet> {
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(&flags.server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(target.clone(), flags, expected).await?;
    let herded = herd(flags, target, Lister::new).await?;
    let mut sheet = Sheet::new("relist-herd");
    for number in 1..=herded.rounds.len() {
        sheet.column(&format!("round {number}"));
        herded.report(&mut sheet, number..=number);
    }
    herded.judge(&mut sheet, flags.clients, expected);
    Ok(sheet)
}

/// Runs the scenario with compression.
///
/// # Errors
/// As [`run`].
pub async fn run_gzip(flags: &Herd) -> Result<Sheet> {
    if flags.rounds < 2 {
        bail!("at least two rounds: one is the first");
    }
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(&flags.server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(target.clone(), flags, expected).await?;
    let plain = herd(flags, target.clone(), Lister::new).await?;
    let compressed = herd(flags, target.compressing(), Lister::compressed).await?;
    let mut sheet = Sheet::new("gzip-herd");
    sheet.column("plain");
    plain.report(&mut sheet, 2..=flags.rounds);
    sheet.column("gzip, first");
    compressed.report(&mut sheet, 1..=1);
    sheet.column("gzip, later");
    compressed.report(&mut sheet, 2..=flags.rounds);
    plain.judge(&mut sheet, flags.clients, expected);
    compressed.judge(&mut sheet, flags.clients, expected);
    // Nothing is written meanwhile: both say the same.
    let sample = |herded: &Herded| {
        let listed = herded
            .listers
            .first()
            .and_then(|lister| lister.listed().first());
        listed.map(|one| (one.version, one.bytes, one.digest))
    };
    if sample(&plain) != sample(&compressed) {
        sheet.fault("the compressed list is another than the plain one".to_owned());
    }
    Ok(sheet)
}

/// Plays all rounds with clients of one kind.
async fn herd(flags: &Herd, target: Target, lister: impl Fn(Arc<str>) -> Lister) -> Result<Herded> {
    let server = &flags.server;
    let path: Arc<str> = format!("{}?{}", server.path, flags.query).into();
    let listers = (0..flags.clients).map(|_| lister(path.clone())).collect();
    let control = Arc::new(Control::default());
    let swarm = Swarm::start(listers, &wiring(server, None, target), control)?;
    let (mut rounds, mut fault) = (Vec::new(), None);
    for number in 1..=flags.rounds {
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
    let (listers, recorder) = swarm.finish()?;
    Ok(Herded {
        rounds,
        listers,
        fault,
        messages: recorder.messages,
    })
}

impl Herded {
    /// The lists of a round, counted from one.
    fn listed(&self, number: usize) -> Vec<&Listed> {
        self.listers
            .iter()
            .filter_map(|lister| lister.listed().get(number - 1))
            .collect()
    }

    /// The figures of some rounds: CPU over all of them, times of the last.
    fn report(&self, sheet: &mut Sheet, numbers: RangeInclusive<usize>) {
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
        round.report(sheet, &self.listed(*numbers.end()), numbers.count());
    }

    fn judge(&self, sheet: &mut Sheet, clients: usize, expected: u64) {
        self.fault
            .iter()
            .for_each(|fault| sheet.fault(fault.clone()));
        for number in 1..=self.rounds.len() {
            let listed = self.listed(number);
            if listed.len() != clients {
                sheet.fault(format!(
                    "round {number}: {} of {clients} clients have listed",
                    listed.len()
                ));
            }
            judge(sheet, &listed, expected, number);
        }
        for message in &self.messages {
            sheet.note(message.clone());
        }
    }
}

/// Creates the objects that are missing; returns how many there are.
async fn prepare(flags: &Herd, reference: &Target) -> Result<u64> {
    let path = &flags.server.path;
    let mut client = Client::new(reference.clone());
    let count = |list: &serde_json::Value| list["items"].as_array().map_or(0, Vec::len);
    if count(&client.json(path).await?) < flags.objects {
        let churn = Churn {
            target: reference.clone(),
            path: path.clone(),
            prefix: "herd".to_owned(),
            objects: flags.objects,
            object_len: flags.object_size,
            rate: 0.0,
        };
        churn.prepare().await?;
    }
    Ok(count(&client.json(path).await?) as u64)
}

/// Waits until the server under test has all objects, as the herd's kind of list shows them.
async fn warm_cache(target: Target, flags: &Herd, expected: u64) -> Result<()> {
    const TRIES_MAX: usize = 50;
    let mut client = Client::new(target);
    let path = format!("{}?{}", flags.server.path, flags.query);
    let mut count = 0;
    for _ in 0..TRIES_MAX {
        let list = client.json(&path).await?;
        count = list["items"]
            .as_array()
            .context("a list without items")?
            .len() as u64;
        if count == expected {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("the server under test lists {count} objects, the reference {expected}")
}

impl Round {
    fn report(&self, sheet: &mut Sheet, listed: &[&Listed], count: usize) {
        let after = |one: &&Listed| one.ended_at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let mut ends: Vec<f64> = listed.iter().map(after).collect();
        ends.sort_by(f64::total_cmp);
        let all = ends.last().copied().unwrap_or(0.0);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let received = mib(listed.iter().map(|one| one.wire_bytes).sum());
        sheet.figure("lists", listed.len() as f64);
        sheet.figure("first list after, s", ends.first().copied().unwrap_or(0.0));
        sheet.figure(
            "half of the lists after, s",
            ends.get(ends.len() / 2).copied().unwrap_or(0.0),
        );
        sheet.figure("all lists after, s", all);
        sheet.figure("MiB received", received);
        sheet.figure("MiB a second", received / all.max(1e-9));
        let decoded = mib(listed.first().map_or(0, |one| one.bytes));
        sheet.figure("MiB of one list, decompressed", decoded);
        sheet.figure(
            "items a list",
            listed.first().map_or(0.0, |one| one.items as f64),
        );
        let per_list = |(before, after): (Usage, Usage)| {
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3
                / (listed.len() * count).max(1) as f64
        };
        if let Some(server) = self.server {
            sheet.figure("server CPU per list, ms", per_list(server));
            sheet.figure("server RSS, MiB", mib(server.1.rss));
        }
        sheet.figure("load test CPU per list, ms", per_list(self.own));
    }
}

fn judge(sheet: &mut Sheet, listed: &[&Listed], expected: u64, round: usize) {
    let mut alike: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
    for (number, one) in listed.iter().enumerate() {
        if let Some(failure) = &one.failure {
            sheet.fault(format!("round {round}: client {number}: {failure}"));
        } else if one.items != expected {
            sheet.fault(format!(
                "round {round}: client {number}: {} items instead of {expected}",
                one.items
            ));
        } else if *alike.entry(one.version).or_insert((one.bytes, one.digest))
            != (one.bytes, one.digest)
        {
            sheet.fault(format!(
                "round {round}: client {number}: another body than others of version {:?}",
                one.version
            ));
        }
    }
}
