//! The processor with its handlers. Handlers block on channels, never by sleeping.

use std::sync::OnceLock;
use std::task::Waker;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::runtime::Runtime;

use super::*;
use crate::Overflow;
use samples::{Replay, Store, added, deleted, initial, object, updated, word};

mod crowd;
pub(crate) mod reentry;
pub(crate) mod samples;

/// More than any test sends, so that a channel that is not read does not block its handler.
const ROOM: usize = 8_192;
const HOUR: Duration = Duration::from_secs(3_600);

/// A processor with its runtime, and the panics that it reports.
struct Scene {
    runtime: Runtime,
    processor: Processor<u64>,
    panics: Receiver<HandlerPanic>,
    /// The capacity of each handler's channel to the test.
    room: usize,
}

impl Scene {
    fn new() -> Self {
        Self::with_room(ROOM)
    }

    fn with_room(room: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, panics) = bounded(ROOM);
        let on_panic: PanicHook = Arc::new(move |panic: &HandlerPanic| {
            sender.send(panic.clone()).unwrap();
        });
        let processor = Processor::new(runtime.handle().clone(), on_panic);
        Self {
            runtime,
            processor,
            panics,
            room,
        }
    }

    fn add(
        &self,
        options: HandlerOptions,
        initial_state: InitialState<u64>,
    ) -> (Registration<u64>, Received) {
        let (sender, received) = bounded(self.room);
        let handler = move |change: &Notification<u64>| {
            // Fails if the test has ended.
            drop(sender.send(change.clone()));
        };
        let registration = self
            .processor
            .add(Arc::new(handler), options, initial_state, now());
        (registration, Received(received))
    }

    fn add_closure(
        &self,
        options: HandlerOptions,
        handler: impl Fn(&Notification<u64>) + Send + Sync + 'static,
    ) -> Registration<u64> {
        let initial_state = InitialState::nothing();
        self.processor
            .add(Arc::new(handler), options, initial_state, now())
    }

    /// Adds a handler that blocks in each call.
    fn add_gated(&self, options: HandlerOptions, initial_state: InitialState<u64>) -> Gated {
        let (entering, entered) = bounded(self.room);
        let (release, gate) = bounded::<()>(self.room);
        let handler = move |change: &Notification<u64>| {
            drop(entering.send(change.clone()));
            // An error means that the gate stays open.
            gate.recv().unwrap_or_default();
        };
        let registration = self
            .processor
            .add(Arc::new(handler), options, initial_state, now());
        Gated {
            registration,
            entered: Received(entered),
            release,
        }
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    fn shut_down(&self) -> ProcessorEnd {
        self.wait(self.processor.shutdown(HOUR))
    }
}

/// The notifications that a handler received.
struct Received(Receiver<Notification<u64>>);

impl Received {
    fn next(&self) -> Notification<u64> {
        self.0.recv().unwrap()
    }

    fn words(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| word(&self.next())).collect()
    }

    /// Everything received until now.
    fn rest(&self) -> Vec<String> {
        self.0.try_iter().map(|change| word(&change)).collect()
    }

    fn replay(&self) -> Replay {
        let mut replay = Replay::default();
        self.0.try_iter().for_each(|change| replay.apply(&change));
        replay
    }
}

/// A handler that blocks in each call.
struct Gated {
    registration: Registration<u64>,
    /// Notifications whose call has begun.
    entered: Received,
    /// Each item lets one call return; dropping it lets all calls return.
    release: Sender<()>,
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

fn plain() -> HandlerOptions {
    HandlerOptions::named("plain")
}

/// Whether a future is still pending after one poll.
fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut context = std::task::Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}

#[test]
fn every_handler_is_told_of_each_change_in_order() {
    let scene = Scene::new();
    let handlers = [(); 3].map(|()| scene.add(plain(), InitialState::nothing()));
    scene.processor.distribute(added("a", 1));
    let more = [updated("a", 1, 2), added("b", 3), deleted("a", 2, 4)];
    scene.processor.distribute_all(&more);
    for (_, received) in &handlers {
        assert_eq!(received.words(4), ["+a1", "a1>2", "+b3", "-a2>4"]);
    }
    scene.shut_down();
}

#[test]
fn a_late_handler_is_told_of_the_present_state_first() {
    let scene = Scene::new();
    let initial_state = vec![object("a", 1), object("b", 2)];
    let (_, received) = scene.add(plain(), initial_state.into());
    scene.processor.distribute(updated("a", 1, 3));
    assert_eq!(received.words(3), ["^a1", "^b2", "a1>3"]);
    scene.shut_down();
}

