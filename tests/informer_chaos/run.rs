//! One seeded run: an informer with all kinds of listeners, a model in trouble, and what all must hold in the end.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use kube_fanout::informer::{
    FailureKind, HandlerOptions, InformerOptions, ListWatch, Overflow, Registration,
    SharedInformer, Subscription,
};
use kube_fanout::resource::replay_random;

use crate::dice::Dice;
use crate::model::{Items, Model, Mood, Plant};
use crate::wire::{Server, Shared};
use crate::witness::{Book, Content, Gate, Seen, SeenAll, Terms, Witness, note_synced, write_down};

const STEPS: u64 = 150;
/// Longer than the longest back-off several times over.
const PATIENCE_SECONDS: u64 = 600;

/// What a run was like.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How often each kind of trouble struck.
    pub(crate) struck: BTreeMap<&'static str, u64>,
    /// Requests, in order.
    pub(crate) requests: Vec<String>,
    pub(crate) notifications: usize,
    /// Merged by the slow handler's queue.
    pub(crate) merged: u64,
    pub(crate) went_back: u64,
    /// Updates from one object to another of the same name.
    pub(crate) made_anew: u64,
    /// Deletions that were found out by a list.
    pub(crate) found_gone: u64,
}

/// A handler of the run, and what its history must keep to.
struct Listener<T: Content> {
    name: &'static str,
    book: Book,
    registration: Registration<T>,
    exact: bool,
    resyncs: bool,
}

struct Run<T: Content> {
    model: Shared,
    script: Dice,
    informer: SharedInformer<T>,
    gate: Arc<Gate>,
    listeners: Vec<Listener<T>>,
    subscription: Subscription<T>,
    subscribed: Book,
}

/// Runs one seed.
///
/// # Errors
/// What was wrong in the end.
pub(crate) async fn run<T: Content>(
    seed: u64,
    list_watch: ListWatch<T>,
    plant: Plant,
) -> Result<Report, String> {
    replay_random(seed);
    let model = Arc::new(Mutex::new(Model::new(seed)));
    let options = InformerOptions {
        // Failures are what this is about: nobody needs to read of each.
        on_failure: Some(Arc::new(|_| {})),
        ..InformerOptions::default()
    };
    let fetch = Arc::new(Server(Arc::clone(&model)));
    let informer = SharedInformer::with_options(fetch, list_watch, options);
    let mut run = Run {
        model,
        script: Dice(!seed),
        gate: Arc::default(),
        listeners: Vec::new(),
        subscription: informer.subscribe(),
        subscribed: Book::default(),
        informer,
    };
    run.listen("quick", HandlerOptions::named("quick"));
    let tiny = HandlerOptions::named("slow").with_queue(4, Overflow::Merge);
    run.listen("slow", tiny);
    let again = HandlerOptions::named("resyncing").with_resync(Duration::from_secs(30));
    run.listen("resyncing", again);
    run.listen("leaving", HandlerOptions::named("leaving"));
    run.play().await;
    let outcome = run.converge(plant).await;
    // Also after a failure: its threads must not outlive the run.
    let report = run.end().await;
    outcome?;
    report
}

impl<T: Content> Run<T> {
    fn model<R>(&self, act: impl FnOnce(&mut Model) -> R) -> R {
        act(&mut self.model.lock().unwrap())
    }

    fn listen(&mut self, name: &'static str, options: HandlerOptions) {
        let book = Book::default();
        let slow = name == "slow";
        let witness = Witness {
            book: Arc::clone(&book),
            gate: slow.then(|| Arc::clone(&self.gate)),
        };
        let registration = self.informer.add_handler_with(witness, options);
        self.listeners.push(Listener {
            name,
            book,
            registration,
            exact: !slow,
            resyncs: name == "resyncing",
        });
    }

    /// Lets tasks run while so much time goes by. The clock is moved by hand: it would not move by itself while a handler is
    /// held up.
    async fn pass(&mut self, time: Duration) {
        tokio::time::advance(time).await;
        for _ in 0..12 {
            tokio::task::yield_now().await;
        }
    }

    async fn play(&mut self) {
        self.model(|model| (0..20).for_each(|_| model.write()));
        self.informer.start();
        for at in 0..STEPS {
            if at == STEPS * 4 / 5 {
                self.model(|model| model.turn(Mood::Calm));
                self.gate.turn(false);
            } else if at < STEPS * 4 / 5 {
                self.disturb();
            }
            let writes = self.script.below(5);
            self.model(|model| (0..writes).for_each(|_| model.write()));
            let time = self.script.one_of(&[50, 300, 300, 1_000, 4_000, 15_000]);
            for _ in 0..=time / 1_000 {
                self.pass(Duration::from_millis(time.min(1_000))).await;
            }
            if at == STEPS / 3 {
                self.listen("late", HandlerOptions::named("late"));
            }
            if at == STEPS / 2 {
                self.listen("later", HandlerOptions::named("later"));
                self.leave().await;
            }
            if self.script.once_in(3) {
                self.read();
            }
            self.note_synced();
        }
    }

