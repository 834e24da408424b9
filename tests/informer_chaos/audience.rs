//! An informer with all kinds of listeners, and what they must have been told in the end.

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

use crate::witness::{Book, Content, Gate, Seen, SeenAll, Terms, Witness, note_synced, write_down};

/// One handler, and what its history must keep to.
struct Listener<T: Content> {
    name: &'static str,
    book: Book,
    registration: Registration<T>,
}

/// The informer and its listeners.
pub(crate) struct Audience<T: Content> {
    pub(crate) informer: SharedInformer<T>,
    /// Where the slow one waits.
    pub(crate) gate: Arc<Gate>,
    listeners: Vec<Listener<T>>,
    subscription: Subscription<T>,
    subscribed: Book,
}

/// What all listeners together were told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) told: u64,
    /// Merged by the slow handler's queue.
    pub(crate) merged: u64,
    /// Updates from one object to another of the same name.
    pub(crate) made_anew: u64,
    /// Deletions that were found out by a list.
    pub(crate) found_gone: u64,
    /// Lists that were older than what was held.
    pub(crate) went_back: u64,
}

const SLOW: &str = "slow";
const LEAVING: &str = "leaving";
const RESYNCING: &str = "resyncing";
/// Slow, too, and told of every second state.
const FILTERED: &str = "filtered";

fn passes(n: Option<u64>) -> bool {
    n.is_some_and(|n| n.is_multiple_of(2))
}

/// What one is to hold in the end.
fn share(name: &str, expected: &SeenAll) -> SeenAll {
    let mut share = expected.clone();
    if name == FILTERED {
        share.retain(|_, seen| passes(seen.n));
    }
    share
}

impl<T: Content> Audience<T> {
    /// Not started.
    pub(crate) fn new<F: Fetch>(fetch: F, list_watch: ListWatch<T>, on_failure: OnFailure) -> Self {
        let options = InformerOptions {
            on_failure: Some(on_failure),
            ..InformerOptions::default()
        };
        let informer = SharedInformer::with_options(Arc::new(fetch), list_watch, options);
        let mut audience = Self {
            gate: Arc::default(),
            listeners: Vec::new(),
            subscription: informer.subscribe(),
            subscribed: Book::default(),
            informer,
        };
        audience.join("quick");
        audience.join(SLOW);
        audience.join(RESYNCING);
        audience.join(FILTERED);
        audience.join(LEAVING);
        audience
    }

    /// Adds one more.
    pub(crate) fn join(&mut self, name: &'static str) {
        let options = HandlerOptions::named(name);
        let options = match name {
            SLOW | FILTERED => options.with_queue(4, Overflow::Merge),
            RESYNCING => options.with_resync(Duration::from_secs(30)),
            _ => options,
        };
        let book = Book::default();
        let witness = Witness {
            book: Arc::clone(&book),
            gate: matches!(name, SLOW | FILTERED).then(|| Arc::clone(&self.gate)),
        };
        let registration = if name == FILTERED {
            let filter = |object: &Cached<T>| passes(object.number());
            let filtered = EventFilter::new(filter, witness);
            self.informer.add_handler_with(filtered, options)
        } else {
            self.informer.add_handler_with(witness, options)
        };
        self.listeners.push(Listener {
            name,
            book,
            registration,
        });
    }

    fn leaving(&self) -> &Listener<T> {
        let mut listeners = self.listeners.iter();
        listeners.find(|listener| listener.name == LEAVING).unwrap()
    }

    /// Removes one; how much it was told, which must not become more.
    pub(crate) async fn leave(&self) -> usize {
        let leaving = self.leaving();
        leaving.registration.remove();
        leaving.registration.removed().await;
        leaving.book.lock().unwrap().len()
    }

    /// Reads what the stream has.
    pub(crate) fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(notification)) =
            Pin::new(&mut self.subscription).poll_next(&mut context)
        {
            write_down(&self.subscribed, &notification);
            note_synced(&self.subscribed, self.subscription.has_synced());
        }
    }

    pub(crate) fn note_synced(&self) {
        for listener in &self.listeners {
            note_synced(&listener.book, listener.registration.has_synced());
        }
    }

    pub(crate) fn held(&self) -> SeenAll {
        let objects = self.informer.store().snapshot().into_iter();
        objects
            .map(|object| (object.key().to_string(), Seen::of(&object)))
            .collect()
    }

    /// Who does not hold what is expected.
    pub(crate) fn behind(&mut self, expected: &SeenAll) -> Vec<&'static str> {
        self.read();
        let mut behind = Vec::new();
        if self.held() != *expected {
            behind.push("store");
        }
        for listener in &self.listeners {
            let expected = share(listener.name, expected);
            if listener.name != LEAVING && !listener.book.lock().unwrap().holds(&expected) {
                behind.push(listener.name);
            }
        }
        if !self.subscribed.lock().unwrap().holds(expected) {
            behind.push("stream");
        }
        behind
    }

    /// Shuts the informer down and goes through everybody's history.
    ///
    /// # Errors
    /// A history makes no sense, or does not explain what is held.
    pub(crate) async fn end(
        mut self,
        expected: &SeenAll,
        left_with: usize,
        setbacks: &[(u64, u64)],
    ) -> Result<Totals, String> {
        self.gate.turn(false);
        self.informer.shutdown().await;
        self.read();
        self.note_synced();
        if self.leaving().book.lock().unwrap().len() != left_with {
            return Err("one was told something after its removal".into());
        }
        let mut totals = Totals {
            went_back: self.informer.counts().failures(FailureKind::WentBack),
            ..Totals::default()
        };
        for listener in &self.listeners {
            let merged = listener.registration.counts().merged;
            if matches!(listener.name, SLOW | FILTERED) {
                totals.merged += merged;
            } else if merged > 0 {
                return Err(format!("{} was told {merged} times less", listener.name));
            }
            let terms = terms(listener.name, merged, setbacks);
            totals.add(listener.name, &listener.book, &terms, expected)?;
        }
        let merged = self.subscription.counts().merged;
        let terms = terms("stream", merged, setbacks);
        totals.add("stream", &self.subscribed, &terms, expected)?;
        Ok(totals)
    }
}

impl<T: Content> Drop for Audience<T> {
    /// A failed test must end, too: its runtime waits for handlers.
    fn drop(&mut self) {
        self.gate.turn(false);
    }
}

fn terms(name: &str, merged: u64, setbacks: &[(u64, u64)]) -> Terms {
    Terms {
        exact: merged == 0,
        resyncs: name == RESYNCING,
        filtered: name == FILTERED,
        setbacks: setbacks.to_vec(),
    }
}

impl Totals {
    fn add(
        &mut self,
        name: &str,
        book: &Book,
        terms: &Terms,
        expected: &SeenAll,
    ) -> Result<(), String> {
        let history = book.lock().unwrap();
        self.told += history.len() as u64;
        self.made_anew += history.made_anew();
        self.found_gone += history.found_gone();
        let held = history.replay(terms);
        let held = held.map_err(|why| format!("{name}: {why}"))?;
        let expected = share(name, expected);
        if name != LEAVING && held != expected {
            return Err(format!("{name} was told {held:?} instead of {expected:?}"));
        }
        Ok(())
    }
}

/// Equal for equal objects.
pub(crate) fn hash(objects: &SeenAll) -> u64 {
    let mut hasher = DefaultHasher::new();
    objects.hash(&mut hasher);
    hasher.finish()
}
