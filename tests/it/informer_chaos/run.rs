//! One run: a model with injected faults, an informer that reads it, and the checks at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_fanout::informer::{ListWatch, OnFailure};
use kube_fanout::resource::replay_random;

use crate::informer_chaos::history::{Content, ObjectState, ObjectStates};
use crate::informer_chaos::model::{Item, Model, PlantedDefect, ServerMode};
use crate::informer_chaos::observed::{ObservedInformer, Totals, hash};
use crate::informer_chaos::responses::{Server, SharedModel};
use crate::support::PATIENCE;
use crate::support::random::Random;

const STEPS: u64 = 150;
/// After this many steps the faults pause until the store equals the server's objects.
const STEPS_BETWEEN_CHECKS: u64 = 15;
/// Seconds without faults before the final check. Longer than the informer's longest wait, because a store that is right early can still
/// become wrong.
const QUIET_SECONDS: u64 = 100;
/// Seconds after which a store that does not equal the server's objects is an error.
const CONVERGENCE_SECONDS_MAX: u64 = 600;
/// The time, by the run's clock, within which the store and all handlers must have the last write.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(1);

/// What happened in a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The number of injected faults, by kind.
    pub(crate) fault_counts: BTreeMap<&'static str, u64>,
    /// The paths of all requests, in order.
    pub(crate) requests: Vec<String>,
    pub(crate) totals: Totals,
}

/// The sizes of bursts: numbers of writes without a pause.
pub(crate) const BURSTS: [u64; 5] = [1, 2, 4, 20, 200];

struct Run<T: Content> {
    model: SharedModel,
    random: Random,
    observed: ObservedInformer<T>,
    removed_len: usize,
}

/// Runs one seed.
///
/// # Errors
/// A description of what was wrong in the end.
pub(crate) async fn run<T: Content>(
    seed: u64,
    list_watch: ListWatch<T>,
    defect: PlantedDefect,
) -> Result<Report, String> {
    replay_random(seed);
    let model = Arc::new(Mutex::new(Model::new(seed)));
    let failing_model = Arc::clone(&model);
    let on_failure: OnFailure =
        Arc::new(move |_| failing_model.lock().unwrap().list_in_progress = false);
    let mut run = Run {
        observed: ObservedInformer::new(Server(Arc::clone(&model)), list_watch, on_failure),
        model,
        random: Random(!seed),
        removed_len: 0,
    };
    let converged = match run.play().await {
        Ok(()) => run.converge(defect).await,
        failure => failure,
    };
    // Shut down after a failure, too: the informer's threads must not outlive the run.
    let report = run.end().await;
    converged?;
    report
}

impl<T: Content> Run<T> {
    fn model<R>(&self, action: impl FnOnce(&mut Model) -> R) -> R {
        action(&mut self.model.lock().unwrap())
    }

    async fn play(&mut self) -> Result<(), String> {
        self.model(|model| (0..20).for_each(|_| model.write()));
        self.observed.informer.start();
        for at in 0..STEPS {
            self.disturb();
            let last_version = self.observed.informer.counts().last_version;
            let writes = if self.model(|model| model.large) && self.random.one_in(8) {
                self.random.one_of(&BURSTS)
            } else {
                self.random.below(5)
            };
            self.model(|model| {
                model.writes_paused &=
                    last_version.is_some_and(|last_version| last_version.0 > model.revision);
            });
            self.model(|model| (0..writes).for_each(|_| model.write()));
            let time = self.random.one_of(&[50, 300, 300, 1_000, 4_000, 15_000]);
            for _ in 0..=time / 1_000 {
                self.pass(Duration::from_millis(time.min(1_000))).await?;
            }
            if at == STEPS / 3 {
                self.observed.add_handler("late");
            }
            if at == STEPS / 2 {
                self.observed.add_handler("later");
                self.removed_len = self.observed.remove_handler().await;
            }
            if self.random.one_in(3) {
                self.observed.read();
            }
            self.observed.note_synced();
            if at % STEPS_BETWEEN_CHECKS == STEPS_BETWEEN_CHECKS - 1 {
                // Without these checks a later relist could hide a lost event.
                self.model(|model| model.set_mode(ServerMode::Healthy));
                self.settle(1).await?;
                self.model(|model| model.set_mode(ServerMode::Faulty));
            }
        }
        self.model(|model| model.set_mode(ServerMode::Healthy));
        Ok(())
    }