#[test]
fn a_change_while_the_present_state_is_told_comes_after_it() {
    let scene = Scene::new();
    let initial_state = (0..1_000).map(|version| object(&format!("n{version}"), version));
    let options = plain().with_queue(2, Overflow::Merge);
    let gated = scene.add_gated(options, initial_state.collect::<Vec<_>>().into());
    assert_eq!(gated.entered.words(1), ["^n00"]);
    scene.processor.distribute(deleted("n999", 999, 2_000));
    scene.processor.distribute(added("n999", 2_001));
    scene.processor.distribute(updated("n999", 2_001, 2_002));
    drop(gated.release);
    let words = gated.entered.words(1_001);
    let last = ["^n999999", "n999999>2001", "n9992001>2002"];
    assert_eq!(words[998..], last);
    scene.shut_down();
    assert_eq!(gated.entered.rest(), Vec::<String>::new());
}

#[test]
fn handlers_that_join_while_changes_are_told_miss_none_and_hear_none_twice() {
    let scene = Scene::new();
    let store = Mutex::new(Store::of((0..50).map(|n| n.to_string())));
    let mut handlers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..5_000_u64 {
                let name = (turn * 7 % 50).to_string();
                let mut store = store.lock();
                let deletion = (turn % 3 == 0).then(|| store.delete(&name)).flatten();
                let change = deletion.unwrap_or_else(|| store.put(&name));
                scene.processor.distribute(change);
            }
        });
        for turn in 0..50_usize {
            let options = plain().with_queue(1 + turn, Overflow::Merge);
            let store = store.lock();
            handlers.push(scene.add(options, store.objects().into()));
        }
    });
    scene.shut_down();
    let held = store.into_inner().held;
    for (_, received) in &handlers {
        assert_eq!(received.replay().held, held);
    }
}

#[test]
fn a_handler_has_synced_when_the_call_for_the_last_of_the_initial_list_has_returned() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    scene
        .processor
        .distribute_all(&[initial("a", 1), initial("b", 2)]);
    scene.processor.initial_list_done();
    gated.entered.words(1);
    gated.release.send(()).unwrap();
    gated.entered.words(1);
    assert!(!gated.registration.has_synced());
    gated.release.send(()).unwrap();
    scene.wait(gated.registration.synced()).unwrap();
    assert!(gated.registration.has_synced());
    scene.shut_down();
}

#[test]
fn a_handler_stuck_in_a_later_change_has_synced_nevertheless() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    scene.processor.distribute(initial("a", 1));
    gated.entered.words(1);
    scene.processor.initial_list_done();
    scene.processor.distribute(updated("a", 1, 2));
    gated.release.send(()).unwrap();
    assert_eq!(gated.entered.words(1), ["a1>2"]);
    assert!(gated.registration.has_synced());
    drop(gated.release);
    scene.shut_down();
}

#[test]
fn a_handler_has_not_synced_before_the_informer_has_its_initial_list() {
    let scene = Scene::new();
    let (registration, received) = scene.add(plain(), vec![object("a", 1)].into());
    scene.processor.distribute(initial("b", 2));
    assert_eq!(received.words(2), ["^a1", "^b2"]);
    assert!(!registration.has_synced());
    scene.processor.initial_list_done();
    scene.wait(registration.synced()).unwrap();
    scene.shut_down();
}

#[test]
fn a_handler_of_an_empty_collection_has_synced_as_soon_as_that_is_known() {
    let scene = Scene::new();
    let (before, _told) = scene.add(plain(), InitialState::nothing());
    scene.processor.initial_list_done();
    let (after, _told) = scene.add(plain(), InitialState::nothing());
    assert!(before.has_synced() && after.has_synced());
    scene.shut_down();
}

#[test]
fn a_late_handler_syncs_with_its_own_calls_not_with_the_informer() {
    let scene = Scene::new();
    scene.processor.initial_list_done();
    let gated = scene.add_gated(plain(), vec![object("a", 1)].into());
    assert_eq!(gated.entered.words(1), ["^a1"]);
    assert!(!gated.registration.has_synced());
    drop(gated.release);
    scene.wait(gated.registration.synced()).unwrap();
    scene.shut_down();
}

