//! Loom models of the inbox: streams that are woken and arrivals, beside a worker that takes what is there when it is woken. Both
//! fail when the worker's waker is noted under a lock of its own, after the names are taken; the first when a stream stays noted.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::*;

struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Ordered, as waking a task is.
        self.0.swap(true, Ordering::AcqRel);
    }
}

struct Worker {
    inbox: Arc<Inbox<()>>,
    task: Arc<Task>,
    /// What has come for the streams; Relaxed, because the inbox alone must order it.
    came: Arc<AtomicUsize>,
    seen: usize,
    arrived: usize,
}

impl Worker {
    fn new() -> Self {
        Self {
            inbox: Arc::default(),
            task: Arc::new(Task(AtomicBool::new(true))),
            came: Arc::new(AtomicUsize::new(0)),
            seen: 0,
            arrived: 0,
        }
    }

    /// Polls it if it was woken.
    fn turn(&mut self) -> bool {
        let is_woken = self.task.0.swap(false, Ordering::AcqRel);
        if is_woken {
            let (mut names, mut arrivals) = (Vec::new(), VecDeque::new());
            let waker = Waker::from(Arc::clone(&self.task));
            self.inbox.take(&mut names, &mut arrivals, &waker);
            if !names.is_empty() {
                self.seen = self.came.load(Ordering::Relaxed);
            }
            self.arrived += arrivals.len();
        }
        is_woken
    }

    fn wakes(&self, name: WakeToken) -> impl FnOnce() + 'static {
        let (waker, came) = (waker(&self.inbox, name), Arc::clone(&self.came));
        move || {
            came.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }
    }
}

fn check(names: [WakeToken; 2]) {
    loom::model(move || {
        let mut worker = Worker::new();
        let [first, second] = names.map(|name| worker.wakes(name));
        let first = thread::spawn(first);
        let inbox = Arc::clone(&worker.inbox);
        let second = thread::spawn(move || {
            second();
            inbox.arrives(Box::new(()));
        });
        worker.turn();
        worker.turn();
        first.join().unwrap();
        second.join().unwrap();
        while worker.turn() {}
        assert_eq!((worker.seen, worker.arrived), (2, 1));
    });
}

#[test]
fn a_stream_woken_twice_is_looked_at_after_the_second_time() {
    check([WakeToken::Stream(0); 2]);
}

#[test]
fn nobody_woken_beside_another_is_missed() {
    check([WakeToken::Stream(0), WakeToken::Group(0)]);
}
