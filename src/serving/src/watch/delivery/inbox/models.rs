//! Loom models of the inbox: streams are woken and new ones arrive while a worker takes the content when it is woken. Both models
//! fail if the worker's waker is stored under a lock of its own, after the tokens are taken; the first fails if a stream stays
//! marked as noted.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use super::*;

struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Ordered like the wake-up of a task.
        self.0.swap(true, Ordering::AcqRel);
    }
}

struct Worker {
    inbox: Arc<Inbox<()>>,
    task: Arc<Task>,
    /// Number of wake-ups sent. Relaxed, because the inbox alone must order it.
    sent: Arc<AtomicUsize>,
    seen: usize,
    arrived: usize,
}

impl Worker {
    fn new() -> Self {
        Self {
            inbox: Arc::default(),
            task: Arc::new(Task(AtomicBool::new(true))),
            sent: Arc::new(AtomicUsize::new(0)),
            seen: 0,
            arrived: 0,
        }
    }

    /// Polls the worker if it was woken; returns whether it was.
    fn turn(&mut self) -> bool {
        let is_woken = self.task.0.swap(false, Ordering::AcqRel);
        if is_woken {
            let (mut tokens, mut arrivals) = (Vec::new(), VecDeque::new());
            let waker = Waker::from(Arc::clone(&self.task));
            self.inbox.take(&mut tokens, &mut arrivals, &waker);
            if !tokens.is_empty() {
                self.seen = self.sent.load(Ordering::Relaxed);
            }
            self.arrived += arrivals.len();
        }
        is_woken
    }

    fn wakes(&self, token: WakeToken) -> impl FnOnce() + 'static {
        let (waker, sent) = (waker(&self.inbox, token), Arc::clone(&self.sent));
        move || {
            sent.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }
    }
}

fn check(tokens: [WakeToken; 2]) {
    loom::model(move || {
        let mut worker = Worker::new();
        let [first, second] = tokens.map(|token| worker.wakes(token));
        let first = thread::spawn(first);
        let inbox = Arc::clone(&worker.inbox);
        let second = thread::spawn(move || {
            second();
            inbox.push_arrival(Box::new(()));
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
fn a_stream_woken_twice_is_visited_after_the_second_wake() {
    check([WakeToken::Stream(0); 2]);
}

#[test]
fn concurrent_wakes_are_all_seen() {
    check([WakeToken::Stream(0), WakeToken::Group(0)]);
}
