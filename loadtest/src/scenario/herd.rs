//! `relist-herd`: many clients list at once, as after an outage; every body must be whole, and alike.

use std::collections::BTreeMap;
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

/// What was measured around one round.
struct Round {
    begun_ns: u64,
    server: Option<(Usage, Usage)>,
    own: (Usage, Usage),
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Herd) -> Result<Sheet> {
    let server = &flags.server;
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(server)?;
    let expected = prepare(flags, &reference).await?;
    warm_cache(target.clone(), flags, expected).await?;
    let path: Arc<str> = format!("{}?{}", server.path, flags.query).into();
    let listers = (0..flags.clients)
        .map(|_| Lister::new(path.clone()))
        .collect();
    let control = Arc::new(Control::default());
    let swarm = Swarm::start(listers, &wiring(server, None, target), control)?;
    let mut sheet = Sheet::new("relist-herd");
    let mut rounds = Vec::new();
    for number in 1..=flags.rounds {
        let server_before = server.server_pid.map(Usage::of).transpose()?;
        let (own_before, begun_ns) = (Usage::own()?, now_ns());
        if let Err(error) = swarm.play_round(number, flags.round_wait).await {
            sheet.fault(format!("round {number}: {error:#}"));
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
    for (i, round) in rounds.iter().enumerate() {
        sheet.column(&format!("round {}", i + 1));
        let listed: Vec<&Listed> = listers
            .iter()
            .filter_map(|lister| lister.listed().get(i))
            .collect();
        round.report(&mut sheet, &listed);
        if listed.len() != flags.clients {
            sheet.fault(format!(
                "round {}: {} of {} clients have listed",
                i + 1,
                listed.len(),
                flags.clients
            ));
        }
        judge(&mut sheet, &listed, expected, i + 1);
    }
    for message in &recorder.messages {
        sheet.note(message.clone());
    }
    Ok(sheet)
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
    fn report(&self, sheet: &mut Sheet, listed: &[&Listed]) {
        let after = |one: &&Listed| one.ended_at_ns.saturating_sub(self.begun_ns) as f64 / 1e9;
        let mut ends: Vec<f64> = listed.iter().map(after).collect();
        ends.sort_by(f64::total_cmp);
        let all = ends.last().copied().unwrap_or(0.0);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let received = mib(listed.iter().map(|one| one.bytes).sum());
        sheet.figure("lists", listed.len() as f64);
        sheet.figure("first list after, s", ends.first().copied().unwrap_or(0.0));
        sheet.figure(
            "half of the lists after, s",
            ends.get(ends.len() / 2).copied().unwrap_or(0.0),
        );
        sheet.figure("all lists after, s", all);
        sheet.figure("MiB received", received);
        sheet.figure("MiB a second", received / all.max(1e-9));
        sheet.figure(
            "items a list",
            listed.first().map_or(0.0, |one| one.items as f64),
        );
        let per_list = |(before, after): (Usage, Usage)| {
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e3 / listed.len().max(1) as f64
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
