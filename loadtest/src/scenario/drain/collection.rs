//! The collections that clients watch and list: one that the gateway keeps in memory, and one that it forwards; both change.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::Drain;
use super::SETTLE_WAIT;
use crate::recording::{Recording, whole};
use crate::results::Results;
use crate::scenario::steady;
use crate::target::Target;
use crate::writer::shape::Shape;
use crate::writer::{Churn, WriterTasks, Writes};

/// Size of each object that makes lists long, bytes.
const BALLAST_LEN: usize = 5_000;

/// A collection with changing objects, and its reference.
#[derive(Debug)]
pub struct Collection {
    pub path: Arc<str>,
    pub recording: Recording,
    churn: Churn,
}

/// The collection that is answered from memory, and the one that is passed on to the API server.
#[derive(Debug)]
pub struct Collections([Collection; 2]);

impl Collection {
    async fn begin(flags: &Drain, server: &Target, path: &str, shape: Shape) -> Result<Self> {
        let churn = Churn {
            shape,
            ..steady::writer(&flags.churning, server, path)
        };
        let ballast = Churn {
            prefix: "ballast".to_owned(),
            objects: flags.ballast_objects,
            object_len: BALLAST_LEN,
            ..churn.clone()
        };
        ballast.prepare().await?;
        churn.prepare().await?;
        Ok(Self {
            path: path.into(),
            recording: Recording::begin(server.clone(), path, whole).await?,
            churn,
        })
    }
}

impl Collections {
    /// Creates the objects, and starts to record the references.
    pub async fn begin(flags: &Drain, server: &Target) -> Result<Self> {
        let path = &flags.server.path;
        let (parent, _) = path.rsplit_once('/').context("--path: no collection")?;
        let secrets = format!("{parent}/secrets");
        Ok(Self([
            Collection::begin(flags, server, path, Shape::ConfigMap).await?,
            Collection::begin(flags, server, &secrets, Shape::Secret).await?,
        ]))
    }

    pub fn of(&self, is_forwarded: bool) -> &Collection {
        &self.0[usize::from(is_forwarded)]
    }

    pub fn write(&self) -> [WriterTasks; 2] {
        self.0.each_ref().map(|collection| collection.churn.start())
    }

    /// Waits until the references have all written and all received versions. The comparison finds versions that they lack.
    pub async fn settle(&mut self, writes: &[Writes; 2], seen: [u64; 2], results: &mut Results) {
        for ((collection, writes), seen) in self.0.iter_mut().zip(writes).zip(seen) {
            let newest = writes.last().max(seen);
            if let Err(error) = collection.recording.reached(newest, SETTLE_WAIT).await {
                results.note(format!("{error:#}"));
            }
        }
    }

    /// Reports the number of writes, and finds those that the references lack.
    pub fn judge(&self, writes: &[Writes; 2], results: &mut Results) {
        let count: usize = writes.iter().map(|one| one.versions.len()).sum();
        results.figure("writes", count as f64);
        for (collection, writes) in self.0.iter().zip(writes) {
            let reference = collection.recording.reference();
            let start = collection.recording.start;
            if let Some(version) = reference.first_missing(&writes.versions, start) {
                let path = &collection.path;
                results.fault(format!(
                    "{path}: version {version} was written, but the reference never received it"
                ));
            }
        }
    }

    pub async fn clean(&self) {
        let [cached, forwarded] = &self.0;
        tokio::join!(cached.churn.clean(), forwarded.churn.clean());
    }
}
