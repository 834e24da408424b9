//! The bounded queue between requests and the thread that writes events. Adding an event never waits: if the queue is full, the event is
//! dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Bytes that may wait to be written: about 15,000 events, as when thousands of watches begin or end at once. The bound is in
/// bytes because the length of an event varies: it can be as long as its request's head.
const LEN_MAX: usize = 16 << 20;
/// The writer takes lines from the queue in batches of at least this many bytes, if there are so many.
const BATCH_LEN: usize = 256 << 10;

/// Lines that wait to be written. Clones share the same queue.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditQueue(Arc<QueueShared>);

#[derive(Debug, Default)]
struct QueueShared {
    state: Mutex<QueueState>,
    /// Signals that the empty queue got a line, or that the queue was closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    len: usize,
    is_closed: bool,
}

/// The line was not added: the queue is full or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppedLine;

impl AuditQueue {
    /// Adds a line, unless the queue is full or closed.
    pub(super) fn put(&self, line: Vec<u8>) -> Result<(), DroppedLine> {
        let mut state = self.state();
        if state.is_closed || state.len + line.len() > LEN_MAX {
            return Err(DroppedLine);
        }
        state.len += line.len();
        state.lines.push_back(line);
        let is_first = state.lines.len() == 1;
        drop(state);
        // The writer waits only while the queue is empty.
        if is_first {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Waits for lines and takes the oldest ones; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state();
        while state.lines.is_empty() {
            if state.is_closed {
                return None;
            }
            self.0.changed.wait(&mut state);
        }
        let (mut batch, mut len) = (Vec::new(), 0);
        while len < BATCH_LEN
            && let Some(line) = state.lines.pop_front()
        {
            len += line.len();
            batch.push(line);
        }
        state.len -= len;
        Some(batch)
    }

    /// Rejects lines from now on. Lines that are already queued can still be taken.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.0.changed.notify_all();
    }

    /// Waits until the queue is closed, at most `timeout`. Returns whether it is closed.
    pub(super) fn closes_within(&self, timeout: Duration) -> bool {
        let mut state = self.state();
        let is_open = |state: &mut QueueState| !state.is_closed;
        self.0.changed.wait_while_for(&mut state, is_open, timeout);
        state.is_closed
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code panics between changes of fields that belong together, so the state is consistent after a panic.
        self.0.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_lost_and_the_oldest_come_first() {
        let queue = AuditQueue::default();
        let line = |number: u8| vec![number; LEN_MAX / 4];
        for number in 0..4 {
            queue.put(line(number)).unwrap();
        }
        assert_eq!(queue.put(vec![4]), Err(DroppedLine));
        assert_eq!(queue.take(), Some(vec![line(0)]));
        queue.put(vec![5]).unwrap();
        queue.close();
        assert_eq!(queue.put(vec![6]), Err(DroppedLine));
        let remaining: Vec<u8> = std::iter::from_fn(|| queue.take())
            .flatten()
            .map(|line| line[0])
            .collect();
        assert_eq!(remaining, [1, 2, 3, 5]);
    }

    #[test]
    fn a_writer_that_waits_is_woken_by_a_line_and_by_the_end() {
        let queue = AuditQueue::default();
        let waiting = queue.clone();
        let writer =
            std::thread::spawn(move || std::iter::from_fn(|| waiting.take()).flatten().count());
        queue.put(vec![1]).unwrap();
        queue.put(vec![2]).unwrap();
        queue.close();
        assert_eq!(writer.join().unwrap(), 2);
        assert!(queue.closes_within(Duration::MAX));
    }
}
