//! A queue of keys to reconcile: each key is in it once, however often it is added, and is retried after a pause if reconciling failed.
//!
//! It behaves like client-go's `workqueue`: a key that is added while a worker has it waits until that worker is done, so no two workers
//! ever have the same key. No key is ready twice, so there are never more ready keys than keys.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube_fanout_informer::resource::ObjectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pause after the first failure of a key; it doubles with each further failure.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct WorkQueue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<ObjectKey>,
    /// Keys in `ready`, and keys that move there when their worker is done.
    wanted: HashSet<ObjectKey>,
    in_work: HashSet<ObjectKey>,
    /// Failed keys, by the end of their pause.
    paused: BTreeSet<(Instant, ObjectKey)>,
    failures: HashMap<ObjectKey, u32>,
    closed: bool,
}

impl WorkQueue {
    /// Adds a key, unless it is waiting already.
    pub(crate) fn add(&self, key: ObjectKey) {
        self.state().want(key);
        self.changed.notify_one();
    }

    /// Waits for the next key; `None` once the queue is closed. Call [`WorkQueue::succeeded`] or [`WorkQueue::failed`] with it
    /// afterwards.
    pub(crate) async fn next(&self) -> Option<ObjectKey> {
        loop {
            let wakes_at = {
                let mut state = self.state();
                if state.closed {
                    // Wake the next waiting worker, so that all of them end.
                    self.changed.notify_one();
                    return None;
                }
                state.end_pauses(Instant::now());
                if let Some(key) = state.take() {
                    if !state.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return Some(key);
                }
                state.paused.first().map(|(at, _)| *at)
            };
            match wakes_at {
                Some(at) => {
                    // Check the state again after the timeout as well as after a notification.
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// The key was reconciled. Resets its pause.
    pub(crate) fn succeeded(&self, key: &ObjectKey) {
        let mut state = self.state();
        state.failures.remove(key);
        state.put_down(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Reconciling the key failed; it is retried after a pause.
    pub(crate) fn failed(&self, key: &ObjectKey) {
        let mut state = self.state();
        let failures = state.failures.entry(key.clone()).or_default();
        let pause = PAUSE_FIRST
            .saturating_mul(1 << (*failures).min(16))
            .min(PAUSE_MAX);
        *failures += 1;
        state.paused.insert((Instant::now() + pause, key.clone()));
        state.put_down(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Closes the queue: `next` returns no further keys.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn want(&mut self, key: ObjectKey) {
        if self.wanted.insert(key.clone()) && !self.in_work.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn take(&mut self) -> Option<ObjectKey> {
        let key = self.ready.pop_front()?;
        self.wanted.remove(&key);
        self.in_work.insert(key.clone());
        Some(key)
    }

    fn put_down(&mut self, key: &ObjectKey) {
        self.in_work.remove(key);
        if self.wanted.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    fn end_pauses(&mut self, now: Instant) {
        while self.paused.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.paused.pop_first() {
                self.want(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_waits_once_however_often_it_is_added() {
        let queue = WorkQueue::default();
        for name in ["a", "b", "a", "a"] {
            queue.add(key(name));
        }
        assert_eq!(queue.next().await, Some(key("a")));
        assert_eq!(queue.next().await, Some(key("b")));
        queue.close();
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_during_its_work_is_given_out_when_that_is_done() {
        let queue = WorkQueue::default();
        queue.add(key("a"));
        assert_eq!(queue.next().await, Some(key("a")));
        queue.add(key("a"));
        queue.add(key("b"));
        assert_eq!(queue.next().await, Some(key("b")));
        queue.succeeded(&key("a"));
        assert_eq!(queue.next().await, Some(key("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_key_comes_again_after_a_pause_that_doubles() {
        let queue = WorkQueue::default();
        queue.add(key("a"));
        let mut waits_ms = Vec::new();
        for _ in 0..11 {
            let began_at = Instant::now();
            assert_eq!(queue.next().await, Some(key("a")));
            waits_ms.push(began_at.elapsed().as_millis());
            queue.failed(&key("a"));
        }
        assert_eq!(
            waits_ms,
            [0, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000]
        );
        assert_eq!(queue.next().await, Some(key("a")));
        queue.succeeded(&key("a"));
        queue.add(key("a"));
        queue.next().await;
        queue.failed(&key("a"));
        let began_at = Instant::now();
        queue.next().await;
        assert_eq!(began_at.elapsed(), PAUSE_FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_hears_of_a_new_key_and_of_the_end() {
        let queue = WorkQueue::default();
        let (got, ()) = tokio::join!(queue.next(), async { queue.add(key("a")) });
        assert_eq!(got, Some(key("a")));
        let (first, second, ()) = tokio::join!(queue.next(), queue.next(), async { queue.close() });
        assert_eq!((first, second), (None, None));
    }
}
