//! User code that calls the informer while the informer calls it: destructors, wakers, the failure hook.

use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Wake};

use futures_core::Stream;

use super::*;
use crate::KeyError;
use crate::Overflow;
use crate::processor::tests::reentry::{OnDrop, without_deadlock};

/// Adds a handler to the informer, and reports that to the test.
struct Caller {
    informer: OnceLock<SharedInformer<Raw>>,
    calls: mpsc::Sender<()>,
}

impl Caller {
    fn new() -> (Arc<Self>, mpsc::Receiver<()>) {
        let (calls, called) = mpsc::channel(1);
        let informer = OnceLock::new();
        (Arc::new(Self { informer, calls }), called)
    }

    fn call(&self) {
        if let Some(informer) = self.informer.get() {
            informer.add_handler(|_: &Notification<Raw>| {});
        }
        // The channel may be full: the test waits for one call only.
        self.calls.try_send(()).unwrap_or_default();
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

fn check<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    without_deadlock(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(test());
    });
}

#[test]
fn a_handler_that_overflows_may_call_the_informer_as_it_is_dropped() {
    check(|| async {
        let (scene, feed) = Scene::started(InformerOptions::default()).await;
        let (caller, mut called) = Caller::new();
        caller.informer.set(scene.informer.clone()).unwrap();
        let guard = OnDrop(move || caller.call());
        let options = HandlerOptions::named("short").with_queue(1, Overflow::Remove);
        let handler = move |_: &Notification<Raw>| {
            let _held = &guard;
        };
        scene.informer.add_handler_with(handler, options);
        send(&feed, &[marker(5)]).await;
        scene.informer.synced().await.unwrap();
        let burst: Vec<_> = (0..200)
            .map(|number| event("ADDED", &format!("x{number}"), 6 + number))
            .collect();
        send(&feed, &burst).await;
        called.recv().await.unwrap();
        scene.informer.shutdown().await;
    });
}

#[test]
fn a_waker_may_call_the_informer() {
    check(|| async {
        let (scene, feed) = Scene::started(InformerOptions::default()).await;
        let (caller, mut called) = Caller::new();
        caller.informer.set(scene.informer.clone()).unwrap();
        let mut changes = scene.informer.subscribe();
        send(&feed, &[marker(5)]).await;
        scene.informer.synced().await.unwrap();
        let waker = caller.into();
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut changes).poll_next(&mut context).is_pending());
        send(&feed, &[event("ADDED", "x", 6)]).await;
        called.recv().await.unwrap();
        scene.informer.shutdown().await;
    });
}

#[test]
fn the_failure_hook_may_call_the_informer() {
    check(|| async {
        let (caller, mut called) = Caller::new();
        let hook = Arc::clone(&caller);
        // Returns a key when the object is queued, and fails when it is stored.
        let had_key = Mutex::new(false);
        let options = InformerOptions {
            on_failure: Some(Arc::new(move |_| hook.call())),
            key: Arc::new(move |object: &Cached<Raw>| {
                if std::mem::replace(&mut *had_key.lock().unwrap(), true) {
                    return Err(KeyError::new("planted"));
                }
                Ok(object.key().clone())
            }),
            ..InformerOptions::default()
        };
        let (scene, feed) = Scene::started(options).await;
        caller.informer.set(scene.informer.clone()).unwrap();
        send(&feed, &[marker(5), event("ADDED", "x", 6)]).await;
        called.recv().await.unwrap();
        scene.informer.shutdown().await;
    });
}
