//! The collections that clients watch and list: one that the gateway keeps in memory, and one that it forwards; both change.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::Drain;
use super::SETTLE_WAIT;
use crate::cli::ChurnFlags;
use crate::recording::Recording;
use crate::results::Results;
use crate::scenario::steady;
use crate::target::Target;
use crate::writer::shape::Shape;
use crate::writer::{Churn, WriterTasks};

/// A collection with changing objects, and its reference.
#[derive(Debug)]
pub struct Collection {
    pub path: Arc<str>,
    pub recording: Recording,
    churn: Churn,
}

/// Both collections.
#[derive(Debug)]
pub struct Collections {
    /// Answered from memory.
    pub cached: Collection,
    /// Passed on to the API server.
    pub forwarded: Collection,
}

/// The writers of both collections.
#[derive(Debug)]
pub struct WriterPair(WriterTasks, WriterTasks);

/// The written versions of both collections.
#[derive(Debug)]
pub struct WrittenVersions(Vec<u64>, Vec<u64>);

impl Collection {
    async fn begin(flags: &Drain, server: &Target, path: &str, shape: Shape) -> Result<Self> {
        let churn = Churn {
            shape,
            ..steady::writer(&flags.churning, server, path)
        };
        let ballast = Churn {
            prefix: "ballast".to_owned(),
            objects: flags.ballast_objects,
            object_len: flags.ballast_size,
            ..churn.clone()
        };
        ballast.prepare().await?;
        churn.prepare().await?;
        Ok(Self {
            path: path.into(),
            recording: Recording::begin(server.clone(), path).await?,
            churn,
        })
    }

    fn judge(&self, versions: &[u64], results: &mut Results) {
        let reference = self.recording.reference();
        if let Some(version) = reference.first_missing(versions, self.recording.start) {
            let path = &self.path;
            results.fault(format!(
                "{path}: version {version} was written, but the reference never received it"
            ));
        }
    }
}

impl Collections {
    /// Creates the objects, and starts to record the references.
    pub async fn begin(flags: &Drain, server: &Target) -> Result<Self> {
        let path = &flags.server.path;
        let (parent, _) = path.rsplit_once('/').context("--path: no collection")?;
        let secrets = format!("{parent}/secrets");
        Ok(Self {
            cached: Collection::begin(flags, server, path, Shape::ConfigMap).await?,
            forwarded: Collection::begin(flags, server, &secrets, Shape::Secret).await?,
        })
    }

    /// Starts to write.
    pub fn write(&self) -> WriterPair {
        WriterPair(self.cached.churn.start(), self.forwarded.churn.start())
    }

    /// Waits until the references have all written and all received versions. The comparison finds versions that they lack.
    pub async fn settle(
        &mut self,
        written: &WrittenVersions,
        seen: [u64; 2],
        results: &mut Results,
    ) {
        let written = [&written.0, &written.1].map(|all| all.iter().copied().max().unwrap_or(0));
        let both = [&mut self.cached, &mut self.forwarded];
        for (collection, (written, seen)) in both.into_iter().zip(written.into_iter().zip(seen)) {
            let reached = collection.recording.reached(written.max(seen), SETTLE_WAIT);
            if let Err(error) = reached.await {
                results.note(format!("{error:#}"));
            }
        }
    }

    /// Deletes the changing objects, unless they are to be kept.
    pub async fn clean(&self, flags: &ChurnFlags) {
        if !flags.keep_objects {
            tokio::join!(self.cached.churn.clean(), self.forwarded.churn.clean());
        }
    }
}

impl WriterPair {
    /// Stops the writers.
    pub async fn finish(self) -> WrittenVersions {
        let (cached, forwarded) = tokio::join!(self.0.finish(), self.1.finish());
        WrittenVersions(cached.versions, forwarded.versions)
    }
}

impl WrittenVersions {
    /// Reports the number of writes, and finds those that the references lack.
    pub fn report(&self, collections: &Collections, results: &mut Results) {
        results.figure("writes", (self.0.len() + self.1.len()) as f64);
        collections.cached.judge(&self.0, results);
        collections.forwarded.judge(&self.1, results);
    }
}