    fn disturb(&mut self) {
        let choice = self.script.below(14);
        let script = &mut self.script;
        let mut model = self.model.lock().unwrap();
        match choice {
            0 => {
                // An outage in which objects are made anew, and whose history may be forgotten.
                model.strike("outage");
                model.turn(Mood::Away);
                (0..1 + script.below(4)).for_each(|_| model.replace());
                if script.once_in(2) {
                    model.compact();
                }
            }
            1 | 2 => model.turn(Mood::Rough),
            3 => model.restart(),
            4 => model.compact(),
            // A server that goes back is told by its version, so there must be one that is held.
            5 if self.informer.has_synced() => model.restore(),
            6 => self.gate.turn(true),
            7 | 8 => self.gate.turn(false),
            _ => {}
        }
        if model.mood == Mood::Away && script.once_in(3) {
            model.turn(Mood::Rough);
        }
    }

    /// One handler is removed; what it heard until then must make sense all the same.
    async fn leave(&mut self) {
        let leaving = self
            .listeners
            .iter()
            .find(|listener| listener.name == "leaving");
        let leaving = leaving.unwrap();
        leaving.registration.remove();
        leaving.registration.removed().await;
        let told = leaving.book.lock().unwrap().len();
        self.model(|model| (0..3).for_each(|_| model.write()));
        self.pass(Duration::from_secs(1)).await;
        let leaving = &self.listeners[3];
        assert_eq!(
            leaving.book.lock().unwrap().len(),
            told,
            "told after its removal"
        );
    }

    /// Reads what the stream has.
    fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(notification)) =
            std::pin::Pin::new(&mut self.subscription).poll_next(&mut context)
        {
            write_down(&self.subscribed, &notification);
            note_synced(&self.subscribed, self.subscription.has_synced());
        }
    }

    fn note_synced(&self) {
        for listener in &self.listeners {
            note_synced(&listener.book, listener.registration.has_synced());
        }
    }

    fn held(&self) -> SeenAll {
        let objects = self.informer.store().snapshot().into_iter();
        objects
            .map(|object| (object.key().to_string(), Seen::of(&object)))
            .collect()
    }

    fn expected(&self) -> SeenAll {
        self.model(|model| seen(&model.state()))
    }

    /// After some quiet the store is what the server holds.
    async fn converge(&mut self, plant: Plant) -> Result<(), String> {
        self.gate.turn(false);
        self.settle().await?;
        if plant == Plant::Nothing {
            return Ok(());
        }
        self.model(|model| {
            model.plant = plant;
            model.write();
        });
        self.settle().await
    }

    async fn settle(&mut self) -> Result<(), String> {
        // One look behind the end of the longest wait: what holds early may cease to.
        for second in 0..PATIENCE_SECONDS {
            self.pass(Duration::from_secs(1)).await;
            self.read();
            if second > 100 && hash(&self.held()) == hash(&self.expected()) {
                return Ok(());
            }
        }
        let (held, expected) = (self.held(), self.expected());
        Err(format!("the store holds {held:?} instead of {expected:?}"))
    }

    async fn end(mut self) -> Result<Report, String> {
        self.gate.turn(false);
        self.informer.shutdown().await;
        self.read();
        self.note_synced();
        let expected = self.expected();
        let setbacks = self.model(|model| model.setbacks.clone());
        let counts = self.informer.counts();
        let mut report = Report {
            went_back: counts.failures(FailureKind::WentBack),
            ..Report::default()
        };
        let mut check = |name: &str, book: &Book, exact, resyncs| {
            let terms = Terms {
                exact,
                resyncs,
                setbacks: setbacks.clone(),
            };
            let history = book.lock().unwrap();
            report.notifications += history.len();
            report.made_anew += history.made_anew();
            report.found_gone += history.found_gone();
            let held = history
                .replay(&terms)
                .map_err(|why| format!("{name}: {why}"))?;
            if name != "leaving" && hash(&held) != hash(&expected) {
                return Err(format!("{name} was told {held:?} instead of {expected:?}"));
            }
            Ok(())
        };
        for listener in &self.listeners {
            let merged = listener.registration.counts().merged;
            let exact = listener.exact || merged == 0;
            check(listener.name, &listener.book, exact, listener.resyncs)?;
            if listener.exact && merged > 0 {
                return Err(format!("{} was told {merged} times less", listener.name));
            }
        }
        let merged = self.subscription.counts().merged;
        check("stream", &self.subscribed, merged == 0, false)?;
        let slow = &self.listeners[1].registration;
        report.merged = slow.counts().merged;
        self.model(|model| {
            report.struck = std::mem::take(&mut model.struck);
            report.requests = std::mem::take(&mut model.requests);
        });
        Ok(report)
    }
}

fn seen(items: &Items) -> SeenAll {
    let seen = |(key, item): (&String, &crate::model::Item)| {
        let seen = Seen {
            uid: format!("u{}", item.uid),
            version: item.version,
            n: Some(item.n),
        };
        (key.clone(), seen)
    };
    items.iter().map(seen).collect()
}

pub(crate) fn hash(objects: &SeenAll) -> u64 {
    let mut hasher = DefaultHasher::new();
    objects.hash(&mut hasher);
    hasher.finish()
}
