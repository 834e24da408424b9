//! CPU time and memory of processes and of the machine, and limits of open files, as `/proc` has them.

pub mod series;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU and memory of one process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    pub user: Duration,
    /// Resident memory, bytes.
    pub rss: u64,
    /// Peak of resident memory, bytes: since the start, or since [`Usage::forget_peak`].
    pub peak_rss: u64,
}

impl Usage {
    pub fn of(pid: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid}"))?;
        // The second field is the program's name in parentheses and may hold blanks.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let ticks = |at: usize| {
            fields
                .get(at)
                .and_then(|text| text.parse::<u64>().ok())
                .with_context(|| format!("/proc/{pid}/stat"))
        };
        let (user, system) = (ticks_time(ticks(11)?), ticks_time(ticks(12)?));
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib: u64 = line
                .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
                .unwrap_or(0);
            kib * 1024
        };
        Ok(Self {
            cpu: user + system,
            user,
            rss: bytes("VmRSS:"),
            peak_rss: bytes("VmHWM:"),
        })
    }

    /// Resets a process's peak; without permission the peak stays as it is.
    pub fn forget_peak(pid: u32) {
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }

    /// Usage of this process. Its CPU time has the resolution of the clock; that of other processes has the resolution of ticks.
    pub fn own() -> Result<Self> {
        let clock = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(u64::try_from(clock.tv_sec)?, u32::try_from(clock.tv_nsec)?);
        Ok(Self {
            cpu,
            ..Self::of(std::process::id())?
        })
    }
}

/// Whether a process has ended, also if its parent has not waited for it.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state follows the program's name in parentheses.
    let is_dead = |stat: String| {
        let (_, state) = stat.rsplit_once(") ").unwrap_or_default();
        state.starts_with(['Z', 'X'])
    };
    stat.map_or(true, is_dead)
}

fn ticks_time(ticks: u64) -> Duration {
    Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// CPU time of all processors since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineCpu {
    /// Total time, idle time included.
    pub total: Duration,
    /// Time that was not idle.
    pub busy: Duration,
    /// Part of the busy time that soft interrupts took: the kernel's work for sockets that no process is charged for.
    pub softirq: Duration,
}

impl MachineCpu {
    pub fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Self::parse(&text).context("/proc/stat")
    }

    /// Parses the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal; the rest is part of user and nice already.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .take(8)
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let [_, _, _, idle, iowait, _, softirq, ..] = *ticks.as_slice() else {
            return None;
        };
        let total: u64 = ticks.iter().sum();
        Some(Self {
            total: ticks_time(total),
            busy: ticks_time(total - idle - iowait),
            softirq: ticks_time(softirq),
        })
    }

    /// The difference to an earlier reading.
    pub fn since(self, then: Self) -> Self {
        Self {
            total: self.total.saturating_sub(then.total),
            busy: self.busy.saturating_sub(then.busy),
            softirq: self.softirq.saturating_sub(then.softirq),
        }
    }

    /// The share that was busy, in percent.
    pub fn busy_percent(self) -> f64 {
        self.percent(self.busy)
    }

    /// The share that soft interrupts took, in percent.
    pub fn softirq_percent(self) -> f64 {
        self.percent(self.softirq)
    }

    fn percent(self, of: Duration) -> f64 {
        of.as_secs_f64() / self.total.as_secs_f64().max(1e-9) * 100.0
    }
}

/// Raises the hard limit of open files for programs that this process starts.
pub fn allow_open_files(files: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let Some(hard) = limit.maximum.filter(|hard| *hard < files) else {
        return Ok(());
    };
    let raised = Rlimit {
        current: limit.current,
        maximum: Some(files),
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Ok(()),
        Err(_) => bail!(
            "{files} open files are needed, the hard limit is {hard}: raise it (ulimit -Hn {files})"
        ),
    }
}

/// Raises the soft limit of open files to the number that `connections` need.
pub fn raise_open_files(connections: usize) -> Result<()> {
    /// Files besides the connections: epoll, the writer's and the reference's connections, standard streams.
    const BESIDES: u64 = 128;
    let needed = connections as u64 + BESIDES;
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if needed > hard {
        bail!(
            "{connections} connections need {needed} open files, the hard limit is {hard}: raise it (ulimit -Hn {needed}) or use --http2"
        );
    }
    if limit.current.is_some_and(|soft| soft < needed) {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(needed),
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! CPU time of the machine, limits of open files, and ended processes.

    use super::*;

    #[test]
    fn more_open_files_than_any_process_may_have_are_refused_in_one_line() {
        allow_open_files(1).unwrap();
        let error = allow_open_files(1 << 40).unwrap_err().to_string();
        assert!(
            error.starts_with("1099511627776 open files are needed"),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended_too() {
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let started = std::time::Instant::now();
        while !has_ended(child.id()) {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "it does not end"
            );
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }

    #[test]
    fn the_machines_time_is_that_of_all_processors() {
        let of = |line: &str| MachineCpu::parse(&format!("cpu  {line}\ncpu0 1 1 1 1 1 1 1 1\n"));
        let before = of("100 0 100 700 100 0 0 0 0 0").unwrap();
        let after = of("130 10 120 740 110 0 20 20 9 9").unwrap();
        let between = after.since(before);
        let hundredths = |share: f64| (share * 100.0).round();
        // Of 150 ticks 50 were idle or waited for a disk.
        assert_eq!(hundredths(between.busy_percent()), 6_667.0);
        assert_eq!(hundredths(between.softirq_percent()), 1_333.0);
        assert_eq!(of("1 2 3"), None);
        assert!(MachineCpu::now().unwrap().busy > Duration::ZERO);
    }
}
