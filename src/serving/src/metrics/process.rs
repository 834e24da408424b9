//! The metrics `process_*` that every Prometheus client library has, read from `/proc` when they are collected. Those that cannot be read
//! keep their last values.

use std::fs;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

pub(super) struct ProcessCollector {
    /// Held while `cpu` is read and increased: scrapes may be concurrent.
    counting: Mutex<()>,
    cpu: Counter,
    open_fds: IntGauge,
    max_fds: IntGauge,
    virtual_memory: IntGauge,
    resident_memory: IntGauge,
    start_time: IntGauge,
    threads: IntGauge,
}

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        Ok(Self {
            counting: Mutex::default(),
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            )?,
            open_fds: IntGauge::new("process_open_fds", "Number of open file descriptors.")?,
            max_fds: IntGauge::new(
                "process_max_fds",
                "Maximum number of open file descriptors.",
            )?,
            virtual_memory: IntGauge::new(
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
            )?,
            resident_memory: IntGauge::new(
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
            )?,
            start_time: IntGauge::new(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
            )?,
            threads: IntGauge::new("process_threads", "Number of OS threads in the process.")?,
        })
    }

    fn gauges(&self) -> [&IntGauge; 6] {
        [
            &self.open_fds,
            &self.max_fds,
            &self.virtual_memory,
            &self.resident_memory,
            &self.start_time,
            &self.threads,
        ]
    }

    fn update(&self) {
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_fds.set(open.count() as i64);
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            self.max_fds.set(i64::try_from(limit).unwrap_or(i64::MAX));
        }
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let Some(stat) = ProcessStat::parse(&stat) else {
            return;
        };
        let ticks = clock_ticks_per_second();
        let cpu = stat.cpu_ticks as f64 / ticks as f64;
        {
            let _counting = self.counting.lock();
            // Another scrape may have counted more meanwhile.
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
        }
        self.virtual_memory.set(stat.virtual_bytes);
        self.resident_memory
            .set(stat.resident_pages * page_size() as i64);
        self.threads.set(stat.threads);
        if self.start_time.get() == 0
            && let Some(boot) = boot_time()
        {
            self.start_time.set(boot + stat.start_ticks / ticks as i64);
        }
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges().into_iter().flat_map(Collector::desc);
        self.cpu.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.update();
        let gauges = self.gauges().into_iter().flat_map(Collector::collect);
        self.cpu.collect().into_iter().chain(gauges).collect()
    }
}

/// What is used of `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
struct ProcessStat {
    cpu_ticks: u64,
    threads: i64,
    start_ticks: i64,
    virtual_bytes: i64,
    resident_pages: i64,
}

impl ProcessStat {
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program, in brackets, may contain blanks and brackets. The field after it has number 3.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
        Some(Self {
            cpu_ticks: u64::try_from(field(14)? + field(15)?).ok()?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// When the machine started, in seconds since 1970.
fn boot_time() -> Option<i64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "));
    seconds?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 4194304 99 0 0 0 250 50 0 0 20 0 9 0 1234 8192000 500 18446744073709551615 1 1";
        let expected = ProcessStat {
            cpu_ticks: 300,
            threads: 9,
            start_ticks: 1_234,
            virtual_bytes: 8_192_000,
            resident_pages: 500,
        };
        assert_eq!(ProcessStat::parse(stat), Some(expected));
        assert_eq!(ProcessStat::parse("7 (a) R 1"), None);
    }

    #[test]
    fn this_process_has_memory_files_threads_and_a_start() {
        let collector = ProcessCollector::new().unwrap();
        let families = collector.collect();
        assert_eq!(families.len(), 7);
        for gauge in collector.gauges() {
            assert!(gauge.get() > 0, "{:?}", gauge.desc());
        }
    }
}
