//! Churn: creates ConfigMaps and changes them at a steady rate, remembering every version the server gave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::{Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::recorder::now_ns;
use crate::target::Target;
use crate::wire::event::{WRITTEN_AT, first_version};

/// Connections; each writes its own objects one after the other, so that versions of one object never race.
const LANES: usize = 4;
/// One in so many writes deletes the object and creates it again, so that all event types occur.
const RECREATE_EVERY: u64 = 50;
/// About what a server adds to the object: uid, timestamps, managed fields.
const ADDED_LEN: usize = 480;
/// Versions remembered per lane.
const VERSIONS_MAX: usize = 1 << 20;

/// What to write, and how fast.
#[derive(Debug, Clone)]
pub struct Churn {
    /// The server that takes writes.
    pub target: Target,
    /// Path of the collection.
    pub path: String,
    /// Beginning of the objects' names.
    pub prefix: String,
    /// Number of objects.
    pub objects: usize,
    /// Size of one object on the wire, bytes, roughly.
    pub object_len: usize,
    /// Writes a second.
    pub rate: f64,
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// Versions of all writes that were answered with one.
    pub versions: Vec<u64>,
    /// Writes that failed.
    pub failed: u64,
    /// Why the first failed.
    pub first_failure: Option<String>,
}

impl Written {
    /// The newest version.
    pub fn last(&self) -> u64 {
        self.versions.iter().copied().max().unwrap_or(0)
    }
}

/// Writers at work.
#[derive(Debug)]
pub struct Writing {
    stop: Arc<AtomicBool>,
    lanes: JoinSet<Written>,
}

impl Churn {
    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    fn object(&self, number: usize) -> Vec<u8> {
        let padding = "x".repeat(self.object_len.saturating_sub(ADDED_LEN));
        let name = self.name(number);
        let at = now_ns();
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","annotations":{{"{WRITTEN_AT}":"{at}"}}}},"data":{{"padding":"{padding}"}}}}"#
        )
        .into_bytes()
    }

    /// Creates the objects that are not there.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn prepare(&self) -> Result<()> {
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            let churn = self.clone();
            lanes.spawn(async move {
                let mut client = Client::new(churn.target.clone());
                for number in (lane..churn.objects).step_by(LANES) {
                    let (status, body) = client
                        .call(Method::POST, &churn.path, churn.object(number))
                        .await?;
                    if !status.is_success() && status != StatusCode::CONFLICT {
                        bail!(
                            "POST {}: {status}: {}",
                            churn.path,
                            String::from_utf8_lossy(&body[..body.len().min(300)])
                        );
                    }
                }
                Ok(())
            });
        }
        lanes.join_all().await.into_iter().collect()
    }

    /// Begins to write.
    pub fn start(&self) -> Writing {
        let stop = Arc::new(AtomicBool::new(false));
        let mut lanes = JoinSet::new();
        for lane in 0..LANES.min(self.objects) {
            lanes.spawn(write(self.clone(), lane, stop.clone()));
        }
        Writing { stop, lanes }
    }

    /// Deletes the objects; what fails stays.
    pub async fn clean(&self) {
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            let churn = self.clone();
            lanes.spawn(async move {
                let mut client = Client::new(churn.target.clone());
                for number in (lane..churn.objects).step_by(LANES) {
                    let path = format!("{}/{}", churn.path, churn.name(number));
                    if client
                        .call(Method::DELETE, &path, Vec::new())
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        lanes.join_all().await;
    }
}

impl Writing {
    /// Stops and returns what was written.
    pub async fn finish(mut self) -> Written {
        // Relaxed: the lanes are joined below.
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        while let Some(Ok(one)) = self.lanes.join_next().await {
            all.versions.extend(one.versions);
            all.failed += one.failed;
            all.first_failure = all.first_failure.or(one.first_failure);
        }
        all
    }
}

async fn write(churn: Churn, lane: usize, stop: Arc<AtomicBool>) -> Written {
    let lanes = LANES.min(churn.objects);
    let mut written = Written::default();
    let mut client = Client::new(churn.target.clone());
    let interval = Duration::from_secs_f64(lanes as f64 / churn.rate.max(0.001));
    let mut due = Instant::now() + interval.mul_f64(lane as f64 / lanes as f64);
    let mut count: u64 = 0;
    let mut number = lane;
    // Relaxed: the flag stands alone.
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep_until(due).await;
        due += interval;
        count += 1;
        match write_one(
            &mut client,
            &churn,
            number,
            count.is_multiple_of(RECREATE_EVERY),
        )
        .await
        {
            Ok(version) if written.versions.len() < VERSIONS_MAX => written.versions.push(version),
            Ok(_) => {}
            Err(error) => {
                written.failed += 1;
                written
                    .first_failure
                    .get_or_insert_with(|| format!("{error:#}"));
            }
        }
        number = if number + lanes < churn.objects {
            number + lanes
        } else {
            lane
        };
    }
    written
}

async fn write_one(
    client: &mut Client,
    churn: &Churn,
    number: usize,
    recreate: bool,
) -> Result<u64> {
    let path = format!("{}/{}", churn.path, churn.name(number));
    let (status, body) = if recreate {
        client.call(Method::DELETE, &path, Vec::new()).await?;
        client
            .call(Method::POST, &churn.path, churn.object(number))
            .await?
    } else {
        client
            .call(Method::PUT, &path, churn.object(number))
            .await?
    };
    if !status.is_success() {
        bail!(
            "{path}: {status}: {}",
            String::from_utf8_lossy(&body[..body.len().min(300)])
        );
    }
    first_version(&body).context("an answer without a version")
}
