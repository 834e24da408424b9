//! What the system says about processes: CPU time, memory, open-file limits.

pub mod piped;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU and memory of one process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss: u64,
    /// The most there was of it, bytes: ever, or since [`Usage::forget_peak`].
    pub peak_rss: u64,
}

impl Usage {
    /// Reads `/proc/PID`.
    ///
    /// # Errors
    /// If there is no such process.
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
        let cpu_ticks = ticks(11)? + ticks(12)?;
        let cpu = Duration::from_nanos(
            cpu_ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()),
        );
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib: u64 = line
                .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
                .unwrap_or(0);
            kib * 1024
        };
        Ok(Self {
            cpu,
            rss: bytes("VmRSS:"),
            peak_rss: bytes("VmHWM:"),
        })
    }

    /// Lets a process' peak begin anew; without the right to do so it stays as it was.
    pub fn forget_peak(pid: u32) {
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }

    /// This process.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }
}

/// What this process has used since it began.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// User and system time of all threads, finer than [`Usage`] has it.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub rss: u64,
    /// The most there was of it, bytes.
    pub peak_rss: u64,
}

impl Used {
    /// Until now.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn now() -> Result<Self> {
        let clock = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(u64::try_from(clock.tv_sec)?, u32::try_from(clock.tv_nsec)?);
        let status = std::fs::read_to_string("/proc/self/status")?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
            kib.map(|kib| kib * 1024)
                .with_context(|| format!("/proc/self/status: {name}"))
        };
        Ok(Self {
            cpu,
            rss: bytes("VmRSS:")?,
            peak_rss: bytes("VmHWM:")?,
        })
    }
}

/// Raises the soft limit of open files to what `connections` need.
///
/// # Errors
/// If the hard limit is lower; the message says how to raise it.
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
