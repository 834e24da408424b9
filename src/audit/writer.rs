//! The thread that writes events. While they cannot be written it keeps the one at hand and tries again: the gateway goes on.

use std::io;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::queue::AuditQueue;
use crate::metrics::{AuditEvents, AuditMetrics};

/// A full disk is looked at again after this.
const RETRY: Duration = if cfg!(test) {
    Duration::from_millis(5)
} else {
    Duration::from_secs(1)
};
/// Trouble that lasts is logged once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What events are written to.
pub(super) trait Output: Send + 'static {
    /// Writes a line. After an error it is called again with the same line, and goes on where it stopped.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()>;

    /// What went wrong besides, so that old files may have stayed.
    fn trouble(&mut self) -> Option<io::Error> {
        None
    }
}

/// Starts the thread. What is returned is told when all is written after the queue was closed.
pub(super) fn start(
    queue: AuditQueue,
    output: impl Output,
    metrics: AuditMetrics,
) -> io::Result<oneshot::Receiver<()>> {
    let (done, is_done) = oneshot::channel();
    let mut writer = AuditWriter {
        queue,
        output,
        metrics,
        logged_at: None,
        is_failing: false,
    };
    let thread = std::thread::Builder::new().name("audit".to_owned());
    // It ends when the queue is closed. If its output blocks for ever it ends with the process.
    thread.spawn(move || {
        writer.run();
        let _ = done.send(());
    })?;
    Ok(is_done)
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

    /// Writes a line, however long that takes. Gives it up only when the queue is closed.
    fn write(&mut self, line: &[u8]) -> bool {
        loop {
            let written = self.output.write_line(line);
            if let Some(error) = self.output.trouble() {
                self.note(&error, "old audit files cannot be removed");
            }
            match written {
                Ok(()) => {
                    if std::mem::take(&mut self.is_failing) {
                        info!("audit events are written again");
                    }
                    return true;
                }
                Err(error) => {
                    self.is_failing = true;
                    self.note(&error, "audit events cannot be written; trying again");
                }
            }
            if self.queue.closes_within(RETRY) {
                return false;
            }
        }
    }

    fn note(&mut self, error: &io::Error, what: &'static str) {
        self.metrics.write_errors.inc();
        let now = Instant::now();
        let is_due = self
            .logged_at
            .is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL);
        if is_due {
            self.logged_at = Some(now);
            let dropped = self.metrics.events.count(AuditEvents::Dropped);
            warn!(%error, dropped, "{what}");
        }
    }
}

#[cfg(test)]
mod tests;
