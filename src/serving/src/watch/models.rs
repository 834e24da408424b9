//! Loom models of a watch while its view changes. A watch that learns of the end has all events that were published before: this
//! fails if it reads events before it checks whether the view is closed. A waiting body is woken by the next batch: this fails if
//! it reads events, arms itself and does not read again. No bookmark is below an event that its client has: this fails if a version is
//! sent that the views had reached before a batch that is visible already.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use loom::model::Builder;
use loom::thread;
use tokio::time::Instant;

use bytes::Buf;

use super::*;
use crate::cache::samples::{World, kind, told};
use crate::metrics::WatchEnd;
use crate::resource::{Layout, ResourceVersion};
use crate::selector::Selector;
use crate::view::Hub;

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

fn cursor(served: ServedResource, entry: ViewSubscription, timing: Timing) -> WatchCursor {
    let start = start(&served);
    WatchCursor::new(served, &entry, start, timing, Arc::new(()))
}

/// A cache, and a watch that has joined its view.
struct WatchedCache {
    world: World,
    hub: Arc<Hub>,
    served: ServedResource,
    entry: ViewSubscription,
}

impl WatchedCache {
    fn new() -> Self {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let world = World::new(1, 100, Arc::clone(&hub) as _);
        let served = ServedResource {
            cache: Arc::clone(world.writer.cache()),
            hub: Arc::clone(&hub),
        };
        let entry = hub.join(&Selector::default());
        Self {
            world,
            hub,
            served,
            entry,
        }
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_end_comes_after_all_earlier_events() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let WatchedCache {
            mut world,
            hub,
            served,
            entry,
        } = WatchedCache::new();
        let mut cursor = cursor(served, entry, timing());
        let watcher = thread::spawn(move || {
            let mut frames = 0;
            for _ in 0..3 {
                match cursor.next() {
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
        let frames = watcher.join().expect("the watcher must not panic");
        assert!(frames.is_none_or(|frames| frames == 1), "{frames:?}");
    });
}

#[test]
fn a_body_that_waits_is_woken_by_a_batch_that_came_while_it_looked() {
    // A body has a timer. It never fires, because nothing drives this runtime.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _context = runtime.enter();
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let WatchedCache {
            mut world,
            hub: _hub,
            served,
            entry,
        } = WatchedCache::new();
        let start = start(&served);
        let mut body = Watch::new(served, entry, start, timing(), Arc::new(()));
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let watcher = thread::spawn(move || {
            let body_now = Pin::new(&mut body);
            let mut context = std::task::Context::from_waker(&waker);
            let polled = http_body::Body::poll_frame(body_now, &mut context);
            // Return the body, so that it is not dropped before the batch: a dropped waiter is not woken.
            (body, polled.is_ready())
        });
        let change = world.write("a/1", None);
        world.apply(vec![change]);
        let (_body, has_frame) = watcher.join().expect("the watcher must not panic");
        let wakes = wakes.0.load(Ordering::Relaxed);
        assert!(has_frame || wakes > 0, "the body waits and was not woken");
    });
}

/// The number behind the kind, and behind the key of an event: "ADDED a/1 12 -", "BOOKMARK 12".
fn versions(lines: &[u8]) -> Vec<u64> {
    told(lines)
        .into_iter()
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let word = words.get(2).or(words.get(1)).copied();
            word.and_then(|word| word.parse().ok())
                .expect("each line has a version")
        })
        .collect()
}

#[test]
fn a_bookmark_at_the_end_is_not_below_what_was_sent() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let WatchedCache {
            mut world,
            hub: _hub,
            served,
            entry,
        } = WatchedCache::new();
        // The version before the change is news, so that a bookmark of it would be sent.
        world.writer.progress(ResourceVersion(11), world.now);
        world.version = 11;
        let timing = Timing {
            bookmarks: true,
            ..timing()
        };
        let mut cursor = cursor(served, entry, timing);
        cursor.ended_at(Instant::now(), WatchEnd::Rebalance);
        let watcher = thread::spawn(move || {
            let mut sent = Vec::new();
            if let CursorStep::Frame(mut frame) = cursor.next() {
                sent.extend(versions(&frame.copy_to_bytes(frame.remaining())));
            }
            if let TimerAction::Bookmark(mut bookmark) = cursor.on_timer(Instant::now()) {
                sent.extend(versions(&bookmark.copy_to_bytes(bookmark.remaining())));
            }
            sent
        });
        let change = world.write("a/1", None);
        world.apply(vec![change]);
        let sent = watcher.join().expect("the watcher must not panic");
        assert!(sent.is_sorted(), "{sent:?}");
    });
}
