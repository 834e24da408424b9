//! Settings of the process, the same for every command.

use std::time::Duration;

use super::settings_error::{SettingsError, in_range};
use crate::cli::{self, LogFormat, LogLevel};

/// Settings that every command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Format of the log.
    pub log_format: LogFormat,
    /// Least severe level that is logged.
    pub log_level: LogLevel,
    /// Number of the runtime's worker threads, at least 1.
    pub worker_threads: usize,
    /// Longest orderly shutdown.
    pub drain_timeout: Duration,
    /// How long new clients are served after the start of the shutdown; at most `drain_timeout`.
    pub drain_delay: Duration,
}

/// More than any machine has CPUs; a larger number is a typing error.
const WORKER_THREADS_MAX: usize = 1_024;

/// A longer shutdown than an hour is a typing error.
const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

impl ProcessSettings {
    pub(super) fn resolve(flags: &cli::ProcessFlags) -> Result<Self, SettingsError> {
        let worker_threads = match flags.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            count => in_range("worker-threads", count, 1, WORKER_THREADS_MAX)?,
        };
        let drain_timeout = in_range(
            "drain-timeout",
            flags.drain_timeout,
            cli::TimeSpan(Duration::ZERO),
            cli::TimeSpan(DRAIN_TIMEOUT_MAX),
        )?;
        Ok(Self {
            log_format: flags.log_format,
            log_level: flags.log_level,
            worker_threads,
            drain_timeout: drain_timeout.0,
            drain_delay: in_range(
                "drain-delay",
                flags.drain_delay,
                cli::TimeSpan(Duration::ZERO),
                drain_timeout,
            )?
            .0,
        })
    }
}