    fn disturb(&mut self) {
        let choice = self.random.below(14);
        let (random, observed) = (&mut self.random, &self.observed);
        let mut model = self.model.lock().unwrap();
        match choice {
            0 => {
                // An outage in which objects are deleted and created again, and whose history may be compacted.
                model.count_fault("outage");
                model.set_mode(ServerMode::Unreachable);
                (0..1 + random.below(4)).for_each(|_| model.replace());
                if random.one_in(2) {
                    model.compact();
                }
            }
            1 | 2 => model.set_mode(ServerMode::Faulty),
            3 => model.restart(),
            4 => model.compact(),
            // The client detects a rollback by its last version, so it must have one.
            5 if observed.informer.has_synced() => model.restore(),
            6 => observed.gate.set_closed(true),
            7 | 8 => observed.gate.set_closed(false),
            _ => {}
        }
        if model.mode == ServerMode::Unreachable && random.one_in(3) {
            model.set_mode(ServerMode::Faulty);
        }
    }

    fn expected(&self) -> ObjectStates {
        let object_state = |(key, item): (String, Item)| {
            let object_state = ObjectState {
                uid: format!("u{}", item.uid),
                version: item.version,
                n: Some(item.n),
            };
            (key, object_state)
        };
        let state = self.model(|model| model.state());
        state.into_iter().map(object_state).collect()
    }

    /// Checks that the store equals the server's objects after a time without faults, and then plants the defect, if any.
    async fn converge(&mut self, defect: PlantedDefect) -> Result<(), String> {
        self.observed.gate.set_closed(false);
        self.settle(QUIET_SECONDS).await?;
        if defect == PlantedDefect::Nothing {
            return self.finish().await;
        }
        self.model(|model| {
            model.defect = defect;
            model.write();
        });
        self.settle(QUIET_SECONDS).await
    }

    /// Writes a last burst, and checks that the store and all handlers receive it in time.
    async fn finish(&mut self) -> Result<(), String> {
        let burst = self.random.one_of(&BURSTS);
        self.model(|model| (0..burst).for_each(|_| model.write()));
        let expected = self.expected();
        // Handlers run on threads of their own, in real time. That hides no stuck event: the run's clock stands still meanwhile.
        let give_up_at = std::time::Instant::now() + PATIENCE;
        self.pass(DELIVERY_TIME_MAX).await?;
        loop {
            let incomplete = self.observed.incomplete(&expected);
            if incomplete.is_empty() {
                return Ok(());
            }
            if std::time::Instant::now() > give_up_at {
                return Err(format!(
                    "incomplete at the end: {incomplete:?} after {burst} writes"
                ));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits for at least this many seconds, and until the store equals the server's objects.
    async fn settle(&mut self, quiet_seconds: u64) -> Result<(), String> {
        for second in 0..CONVERGENCE_SECONDS_MAX {
            self.pass(Duration::from_secs(1)).await?;
            self.observed.read();
            let is_equal = || hash(&self.observed.objects()) == hash(&self.expected());
            if second >= quiet_seconds && is_equal() {
                return Ok(());
            }
        }
        let (objects, expected) = (self.observed.objects(), self.expected());
        Err(format!(
            "the store holds {objects:?}, expected {expected:?}"
        ))
    }

    /// Advances the clock and lets tasks run. The clock is advanced explicitly, because tokio does not advance it while a handler thread is
    /// blocked. Waits for a list that the client decodes on another thread, because the clock must not run ahead of it.
    async fn pass(&self, time: Duration) -> Result<(), String> {
        tokio::time::advance(time).await;
        let give_up_at = std::time::Instant::now() + PATIENCE;
        loop {
            for _ in 0..12 {
                tokio::task::yield_now().await;
            }
            if !self.model(|model| model.list_in_progress) {
                return Ok(());
            }
            if std::time::Instant::now() > give_up_at {
                return Err("the client did not react to a list".into());
            }
        }
    }

    async fn end(self) -> Result<Report, String> {
        let expected = self.expected();
        let rollbacks = self.model(|model| model.rollbacks.clone());
        let ended = self.observed.end(&expected, self.removed_len, &rollbacks);
        let totals = ended.await?;
        let mut model = self.model.lock().unwrap();
        Ok(Report {
            fault_counts: std::mem::take(&mut model.fault_counts),
            requests: std::mem::take(&mut model.requests),
            totals,
        })
    }
}
