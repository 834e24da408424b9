//! CPU and memory of processes over time, sampled while a scenario runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::Usage;

const EVERY: Duration = Duration::from_millis(500);
/// Most samples of a run: an hour.
const SAMPLES_MAX: usize = 7_200;

/// The samples of one process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageSeries {
    /// Seconds since the start, and CPU time in % of a core since the sample before.
    pub cpu_percent: Vec<(f64, f64)>,
    /// Seconds since the start, and resident memory in MiB.
    pub rss_mib: Vec<(f64, f64)>,
}

/// Samples one process until it is dropped.
#[derive(Debug)]
pub struct UsageSampler {
    series: Arc<Mutex<UsageSeries>>,
    task: JoinHandle<()>,
}

impl UsageSampler {
    pub fn start(pid: u32) -> Self {
        let series = Arc::<Mutex<UsageSeries>>::default();
        let task = tokio::spawn(sample(pid, series.clone()));
        Self { series, task }
    }

    pub fn series(&self) -> UsageSeries {
        self.series.lock().clone()
    }
}

impl Drop for UsageSampler {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn sample(pid: u32, series: Arc<Mutex<UsageSeries>>) {
    let started = Instant::now();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<(Instant, Usage)> = None;
    for _ in 0..SAMPLES_MAX {
        ticks.tick().await;
        let Ok(usage) = Usage::of(pid) else {
            return;
        };
        let now = Instant::now();
        let mut series = series.lock();
        series.add(
            now - started,
            before.map(|(at, usage)| (now - at, usage)),
            usage,
        );
        before = Some((now, usage));
    }
}

impl UsageSeries {
    fn add(&mut self, at: Duration, before: Option<(Duration, Usage)>, usage: Usage) {
        let at = at.as_secs_f64();
        if let Some((since, before)) = before.filter(|(since, _)| !since.is_zero()) {
            let cpu = usage.cpu.saturating_sub(before.cpu).as_secs_f64();
            self.cpu_percent
                .push((at, cpu / since.as_secs_f64() * 100.0));
        }
        self.rss_mib.push((at, crate::results::mib(usage.rss)));
    }
}
