//! Tests with outputs that block or fail.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::*;
use crate::metrics::Metrics;

/// Fails a test that hangs; far longer than any step of these tests takes.
const GUARD: Duration = Duration::from_secs(60);

/// An output that waits before each line until the test sends a result for it.
struct Gated {
    results: Receiver<io::Result<()>>,
    lines: SyncSender<Vec<u8>>,
}

impl Output for Gated {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        // Once the test has dropped its sender, every line succeeds.
        self.results.recv().unwrap_or(Ok(()))?;
        let _ = self.lines.send(line.to_vec());
        Ok(())
    }
}

struct Stage {
    queue: AuditQueue,
    results: SyncSender<io::Result<()>>,
    lines: Receiver<Vec<u8>>,
    metrics: AuditMetrics,
    written: oneshot::Receiver<()>,
}

fn stage() -> Stage {
    let (results, gate) = sync_channel(0);
    let (sender, lines) = sync_channel(64);
    let (queue, metrics) = (AuditQueue::default(), Metrics::new().unwrap().audit());
    let output = Gated {
        results: gate,
        lines: sender,
    };
    let written = start(queue.clone(), output, metrics.clone()).unwrap();
    Stage {
        queue,
        results,
        lines,
        metrics,
        written,
    }
}

#[test]
fn a_stalled_output_holds_nobody_up_and_what_finds_no_room_is_lost() {
    let stage = stage();
    let line = vec![b'x'; 1 << 20];
    // `put` returns although the output writes nothing.
    let lost = (0..64)
        .filter(|_| stage.queue.put(line.clone()).is_err())
        .count();
    // The writer may hold one batch of its own.
    assert!((47..=48).contains(&lost), "{lost}");
    drop(stage.results);
    stage.queue.close();
    stage.written.blocking_recv().unwrap();
    assert_eq!(stage.lines.try_iter().count(), 64 - lost);
    assert_eq!(
        stage.metrics.events.count(AuditEvents::Written),
        64 - lost as u64
    );
}

#[test]
fn a_line_that_cannot_be_written_is_kept_until_it_can() {
    let stage = stage();
    stage.queue.put(b"a\n".to_vec()).unwrap();
    stage.queue.put(b"b\n".to_vec()).unwrap();
    stage
        .results
        .send(Err(io::ErrorKind::StorageFull.into()))
        .unwrap();
    stage
        .results
        .send(Err(io::ErrorKind::StorageFull.into()))
        .unwrap();
    drop(stage.results);
    assert_eq!(stage.lines.recv_timeout(GUARD).unwrap(), b"a\n");
    assert_eq!(stage.lines.recv_timeout(GUARD).unwrap(), b"b\n");
    assert_eq!(stage.metrics.write_errors.get(), 2);
}

#[test]
fn at_the_end_each_line_is_tried_once_more_and_then_counted_as_lost() {
    let stage = stage();
    for line in [b"a\n", b"b\n"] {
        stage.queue.put(line.to_vec()).unwrap();
    }
    stage.queue.close();
    stage
        .results
        .send(Err(io::ErrorKind::StorageFull.into()))
        .unwrap();
    stage.results.send(Ok(())).unwrap();
    stage.written.blocking_recv().unwrap();
    assert_eq!(stage.lines.try_iter().collect::<Vec<_>>(), [b"b\n"]);
    let count = |outcome| stage.metrics.events.count(outcome);
    assert_eq!(
        (count(AuditEvents::Written), count(AuditEvents::Dropped)),
        (1, 1)
    );
}
