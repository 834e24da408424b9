//! Churn: creates objects and changes them at a steady rate or in bursts, and keeps every version that the server returned.

pub mod shape;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hyper::Method;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, excerpt};
use crate::recorder::now_ns;
use crate::target::Target;
use crate::wire::event::first_version;
use shape::Shape;

/// Default number of connections. Each writes its own objects one after the other, so that versions of one object never race.
pub const LANES: usize = 4;
/// One in this many writes deletes the object and creates it again, so that all event types occur.
const RECREATE_EVERY: u64 = 50;
/// About the length that a server adds to an object: uid, timestamps, managed fields.
const ADDED_LEN: usize = 480;
/// One in this many writes goes through the other server, if there is one.
const ALSO_EVERY: u64 = 10;
/// Versions that are kept per connection.
const VERSIONS_MAX: usize = 1 << 20;

/// Objects, and how fast to write them.
#[derive(Debug, Clone)]
pub struct Churn {
    /// The server that receives the writes.
    pub target: Target,
    pub path: String,
    /// Prefix of the objects' names.
    pub prefix: String,
    pub objects: usize,
    /// Approximate size of one object on the wire, bytes.
    pub object_len: usize,
    pub shape: Shape,
    /// Writes a second.
    pub rate: f64,
    pub lanes: usize,
    /// Another server, which forwards writes and gets one in ten.
    pub also: Option<Target>,
}

#[derive(Debug, Default)]
pub struct Writes {
    /// Versions of all successful writes.
    pub versions: Vec<u64>,
    pub failed: u64,
    pub first_failure: Option<String>,
    /// When the last response arrived, nanoseconds since the epoch.
    pub last_answer_ns: u64,
}

impl Writes {
    pub fn last(&self) -> u64 {
        self.versions.iter().copied().max().unwrap_or(0)
    }

