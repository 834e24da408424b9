//! One seeded run: a model in trouble, an informer that follows it, and what all must hold in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_fanout::informer::ListWatch;
use kube_fanout::resource::replay_random;

use crate::audience::{Audience, Totals, hash};
use crate::dice::Dice;
use crate::model::{Item, Model, Mood, Plant};
use crate::wire::{Server, Shared};
use crate::witness::{Content, Seen, SeenAll};

const STEPS: u64 = 150;
/// Trouble ends before the last step.
const CALM_FROM: u64 = STEPS * 4 / 5;
/// Seconds behind the end of the longest wait: what holds early may cease to.
const QUIET_SECONDS: u64 = 100;
const PATIENCE_SECONDS: u64 = 600;

/// What a run was like.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How often each kind of trouble struck.
    pub(crate) struck: BTreeMap<&'static str, u64>,
    /// Requests, in order.
    pub(crate) requests: Vec<String>,
    pub(crate) totals: Totals,
}

struct Run<T: Content> {
    model: Shared,
    script: Dice,
    audience: Audience<T>,
    left_with: usize,
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
    let mut run = Run {
        audience: Audience::new(Server(Arc::clone(&model)), list_watch),
        model,
        script: Dice(!seed),
        left_with: 0,
    };
    run.play().await;
    let converged = run.converge(plant).await;
    // Also after a failure: its threads must not outlive the run.
    let report = run.end().await;
    converged?;
    report
}

impl<T: Content> Run<T> {
    fn model<R>(&self, act: impl FnOnce(&mut Model) -> R) -> R {
        act(&mut self.model.lock().unwrap())
    }

    async fn play(&mut self) {
        self.model(|model| (0..20).for_each(|_| model.write()));
        self.audience.informer.start();
        for at in 0..STEPS {
            if at == CALM_FROM {
                self.model(|model| model.turn(Mood::Calm));
                self.audience.gate.turn(false);
            } else if at < CALM_FROM {
                self.disturb();
            }
            let writes = self.script.below(5);
            self.model(|model| (0..writes).for_each(|_| model.write()));
            let time = self.script.one_of(&[50, 300, 300, 1_000, 4_000, 15_000]);
            for _ in 0..=time / 1_000 {
                pass(Duration::from_millis(time.min(1_000))).await;
            }
            if at == STEPS / 3 {
                self.audience.join("late");
            }
            if at == STEPS / 2 {
                self.audience.join("later");
                self.left_with = self.audience.leave().await;
            }
            if self.script.once_in(3) {
                self.audience.read();
            }
            self.audience.note_synced();
        }
    }

    fn disturb(&mut self) {
        let choice = self.script.below(14);
        let (script, audience) = (&mut self.script, &self.audience);
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
            5 if audience.informer.has_synced() => model.restore(),
            6 => audience.gate.turn(true),
            7 | 8 => audience.gate.turn(false),
            _ => {}
        }
        if model.mood == Mood::Away && script.once_in(3) {
            model.turn(Mood::Rough);
        }
    }

    fn expected(&self) -> SeenAll {
        let seen = |(key, item): (String, Item)| {
            let seen = Seen {
                uid: format!("u{}", item.uid),
                version: item.version,
                n: Some(item.n),
            };
            (key, seen)
        };
        let state = self.model(|model| model.state());
        state.into_iter().map(seen).collect()
    }

    /// After some quiet the store is what the server holds.
    async fn converge(&mut self, plant: Plant) -> Result<(), String> {
        self.audience.gate.turn(false);
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
        for second in 0..PATIENCE_SECONDS {
            pass(Duration::from_secs(1)).await;
            self.audience.read();
            let agree = || hash(&self.audience.held()) == hash(&self.expected());
            if second > QUIET_SECONDS && agree() {
                return Ok(());
            }
        }
        let (held, expected) = (self.audience.held(), self.expected());
        Err(format!("the store holds {held:?} instead of {expected:?}"))
    }

    async fn end(self) -> Result<Report, String> {
        let expected = self.expected();
        let setbacks = self.model(|model| model.setbacks.clone());
        let ended = self.audience.end(&expected, self.left_with, &setbacks);
        let totals = ended.await?;
        let mut model = self.model.lock().unwrap();
        Ok(Report {
            struck: std::mem::take(&mut model.struck),
            requests: std::mem::take(&mut model.requests),
            totals,
        })
    }
}

/// Lets tasks run while so much time goes by. The clock is moved by hand: it does not move by itself while a handler is held
/// up.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..12 {
        tokio::task::yield_now().await;
    }
}