#[test]
fn waiting_for_a_handler_to_sync_fails_when_it_ends() {
    let scene = Scene::new();
    let (registration, _told) = scene.add(plain(), InitialState::nothing());
    registration.remove();
    let synced = scene.wait(registration.synced());
    assert_eq!(synced, Err(HandlerEnd::Removed));
    scene.shut_down();
}

#[test]
fn a_removed_handler_is_told_nothing_after_the_call_that_runs() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    let changes = [added("a", 1), added("b", 2), added("c", 3)];
    scene.processor.distribute_all(&changes);
    gated.entered.words(1);
    gated.registration.remove();
    assert_eq!(gated.registration.ended(), Some(HandlerEnd::Removed));
    scene.processor.distribute(added("d", 4));
    drop(gated.release);
    scene.wait(gated.registration.removed());
    assert_eq!(gated.entered.rest(), Vec::<String>::new());
    let counts = gated.registration.counts();
    assert_eq!((counts.delivered, counts.dropped), (1, 2));
    assert!(scene.processor.is_empty());
    scene.shut_down();
}

#[test]
fn waiting_for_a_removal_ends_when_the_running_call_has_returned() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    scene.processor.distribute(added("a", 1));
    gated.entered.words(1);
    gated.registration.remove();
    let mut removed = std::pin::pin!(gated.registration.removed());
    assert!(is_pending(removed.as_mut()));
    gated.release.send(()).unwrap();
    assert_eq!(scene.wait(removed), HandlerEnd::Removed);
    scene.shut_down();
}

#[test]
fn a_handler_may_be_removed_twice() {
    let scene = Scene::new();
    let (registration, _told) = scene.add(plain(), InitialState::nothing());
    registration.remove();
    registration.remove();
    assert_eq!(scene.wait(registration.removed()), HandlerEnd::Removed);
    scene.shut_down();
    registration.remove();
    assert_eq!(registration.ended(), Some(HandlerEnd::Removed));
}

#[test]
fn dropping_a_registration_does_not_remove_the_handler() {
    let scene = Scene::new();
    let (registration, received) = scene.add(plain(), InitialState::nothing());
    drop(registration);
    scene.processor.distribute(added("a", 1));
    assert_eq!(received.words(1), ["+a1"]);
    scene.shut_down();
}

#[test]
fn a_removed_handler_is_dropped() {
    let scene = Scene::new();
    let held = Arc::new(());
    let also_held = Arc::clone(&held);
    let registration = scene.add_closure(plain(), move |_| drop(Arc::clone(&also_held)));
    registration.remove();
    scene.wait(registration.removed());
    assert_eq!(Arc::strong_count(&held), 1);
    scene.shut_down();
}

#[test]
fn a_handler_may_remove_itself_while_it_is_called() {
    let scene = Scene::new();
    let own: Arc<OnceLock<Registration<u64>>> = Arc::default();
    let (sender, received) = bounded(ROOM);
    let inside = Arc::clone(&own);
    let registration = scene.add_closure(plain(), move |change| {
        sender.send(word(change)).unwrap();
        inside.wait().remove();
    });
    own.set(registration.clone()).unwrap();
    let changes = [added("a", 1), added("b", 2)];
    scene.processor.distribute_all(&changes);
    assert_eq!(scene.wait(registration.removed()), HandlerEnd::Removed);
    assert_eq!(received.try_iter().collect::<Vec<_>>(), ["+a1"]);
    scene.shut_down();
}

#[test]
fn a_handler_may_add_another_and_tell_of_changes_while_it_is_called() {
    let scene = Scene::new();
    let (sender, received) = bounded(ROOM);
    let processor = scene.processor.clone();
    let first = scene.add_closure(plain(), move |change| {
        if change.key().name() == "a" {
            let sender = sender.clone();
            let second = move |change: &Notification<u64>| sender.send(word(change)).unwrap();
            let initial_state = vec![object("a", 1)].into();
            processor.add(Arc::new(second), plain(), initial_state, now());
            processor.distribute(added("b", 2));
        }
    });
    scene.processor.distribute(added("a", 1));
    assert_eq!(
        [received.recv().unwrap(), received.recv().unwrap()],
        ["^a1", "+b2"]
    );
    first.remove();
    scene.shut_down();
}

