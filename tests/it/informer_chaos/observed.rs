//! An informer with handlers of every kind and a stream, and the checks of what they received.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use kube_fanout::informer::{
    Cached, EventFilter, FailureKind, HandlerOptions, InformerOptions, ListWatch, OnFailure,
    Overflow, Registration, SharedInformer, Subscription,
};
use kube_fanout::upstream::driver::Fetch;

use crate::informer_chaos::history::{
    Content, EventRecorder, Gate, HistoryRules, ObjectState, ObjectStates, SharedHistory,
    note_synced, record,
};

/// A registered handler and its recorded history.
struct HandlerRecord<T: Content> {
    name: &'static str,
    history: SharedHistory,
    registration: Registration<T>,
}

/// An informer with its handlers and its stream.
pub(crate) struct ObservedInformer<T: Content> {
    pub(crate) informer: SharedInformer<T>,
    /// Holds up the slow handlers while it is closed.
    pub(crate) gate: Arc<Gate>,
    handlers: Vec<HandlerRecord<T>>,
    subscription: Subscription<T>,
    stream_history: SharedHistory,
}

/// Sums over all handlers and the stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) notifications: u64,
    /// Notifications that the slow handlers' queues merged.
    pub(crate) merged: u64,
    /// Updates from one object to another with the same name and another uid.
    pub(crate) recreated: u64,
    /// Deletions whose events were missed and that a later list revealed.
    pub(crate) missed_deletions: u64,
    /// Lists that were older than the store.
    pub(crate) older_lists: u64,
}

const SLOW: &str = "slow";
const REMOVABLE: &str = "leaving";
const RESYNCING: &str = "resyncing";
/// A slow handler with a filter that passes even numbers only.
const FILTERED: &str = "filtered";

fn is_even(n: Option<u64>) -> bool {
    n.is_some_and(|n| n.is_multiple_of(2))
}

/// The objects that a handler must have received in the end.
fn expected_for(name: &str, expected: &ObjectStates) -> ObjectStates {
    let mut expected = expected.clone();
    if name == FILTERED {
        expected.retain(|_, state| is_even(state.n));
    }
    expected
}

impl<T: Content> ObservedInformer<T> {
    /// Creates an informer with all handlers; the caller starts it.
    pub(crate) fn new<F: Fetch>(fetch: F, list_watch: ListWatch<T>, on_failure: OnFailure) -> Self {
        let options = InformerOptions {
            on_failure: Some(on_failure),
            ..InformerOptions::default()
        };
        let informer = SharedInformer::with_options(Arc::new(fetch), list_watch, options);
        let mut observed = Self {
            gate: Arc::default(),
            handlers: Vec::new(),
            subscription: informer.subscribe(),
            stream_history: SharedHistory::default(),
            informer,
        };
        observed.add_handler("quick");
        observed.add_handler(SLOW);
        observed.add_handler(RESYNCING);
        observed.add_handler(FILTERED);
        observed.add_handler(REMOVABLE);
        observed
    }

    /// Adds a handler.
    pub(crate) fn add_handler(&mut self, name: &'static str) {
        let options = HandlerOptions::named(name);
        let options = match name {
            SLOW | FILTERED => options.with_queue(4, Overflow::Merge),
            RESYNCING => options.with_resync(Duration::from_secs(30)),
            _ => options,
        };
        let history = SharedHistory::default();
        let recording_handler = EventRecorder {
            history: Arc::clone(&history),
            gate: matches!(name, SLOW | FILTERED).then(|| Arc::clone(&self.gate)),
        };
        let registration = if name == FILTERED {
            let filter = |object: &Cached<T>| is_even(object.number());
            let filtered = EventFilter::new(filter, recording_handler);
            self.informer.add_handler_with(filtered, options)
        } else {
            self.informer.add_handler_with(recording_handler, options)
        };
        self.handlers.push(HandlerRecord {
            name,
            history,
            registration,
        });
    }

    fn removable_handler(&self) -> &HandlerRecord<T> {
        let mut handlers = self.handlers.iter();
        handlers.find(|handler| handler.name == REMOVABLE).unwrap()
    }

