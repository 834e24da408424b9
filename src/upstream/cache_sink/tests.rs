//! A sink with expensive views yields to other tasks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::cache::tests::samples::{Sample, keep, kind};
use crate::resource::Layout;
use crate::selector::{EVALUATED, LabelSelector, Selector};
use crate::view::Hub;

#[derive(Debug)]
struct Uncounted;

impl FillRecorder for Uncounted {
    fn applied(&self, _: ApplyOutcome) {}
    fn state(&self, _: FillState) {}
}

/// Runs `fill`, then polls the sink until it is ready. Returns the number of selector terms evaluated by `fill` and by each
/// poll.
fn turns(sink: &mut CacheSink, fill: impl FnOnce(&mut CacheSink)) -> Vec<usize> {
    EVALUATED.set(0);
    fill(sink);
    let mut turns = vec![EVALUATED.take()];
    let mut ready = pin!(sink.ready());
    let mut context = Context::from_waker(Waker::noop());
    while ready.as_mut().poll(&mut context) == Poll::Pending {
        turns.push(EVALUATED.take());
    }
    turns.push(EVALUATED.take());
    turns
}

#[test]
fn batches_and_relists_are_dispatched_in_turns_of_bounded_work() {
    let kind = kind(Layout::Typed);
    let hub = Arc::new(Hub::new(&kind));
    let writer = CacheWriter::new(kind, keep(1 << 20), Arc::clone(&hub) as _);
    let mut sink = CacheSink::new(writer, Duration::ZERO, Arc::new(Uncounted));
    let at = ResourceVersion;
    sink.replace(at(10)).unwrap();
    let selector = |index: usize| {
        let terms: Vec<_> = (0..50).map(|term| format!("!k{index}x{term}")).collect();
        Selector {
            labels: LabelSelector::parse(&terms.join(",")).unwrap(),
            ..Selector::default()
        }
    };
    let entries: Vec<_> = (0..50).map(|index| hub.join(&selector(index))).collect();
    let samples = |from: u64| (from..from + 200).map(|version| (format!("a/{version}"), version));
    let live = |sink: &mut CacheSink| {
        for (key, version) in samples(20) {
            sink.live(EventKind::Added, Sample::new(&key, version).object());
        }
        sink.publish();
        sink.progress(at(300));
    };
    let relist = |sink: &mut CacheSink| {
        sink.restart();
        for (key, version) in samples(400) {
            sink.initial(EventKind::Added, Sample::new(&key, version).object());
        }
        sink.replace(at(700)).unwrap();
    };
    // Each event adds or deletes an object, so the terms of each view are evaluated for one state. The relist deletes the
    // first 200 objects.
    for (turns, events) in [
        (turns(&mut sink, live), 200),
        (turns(&mut sink, relist), 400),
    ] {
        assert!(turns.len() > 10, "{turns:?}");
        assert!(turns.iter().all(|terms| *terms < 40_000), "{turns:?}");
        assert_eq!(turns.iter().sum::<usize>(), events * 50 * 50);
    }
    assert_eq!(
        (hub.reached().version, hub.reached().through),
        (at(700), 600)
    );
    drop(entries);
}
