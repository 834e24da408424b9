//! Facts about the machine, and its load.

use std::fs::read_to_string;
use std::time::Duration;

use crate::process::MachineCpu;
use crate::report::Machine;

/// The machine that runs are made on, and how busy it was.
pub fn facts(busy_before: f64) -> Machine {
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    Machine {
        cores: std::thread::available_parallelism().map_or(1, Into::into),
        processor,
        memory_mib: kib(&memory) / 1_024,
        kernel: read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        load_before: load(),
        busy_before,
    }
}

/// Share of all processors that is busy during this time, %.
pub async fn busy(wait: Duration) -> f64 {
    let before = MachineCpu::now().unwrap_or_default();
    tokio::time::sleep(wait).await;
    let after = MachineCpu::now().unwrap_or_default();
    after.since(before).busy_percent()
}

/// Load averages over 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The current time, RFC 3339, to the second.
pub fn now() -> String {
    let now = k8s_openapi::jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The first value of a `name: value` file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kib(text: &str) -> u64 {
    text.trim_end_matches(" kB").parse().unwrap_or(0)
}
