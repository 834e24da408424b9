//! An informer's process, asked line by line. It ends when its input does, so also when this program is killed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::process::Command;

use crate::pods::StoreDigest;
use crate::process::piped::PipedChild;

/// How long a store may take to fill.
const SYNC_WAIT: Duration = Duration::from_secs(300);
/// How long any other answer may take; hashing a large store takes seconds.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// How long a process may take to end.
const END_WAIT: Duration = Duration::from_secs(30);

/// A running informer.
pub struct Informer {
    name: String,
    process: PipedChild,
}

/// What a process says it has used until now.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerStatus {
    /// User and system time, ms.
    pub cpu_ms: f64,
    /// Resident memory, bytes.
    pub rss: f64,
    /// The most of it so far, bytes.
    pub peak_rss: f64,
    /// Objects in the store, when it has synced.
    #[serde(default)]
    pub objects: usize,
    /// From the beginning of the list to the full store, ms, when it has synced.
    #[serde(default)]
    pub sync_ms: f64,
    /// Changes that handlers were told of.
    #[serde(default)]
    pub updates: usize,
    /// The newest versions that were seen.
    #[serde(default)]
    pub resource_versions: Vec<String>,
}

impl InformerStatus {
    /// Whether `version` has been seen.
    pub fn reached(&self, version: u64) -> bool {
        self.resource_versions
            .iter()
            .any(|seen| seen.parse::<u64>().is_ok_and(|seen| seen >= version))
    }
}

/// What stays of a garbage-collected process when all garbage is given back.
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
    /// Starts it and waits until its store is full; also how long that took, the process's beginning included.
    ///
    /// # Errors
    /// If it ends or does not get there in time.
    pub async fn start(
        name: String,
        mut command: Command,
    ) -> Result<(Self, InformerStatus, Duration)> {
        let begun = Instant::now();
        let process = PipedChild::spawn(&mut command).with_context(|| name.clone())?;
        let mut informer = Self { name, process };
        let said = informer.read("synced", SYNC_WAIT).await?;
        Ok((informer, said, begun.elapsed()))
    }

    /// What it has used and seen.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn usage(&mut self) -> Result<InformerStatus> {
        self.ask("usage").await?;
        self.read("usage", ANSWER_WAIT).await
    }

    /// Collects garbage.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn collect(&mut self) -> Result<HeapUsage> {
        self.ask("kept").await?;
        self.read("kept", ANSWER_WAIT).await
    }

    /// What its store holds.
    ///
    /// # Errors
    /// If it has ended.
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

    /// Asks for its usage until it has seen `version`; the last answer, and whether it got there within `wait`.
    ///
    /// # Errors
    /// If it has ended.
    pub async fn reach(&mut self, version: u64, wait: Duration) -> Result<(InformerStatus, bool)> {
        /// Seldom enough not to be seen in its CPU time.
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

    /// Ends it.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn end(self) -> Result<()> {
        let Self { name, process } = self;
        process.end(END_WAIT).await.context(name)?;
        Ok(())
    }

    async fn ask(&mut self, what: &str) -> Result<()> {
        self.process.tell(what).await
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
