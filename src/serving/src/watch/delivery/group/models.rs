//! A loom model of a group whose view gets batches while a worker makes a pass: after its last pass the group has all of them.
//! Fails if the group is armed after its pass (planted defect 04).

use std::task::Wake;

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::*;
use crate::cache::samples::{World, kind};
use crate::resource::Layout;
use crate::selector::Selector;
use crate::view::Hub;

struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Ordered like the wake-up of a task.
        self.0.swap(true, Ordering::AcqRel);
    }
}

/// A worker with one group of one stream.
struct Worker {
    task: Arc<Task>,
    group: DeliveryGroup,
    cursor: Sequence,
    events: u64,
}

impl Worker {
    /// If woken, makes passes until none is due; returns whether it was woken.
    fn turn(&mut self) -> bool {
        let is_woken = self.task.0.swap(false, Ordering::AcqRel);
        let now = Instant::now();
        while is_woken && self.group.begin(now) == PassStart::Now {
            while self.group.next().is_some() {
                let chunk = SharedChunk::read(&self.group.view, self.cursor, 1 << 20);
                if let Some(chunk) = chunk.expect("the view keeps all batches") {
                    self.cursor = chunk.to;
                    self.events += chunk.events;
                }
            }
            if !self.group.finish(now, Duration::MAX) {
                break;
            }
        }
        is_woken
    }
}

#[test]
fn a_group_that_waits_has_every_batch_or_is_woken() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut world = World::new(1, 100, Arc::clone(&hub) as _);
        let entry = hub.join(&Selector::default());
        let task = Arc::new(Task(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&task));
        let mut worker = Worker {
            task,
            group: DeliveryGroup::new(entry.view, Arc::new(()), entry.waiter, waker),
            cursor: entry.cursor,
            events: 0,
        };
        worker.group.push(0);
        let worker = thread::spawn(move || {
            worker.turn();
            worker.turn();
            worker
        });
        for _ in 0..2 {
            let change = world.write("a/1", None);
            world.apply(vec![change]);
        }
        let mut worker = worker.join().expect("the worker must not panic");
        while worker.turn() {}
        assert_eq!(worker.events, 2);
    });
}
