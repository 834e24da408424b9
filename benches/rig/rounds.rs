//! How the benches measure: several rounds, their median, and CPU time in addition to wall time.
//!
//! CPU time comes from the scheduler's accounting (`/proc/…/schedstat`, in nanoseconds), so other load on the machine slows a bench down
//! but hardly changes its figures.

use std::time::Duration;
use std::{fs, io};

/// The amount of work: enough for stable figures, or just enough to see that the bench works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For figures.
    Full,
    /// `--quick` or `--test`: the figures mean nothing.
    Quick,
}

impl Effort {
    pub(crate) fn of_arguments() -> Self {
        let quick = std::env::args().any(|word| word == "--quick" || word == "--test");
        if quick { Self::Quick } else { Self::Full }
    }

    /// Returns the first amount for a full run and the second for a quick one.
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Runs `work` on this thread and returns the CPU time that it used.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_cpu();
    let result = work();
    (result, thread_cpu().saturating_sub(before))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    // The scheduler accounts for a running thread at ticks only; yielding updates its count.
    std::thread::yield_now();
    schedstat("/proc/thread-self/schedstat")
}

fn schedstat(path: &str) -> Duration {
    // A thread that has ended counts as zero.
    let text = fs::read_to_string(path).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// CPU time of all threads of a process; exact for threads that are not running.
pub(crate) fn process_cpu(pid: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    threads
        .flatten()
        .filter_map(|thread| {
            let path = thread.path().join("schedstat");
            path.to_str().map(schedstat)
        })
        .sum()
}

/// User time of all current and former threads of a process, without system calls. In steps of 10 ms.
#[allow(dead_code, reason = "the benches use different parts of it")]
pub(crate) fn process_user(pid: u32) -> Duration {
    // Skip the program's name, which may contain spaces.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().nth(11);
    let ticks: u64 = ticks.and_then(|word| word.parse().ok()).unwrap_or(0);
    Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Anonymous resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> io::Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse::<usize>().ok())
        .map(|kib| kib << 10)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The median; for an even number of figures the upper of the two middle ones.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds per step, for `count` steps.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn nanos_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}
