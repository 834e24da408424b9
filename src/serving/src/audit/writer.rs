//! The thread that writes events. If an event cannot be written, the thread retries until it can; requests are not affected.

use std::io;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::queue::AuditQueue;
use crate::log_limit::FaultLog;
use crate::metrics::{AuditEvents, AuditMetrics};

/// Pause between attempts to write a line.
const RETRY: Duration = if cfg!(test) {
    Duration::from_millis(5)
} else {
    Duration::from_secs(1)
};

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
        fault_log: FaultLog::default(),
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
    fault_log: FaultLog<(&'static str, io::ErrorKind)>,
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
                    if std::mem::take(&mut self.is_failing) && self.fault_log.end() {
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
        if self.fault_log.is_due((message, error.kind())) {
            let dropped = self.metrics.events.count(AuditEvents::Dropped);
            warn!(%error, dropped, "{message}");
        }
    }
}

#[cfg(test)]
mod tests;
