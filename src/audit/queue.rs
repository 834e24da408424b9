//! Events on their way to the thread that writes them. Nobody waits to put one in: what finds no room is lost, and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that may wait: some 15,000 events, as when thousands of watches begin or end at once. An event is as long as its
/// request's head at most, so events are not what is counted.
const LEN_MAX: usize = 16 << 20;
/// Bytes that are written between two looks at the queue.
const BATCH_LEN: usize = 256 << 10;

/// See the module. Clones are the same queue.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditQueue(Arc<QueueShared>);

#[derive(Debug, Default)]
struct QueueShared {
    state: Mutex<QueueState>,
    /// Pairs with `state`: lines have come, or the end.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<Vec<u8>>,
    len: usize,
    is_closed: bool,
}

/// A line found no room, or came after the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppedLine;

impl AuditQueue {
    /// Adds a line, if there is room.
    pub(super) fn put(&self, line: Vec<u8>) -> Result<(), DroppedLine> {
        let mut state = self.state();
        if state.is_closed || state.len + line.len() > LEN_MAX {
            return Err(DroppedLine);
        }
        state.len += line.len();
        state.lines.push_back(line);
        let is_first = state.lines.len() == 1;
        drop(state);
        // The writer waits for an empty queue only.
        if is_first {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Waits for lines and takes the oldest; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Vec<u8>>> {
        let mut state = self.state();
        while state.lines.is_empty() {
            if state.is_closed {
                return None;
            }
            let waited = self.0.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let (mut taken, mut len) = (Vec::new(), 0);
        while len < BATCH_LEN
            && let Some(line) = state.lines.pop_front()
        {
            len += line.len();
            taken.push(line);
        }
        state.len -= len;
        Some(taken)
    }

    /// Takes no more lines; those that wait are still to be had.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.0.changed.notify_all();
    }

    /// Waits, until it is closed at the longest. True if it is closed.
    pub(super) fn closes_within(&self, time: Duration) -> bool {
        let state = self.state();
        let waited = self
            .0
            .changed
            .wait_timeout_while(state, time, |state| !state.is_closed);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_closed
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // Nothing panics between two fields that belong together.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let left: Vec<u8> = std::iter::from_fn(|| queue.take())
            .flatten()
            .map(|line| line[0])
            .collect();
        assert_eq!(left, [1, 2, 3, 5]);
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
