//! What the system says about this process: memory and CPU time. Linux only; zeros elsewhere.

use std::time::Duration;

use crate::admission::resident;

/// The kernel tells times in hundredths of a second, whatever its own clock is.
const TICK: Duration = Duration::from_millis(10);

/// Memory and CPU time of the process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    pub(super) rss_bytes: u64,
    pub(super) cpu: Duration,
}

impl ProcessUsage {
    pub(super) fn now() -> Self {
        Self {
            rss_bytes: resident().unwrap_or_default() as u64,
            cpu: cpu(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default()),
        }
    }
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
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu(stat), Duration::from_secs(2));
        assert_eq!(cpu(""), Duration::ZERO);
    }
}
