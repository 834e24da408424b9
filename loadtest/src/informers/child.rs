//! An informer's process, which answers line by line. It ends when its input does, so also when this program is killed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::process::Command;

use crate::pods::StoreDigest;
use crate::process::piped::PipedChild;

/// Longest time for a store to fill.
const SYNC_WAIT: Duration = Duration::from_secs(300);
/// Longest time for any other answer; hashing a large store takes seconds.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Longest time for a process to end.
const END_WAIT: Duration = Duration::from_secs(30);

pub struct Informer {
    name: String,
    process: PipedChild,
}

/// What a process reports of its usage.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// User and system time, ms.
    pub cpu_ms: f64,
    /// Resident memory, bytes.
    pub rss: f64,
    /// Peak of resident memory, bytes.
    pub peak_rss: f64,
    /// Objects in the store, when it has synced.
    #[serde(default)]
    pub objects: usize,
    /// From the start of the list to the full store, ms, when it has synced.
    #[serde(default)]
    pub sync_ms: f64,
    /// Changes that handlers received.
    #[serde(default)]
    pub updates: usize,
    /// The newest versions that handlers received.
    #[serde(default)]
    pub resource_versions: Vec<String>,
}

impl InformerStatus {
    /// Whether `version` was received.
    pub fn reached(&self, version: u64) -> bool {
        self.resource_versions
            .iter()
            .any(|seen| seen.parse::<u64>().is_ok_and(|seen| seen >= version))
    }
}

/// Memory of a garbage-collected process after a forced collection.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeapUsage {
    /// Live objects, bytes.
    pub heap_in_use: f64,
    /// Resident memory, bytes.
    pub rss_collected: f64,
}

#[derive(Deserialize)]
struct StoreState {
    objects: Vec<usize>,
    hashes: Map<String, Value>,
}

impl Informer {
    /// Starts it and waits until its store is full; also returns the time for that, including the start of the process.
    pub async fn start(
        name: String,
        mut command: Command,
    ) -> Result<(Self, InformerStatus, Duration)> {
        let started = Instant::now();
        let process = PipedChild::spawn(&mut command).with_context(|| name.clone())?;
        let mut informer = Self { name, process };
        let said = informer.read("synced", SYNC_WAIT).await?;
        Ok((informer, said, started.elapsed()))
    }

    /// Its usage and progress.
    pub async fn usage(&mut self) -> Result<InformerStatus> {
        self.ask("usage").await?;
        self.read("usage", ANSWER_WAIT).await
    }

    /// Forces a garbage collection.
    pub async fn collect(&mut self) -> Result<HeapUsage> {
        self.ask("kept").await?;
        self.read("kept", ANSWER_WAIT).await
    }

    /// Number and hash of the objects in its store.
    pub async fn state(&mut self) -> Result<StoreDigest> {
        self.ask("state").await?;
        let StoreState { objects, hashes } = self.read("state", ANSWER_WAIT).await?;
        match (&*objects, hashes.keys().next()) {
            (&[objects], Some(hash)) => Ok(StoreDigest {
                objects,
                hash: hash.clone(),
            }),
            _ => bail!("{}: more or less than one store", self.name),
        }
    }

    /// Polls its usage until it has received `version`; returns the last answer, and whether it got there within `wait`.
    pub async fn reach(&mut self, version: u64, wait: Duration) -> Result<(InformerStatus, bool)> {
        /// Rarely enough not to show in its CPU time.
        const STEP: Duration = Duration::from_millis(200);
        let end = Instant::now() + wait;
        loop {
            tokio::time::sleep(STEP).await;
            let said = self.usage().await?;
            let there = said.reached(version);
            if there || Instant::now() > end {
                return Ok((said, there));
            }
        }
    }

    pub async fn end(self) -> Result<()> {
        let Self { name, process } = self;
        process.end(END_WAIT).await.context(name)?;
        Ok(())
    }

    async fn ask(&mut self, what: &str) -> Result<()> {
        self.process.send_line(what).await
    }

    async fn read<T: for<'de> Deserialize<'de>>(
        &mut self,
        event: &str,
        wait: Duration,
    ) -> Result<T> {
        let reading = async {
            while let Some(line) = self.process.line().await? {
                let said: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
                if said["event"] == event {
                    return serde_json::from_value(said).context(line);
                }
            }
            bail!("it has ended")
        };
        let read = tokio::time::timeout(wait, reading).await;
        read.with_context(|| format!("{}: not {event} within {wait:?}", self.name))?
            .with_context(|| self.name.clone())
    }
}
