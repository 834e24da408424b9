//! Loom model of a view that closes: a watcher that is told of the end has everything that came before it. Fails when the watcher
//! looks for events before it asks whether the view is closed.

use loom::model::Builder;
use loom::thread;

use super::*;
use crate::cache::tests::samples::{World, kind};
use crate::resource::Layout;
use crate::view::Hub;
use crate::view::selector::Selector;

#[derive(Debug)]
struct Untold;

impl WatchTally for Untold {
    fn delivered(&self, _: u64, _: u64) {}

    fn ended(&self, _: WatchTotals) {}
}

fn follower(served: Served, entry: Entry) -> Follower {
    let version = ResourceVersion(10);
    let sequence = served.cache.resume_after(version).unwrap();
    let timing = Timing {
        started: Instant::now(),
        timeout: Duration::from_secs(60),
        bookmarks: false,
    };
    Follower::new(
        served,
        (entry.view, entry.cursor, entry.reached),
        Start::After { sequence, version },
        timing,
        Arc::new(Untold),
    )
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
        let served = Served {
            cache,
            hub: Arc::clone(&hub),
        };
        let mut follower = follower(served, entry);
        let watcher = thread::spawn(move || {
            let mut frames = 0;
            for _ in 0..3 {
                match follower.next() {
                    Next::Frame(_) => frames += 1,
                    Next::Over => return Some(frames),
                    Next::Nothing | Next::Unfinished => {}
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
