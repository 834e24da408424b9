//! `relist-herd`: many clients list at once, as after an outage; every body must be whole, and alike.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use memchr::memmem;

use super::{targets, wiring};
use crate::cli::Herd;
use crate::client::Client;
use crate::process::{Usage, raise_open_files};
use crate::recorder::{Control, Recorder, now_ns};
use crate::sheet::Sheet;
use crate::swarm::{Ended, Member, Next, Swarm};
use crate::wire::event::first_version;
use crate::writer::Churn;

/// Every object has exactly one, no ConfigMap of ours has another.
const UID_FIELD: &[u8] = b"\"uid\":\"";
/// Enough of a body's beginning to find the list's version, which typed lists write first.
const BEGINNING_LEN: usize = 512;

/// What one list looked like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Listed {
    version: Option<u64>,
    items: u64,
    bytes: u64,
    digest: u64,
    ended_at_ns: u64,
    failure: Option<String>,
}

/// One client of the herd.
#[derive(Debug)]
struct Lister {
    path: Arc<str>,
    listed: Vec<Listed>,
    current: Listed,
    hasher: DefaultHasher,
    /// Last bytes of the previous piece: a field may be cut in two.
    seam: Vec<u8>,
    beginning: Vec<u8>,
    last: Vec<u8>,
}

impl Lister {
    fn new(path: Arc<str>) -> Self {
        let hasher = DefaultHasher::new();
        Self {
            path,
            listed: Vec::new(),
            current: Listed::default(),
            hasher,
            seam: Vec::new(),
            beginning: Vec::new(),
            last: Vec::new(),
        }
    }

    fn count_items(&mut self, data: &[u8]) {
        let keep = UID_FIELD.len() - 1;
        self.seam.extend_from_slice(&data[..data.len().min(keep)]);
        self.current.items += memmem::find_iter(&self.seam, UID_FIELD).count() as u64;
        self.current.items += memmem::find_iter(data, UID_FIELD).count() as u64;
        if data.len() >= keep {
            self.seam.clear();
            self.seam.extend_from_slice(&data[data.len() - keep..]);
        } else {
            let from = self.seam.len().saturating_sub(keep);
            self.seam.drain(..from);
        }
    }
}

impl Member for Lister {
    fn next(&mut self, control: &Control) -> Next {
        if self.listed.len() < control.round.load(Ordering::Relaxed) {
            Next::Send(self.path.to_string())
        } else {
            Next::Rest
        }
    }

    fn body(&mut self, status: u16, data: &[u8], recorder: &mut Recorder) {
        if status != 200 {
            return recorder.message(|| {
                format!(
                    "HTTP {status}: {}",
                    String::from_utf8_lossy(&data[..data.len().min(200)])
                )
            });
        }
        recorder.events += 1;
        self.current.bytes += data.len() as u64;
        let room = BEGINNING_LEN
            .saturating_sub(self.beginning.len())
            .min(data.len());
        self.beginning.extend_from_slice(&data[..room]);
        self.count_items(data);
        sample(
            &mut self.hasher,
            self.current.bytes - data.len() as u64,
            data,
        );
        self.last.clear();
        self.last
            .extend_from_slice(&data[data.len().saturating_sub(4)..]);
    }

    fn ended(&mut self, how: Ended<'_>, recorder: &mut Recorder) {
        let mut listed = std::mem::take(&mut self.current);
        listed.version = first_version(&self.beginning);
        listed.digest = std::mem::replace(&mut self.hasher, DefaultHasher::new()).finish();
        listed.ended_at_ns = recorder.now_ns();
        listed.failure = match how {
            Ended::Complete(200) if self.last.ends_with(b"}\n") || self.last.ends_with(b"}") => {
                None
            }
            Ended::Complete(200) => Some("a list without its end".to_owned()),
            Ended::Complete(status) => Some(format!("HTTP {status}")),
            Ended::Broken(why) => Some(why.to_owned()),
        };
        self.listed.push(listed);
        self.seam.clear();
        self.beginning.clear();
        self.last.clear();
    }

    fn progress(&self, _: &Control) -> usize {
        self.listed.len()
    }
}

/// Feeds every 61st byte, counted from the body's beginning: pieces differ in length from client to client, so whole pieces cannot
/// be hashed cheaply, and beside length and count a sample is enough.
fn sample(hasher: &mut DefaultHasher, offset: u64, data: &[u8]) {
    const STEP: usize = 61;
    let into = usize::try_from(offset % STEP as u64).unwrap_or(0);
    for byte in data.iter().skip((STEP - into) % STEP).step_by(STEP) {
        hasher.write_u8(*byte);
    }
}