#[test]
fn a_panic_is_counted_and_told_and_the_next_change_is_delivered() {
    let scene = Scene::new();
    let (sender, received) = bounded(ROOM);
    let registration = scene.add_closure(HandlerOptions::named("hasty"), move |change| {
        assert!(change.key().name() != "a", "not this one");
        sender.send(word(change)).unwrap();
    });
    let changes = [added("a", 1), added("b", 2)];
    scene.processor.distribute_all(&changes);
    assert_eq!(received.recv().unwrap(), "+b2");
    let panic = scene.panics.recv().unwrap();
    assert_eq!(&*panic.handler, "hasty");
    assert_eq!(panic.key.as_str(), "ns/a");
    assert_eq!(panic.message, "not this one");
    assert_eq!(registration.counts().panics, 1);
    assert_eq!(scene.processor.panics(), 1);
    scene.shut_down();
}

#[test]
fn a_handler_that_panics_over_the_initial_list_syncs() {
    let scene = Scene::new();
    let registration = scene.add_closure(plain(), |change| panic!("{}", change.key()));
    scene.processor.distribute(initial("a", 1));
    scene.processor.initial_list_done();
    scene.wait(registration.synced()).unwrap();
    assert_eq!(scene.panics.recv().unwrap().message, "ns/a");
    scene.shut_down();
}

#[test]
fn a_panicking_panic_hook_stops_no_handler() {
    let scene = Scene::new();
    let hook: PanicHook = Arc::new(|_: &HandlerPanic| panic!("the hook, too"));
    let processor = Processor::new(scene.runtime.handle().clone(), hook);
    let handler = |_: &Notification<u64>| panic!("the handler");
    let registration = processor.add(Arc::new(handler), plain(), InitialState::nothing(), now());
    let changes = [added("a", 1), added("b", 2)];
    processor.distribute_all(&changes);
    scene.wait(processor.shutdown(HOUR));
    assert_eq!(registration.counts().panics, 2);
}

#[test]
fn a_stuck_handler_has_at_most_its_bound_waiting_and_is_told_what_explains_the_store() {
    let scene = Scene::new();
    let options = plain().with_queue(100, Overflow::Merge);
    let gated = scene.add_gated(options, InitialState::nothing());
    let mut store = Store::default();
    scene.processor.distribute(store.put("0"));
    let mut replay = Replay::default();
    replay.apply(&gated.entered.next());
    for turn in 0..10_000_u64 {
        let name = (turn * 7 % 30).to_string();
        let deletion = (turn % 4 == 0).then(|| store.delete(&name)).flatten();
        let change = deletion.unwrap_or_else(|| store.put(&name));
        scene.processor.distribute(change);
        // The bound, and the notification of the running call.
        assert!(gated.registration.queue_len() <= 101);
    }
    assert!(gated.registration.counts().merged > 9_000);
    drop(gated.release);
    scene.shut_down();
    gated
        .entered
        .0
        .try_iter()
        .for_each(|change| replay.apply(&change));
    assert_eq!(replay.held, store.held);
}

#[test]
fn a_full_queue_that_blocks_holds_the_informer_back_until_there_is_room() {
    let scene = Scene::new();
    let options = plain().with_queue(2, Overflow::Block);
    let gated = scene.add_gated(options, InitialState::nothing());
    scene.processor.distribute(added("a", 1));
    gated.entered.words(1);
    scene.processor.distribute(added("b", 2));
    scene.wait(scene.processor.ready());
    scene.processor.distribute(added("c", 3));
    let mut ready = std::pin::pin!(scene.processor.ready());
    assert!(is_pending(ready.as_mut()));
    gated.release.send(()).unwrap();
    scene.wait(ready);
    drop(gated.release);
    assert_eq!(gated.entered.words(2), ["+b2", "+c3"]);
    scene.shut_down();
}

#[test]
fn a_removed_blocking_handler_delays_no_other() {
    let scene = Scene::new();
    let options = plain().with_queue(1, Overflow::Block);
    let gated = scene.add_gated(options, InitialState::nothing());
    scene.processor.distribute(added("a", 1));
    gated.entered.words(1);
    scene.processor.distribute(added("b", 2));
    let mut ready = std::pin::pin!(scene.processor.ready());
    assert!(is_pending(ready.as_mut()));
    gated.registration.remove();
    scene.wait(ready);
    drop(gated.release);
    scene.shut_down();
}

