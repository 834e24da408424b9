//! A bounded queue of log lines and the thread that writes them to standard error. If the log is read slowly, or not at all,
//! lines are dropped and counted; no worker thread ever waits for the log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written: a few hundred kilobytes.
const LINES_MAX: usize = 4096;

/// The sending half. A line that finds the queue full is dropped and counted; the count is logged when lines are written again.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    lines: Sender<Vec<u8>>,
    lost: Arc<Mutex<u64>>,
}

/// When dropped, waits until all queued lines are written, and ends the thread.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// An empty line ends the thread; the subscriber never logs one.
    lines: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl LogQueue {
    /// Starts the thread that writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<(Self, LogEnd)> {
        let (sender, receiver) = bounded(LINES_MAX);
        let lost = Arc::new(Mutex::new(0));
        let lost_by_queue = Arc::clone(&lost);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&receiver, &lost_by_queue, output))?;
        let queue = Self {
            lines: sender.clone(),
            lost,
        };
        Ok((
            queue,
            LogEnd {
                lines: sender,
                thread: Some(thread),
            },
        ))
    }
}

fn write_all(lines: &Receiver<Vec<u8>>, lost: &Mutex<u64>, mut output: impl Write) {
    for line in lines {
        if line.is_empty() {
            return;
        }
        // There is nowhere to report that the log itself cannot be written.
        let _ = output.write_all(&line);
        let lost = std::mem::take(&mut *lost.lock().unwrap_or_else(PoisonError::into_inner));
        if lost > 0 {
            let _ = writeln!(
                output,
                "kube-fanout: {lost} log lines were lost: standard error was not read in time"
            );
        }
    }
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        // Blocks while the queue is full: the last lines before the exit are the most important ones.
        if self.lines.send(Vec::new()).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // The thread ends at the empty line. If it panicked, only log lines were lost.
            let _ = thread.join();
        }
    }
}

/// Each call of `write` is one whole line, as the subscriber formats it.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line.to_vec()) {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogQueue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver as Gate, SyncSender, sync_channel};

    use super::*;

    /// An output that blocks in `write` until the test releases it.
    struct Gated {
        release: Gate<()>,
        written: SyncSender<String>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.release.recv();
            let _ = self
                .written
                .send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_says_what_was_lost() {
        let (release, gate) = sync_channel(0);
        let (written, lines) = sync_channel(2 * LINES_MAX);
        let (mut queue, end) = LogQueue::start(Gated {
            release: gate,
            written,
        })
        .unwrap();
        // The thread holds one line, so at most `LINES_MAX + 1` lines are kept.
        for number in 0..LINES_MAX + 10 {
            queue
                .write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        drop(release);
        drop(end);
        let lines: String = lines.try_iter().collect();
        assert!(
            lines.starts_with("line 0\n"),
            "the oldest lines are kept"
        );
        assert!(lines.contains("log lines were lost"));
    }
}
