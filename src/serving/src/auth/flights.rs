//! Calls that requests share: at most one of each key is in flight, and it continues when the requests that wait for it are cancelled.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The calls in flight. They are aborted when this is dropped.
pub(super) struct Flights<K, T> {
    outcomes: Arc<Mutex<FlightMap<K, T>>>,
    tasks: Mutex<JoinSet<()>>,
}

type FlightMap<K, T> = HashMap<K, watch::Receiver<Option<T>>, RandomState>;

/// Waits for the outcome of a call.
#[derive(Debug)]
pub(super) struct FlightWaiter<T>(watch::Receiver<Option<T>>);

impl<T: Clone> FlightWaiter<T> {
    /// The outcome; `None` if the call panicked or was aborted.
    pub(super) async fn outcome(mut self) -> Option<T> {
        self.0.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self {
            outcomes: Arc::default(),
            tasks: Mutex::default(),
        }
    }
}

impl<K, T> fmt::Debug for Flights<K, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Flights").finish_non_exhaustive()
    }
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The call of this key, if it is in flight.
    pub(super) fn join(&self, key: &K) -> Option<FlightWaiter<T>> {
        self.outcomes.lock().get(key).cloned().map(FlightWaiter)
    }

    /// The call of this key, which is the one that `begin` returns unless one is in flight.
    ///
    /// # Errors
    /// That of `begin`.
    pub(super) fn join_or_begin<F, E>(
        &self,
        key: K,
        begin: impl FnOnce() -> Result<F, E>,
    ) -> Result<FlightWaiter<T>, E>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut outcomes = self.outcomes.lock();
        if let Some(outcome) = outcomes.get(&key) {
            return Ok(FlightWaiter(outcome.clone()));
        }
        let call = begin()?;
        let (sender, receiver) = watch::channel(None);
        outcomes.insert(key.clone(), receiver.clone());
        drop(outcomes);
        let landing = Landing {
            outcomes: Arc::clone(&self.outcomes),
            key,
            outcome: None,
            sender,
        };
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move { landing.end(call.await) });
        Ok(FlightWaiter(receiver))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.outcomes.lock().is_empty()
    }
}

/// Ends a flight on drop, also if its call panics.
struct Landing<K: Eq + Hash, T> {
    outcomes: Arc<Mutex<FlightMap<K, T>>>,
    key: K,
    outcome: Option<T>,
    sender: watch::Sender<Option<T>>,
}

impl<K: Eq + Hash, T> Landing<K, T> {
    fn end(mut self, outcome: T) {
        self.outcome.replace(outcome);
    }
}

impl<K: Eq + Hash, T> Drop for Landing<K, T> {
    fn drop(&mut self) {
        // First, so that no request joins a call that has ended.
        self.outcomes.lock().remove(&self.key);
        self.sender.send_replace(self.outcome.take());
    }
}

#[cfg(test)]
mod tests;