#[test]
fn full_queues_of_other_policies_delay_no_other_handler() {
    let scene = Scene::new();
    let options = plain().with_queue(1, Overflow::Merge);
    let gated = scene.add_gated(options, InitialState::nothing());
    for version in 1..10 {
        scene
            .processor
            .distribute(added(&version.to_string(), version));
    }
    scene.wait(scene.processor.ready());
    drop(gated.release);
    scene.shut_down();
}

#[test]
fn a_handler_that_is_to_be_removed_at_its_bound_is_and_the_others_go_on() {
    let scene = Scene::new();
    let options = plain().with_queue(2, Overflow::Remove);
    let gated = scene.add_gated(options, InitialState::nothing());
    let (_, received) = scene.add(plain(), InitialState::nothing());
    scene.processor.distribute(added("a", 1));
    gated.entered.words(1);
    let changes = [added("b", 2), added("c", 3)];
    scene.processor.distribute_all(&changes);
    assert_eq!(gated.registration.ended(), None);
    scene.processor.distribute(added("d", 4));
    assert_eq!(gated.registration.ended(), Some(HandlerEnd::Overflowed));
    assert_eq!(gated.registration.counts().dropped, 2);
    assert_eq!(scene.processor.len(), 1);
    drop(gated.release);
    let end = scene.wait(gated.registration.removed());
    assert_eq!(end, HandlerEnd::Overflowed);
    assert_eq!(received.words(4), ["+a1", "+b2", "+c3", "+d4"]);
    scene.shut_down();
    assert_eq!(gated.entered.rest(), Vec::<String>::new());
}

#[test]
fn the_initial_list_does_not_count_against_a_handler_s_bound() {
    let scene = Scene::new();
    let options = plain().with_queue(2, Overflow::Remove);
    let gated = scene.add_gated(options, InitialState::nothing());
    let list: Vec<_> = (1..=500)
        .map(|version| initial(&version.to_string(), version))
        .collect();
    scene.processor.distribute_all(&list);
    scene.processor.initial_list_done();
    gated.entered.words(1);
    scene
        .processor
        .distribute_all(&[added("b", 501), added("c", 502)]);
    assert_eq!(gated.registration.ended(), None);
    scene.processor.distribute(added("d", 503));
    assert_eq!(gated.registration.ended(), Some(HandlerEnd::Overflowed));
    drop(gated.release);
    scene.shut_down();
}

#[test]
fn a_resync_concerns_the_handlers_whose_period_is_over() {
    let scene = Scene::new();
    let start = now();
    let add = |period| {
        let (sender, received) = bounded(ROOM);
        let handler = move |change: &Notification<u64>| drop(sender.send(change.clone()));
        let options = plain().with_resync(Duration::from_secs(period));
        let initial_state = InitialState::nothing();
        scene
            .processor
            .add(Arc::new(handler), options, initial_state, start);
        Received(received)
    };
    let (often, rarely) = (add(10), add(25));
    let (_, never) = scene.add(plain(), InitialState::nothing());
    let mut store = Store::of(["a".to_owned()]);
    let at = |seconds| start + Duration::from_secs(seconds);
    for (seconds, wanted) in [(9, false), (10, true), (19, false), (20, true), (25, true)] {
        let is_wanted = scene.processor.resync_wanted(at(seconds));
        assert_eq!(is_wanted, wanted, "{seconds}");
        scene.processor.distribute_resync(store.again("a").unwrap());
        scene.processor.resync_done();
    }
    scene.processor.distribute(store.put("a"));
    scene.shut_down();
    assert_eq!(often.rest(), ["a1>1", "a1>1", "a1>2"]);
    assert_eq!(rarely.rest(), ["a1>1", "a1>2"]);
    assert_eq!(never.rest(), ["a1>2"]);
}

#[test]
fn a_resync_that_was_missed_is_not_made_up_for() {
    let start = now();
    let mut resync = Resync::new(Duration::from_secs(10), start).unwrap();
    let late = start + Duration::from_secs(35);
    assert!(resync.is_due(late));
    assert_eq!(resync.next_at(), late + Duration::from_secs(10));
    assert!(!resync.is_due(late));
}

#[test]
fn a_resync_period_below_a_second_counts_as_one_and_none_as_none() {
    let start = now();
    let resync = Resync::new(Duration::from_millis(3), start).unwrap();
    assert_eq!(resync.next_at(), start + Duration::from_secs(1));
    assert_eq!(Resync::new(Duration::ZERO, start), None);
}

