//! The work on the file of one checkpoint, in the order in which it was asked for: a file that was removed does not come back because an
//! earlier write ended later.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::blocking::spawn_blocking;

/// How often a file was removed. What was begun before a removal must not write afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileGeneration(u64);

/// The queue of one file, shared by all slots of its cache. Each slot waits for its own work, so that the queue is short.
#[derive(Clone, Debug, Default)]
pub(super) struct FileQueue(Arc<Mutex<FileQueueState>>);

#[derive(Debug, Default)]
struct FileQueueState {
    generation: FileGeneration,
    /// Ends when all work that was asked for is done.
    last: Option<JoinHandle<()>>,
}

impl FileQueue {
    pub(super) fn generation(&self) -> FileGeneration {
        self.0.lock().generation
    }

    /// Whether others share the queue.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Runs this on a thread for blocking work, after all that was asked for before. The result never comes if the work panics.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.0.lock().enqueue(work)
    }

    /// The same for writing; `None` if the file was removed since that generation.
    pub(super) fn write<T: Send + 'static>(
        &self,
        generation: FileGeneration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<Option<T>> {
        let this = self.clone();
        self.run(move || (this.generation() == generation).then(work))
    }

    /// The same for removing the file.
    pub(super) fn remove(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        state.generation.0 += 1;
        // Nobody waits for it.
        drop(state.enqueue(work));
    }
}

impl FileQueueState {
    fn enqueue<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, result) = oneshot::channel();
        let before = self.last.take();
        self.last = Some(tokio::spawn(async move {
            if let Some(before) = before {
                // A panic concerns only those who wait for that work.
                let _ = before.await;
            }
            let work = spawn_blocking(move || {
                // The caller may have left.
                let _ = sender.send(work());
            });
            let _ = work.await;
        }));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_that_is_removed_while_it_is_written_stays_removed() {
        let (queue, file) = (FileQueue::default(), Arc::new(Mutex::new(None)));
        let write = |queue: &FileQueue, generation, content: &'static str| {
            let file = Arc::clone(&file);
            queue.write(generation, move || *file.lock() = Some(content))
        };
        let first = queue.generation();
        let (begun, has_begun) = mpsc::sync_channel(1);
        let (go_on, may_go_on) = mpsc::sync_channel::<()>(1);
        let slow = {
            let file = Arc::clone(&file);
            queue.write(first, move || {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                *file.lock() = Some("old");
            })
        };
        has_begun.recv().unwrap();
        let late = write(&queue, first, "older");
        let removed = Arc::clone(&file);
        queue.remove(move || *removed.lock() = None);
        let never = write(&queue, first, "too old");
        go_on.send(()).unwrap();
        assert_eq!(slow.await.unwrap(), Some(()));
        assert_eq!((late.await.unwrap(), never.await.unwrap()), (None, None));
        assert_eq!(queue.run(|| ()).await, Ok(()));
        assert_eq!(*file.lock(), None);
        // The next cache's writes count.
        let second = write(&queue, queue.generation(), "new");
        assert_eq!(second.await.unwrap(), Some(()));
        assert_eq!(*file.lock(), Some("new"));
    }

    #[tokio::test]
    async fn work_that_panics_does_not_hold_up_the_rest() {
        let queue = FileQueue::default();
        let panicked = queue.run(|| panic!("planted"));
        assert_eq!(queue.run(|| 7).await, Ok(7));
        assert!(panicked.await.is_err());
    }
}