/// Runs the scenario.
///
/// # Errors
/// If it could not be run; faults of the server are in the sheet.
pub async fn run(flags: &Herd) -> Result<Sheet> {
    let server = &flags.server;
    raise_open_files(flags.clients)?;
    let (target, reference) = targets(server)?;
    let churn = Churn {
        target: reference.clone(),
        path: server.path.clone(),
        prefix: "herd".to_owned(),
        objects: flags.objects,
        object_len: flags.object_size,
        rate: 0.0,
    };
    let mut reference = Client::new(reference);
    let count = |list: &serde_json::Value| list["items"].as_array().map_or(0, Vec::len);
    if count(&reference.json(&server.path).await?) < flags.objects {
        churn.prepare().await?;
    }
    let expected = count(&reference.json(&server.path).await?) as u64;
    warm_cache(target.clone(), flags, expected).await?;

    let path: Arc<str> = format!("{}?{}", server.path, flags.query).into();
    let control = Arc::new(Control::default());
    let listers = (0..flags.clients)
        .map(|_| Lister::new(path.clone()))
        .collect();
    let swarm = Swarm::start(listers, &wiring(server, None, target), control.clone())?;
    let mut sheet = Sheet::new("relist-herd");
    let mut rounds = Vec::new();
    for round in 1..=flags.rounds {
        let before = (
            server.server_pid.map(Usage::of).transpose()?,
            Usage::own()?,
            now_ns(),
        );
        if let Err(error) = swarm.play_round(round, flags.round_wait).await {
            sheet.fault(format!("round {round}: {error:#}"));
            break;
        }
        rounds.push((
            before,
            server.server_pid.map(Usage::of).transpose()?,
            Usage::own()?,
        ));
    }
    let (listers, recorder) = swarm.finish()?;
    for (round, ((server_before, own_before, begun_ns), server_after, own_after)) in
        rounds.into_iter().enumerate()
    {
        sheet.column(&format!("round {}", round + 1));
        let listed: Vec<&Listed> = listers
            .iter()
            .filter_map(|lister| lister.listed.get(round))
            .collect();
        times(&mut sheet, &listed, begun_ns);
        if let (Some(a), Some(b)) = (server_before, server_after) {
            let cpu = b.cpu.saturating_sub(a.cpu).as_secs_f64();
            sheet.figure(
                "server CPU per list, ms",
                cpu * 1e3 / listed.len().max(1) as f64,
            );
            sheet.figure("server RSS, MiB", b.rss as f64 / f64::from(1 << 20));
        }
        let own = own_after.cpu.saturating_sub(own_before.cpu).as_secs_f64();
        sheet.figure(
            "load test CPU per list, ms",
            own * 1e3 / listed.len().max(1) as f64,
        );
        if listed.len() != flags.clients {
            sheet.fault(format!(
                "round {}: {} of {} clients have listed",
                round + 1,
                listed.len(),
                flags.clients
            ));
        }
        judge(&mut sheet, &listed, expected, round + 1);
    }
    for message in &recorder.messages {
        sheet.note(message.clone());
    }
    Ok(sheet)
}

/// Waits until the server under test has all objects, as the herd's kind of list shows them.
async fn warm_cache(target: crate::target::Target, flags: &Herd, expected: u64) -> Result<()> {
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

fn times(sheet: &mut Sheet, listed: &[&Listed], begun_ns: u64) {
    let mut ends: Vec<f64> = listed
        .iter()
        .map(|one| one.ended_at_ns.saturating_sub(begun_ns) as f64 / 1e9)
        .collect();
    ends.sort_by(f64::total_cmp);
    let bytes: u64 = listed.iter().map(|one| one.bytes).sum();
    let all = ends.last().copied().unwrap_or(0.0);
    sheet.figure("lists", listed.len() as f64);
    sheet.figure("first list after, s", ends.first().copied().unwrap_or(0.0));
    sheet.figure(
        "half of the lists after, s",
        ends.get(ends.len() / 2).copied().unwrap_or(0.0),
    );
    sheet.figure("all lists after, s", all);
    sheet.figure("MiB received", bytes as f64 / f64::from(1 << 20));
    sheet.figure(
        "MiB a second",
        bytes as f64 / f64::from(1 << 20) / all.max(1e-9),
    );
    sheet.figure(
        "items a list",
        listed.first().map_or(0.0, |one| one.items as f64),
    );
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

#[cfg(test)]
mod tests;