#[test]
fn a_handler_added_later_with_a_shorter_period_makes_the_informer_look_earlier() {
    let scene = Scene::new();
    assert_eq!(scene.processor.next_resync_at(), None);
    let start = now();
    let add = |period| {
        let options = plain().with_resync(Duration::from_secs(period));
        let handler = Arc::new(|_: &Notification<u64>| {});
        scene
            .processor
            .add(handler, options, InitialState::nothing(), start)
    };
    add(60);
    scene.wait(scene.processor.resync_changed());
    let at = |seconds| Some(start + Duration::from_secs(seconds));
    assert_eq!(scene.processor.next_resync_at(), at(60));
    let often = add(5);
    scene.wait(scene.processor.resync_changed());
    assert_eq!(scene.processor.next_resync_at(), at(5));
    often.remove();
    assert_eq!(scene.processor.next_resync_at(), at(60));
    scene.shut_down();
}

#[test]
fn a_shutdown_delivers_what_waits_and_takes_no_more() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    let (idle, received) = scene.add(plain(), InitialState::nothing());
    let changes = [added("a", 1), added("b", 2)];
    scene.processor.distribute_all(&changes);
    assert_eq!(received.words(2), ["+a1", "+b2"]);
    gated.entered.words(1);
    let mut shutdown = std::pin::pin!(async { scene.processor.shutdown(HOUR).await });
    // The first poll closes the processor. It runs inside the runtime, because the timeout needs its clock.
    scene.wait(async {
        std::future::poll_fn(|context| {
            assert!(shutdown.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    });
    scene.processor.distribute(added("c", 3));
    drop(gated.release);
    assert_eq!(scene.wait(shutdown), ProcessorEnd { dropped: 0 });
    assert_eq!(gated.entered.rest(), ["+b2"]);
    for registration in [gated.registration, idle] {
        assert_eq!(registration.ended(), Some(HandlerEnd::ShutDown));
    }
    assert_eq!(received.rest(), Vec::<String>::new());
}

#[test]
fn a_shutdown_drops_what_is_not_delivered_in_time_and_waits_for_the_call_that_runs() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    let changes = [added("a", 1), added("b", 2), added("c", 3)];
    scene.processor.distribute_all(&changes);
    gated.entered.words(1);
    let processor = scene.processor.clone();
    let shutdown = async move { processor.shutdown(Duration::ZERO).await };
    let shutdown = scene.runtime.spawn(shutdown);
    let synced = scene.wait(gated.registration.synced());
    assert_eq!(synced, Err(HandlerEnd::ShutDown));
    assert!(!shutdown.is_finished());
    drop(gated.release);
    let end = scene.wait(shutdown).unwrap();
    assert_eq!(end, ProcessorEnd { dropped: 2 });
    assert_eq!(gated.entered.rest(), Vec::<String>::new());
}

#[test]
fn a_shutdown_that_was_given_up_can_be_waited_for_again() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    scene.processor.distribute(added("a", 1));
    gated.entered.words(1);
    let given_up = scene.wait(async {
        let shutdown = scene.processor.shutdown(Duration::ZERO);
        tokio::time::timeout(Duration::ZERO, shutdown).await
    });
    assert!(given_up.is_err());
    drop(gated.release);
    scene.shut_down();
    scene.shut_down();
}

#[test]
fn a_handler_added_after_a_shutdown_has_ended_from_the_beginning() {
    let scene = Scene::new();
    scene.shut_down();
    let (registration, received) = scene.add(plain(), vec![object("a", 1)].into());
    assert_eq!(registration.ended(), Some(HandlerEnd::ShutDown));
    assert_eq!(scene.wait(registration.removed()), HandlerEnd::ShutDown);
    scene.shut_down();
    assert_eq!(received.rest(), Vec::<String>::new());
}

#[test]
fn handlers_of_a_processor_that_is_dropped_are_told_what_waits_and_end() {
    let scene = Scene::new();
    let gated = scene.add_gated(plain(), InitialState::nothing());
    let changes = [added("a", 1), added("b", 2)];
    scene.processor.distribute_all(&changes);
    assert_eq!(gated.entered.words(1), ["+a1"]);
    drop(scene.processor);
    drop(gated.release);
    let end = scene.runtime.block_on(gated.registration.removed());
    assert_eq!(end, HandlerEnd::ShutDown);
    assert_eq!(gated.entered.rest(), ["+b2"]);
}
