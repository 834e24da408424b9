//! `forwarded`: how much later a request is answered if a gateway forwards it: the same requests straight to the API server and through the
//! gateway, in turns, first while nothing else happens and then beside other forwarded requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use hyper::{Method, StatusCode};
use tokio::time::{Interval, MissedTickBehavior};

use super::{Scenario, phase, targets};
use crate::cli::ServerFlags;
use crate::client::{Client, excerpt, list_version};
use crate::results::Results;
use crate::target::Target;

/// The kinds of requests.
const KINDS: [&str; 3] = ["GET", "POST", "watch"];
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// Connections of the load, so that one slow answer delays few others.
const LOAD_CONNECTIONS: u32 = 64;
/// Time for the load to reach its rate.
const WARM_UP: Duration = Duration::from_secs(2);
/// Between two rounds, so that an idle server is idle.
const PAUSE: Duration = Duration::from_millis(5);

/// GET, POST and the start of a watch, directly and forwarded, in turns: how much later is the answer of a forwarded request?
#[derive(Debug, Clone, Parser)]
#[command(name = "forwarded")]
pub struct Forwarded {
    #[command(flatten)]
    pub server: ServerFlags,
    /// Requests of each kind, directly and forwarded.
    #[arg(long, default_value_t = 1_000)]
    pub samples: usize,
    /// Forwarded GETs a second beside them, in the second part; 0 leaves it out.
    #[arg(long, default_value_t = 5_000)]
    pub load: u32,
}

/// One way to the API server, with the time of each kind of request in microseconds.
struct Route {
    name: &'static str,
    client: Client,
    target: Target,
    /// By kind of request, as [`KINDS`].
    times: [Histogram<u64>; KINDS.len()],
}

impl Route {
    fn new(name: &'static str, target: Target) -> Result<Self> {
        Ok(Self {
            name,
            client: Client::new(target.clone()),
            target,
            times: [Histogram::new(3)?, Histogram::new(3)?, Histogram::new(3)?],
        })
    }

    async fn get(&mut self, path: &str) -> Result<()> {
        let started = Instant::now();
        let (status, body) = self.client.call(Method::GET, path, Vec::new()).await?;
        self.times[0].record(micros(started))?;
        ensure!(
            status == StatusCode::OK,
            "GET {path}: {status}: {}",
            excerpt(&body)
        );
        Ok(())
    }

    async fn post(&mut self, collection: &str, name: &str) -> Result<()> {
        let object = object(name);
        let started = Instant::now();
        let (status, body) = self.client.call(Method::POST, collection, object).await?;
        self.times[1].record(micros(started))?;
        ensure!(
            status == StatusCode::CREATED,
            "POST: {status}: {}",
            excerpt(&body)
        );
        Ok(())
    }

    /// Starts a watch on a connection of its own, which is open before the time begins; it ends with its connection.
    async fn watch(&mut self, collection: &str, warm: &str, version: u64) -> Result<()> {
        let mut client = Client::new(self.target.clone());
        client.call(Method::GET, warm, Vec::new()).await?;
        let path = format!("{collection}?watch=1&resourceVersion={version}");
        let started = Instant::now();
        let response = client.open(Method::GET, &path, Vec::new()).await?;
        self.times[2].record(micros(started))?;
        ensure!(
            response.status() == StatusCode::OK,
            "watch: {}",
            response.status()
        );
        Ok(())
    }

    fn report(&self, results: &mut Results) {
        for (kind, times) in KINDS.iter().zip(&self.times) {
            results.quantiles(&format!("{kind}, {},", self.name), times, &QUANTILES);
        }
    }
}

