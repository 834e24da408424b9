//! Loom models of a watcher beside what happens in its view. A watcher that is told of the end has everything that came before it:
//! fails when it looks for events before it asks whether the view is closed. A body that waits is woken by the next batch: fails when it
//! looks for events, arms itself and does not look again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use loom::model::Builder;
use loom::thread;

use super::*;
use crate::cache::tests::samples::{World, kind};
use crate::resource::Layout;
use crate::view::Hub;
use crate::view::selector::Selector;

#[derive(Debug)]
struct Untold;

impl WatchRecorder for Untold {
    fn delivered(&self, _: u64, _: u64) {}

    fn ended(&self, _: WatchTotals) {}
}

fn timing() -> Timing {
    Timing {
        started: Instant::now(),
        timeout: Duration::from_secs(60),
        bookmarks: false,
    }
}

fn start(served: &ServedResource) -> Start {
    let version = ResourceVersion(10);
    let sequence = served.cache.resume_after(version).unwrap();
    Start::After { sequence, version }
}

fn follower(served: ServedResource, entry: ViewSubscription) -> WatchCursor {
    let start = start(&served);
    let place = (entry.view, entry.cursor, entry.reached);
    WatchCursor::new(served, place, start, timing(), Arc::new(Untold))
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn whoever_is_told_of_the_end_has_what_came_before() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut world = World::new(1, 100, Arc::clone(&hub) as _);
        let cache = Arc::clone(world.writer.cache());
        let entry = hub.join(&Selector::default());
        let served = ServedResource {
            cache,
            hub: Arc::clone(&hub),
        };
        let mut follower = follower(served, entry);
        let watcher = thread::spawn(move || {
            let mut frames = 0;
            for _ in 0..3 {
                match follower.next() {
                    CursorStep::Frame(_) => frames += 1,
                    CursorStep::Over => return Some(frames),
                    CursorStep::Nothing | CursorStep::Unfinished => {}
                }
            }
            None
        });
        let change = world.write("a/1", None);
        world.apply(vec![change]);
        hub.close();
        let frames = watcher.join().expect("it watches");
        assert!(frames.is_none_or(|frames| frames == 1), "{frames:?}");
    });
}

#[test]
fn a_body_that_waits_is_woken_by_a_batch_that_came_while_it_looked() {
    // A body has a timer. It never goes off: nobody drives this runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let mut world = World::new(1, 100, Arc::clone(&hub) as _);
        let served = ServedResource {
            cache: Arc::clone(world.writer.cache()),
            hub: Arc::clone(&hub),
        };
        let entry = hub.join(&Selector::default());
        let start = start(&served);
        let mut body: WatchBody =
            Watch::new(served, entry, start, timing(), Arc::new(Untold)).into();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let watcher = thread::spawn(move || {
            let body_now = std::pin::Pin::new(&mut body);
            let mut context = std::task::Context::from_waker(&waker);
            let polled = http_body::Body::poll_frame(body_now, &mut context);
            // The body outlives the batch: who left is woken by nothing.
            (body, polled.is_ready())
        });
        let change = world.write("a/1", None);
        world.apply(vec![change]);
        let (_body, has_frame) = watcher.join().expect("it watches");
        let wakes = wakes.0.load(Ordering::Relaxed);
        assert!(has_frame || wakes > 0, "it waits, and nobody wakes it");
    });
}
