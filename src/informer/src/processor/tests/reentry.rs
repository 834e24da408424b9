//! User code that calls the processor while the processor calls it: destructors of handlers and objects.

use super::*;
use crate::resource::{Object, ObjectParts};
use crate::{Cached, StreamOverflow, SubscriptionOptions};

/// Far longer than any test here takes; only a deadlock reaches it.
const DEADLOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a test that would hang if it failed, and panics on a timeout instead.
pub(crate) fn without_deadlock(run: impl FnOnce() + Send + 'static) {
    let (sender, ended) = bounded(1);
    let running = std::thread::spawn(move || {
        run();
        // Fails if the timeout has passed.
        sender.send(()).unwrap_or_default();
    });
    match ended.recv_timeout(DEADLOCK_TIMEOUT) {
        Err(crossbeam_channel::RecvTimeoutError::Timeout) => panic!("a deadlock"),
        // Propagates a panic of the thread.
        Ok(()) | Err(crossbeam_channel::RecvTimeoutError::Disconnected) => running.join().unwrap(),
    }
}

/// Calls a function when it is dropped.
pub(crate) struct OnDrop<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[test]
fn a_handler_that_comes_after_a_shutdown_may_own_a_subscription() {
    without_deadlock(|| {
        let scene = Scene::new();
        let options = SubscriptionOptions::named("owned");
        let subscription = scene.processor.subscribe(options, InitialState::nothing());
        scene.shut_down();
        let registration = scene.add_closure(plain(), move |_| {
            let _owned = &subscription;
        });
        assert_eq!(registration.ended(), Some(HandlerEnd::ShutDown));
        assert!(scene.processor.is_empty());
    });
}

#[test]
fn a_handler_that_overflows_may_call_the_processor_as_it_is_dropped() {
    without_deadlock(|| {
        let scene = Scene::new();
        let (sender, counted) = bounded(ROOM);
        let processor = scene.processor.clone();
        let guard = OnDrop(move || sender.send(processor.len()).unwrap());
        let options = plain().with_queue(1, Overflow::Remove);
        let registration = scene.add_closure(options, move |_| {
            let _held = &guard;
        });
        scene
            .processor
            .distribute_all(&[added("a", 1), added("b", 2)]);
        assert_eq!(registration.ended(), Some(HandlerEnd::Overflowed));
        assert_eq!(counted.recv().unwrap(), 0);
        scene.shut_down();
    });
}

/// Called when the last reference to an object is dropped.
type Call = Box<dyn Fn() + Send + Sync>;

fn calling_on_drop(
    version: u64,
    call: &Arc<impl Fn() + Send + Sync + 'static>,
) -> Arc<Cached<OnDrop<Call>>> {
    let call = Arc::clone(call);
    let parts = ObjectParts {
        name: "a".into(),
        resource_version: crate::resource::ResourceVersion(version),
        ..ObjectParts::default()
    };
    Arc::new(Cached::new(
        &Object::new(parts, b"{}"),
        OnDrop(Box::new(move || call())),
    ))
}

#[test]
fn objects_may_call_the_processor_when_they_are_merged_away_or_dropped_with_a_queue() {
    without_deadlock(|| {
        let runtime = Runtime::new().unwrap();
        let processor = Processor::new(runtime.handle().clone(), Arc::new(|_| {}));
        let (sender, counted) = bounded(ROOM);
        let counting = processor.clone();
        let call = Arc::new(move || sender.send(counting.len()).unwrap());
        let merging = SubscriptionOptions::named("merging").with_queue(2, StreamOverflow::Merge);
        let ending = SubscriptionOptions::named("ending").with_queue(4, StreamOverflow::Remove);
        let merging = processor.subscribe(merging, InitialState::nothing());
        let ending = processor.subscribe(ending, InitialState::nothing());
        let mut old = calling_on_drop(0, &call);
        for version in 1..=5 {
            let new = calling_on_drop(version, &call);
            processor.distribute(Notification::Updated {
                old: std::mem::replace(&mut old, Arc::clone(&new)),
                new,
            });
        }
        drop(old);
        assert_eq!(ending.ended(), Some(HandlerEnd::Overflowed));
        assert!(counted.try_iter().count() >= 2);
        drop((merging, ending));
        runtime.block_on(processor.shutdown(HOUR));
        assert_eq!(counted.try_iter().last(), Some(0));
    });
}
