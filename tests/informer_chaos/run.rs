//! One seeded run: a model in trouble, an informer that follows it, and what all must hold in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_fanout::informer::{ListWatch, OnFailure};
use kube_fanout::resource::replay_random;

use crate::audience::{Audience, Totals, hash};
use crate::dice::Dice;
use crate::model::{Item, Model, Mood, Plant};
use crate::wire::{Server, Shared};
use crate::witness::{Content, Seen, SeenAll};

const STEPS: u64 = 150;
/// Trouble pauses until the store is what the server holds.
const INTERLUDE_EVERY: u64 = 15;
/// Seconds behind the end of the longest wait: what holds early may cease to.
const QUIET_SECONDS: u64 = 100;
const PATIENCE_SECONDS: u64 = 600;
/// After the last write everybody has everything within this time, by the clock of the run.
const LEVEL_WITHIN: Duration = Duration::from_secs(1);
/// Handlers run, and long lists are read, on threads of their own, which no clock of ours moves: real time for a loaded
/// machine. Nothing waits so long by design, and nothing comes that could push on what is stuck, since the run's clock stands.
const GUARD: Duration = Duration::from_secs(30);

/// What a run was like.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// How often each kind of trouble struck.
    pub(crate) struck: BTreeMap<&'static str, u64>,
    /// Requests, in order.
    pub(crate) requests: Vec<String>,
    pub(crate) totals: Totals,
}

/// Writes at once.
pub(crate) const BURSTS: [u64; 5] = [1, 2, 4, 20, 200];

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
    let failed = Arc::clone(&model);
    let on_failure: OnFailure = Arc::new(move |_| failed.lock().unwrap().list_is_read = false);
    let mut run = Run {
        audience: Audience::new(Server(Arc::clone(&model)), list_watch, on_failure),
        model,
        script: Dice(!seed),
        left_with: 0,
    };
    let converged = match run.play().await {
        Ok(()) => run.converge(plant).await,
        lost => lost,
    };
    // Also after a failure: its threads must not outlive the run.
    let report = run.end().await;
    converged?;
    report
}

impl<T: Content> Run<T> {
    fn model<R>(&self, act: impl FnOnce(&mut Model) -> R) -> R {
        act(&mut self.model.lock().unwrap())
    }

    async fn play(&mut self) -> Result<(), String> {
        self.model(|model| (0..20).for_each(|_| model.write()));
        self.audience.informer.start();
        for at in 0..STEPS {
            self.disturb();
            let held = self.audience.informer.counts().last_version;
            let writes = if self.model(|model| model.large) && self.script.once_in(8) {
                self.script.one_of(&BURSTS)
            } else {
                self.script.below(5)
            };
            self.model(|model| {
                model.writes_wait &= held.is_some_and(|held| held.0 > model.revision);
            });
            self.model(|model| (0..writes).for_each(|_| model.write()));
            let time = self.script.one_of(&[50, 300, 300, 1_000, 4_000, 15_000]);
            for _ in 0..=time / 1_000 {
                self.pass(Duration::from_millis(time.min(1_000))).await?;
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
            if at % INTERLUDE_EVERY == INTERLUDE_EVERY - 1 {
                // Or a loss might be made good by a later relist, and nobody would know.
                self.model(|model| model.turn(Mood::Calm));
                self.settle(1).await?;
                self.model(|model| model.turn(Mood::Rough));
            }
        }
        self.model(|model| model.turn(Mood::Calm));
        Ok(())
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
        self.settle(QUIET_SECONDS).await?;
        if plant == Plant::Nothing {
            return self.finish().await;
        }
        self.model(|model| {
            model.plant = plant;
            model.write();
        });
        self.settle(QUIET_SECONDS).await
    }

    /// A last burst of writes, then quiet.
    async fn finish(&mut self) -> Result<(), String> {
        let burst = self.script.one_of(&BURSTS);
        self.model(|model| (0..burst).for_each(|_| model.write()));
        let expected = self.expected();
        let give_up_at = std::time::Instant::now() + GUARD;
        self.pass(LEVEL_WITHIN).await?;
        loop {
            let behind = self.audience.behind(&expected);
            if behind.is_empty() {
                return Ok(());
            }
            if std::time::Instant::now() > give_up_at {
                return Err(format!(
                    "behind at the end: {behind:?} after {burst} writes"
                ));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits for so long, and until the store is what the server holds.
    async fn settle(&mut self, quiet_seconds: u64) -> Result<(), String> {
        for second in 0..PATIENCE_SECONDS {
            self.pass(Duration::from_secs(1)).await?;
            self.audience.read();
            let agree = || hash(&self.audience.held()) == hash(&self.expected());
            if second >= quiet_seconds && agree() {
                return Ok(());
            }
        }
        let (held, expected) = (self.audience.held(), self.expected());
        Err(format!("the store holds {held:?} instead of {expected:?}"))
    }

    /// Lets tasks run while so much time goes by. The clock is moved by hand: it does not move by itself while a handler is
    /// held up. A list that the client reads on another thread is waited for, or time would go by without it.
    async fn pass(&self, time: Duration) -> Result<(), String> {
        tokio::time::advance(time).await;
        let give_up_at = std::time::Instant::now() + GUARD;
        loop {
            for _ in 0..12 {
                tokio::task::yield_now().await;
            }
            if !self.model(|model| model.list_is_read) {
                return Ok(());
            }
            if std::time::Instant::now() > give_up_at {
                return Err("nothing came of a list".into());
            }
        }
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
