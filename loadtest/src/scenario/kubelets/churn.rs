//! What controllers and the scheduler write: pods that are created, bound and deleted, and slices that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::cluster::{self, NAMESPACE};
use super::selection::Collection;
use crate::http2::{Call, Http2Client};
use crate::target::Target;
use crate::writer::shape::node_name;

/// Pods that exist at the same time; more are not created.
const PODS_MAX: usize = 20_000;
/// From a pod's creation until it is bound: the scheduler decides within milliseconds.
const SCHEDULED_AFTER: Duration = Duration::from_millis(20);

/// What is written, and how often.
#[derive(Debug, Clone, Copy)]
pub struct ChurnRates {
    pub nodes: usize,
    pub services: usize,
    /// New pods a second.
    pub pods: f64,
    /// From a pod's creation to its deletion.
    pub pod_life: Duration,
    /// Changes of slices a second.
    pub slices: f64,
}

/// Writes that were due, and those that failed.
#[derive(Debug, Default)]
pub struct ChurnCounts {
    pub writes: AtomicU64,
    pub due: AtomicU64,
    pub failed: AtomicU64,
    first_failure: parking_lot::Mutex<Option<String>>,
}

impl ChurnCounts {
    pub fn first_failure(&self) -> Option<String> {
        self.first_failure.lock().clone()
    }

    fn add(&self, result: Result<()>) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            self.failed.fetch_add(1, Ordering::Relaxed);
            let mut first = self.first_failure.lock();
            first.get_or_insert_with(|| format!("{error:#}"));
        }
    }
}

/// Controllers that write until they are told to stop.
#[derive(Debug)]
pub struct Controllers {
    pub counts: Arc<ChurnCounts>,
    tasks: JoinSet<()>,
}

impl Controllers {
    pub async fn start(
        target: &Target,
        rates: ChurnRates,
        stop: &watch::Receiver<bool>,
    ) -> Result<Self> {
        let counts = Arc::<ChurnCounts>::default();
        let api = Arc::new(Api {
            client: Http2Client::connect(target).await?,
            has_bindings: AtomicBool::new(true),
            counts: counts.clone(),
        });
        let mut tasks = JoinSet::new();
        if rates.pods > 0.0 {
            tasks.spawn(create_pods(api.clone(), rates, stop.clone()));
        }
        if rates.slices > 0.0 && rates.services > 0 {
            tasks.spawn(change_slices(api, rates, stop.clone()));
        }
        Ok(Self { counts, tasks })
    }

    /// Waits for the last write, after they have been told to stop.
    pub async fn finish(mut self) -> Arc<ChurnCounts> {
        while self.tasks.join_next().await.is_some() {}
        self.counts
    }
}

struct Api {
    client: Http2Client,
    /// Whether pods are bound as a scheduler binds them; the servers of tests have no such subresource.
    has_bindings: AtomicBool,
    counts: Arc<ChurnCounts>,
}

async fn create_pods(api: Arc<Api>, rates: ChurnRates, mut stop: watch::Receiver<bool>) {
    let mut pods = JoinSet::new();
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rates.pods));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0_usize.. {
        let due = tokio::select! {
            biased;
            _ = stop.changed() => break,
            due = ticks.tick() => due,
        };
        // Creation, binding and deletion; the kubelet writes the status.
        api.counts.due.fetch_add(3, Ordering::Relaxed);
        while pods.try_join_next().is_some() {}
        if pods.len() < PODS_MAX {
            let node = node_name(number % rates.nodes.max(1));
            pods.spawn(pod_life(api.clone(), number, node, rates.pod_life, due));
        }
    }
    // Pods outlive the churn as they outlive their controllers; their binding is waited for, their deletion comes in time.
    pods.join_all().await;
}

async fn pod_life(api: Arc<Api>, number: usize, node: String, life: Duration, due: Instant) {
    let name = format!("pod-{number}");
    let pods = cluster::namespaced(Collection::Pods, NAMESPACE);
    let created = api
        .write(Method::POST, &pods, &cluster::pod(&name, due))
        .await;
    api.counts.add(created);
    tokio::time::sleep(SCHEDULED_AFTER).await;
    let bound = api.bind(&pods, &name, &node).await;
    api.counts.add(bound);
    tokio::time::sleep_until(due + life).await;
    let path = format!("{pods}/{name}?gracePeriodSeconds=0");
    let deleted = api.write(Method::DELETE, &path, &Value::Null).await;
    api.counts.add(deleted);
}

async fn change_slices(api: Arc<Api>, rates: ChurnRates, mut stop: watch::Receiver<bool>) {
    let slices = cluster::namespaced(Collection::EndpointSlices, NAMESPACE);
    let mut ticks = interval(Duration::from_secs_f64(1.0 / rates.slices));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0_usize.. {
        let due = tokio::select! {
            biased;
            _ = stop.changed() => return,
            due = ticks.tick() => due,
        };
        api.counts.due.fetch_add(1, Ordering::Relaxed);
        let service = number % rates.services;
        let path = format!("{slices}/{}", cluster::slice_name(service));
        let slice = cluster::slice(service, Some(due));
        let written = api.write(Method::PUT, &path, &slice).await;
        api.counts.add(written);
    }
}

impl Api {
    async fn write(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        let call = Call {
            content: match method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            },
            method,
            body: match body {
                Value::Null => Vec::new(),
                body => body.to_string().into_bytes(),
            },
            ..Call::get(path, "application/json")
        };
        self.client.demand(call, &[]).await.map(drop)
    }

    async fn bind(&self, pods: &str, name: &str, node: &str) -> Result<()> {
        if self.has_bindings.load(Ordering::Relaxed) {
            let path = format!("{pods}/{name}/binding");
            let call = Call {
                method: Method::POST,
                body: cluster::binding(name, node, Instant::now())
                    .to_string()
                    .into_bytes(),
                ..Call::get(&path, "application/json")
            };
            let (status, _) = self.client.call(call).await?;
            if status.is_success() {
                return Ok(());
            }
            let is_unknown = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            anyhow::ensure!(is_unknown.contains(&status), "POST {path}: {status}");
            self.has_bindings.store(false, Ordering::Relaxed);
        }
        let patch = cluster::binding_patch(node, Instant::now());
        let path = format!("{pods}/{name}");
        self.write(Method::PATCH, &path, &patch).await
    }
}
