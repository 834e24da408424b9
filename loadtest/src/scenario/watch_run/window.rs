//! Figures of the time between two snapshots of a run.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::WatchRun;
use crate::process::{MachineCpu, Usage};
use crate::recorder::Recorder;
use crate::results::{Results, mib};

/// Counters and usage at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub at: Instant,
    /// Events that the reference has seen.
    pub upstream_events: usize,
    /// Events delivered to all watchers.
    pub delivered: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that all watchers have sent.
    pub requests: u64,
    pub machine: MachineCpu,
    pub own: Usage,
    pub server: Option<Usage>,
    /// The API server behind it.
    pub upstream: Option<Usage>,
}

pub const SERVER_PER_EVENT: &str = "server CPU per delivered event, µs";
/// The part without the kernel, which servers that write to equally many sockets differ in.
pub const SERVER_USER_PER_EVENT: &str = "server user CPU per delivered event, µs";
/// Row that compares numbers of watchers with disjoint selectors.
pub const SERVER_PER_UPSTREAM_EVENT: &str = "server CPU per upstream event, µs";
/// The rate of written events, or of the socket loop's.
pub const UPSTREAM_EVENTS_A_SECOND: &str = "upstream events a second";
/// The rate that a socket loop must deliver too.
pub const EVENTS_A_SECOND: &str = "events delivered a second";
pub const MIB_A_SECOND: &str = "MiB delivered a second";
pub const REQUESTS_A_SECOND: &str = "requests a second";
pub const SERVER_CPU: &str = "server CPU, % of a core";
pub const UPSTREAM_CPU: &str = "upstream CPU, % of a core";
/// The size of the socket loop's events.
pub const EVENT_LEN: &str = "bytes an event";

impl WatchRun<'_> {
    /// Adds the figures of a window to the newest column.
    pub fn window(&self, results: &mut Results, [from, until]: &[Snapshot; 2]) {
        let seconds = until.at.duration_since(from.at).as_secs_f64();
        let delivered = until.delivered - from.delivered;
        let upstream_events = until.upstream_events.saturating_sub(from.upstream_events);
        let bytes = until.bytes - from.bytes;
        results.figure("watchers", self.population.watchers as f64);
        results.figure(UPSTREAM_EVENTS_A_SECOND, upstream_events as f64 / seconds);
        results.figure("events delivered in the window", delivered as f64);
        results.figure(EVENTS_A_SECOND, delivered as f64 / seconds);
        results.figure(MIB_A_SECOND, mib(bytes) / seconds);
        let requests = until.requests - from.requests;
        results.figure(REQUESTS_A_SECOND, requests as f64 / seconds);
        if delivered > 0 {
            results.figure(EVENT_LEN, bytes as f64 / delivered as f64);
        }
        let percent = |cpu: Duration| cpu.as_secs_f64() / seconds * 100.0;
        let mut per_event = |name: &str, cpu: Duration| per(results, name, cpu, delivered);
        let own = until.own.cpu.saturating_sub(from.own.cpu);
        per_event("load test CPU per delivered event, µs", own);
        let machine = until.machine.since(from.machine);
        per_event("machine CPU per delivered event, µs", machine.busy);
        if let (Some(a), Some(b)) = (from.server, until.server) {
            let cpu = b.cpu.saturating_sub(a.cpu);
            let user = b.user.saturating_sub(a.user);
            per_event(SERVER_PER_EVENT, cpu);
            per_event(SERVER_USER_PER_EVENT, user);
            let system = cpu.saturating_sub(user);
            per_event("server system CPU per delivered event, µs", system);
            per(
                results,
                SERVER_PER_UPSTREAM_EVENT,
                cpu,
                upstream_events as u64,
            );
            results.figure(SERVER_CPU, percent(cpu));
            results.figure("server RSS, MiB", mib(b.rss));
            results.figure("server RSS peak, MiB", mib(b.peak_rss));
        }
        if let (Some(a), Some(b)) = (from.upstream, until.upstream) {
            let cpu = b.cpu.saturating_sub(a.cpu);
            results.figure(UPSTREAM_CPU, percent(cpu));
        }
        results.figure("machine busy, %", machine.busy_percent());
        results.figure("machine softirq, %", machine.softirq_percent());
        results.figure("load test CPU, % of a core", percent(own));
    }
}

/// Microseconds per event; no figure without events.
fn per(results: &mut Results, name: &str, cpu: Duration, count: u64) {
    if count > 0 {
        results.figure(name, cpu.as_secs_f64() * 1e6 / count as f64);
    }
}

/// Adds the latencies to the newest column.
pub fn latencies(results: &mut Results, recorder: &Recorder) {
    let latency = &recorder.latency;
    results.figure("bookmarks", recorder.bookmarks as f64);
    results.figure("latencies counted", latency.len() as f64);
    // Without values every quantile would be 0, the best value.
    if latency.is_empty() {
        return;
    }
    let quantiles = [
        ("p50", 0.5),
        ("p90", 0.9),
        ("p99", 0.99),
        ("p999", 0.999),
        ("max", 1.0),
    ];
    results.quantiles("latency", latency, &quantiles);
    results.distribution("latency, ms", latency);
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)];
    results.quantiles("latency from due", &recorder.latency_from_due, &quantiles);
}

/// Adds the API server's share of the latencies to the newest column.
pub fn latencies_at_reference(results: &mut Results, latency: &Histogram<u64>) {
    if latency.is_empty() {
        return;
    }
    let quantiles = [("p50", 0.5), ("p99", 0.99)];
    results.quantiles("latency at the reference", latency, &quantiles);
}
