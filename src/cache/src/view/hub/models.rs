//! Loom models of joining during dispatches: a watch that joins gets each event once, from the history or from the view.
//! They check the order of steps that the documentation of [`Hub`] describes.

use std::ops::ControlFlow;

use loom::model::Builder;
use loom::thread;

use super::*;
use crate::cache::samples::{Recorder, World};

/// Two events, each in a batch of its own.
fn events() -> (Vec<(Arc<Event>, ResourceVersion)>, Instant) {
    let recorder = Arc::new(Recorder::default());
    let mut world = World::new(1, 100, Arc::clone(&recorder) as _);
    for _ in 0..2 {
        let change = world.write("a/1", None);
        world.apply(vec![change]);
    }
    let dispatches = recorder.take().into_iter();
    let events = dispatches
        .flat_map(|(events, version)| events.into_iter().map(move |event| (event, version)));
    (events.collect(), world.now)
}

fn is_whole(subscription: &ViewSubscription) {
    let (through, mut shown) = (subscription.reached.through, Vec::new());
    let read = subscription.view.read(subscription.cursor, |batch| {
        if batch.first >= through {
            shown.push(batch.first);
        }
        ControlFlow::Continue(())
    });
    read.expect("no batch was evicted from the view");
    assert_eq!(shown, (through..2).collect::<Vec<_>>());
}

fn model(with_watcher: bool) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (events, now) = events();
        let kind = crate::cache::samples::kind(crate::resource::Layout::Typed);
        let hub = Arc::new(Hub::new(&kind));
        let before = with_watcher.then(|| hub.join(&Selector::default()));
        let joining = Arc::clone(&hub);
        let joiner = thread::spawn(move || joining.join(&Selector::default()));
        for (event, version) in &events {
            let through = event.sequence() + 1;
            hub.dispatch(std::slice::from_ref(event), through, *version, now);
        }
        let joined = joiner.join().expect("the joining thread panicked");
        assert_eq!(hub.reached().through, 2);
        is_whole(&joined);
        before.iter().for_each(is_whole);
    });
}

#[test]
fn a_watch_that_joins_a_shared_view_gets_each_event_once() {
    model(true);
}

#[test]
fn a_watch_that_joins_an_unwatched_view_gets_each_event_once() {
    model(false);
}
