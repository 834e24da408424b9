//! How the benches measure: several rounds, the median of them, CPU time besides wall time. Decides nothing of what is measured.
//!
//! CPU time comes from the scheduler's own count (`/proc/…/schedstat`, nanoseconds), so a machine that is busy with
//! something else slows a bench down but hardly changes its figures.

use std::time::Duration;
use std::{fs, io};

/// How much is done: enough for steady figures, or just enough to see that it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// For figures.
    Full,
    /// `--quick` or `--test`: figures mean nothing.
    Quick,
}

impl Effort {
    pub(crate) fn of_arguments() -> Self {
        let quick = std::env::args().any(|word| word == "--quick" || word == "--test");
        if quick { Self::Quick } else { Self::Full }
    }

    /// Either of two amounts.
    pub(crate) fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Does `work` on this thread and tells the CPU time it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = thread_cpu();
    let result = work();
    (result, thread_cpu().saturating_sub(before))
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    // A thread that runs is accounted for at ticks only; yielding brings its count up to date.
    std::thread::yield_now();
    schedstat("/proc/thread-self/schedstat")
}

fn schedstat(path: &str) -> Duration {
    // A thread that is gone by now counts for nothing.
    let text = fs::read_to_string(path).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// CPU time of all threads that a process has; exact for those that wait.
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

/// User time of all threads that a process has or had: the kernel's share of a write is not in it. In steps of 10 ms.
#[allow(dead_code, reason = "the benches use different parts of it")]
pub(crate) fn process_user(pid: u32) -> Duration {
    // The fields behind the program's name, which may hold blanks.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().nth(11);
    let ticks: u64 = ticks.and_then(|word| word.parse().ok()).unwrap_or(0);
    Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// Resident bytes of a process that no file backs.
pub(crate) fn resident(pid: u32) -> io::Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse::<usize>().ok())
        .map(|kib| kib << 10)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The middle one of some figures; of an even number the upper of the two.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nanoseconds of each of `count` steps.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn nanos_each(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count.max(1) as f64
}