    /// Removes one handler; returns the length of its history, which must not grow any more.
    pub(crate) async fn remove_handler(&self) -> usize {
        let handler = self.removable_handler();
        handler.registration.remove();
        handler.registration.removed().await;
        handler.history.lock().unwrap().len()
    }

    /// Records the notifications that the stream has ready.
    pub(crate) fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(notification)) =
            Pin::new(&mut self.subscription).poll_next(&mut context)
        {
            record(&self.stream_history, &notification);
            note_synced(&self.stream_history, self.subscription.has_synced());
        }
    }

    pub(crate) fn note_synced(&self) {
        for handler in &self.handlers {
            note_synced(&handler.history, handler.registration.has_synced());
        }
    }

    pub(crate) fn objects(&self) -> ObjectStates {
        let objects = self.informer.store().snapshot().into_iter();
        objects
            .map(|object| (object.key().to_string(), ObjectState::of(&object)))
            .collect()
    }

    /// The names of the store, handlers and stream that do not have the expected objects.
    pub(crate) fn incomplete(&mut self, expected: &ObjectStates) -> Vec<&'static str> {
        self.read();
        let mut incomplete = Vec::new();
        if self.objects() != *expected {
            incomplete.push("store");
        }
        for handler in &self.handlers {
            let expected = expected_for(handler.name, expected);
            if handler.name != REMOVABLE && !handler.history.lock().unwrap().holds(&expected) {
                incomplete.push(handler.name);
            }
        }
        if !self.stream_history.lock().unwrap().holds(expected) {
            incomplete.push("stream");
        }
        incomplete
    }

    /// Shuts the informer down and checks all histories.
    ///
    /// # Errors
    /// A history breaks a rule, or does not lead to the expected objects.
    pub(crate) async fn end(
        mut self,
        expected: &ObjectStates,
        removed_len: usize,
        rollbacks: &[(u64, u64)],
    ) -> Result<Totals, String> {
        self.gate.set_closed(false);
        self.informer.shutdown().await;
        self.read();
        self.note_synced();
        if self.removable_handler().history.lock().unwrap().len() != removed_len {
            return Err("a removed handler got a notification".into());
        }
        let mut totals = Totals {
            older_lists: self.informer.counts().failures(FailureKind::WentBack),
            ..Totals::default()
        };
        for handler in &self.handlers {
            let merged = handler.registration.counts().merged;
            if matches!(handler.name, SLOW | FILTERED) {
                totals.merged += merged;
            } else if merged > 0 {
                return Err(format!(
                    "{merged} notifications of {} were merged",
                    handler.name
                ));
            }
            let rules = rules_of(handler.name, merged, rollbacks);
            totals.add(handler.name, &handler.history, &rules, expected)?;
        }
        let merged = self.subscription.counts().merged;
        let rules = rules_of("stream", merged, rollbacks);
        totals.add("stream", &self.stream_history, &rules, expected)?;
        Ok(totals)
    }
}

impl<T: Content> Drop for ObservedInformer<T> {
    /// Opens the gate, because the runtime of a failed test waits for its handlers.
    fn drop(&mut self) {
        self.gate.set_closed(false);
    }
}

fn rules_of(name: &str, merged: u64, rollbacks: &[(u64, u64)]) -> HistoryRules {
    HistoryRules {
        exact: merged == 0,
        resyncs: name == RESYNCING,
        filtered: name == FILTERED,
        rollbacks: rollbacks.to_vec(),
    }
}

impl Totals {
    fn add(
        &mut self,
        name: &str,
        history: &SharedHistory,
        rules: &HistoryRules,
        expected: &ObjectStates,
    ) -> Result<(), String> {
        let history = history.lock().unwrap();
        self.notifications += history.len() as u64;
        self.recreated += history.recreated();
        self.missed_deletions += history.missed_deletions();
        let objects = history.replay(rules);
        let objects = objects.map_err(|violation| format!("{name}: {violation}"))?;
        let expected = expected_for(name, expected);
        if name != REMOVABLE && objects != expected {
            return Err(format!(
                "{name} received {objects:?}, expected {expected:?}"
            ));
        }
        Ok(())
    }
}

/// A hash to compare objects.
pub(crate) fn hash(objects: &ObjectStates) -> u64 {
    let mut hasher = DefaultHasher::new();
    objects.hash(&mut hasher);
    hasher.finish()
}
