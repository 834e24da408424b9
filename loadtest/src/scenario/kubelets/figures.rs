//! What the servers used and what reached the API server, between two moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::churn::ChurnCounts;
use crate::cli::ServerFlags;
use crate::metrics::Metrics;
use crate::process::series::UsageSampler;
use crate::process::{MachineCpu, Usage};
use crate::recorder::Control;
use crate::results::{Results, mib};
use crate::scenario::watch_run::window::{EVENTS_A_SECOND, UPSTREAM_EVENTS_A_SECOND};

/// Watches that the API server holds open.
pub const WATCHES: &str = "watches at the API server";

/// Looks at the servers' processes and at the gateway's metrics.
#[derive(Debug)]
pub struct Observer {
    /// API server, then gateway.
    processes: Vec<(&'static str, u32, UsageSampler)>,
    admin_url: Option<String>,
}

impl Observer {
    /// Must be called inside a runtime.
    pub fn start(server: &ServerFlags) -> Self {
        let (api, gateway) = match server.upstream_pid {
            None => (server.server_pid, None),
            api => (api, server.server_pid),
        };
        let of = |name, pid: Option<u32>| pid.map(|pid| (name, pid, UsageSampler::start(pid)));
        Self {
            processes: [of("API server", api), of("gateway", gateway)]
                .into_iter()
                .flatten()
                .collect(),
            admin_url: server.server_admin.clone(),
        }
    }

    /// Watches that the gateway has open at the API server; none without a gateway.
    pub async fn upstream_watches(&self) -> Result<Option<f64>> {
        Ok(self
            .metrics()
            .await?
            .map(|metrics| metrics.upstream_watches()))
    }

    async fn metrics(&self) -> Result<Option<Metrics>> {
        match &self.admin_url {
            None => Ok(None),
            Some(url) => Metrics::of_gateway(url).await.map(Some),
        }
    }

    /// Everything that is counted, at this moment. Without a gateway clients are at the API server.
    pub async fn snapshot(&self, control: &Control, changes: usize) -> Result<Moment> {
        let usage = self.processes.iter();
        let usage = usage.map(|(name, pid, _)| Ok((*name, Usage::of(*pid)?)));
        // Relaxed: every count stands alone.
        let bytes = control.bytes.load(Ordering::Relaxed);
        let requests = control.requests.load(Ordering::Relaxed) as f64;
        let through = self.metrics().await?.map(|metrics| Upstream {
            requests: metrics.upstream_requests(),
            bytes: metrics.upstream_bytes(),
        });
        Ok(Moment {
            at: Instant::now(),
            changes,
            delivered: control.delivered.load(Ordering::Relaxed),
            bytes,
            requests,
            upstream: through.unwrap_or(Upstream {
                requests,
                bytes: bytes as f64,
            }),
            usage: usage.collect::<Result<_>>()?,
            own: Usage::own()?,
            machine: MachineCpu::now()?,
        })
    }

    /// CPU and memory of the servers over the whole run.
    pub fn report_series(&self, results: &mut Results) {
        for (name, _, sampler) in &self.processes {
            let series = sampler.series();
            results.series(&format!("{name} CPU, % of a core"), series.cpu_percent);
            results.series(&format!("{name} RSS, MiB"), series.rss_mib);
        }
    }
}

/// Requests at the API server, and bytes from it.
#[derive(Debug, Clone, Copy)]
struct Upstream {
    requests: f64,
    bytes: f64,
}

impl Upstream {
    fn since(self, then: Self) -> Self {
        Self {
            requests: self.requests - then.requests,
            bytes: self.bytes - then.bytes,
        }
    }
}

#[derive(Debug)]
pub struct Moment {
    at: Instant,
    changes: usize,
    delivered: u64,
    bytes: u64,
    requests: f64,
    upstream: Upstream,
    usage: Vec<(&'static str, Usage)>,
    own: Usage,
    machine: MachineCpu,
}

/// The CPU time of each server between two moments, and its usage at the end.
fn servers(from: &Moment, until: &Moment) -> impl Iterator<Item = (&'static str, Duration, Usage)> {
    let servers = from.usage.iter().zip(&until.usage);
    servers.map(|((name, a), (_, b))| (*name, b.cpu.saturating_sub(a.cpu), *b))
}

/// Figures of the time in which all nodes start.
pub fn report_join(results: &mut Results, [from, until]: &[Moment; 2]) {
    for (name, cpu, usage) in servers(from, until) {
        results.figure(&format!("start: {name} CPU, s"), cpu.as_secs_f64());
        results.figure(&format!("start: {name} RSS, MiB"), mib(usage.rss));
    }
    results.figure("start: requests of clients", until.requests - from.requests);
    let upstream = until.upstream.since(from.upstream);
    results.figure("start: requests at the API server", upstream.requests);
    results.figure(
        "start: from the API server, MiB",
        mib(upstream.bytes as u64),
    );
}

/// Figures of the measured window.
pub fn report_window(results: &mut Results, [from, until]: &[Moment; 2]) {
    let seconds = until.at.duration_since(from.at).as_secs_f64();
    let percent = |cpu: Duration| cpu.as_secs_f64() / seconds * 100.0;
    let delivered = (until.delivered - from.delivered) as f64;
    let changes = until.changes.saturating_sub(from.changes);
    let upstream = until.upstream.since(from.upstream);
    results.figure(UPSTREAM_EVENTS_A_SECOND, changes as f64 / seconds);
    results.figure("events delivered in the window", delivered);
    results.figure(EVENTS_A_SECOND, delivered / seconds);
    for (name, cpu, usage) in servers(from, until) {
        results.figure(&format!("{name} CPU, % of a core"), percent(cpu));
        results.figure(&format!("{name} RSS, MiB"), mib(usage.rss));
    }
    let requests = until.requests - from.requests;
    results.figure("requests of clients a second", requests / seconds);
    results.figure(
        "requests at the API server a second",
        upstream.requests / seconds,
    );
    let received = mib(until.bytes - from.bytes) / seconds;
    results.figure("MiB delivered a second", received);
    let sent = mib(upstream.bytes as u64) / seconds;
    results.figure("MiB from the API server a second", sent);
    let own = until.own.cpu.saturating_sub(from.own.cpu);
    results.figure("load test CPU, % of a core", percent(own));
    let machine = until.machine.since(from.machine);
    results.figure("machine busy, %", machine.busy_percent());
}

/// Adds the controllers' writes; too few make the figures invalid.
pub fn report_writes(results: &mut Results, written: &Arc<ChurnCounts>, rate_met: f64) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let (writes, due) = (count(&written.writes), count(&written.due));
    results.figure("writes of controllers", writes);
    if let Some(first) = written.first_failure() {
        let failed = count(&written.failed);
        results.note(format!("target: {failed} writes failed, first: {first}"));
    }
    if writes - count(&written.failed) < due * rate_met {
        results.invalid(format!(
            "target: {writes:.0} writes out of the {due:.0} that were due: the machine or the API server is too slow for this rate"
        ));
    }
}
