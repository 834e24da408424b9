//! Log lines on their way to standard error, written by a thread of their own: whoever reads the log slowly, or not at
//! all, must not stall a worker and with it everybody whom that worker serves.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait: some seconds of a very bad day, a few hundred kilobytes.
const LINES_MAX: usize = 4096;

/// Where log lines are put. What finds no room is lost and counted; the count is written when there is room again.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    lines: Sender<Vec<u8>>,
    lost: Arc<Mutex<u64>>,
}

/// Ends the thread, with all lines written, when dropped.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// Closes the queue: an empty line is never logged.
    lines: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl LogQueue {
    /// Starts the thread.
    pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<(Self, LogEnd)> {
        let (sender, receiver) = bounded(LINES_MAX);
        let lost = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&lost);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_all(&receiver, &seen, output))?;
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
        // A log that cannot be written is nobody's failure but its reader's.
        let _ = output.write_all(&line);
        let lost = std::mem::take(&mut *lost.lock().unwrap_or_else(PoisonError::into_inner));
        if lost > 0 {
            let _ = writeln!(
                output,
                "kube-fanout: {lost} log lines were lost: nobody read them in time"
            );
        }
    }
}

impl Drop for LogEnd {
    fn drop(&mut self) {
        // Waits for room, if the queue is full: what was logged before the end is what people look for.
        if self.lines.send(Vec::new()).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // It ends with the line just sent; a panic in it has lost nothing but the log.
            let _ = thread.join();
        }
    }
}

/// One line; the subscriber writes it whole.
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

    /// An output that takes a line only when it is let.
    struct Gated {
        let_in: Gate<()>,
        written: SyncSender<String>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.let_in.recv();
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
        let (let_in, gate) = sync_channel(0);
        let (written, lines) = sync_channel(2 * LINES_MAX);
        let (mut queue, end) = LogQueue::start(Gated {
            let_in: gate,
            written,
        })
        .unwrap();
        // One is in the thread's hands or waits, so at most one more than the bound is kept.
        for number in 0..LINES_MAX + 10 {
            // Whole, as the subscriber writes.
            queue
                .write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        drop(let_in);
        drop(end);
        let lines: String = lines.try_iter().collect();
        assert!(
            lines.starts_with("line 0\n"),
            "the first lines are the ones that stay"
        );
        assert!(lines.contains("log lines were lost"));
    }
}
