//! Settings of the process, the same for every command.

use std::ops::RangeInclusive;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::settings_error::{SettingsError, in_range, time_in};
use crate::cli::{self, LogFormat, LogLevel};
use crate::log_filter::LogFilter;

/// Settings that every command has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// Format of the log.
    pub log_format: LogFormat,
    /// Least severe level that is logged.
    pub log_level: LogLevel,
    /// Levels of single modules, and of all others if it has one for them.
    pub log_filter: Option<LogFilter>,
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
const DRAIN_SECONDS: RangeInclusive<u64> = 0..=3_600;

impl ProcessSettings {
    pub(super) fn resolve(flags: &cli::ProcessFlags) -> Result<Self, SettingsError> {
        let worker_threads = match flags.worker_threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            count => in_range("worker-threads", count, 1, WORKER_THREADS_MAX)?,
        };
        let drain_timeout = time_in("drain-timeout", flags.drain_timeout, DRAIN_SECONDS)?;
        Ok(Self {
            log_format: flags.log_format,
            log_level: flags.log_level,
            log_filter: flags.log_filter.clone(),
            worker_threads,
            drain_timeout,
            drain_delay: in_range(
                "drain-delay",
                flags.drain_delay,
                cli::TimeSpan(Duration::ZERO),
                cli::TimeSpan(drain_timeout),
            )?
            .0,
        })
    }

    /// The filter of the log.
    #[must_use]
    pub fn filter(&self) -> LogFilter {
        let level = match self.log_level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        };
        match &self.log_filter {
            Some(filter) => filter.clone().or_level(level),
            None => LogFilter::of_level(level),
        }
    }
}
