//! The thread that writes events. If an event cannot be written, the thread retries until it can; requests are not affected.

use std::io;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::queue::AuditQueue;
use crate::metrics::{AuditEvents, AuditMetrics};

/// Pause between attempts to write a line.
const RETRY: Duration = if cfg!(test) {
    Duration::from_millis(5)
} else {
    Duration::from_secs(1)
};
/// A failure that lasts is logged once per interval.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Where events are written to.
pub(super) trait Output: Send + 'static {
    /// Writes a line. After an error the caller repeats the call with the same line, and writing continues where it stopped.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()>;
}

/// Starts the thread. The returned receiver completes when the queue was closed and every line was written or dropped.
pub(super) fn start(
    queue: AuditQueue,
    output: impl Output,
    metrics: AuditMetrics,
) -> io::Result<oneshot::Receiver<()>> {
    let (finished, receiver) = oneshot::channel();
    let mut writer = AuditWriter {
        queue,
        output,
        metrics,
        logged_at: None,
        is_failing: false,
    };
    let thread = std::thread::Builder::new().name("audit".to_owned());
    // The thread ends when the queue is closed, or with the process if its output blocks forever.
    thread.spawn(move || {
        writer.run();
        let _ = finished.send(());
    })?;
    Ok(receiver)
}

struct AuditWriter<O> {
    queue: AuditQueue,
    output: O,
    metrics: AuditMetrics,
    logged_at: Option<Instant>,
    is_failing: bool,
}

impl<O: Output> AuditWriter<O> {
    fn run(&mut self) {
        while let Some(lines) = self.queue.take() {
            for line in lines {
                let outcome = if self.write(&line) {
                    AuditEvents::Written
                } else {
                    AuditEvents::Dropped
                };
                self.metrics.events.inc(outcome);
            }
        }
    }

    /// Writes a line, and retries until that succeeds or the queue is closed. Returns whether the line was written.
    fn write(&mut self, line: &[u8]) -> bool {
        loop {
            let written = self.output.write_line(line);
            match written {
                Ok(()) => {
                    if std::mem::take(&mut self.is_failing) {
                        info!("audit events are written again");
                    }
                    return true;
                }
                Err(error) => {
                    self.is_failing = true;
                    self.report(&error, "cannot write audit events; retrying");
                }
            }
            if self.queue.closes_within(RETRY) {
                return false;
            }
        }
    }

    /// Counts a failure, and logs it if that is due.
    fn report(&mut self, error: &io::Error, message: &'static str) {
        self.metrics.write_errors.inc();
        let now = Instant::now();
        let is_due = self
            .logged_at
            .is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL);
        if is_due {
            self.logged_at = Some(now);
            let dropped = self.metrics.events.count(AuditEvents::Dropped);
            warn!(%error, dropped, "{message}");
        }
    }
}

#[cfg(test)]
mod tests;
