//! Streams: order, wake-ups, ends, overflow, sync.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::runtime::Runtime;

use super::*;
use crate::processor::tests::samples::{Replay, Store, added, initial, object, updated, word};
use crate::{InitialState, Processor, ProcessorEnd};

/// Counts wake-ups. Relaxed: each test has one thread.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn scene() -> (Runtime, Processor<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let processor = Processor::new(runtime.handle().clone(), Arc::new(|_| {}));
    (runtime, processor)
}

/// Runs a future on a runtime of its own: a stream needs none.
fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

fn plain() -> SubscriptionOptions {
    SubscriptionOptions::named("stream")
}

/// All notifications that are ready now, as short texts.
fn ready(stream: &mut Subscription<u64>) -> Vec<String> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut texts = Vec::new();
    while let Poll::Ready(Some(change)) = stream.poll_next_unpin(&mut context) {
        texts.push(word(&change));
    }
    texts
}

#[test]
fn a_stream_gives_the_present_state_and_then_each_change() {
    let (_runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), vec![object("a", 1)].into());
    processor.distribute(updated("a", 1, 2));
    processor.distribute(added("b", 3));
    assert_eq!(stream.queue_len(), 3);
    assert_eq!(ready(&mut stream), ["^a1", "a1>2", "+b3"]);
    processor.distribute(updated("b", 3, 4));
    assert_eq!(ready(&mut stream), ["b3>4"]);
}

#[test]
fn a_stream_that_waits_is_woken_once_by_the_next_change() {
    let (_runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), InitialState::nothing());
    let wakes = Arc::new(Wakes::default());
    let waker = Arc::clone(&wakes).into();
    let mut context = Context::from_waker(&waker);
    assert!(stream.poll_next_unpin(&mut context).is_pending());
    processor.distribute(added("a", 1));
    processor.distribute(added("b", 2));
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(ready(&mut stream), ["+a1", "+b2"]);
}

#[test]
fn a_stream_gives_what_it_has_after_a_shutdown_and_then_ends() {
    let (runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), InitialState::nothing());
    processor.distribute(added("a", 1));
    let end = runtime.block_on(processor.shutdown(Duration::from_secs(3_600)));
    assert_eq!(end, ProcessorEnd { dropped: 0 });
    processor.distribute(added("b", 2));
    assert_eq!(
        block_on(stream.next()).as_ref().map(word),
        Some("+a1".into())
    );
    assert!(block_on(stream.next()).is_none());
    assert!(block_on(stream.next()).is_none());
    assert_eq!(stream.ended(), Some(HandlerEnd::ShutDown));
}

#[test]
fn a_stream_that_waits_ends_with_the_informer() {
    let (runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), InitialState::nothing());
    let waiting = runtime.spawn(async move { stream.next().await.is_none() });
    runtime.block_on(async {
        tokio::task::yield_now().await;
        drop(processor);
        assert!(waiting.await.unwrap());
    });
}

#[test]
fn a_dropped_stream_is_removed() {
    let (_runtime, processor) = scene();
    let stream = processor.subscribe(plain(), InitialState::nothing());
    assert_eq!(processor.len(), 1);
    drop(stream);
    assert_eq!(processor.len(), 0);
}

#[test]
fn giving_up_waiting_for_a_stream_loses_nothing() {
    let (_runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), InitialState::nothing());
    {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut next = std::pin::pin!(stream.next());
        assert!(next.as_mut().poll(&mut context).is_pending());
        processor.distribute(added("a", 1));
    }
    assert_eq!(ready(&mut stream), ["+a1"]);
}

#[test]
fn a_stream_that_nobody_reads_is_merged_and_explains_the_store() {
    let (_runtime, processor) = scene();
    let options = plain().with_queue(10, StreamOverflow::Merge);
    let mut stream = processor.subscribe(options, InitialState::nothing());
    let mut store = Store::default();
    for turn in 0..10_000_u64 {
        let name = (turn * 7 % 20).to_string();
        let deletion = (turn % 4 == 0).then(|| store.delete(&name)).flatten();
        processor.distribute(deletion.unwrap_or_else(|| store.put(&name)));
        // Twice the number of objects: see `NotificationQueue::push`.
        assert!(stream.queue_len() <= 40);
    }
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut replay = Replay::default();
    while let Poll::Ready(Some(change)) = stream.poll_next_unpin(&mut context) {
        replay.apply(&change);
    }
    assert_eq!(replay.held, store.held);
    assert!(stream.counts().merged > 9_000);
}

#[test]
fn a_stream_that_is_to_end_at_its_bound_does() {
    let (_runtime, processor) = scene();
    let options = plain().with_queue(2, StreamOverflow::Remove);
    let mut stream = processor.subscribe(options, InitialState::nothing());
    let changes = [added("a", 1), added("b", 2)];
    processor.distribute_all(&changes);
    assert_eq!(stream.ended(), None);
    processor.distribute(added("c", 3));
    assert_eq!(stream.ended(), Some(HandlerEnd::Overflowed));
    assert!(block_on(stream.next()).is_none());
    assert_eq!(processor.len(), 0);
}

#[test]
fn a_stream_has_synced_when_something_is_asked_for_after_the_initial_list() {
    let (_runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), vec![object("a", 1)].into());
    processor.distribute(initial("b", 2));
    processor.initial_list_done();
    processor.distribute(added("c", 3));
    for expected in ["^a1", "^b2"] {
        assert!(!stream.has_synced());
        assert_eq!(word(&block_on(stream.next()).unwrap()), expected);
    }
    assert!(!stream.has_synced());
    assert_eq!(word(&block_on(stream.next()).unwrap()), "+c3");
    assert!(stream.has_synced());
}

#[test]
fn a_stream_of_an_empty_collection_has_synced_before_it_is_read() {
    let (_runtime, processor) = scene();
    let before = processor.subscribe(plain(), InitialState::nothing());
    processor.initial_list_done();
    let after = processor.subscribe(plain(), InitialState::nothing());
    assert!(before.has_synced() && after.has_synced());
}

#[test]
fn a_stream_that_waits_when_the_initial_list_ends_has_synced() {
    let (_runtime, processor) = scene();
    let mut stream = processor.subscribe(plain(), vec![object("a", 1)].into());
    assert_eq!(ready(&mut stream), ["^a1"]);
    processor.initial_list_done();
    assert!(stream.has_synced());
}