impl Scenario for Forwarded {
    async fn run(&self, results: &mut Results) -> Result<()> {
        let (gateway, api_server) = targets(&self.server)?;
        let collection = &self.server.path;
        let read = format!("{collection}/forwarded-read");
        let mut writer = Client::new(api_server.clone());
        writer.create(collection, object("forwarded-read")).await?;
        let loads = [0, self.load];
        // Without a load only the first part.
        for load in &loads[..1 + usize::from(self.load > 0)] {
            phase(&format!("{load} forwarded requests a second beside"));
            let beside = (*load > 0).then(|| Load::start(gateway.clone(), read.clone(), *load));
            tokio::time::sleep(WARM_UP).await;
            let mut routes = [
                Route::new("direct", api_server.clone())?,
                Route::new("forwarded", gateway.clone())?,
            ];
            let (started, sent) = (Instant::now(), beside.as_ref().map_or(0, Load::sent));
            self.sample(&mut routes, &mut writer, &read).await?;
            let seconds = started.elapsed().as_secs_f64();
            results.column(match load {
                0 => "idle",
                _ => "loaded",
            });
            if let Some(beside) = beside {
                results.figure(
                    "requests a second beside",
                    (beside.sent() - sent) as f64 / seconds,
                );
                beside.finish().await?;
            }
            report(&routes, results);
        }
        let _ = writer.call(Method::DELETE, &read, Vec::new()).await?;
        Ok(())
    }
}

impl Forwarded {
    async fn sample(&self, routes: &mut [Route; 2], writer: &mut Client, read: &str) -> Result<()> {
        let collection = &self.server.path;
        for number in 0..self.samples {
            // A watch of an old version may get 410.
            let list = writer.json(&format!("{collection}?limit=1")).await?;
            let version = list_version(&list)?;
            for turn in 0..routes.len() {
                // Each is first as often as the other.
                let route = &mut routes[(number + turn) % 2];
                let name = format!("forwarded-{}-{number}", route.name);
                route.get(read).await?;
                route.post(collection, &name).await?;
                route.watch(collection, read, version).await?;
                let path = format!("{collection}/{name}");
                writer.call(Method::DELETE, &path, Vec::new()).await?;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// The times of both routes, and how much later the forwarded answers are.
fn report([direct, forwarded]: &[Route; 2], results: &mut Results) {
    direct.report(results);
    forwarded.report(results);
    for (at, kind) in KINDS.iter().enumerate() {
        for (label, quantile) in QUANTILES {
            let of = |route: &Route| route.times[at].value_at_quantile(quantile) as f64 / 1e3;
            let added = of(forwarded) - of(direct);
            results.figure(&format!("{kind}, added {label}, ms"), added);
        }
    }
}

/// Forwarded GETs at a rate, from a thread of its own.
struct Load {
    sent: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Load {
    fn start(target: Target, path: String, rate: u32) -> Self {
        let (sent, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counter, end) = (Arc::clone(&sent), Arc::clone(&is_over));
        let period = Duration::from_secs(1) * LOAD_CONNECTIONS / rate;
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                // One after the other, so that requests come evenly.
                let begins =
                    |number| tokio::time::Instant::now() + period * number / LOAD_CONNECTIONS;
                let one = |number| {
                    let client = Client::new(target.clone());
                    let ticks = tokio::time::interval_at(begins(number), period);
                    repeat(client, &path, ticks, &counter, &end)
                };
                let clients = (0..LOAD_CONNECTIONS).map(one);
                futures::future::try_join_all(clients).await
            })?;
            Ok(())
        });
        Self {
            sent,
            is_over,
            thread,
        }
    }

    /// Requests that were answered.
    fn sent(&self) -> u64 {
        // Relaxed: a count and nothing else.
        self.sent.load(Ordering::Relaxed)
    }

    async fn finish(self) -> Result<()> {
        // Relaxed: the thread looks again after each request.
        self.is_over.store(true, Ordering::Relaxed);
        // Its last requests may go to a server on this thread.
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.ok().context("the load has panicked")?
    }
}

async fn repeat(
    mut client: Client,
    path: &str,
    mut ticks: Interval,
    sent: &AtomicU64,
    is_over: &AtomicBool,
) -> Result<()> {
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let (status, body) = client.call(Method::GET, path, Vec::new()).await?;
        ensure!(
            status == StatusCode::OK,
            "load: {status}: {}",
            excerpt(&body)
        );
        sent.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn object(name: &str) -> Vec<u8> {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"fill": "x".repeat(700)},
    });
    object.to_string().into_bytes()
}

fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