    /// Adds the outcome of others.
    pub fn add(&mut self, other: Self) {
        self.versions.extend(other.versions);
        self.failed += other.failed;
        self.last_answer_ns = self.last_answer_ns.max(other.last_answer_ns);
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

#[derive(Debug)]
#[must_use]
pub struct WriterTasks {
    stop: Arc<AtomicBool>,
    lanes: JoinSet<Writes>,
}

impl Churn {
    /// Churn of one small ConfigMap without a rate; the names of objects start with `prefix`.
    pub fn new(target: &Target, path: &str, prefix: &str) -> Self {
        Self {
            target: target.clone(),
            path: path.to_owned(),
            prefix: prefix.to_owned(),
            objects: 1,
            object_len: 0,
            shape: Shape::ConfigMap,
            rate: 0.0,
            lanes: LANES,
            also: None,
        }
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    fn object(&self, number: usize, due: Instant) -> Vec<u8> {
        self.shape
            .object(&self.name(number), number, self.object_len, due)
    }

    /// Connections that have objects of their own.
    fn busy_lanes(&self) -> usize {
        self.lanes.clamp(1, self.objects.max(1))
    }

    pub async fn prepare(&self) -> Result<()> {
        let mut lanes = JoinSet::new();
        for lane in 0..self.busy_lanes() {
            let churn = self.clone();
            lanes.spawn(async move {
                let mut client = Client::new(churn.target.clone());
                for number in (lane..churn.objects).step_by(churn.busy_lanes()) {
                    let object = churn.object(number, Instant::now());
                    client.create(&churn.path, object).await?;
                }
                Ok(())
            });
        }
        lanes.join_all().await.into_iter().collect()
    }

    /// Starts to write at the rate.
    pub fn start(&self) -> WriterTasks {
        self.write(Pacing::At(self.rate))
    }

    /// Writes this many times, as fast as the server accepts it.
    pub async fn burst(&self, writes: usize) -> Writes {
        self.write(Pacing::Burst(Arc::new(AtomicUsize::new(writes))))
            .join()
            .await
    }

    fn write(&self, pacing: Pacing) -> WriterTasks {
        let stop = Arc::new(AtomicBool::new(false));
        let mut lanes = JoinSet::new();
        for lane in 0..self.busy_lanes() {
            lanes.spawn(write(self.clone(), lane, pacing.clone(), stop.clone()));
        }
        WriterTasks { stop, lanes }
    }

    /// Deletes the objects; errors are ignored.
    pub async fn clean(&self) {
        let mut lanes = JoinSet::new();
        for lane in 0..self.busy_lanes() {
            let churn = self.clone();
            lanes.spawn(async move {
                let mut client = Client::new(churn.target.clone());
                for number in (lane..churn.objects).step_by(churn.busy_lanes()) {
                    let query = churn.shape.delete_query();
                    let path = format!("{}/{}{query}", churn.path, churn.name(number));
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

#[derive(Debug, Clone)]
enum Pacing {
    /// This many times a second, all together.
    At(f64),
    /// Without pause, while the shared count is not exhausted.
    Burst(Arc<AtomicUsize>),
}

impl WriterTasks {
    /// Stops the writers and returns the outcome.
    pub async fn finish(self) -> Writes {
        // Relaxed: the tasks are joined below.
        self.stop.store(true, Ordering::Relaxed);
        self.join().await
    }

    async fn join(mut self) -> Writes {
        let mut all = Writes::default();
        while let Some(Ok(one)) = self.lanes.join_next().await {
            all.add(one);
        }
        all
    }
}

async fn write(churn: Churn, lane: usize, pacing: Pacing, stop: Arc<AtomicBool>) -> Writes {
    let lanes = churn.busy_lanes();
    let mut written = Writes::default();
    let mut client = Client::new(churn.target.clone());
    let mut also = churn.also.clone().map(Client::new);
    let rate = match pacing {
        Pacing::At(rate) => rate.max(0.001),
        Pacing::Burst(_) => f64::INFINITY,
    };
    let interval = Duration::from_secs_f64(lanes as f64 / rate);
    let mut due = Instant::now() + interval.mul_f64(lane as f64 / lanes as f64);
    let mut count: u64 = 0;
    let mut number = lane;
    // Relaxed: the flag stands alone.
    while !stop.load(Ordering::Relaxed) {
        match &pacing {
            Pacing::At(_) => tokio::time::sleep_until(due).await,
            Pacing::Burst(left) if !claim_one(left) => break,
            // All writes of a burst are due at its start; the interval is 0.
            Pacing::Burst(_) => {}
        }
        count += 1;
        let recreate = count.is_multiple_of(RECREATE_EVERY);
        let through = also.as_mut().filter(|_| count.is_multiple_of(ALSO_EVERY));
        let client = through.unwrap_or(&mut client);
        let outcome = write_one(client, &churn, number, recreate, due).await;
        due += interval;
        written.last_answer_ns = now_ns();
        match outcome {
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

/// Takes one from the count; false if it is exhausted.
fn claim_one(left: &AtomicUsize) -> bool {
    // Relaxed: the count stands alone.
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    })
    .is_ok()
}

async fn write_one(
    client: &mut Client,
    churn: &Churn,
    number: usize,
    recreate: bool,
    due: Instant,
) -> Result<u64> {
    let path = format!("{}/{}", churn.path, churn.name(number));
    let (status, body) = match churn.shape {
        shape if recreate => {
            let whole = format!("{path}{}", shape.delete_query());
            client.call(Method::DELETE, &whole, Vec::new()).await?;
            client
                .call(Method::POST, &churn.path, churn.object(number, due))
                .await?
        }
        Shape::ConfigMap | Shape::Secret => {
            client
                .call(Method::PUT, &path, churn.object(number, due))
                .await?
        }
        Shape::Pod { .. } => {
            client
                .call(Method::PATCH, &path, Shape::change(due))
                .await?
        }
    };
    if !status.is_success() {
        bail!("{path}: {status}: {}", excerpt(&body));
    }
    first_version(&body).context("an answer without a version")
}
