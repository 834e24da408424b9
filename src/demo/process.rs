//! What the system says about this process: memory, CPU time, open files. Linux only; zeros elsewhere.

use std::time::Duration;

/// The kernel tells times in hundredths of a second, whatever its own clock is.
const TICK: Duration = Duration::from_millis(10);

/// Memory and CPU time of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) rss_bytes: u64,
    pub(super) cpu: Duration,
}

impl Usage {
    pub(super) fn now() -> Self {
        Self {
            rss_bytes: rss_bytes(&read("/proc/self/status")),
            cpu: cpu(&read("/proc/self/stat")),
        }
    }
}

/// How many files may be open; none if the system does not tell.
pub(super) fn open_files_max() -> Option<usize> {
    let limits = read("/proc/self/limits");
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn rss_bytes(status: &str) -> u64 {
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn cpu(stat: &str) -> Duration {
    // The name, which stands in parentheses, may hold blanks; user and system time are 12th and 13th behind it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u32 = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u32>().ok())
        .sum();
    TICK * ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(
            rss_bytes("VmHWM:\t 9 kB\nVmRSS:\t   1234 kB\n"),
            1234 * 1024
        );
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu(stat), Duration::from_secs(2));
        assert_eq!((rss_bytes(""), cpu("")), (0, Duration::ZERO));
    }
}
