//! The rules in force and their changes while the process runs.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use crate::auth::lease::Lease;
use crate::config::{Answerer, ReadSubject, ServingRules};
use crate::metrics::{RuleCounters, ServingMetrics};
use crate::resource::fraction;

/// Open watches learn of a change in so many turns, one after the other within `switchOver`.
const WAVES: usize = 64;
const WAVE_COUNT: u32 = 64;

/// The serving rules of the gateway. Clones share them.
#[derive(Clone, Debug)]
pub struct ServingControl(Arc<RulesState>);

#[derive(Debug)]
struct RulesState {
    in_force: ArcSwap<RulesInForce>,
    state: Mutex<ServingState>,
    /// Notified when other rules are in force, of which open watches have to be told.
    changed: Notify,
    /// Notified when rules of an operator begin, end, or get another end.
    rescheduled: Notify,
    /// Each open watch holds one of these, which is revoked and replaced when the rules have changed.
    waves: [Mutex<Lease>; WAVES],
    metrics: ServingMetrics,
    /// When a rule last forwarded a request.
    forwarded_at: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct RulesInForce {
    rules: ServingRules,
    counters: Vec<RuleCounters>,
}

/// The rules of this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingState {
    /// The rules of the settings.
    pub configured: ServingRules,
    /// The rules that an operator has put in their place, and when that ends.
    pub temporary: Option<(ServingRules, Instant)>,
}

impl ServingState {
    /// The rules in force.
    #[must_use]
    pub fn current(&self) -> &ServingRules {
        let temporary = self.temporary.as_ref();
        temporary.map_or(&self.configured, |(rules, _)| rules)
    }
}

/// The turns of open watches after a change.
struct WaveSweep {
    next: usize,
    left: usize,
    at: Instant,
    every: Duration,
}

impl ServingControl {
    /// The rules of the settings.
    #[must_use]
    pub fn new(configured: ServingRules, metrics: ServingMetrics) -> Self {
        Self(Arc::new(RulesState {
            in_force: ArcSwap::from_pointee(RulesInForce::new(configured.clone(), &metrics)),
            state: Mutex::new(ServingState {
                configured,
                temporary: None,
            }),
            changed: Notify::new(),
            rescheduled: Notify::new(),
            waves: std::array::from_fn(|_| Mutex::default()),
            metrics,
            forwarded_at: Mutex::default(),
        }))
    }

    /// Which side answers a request, which is counted unless that depends on a user who is not known yet.
    #[must_use]
    pub fn answerer(&self, subject: &ReadSubject<'_>) -> Answerer {
        let in_force = self.0.in_force.load();
        let answerer = in_force.rules.answerer(subject);
        let counters = |rule: usize| in_force.counters.get(rule);
        match answerer {
            Answerer::Memory(rule) => {
                if let Some(counters) = rule.and_then(counters) {
                    counters.memory.inc();
                }
            }
            Answerer::Upstream(rule) | Answerer::Shadow(rule) => {
                *self.0.forwarded_at.lock() = Some(Instant::now());
                if let Some(counters) = counters(rule) {
                    counters.upstream.inc();
                }
            }
            Answerer::User => {}
        }
        answerer
    }

    /// The same, uncounted, for a watch that is open.
    #[must_use]
    pub fn would_answer(&self, subject: &ReadSubject<'_>) -> Answerer {
        self.0.in_force.load().rules.answerer(subject)
    }

    /// Whether everything is forwarded.
    #[must_use]
    pub fn is_passthrough(&self) -> bool {
        self.0.in_force.load().rules.is_passthrough()
    }

    /// Whether anything is compared with memory.
    #[must_use]
    pub fn has_shadow(&self) -> bool {
        self.0.in_force.load().rules.has_shadow()
    }

    /// Whether a rule has forwarded a request within this time, so that a client may hold a version that memory has never had.
    #[must_use]
    pub fn has_forwarded_within(&self, time: Duration) -> bool {
        let at = *self.0.forwarded_at.lock();
        at.is_some_and(|at| at.elapsed() < time)
    }

    /// Notes that a client leaves upstream with a version that memory may never have had.
    pub fn note_forwarded(&self) {
        *self.0.forwarded_at.lock() = Some(Instant::now());
    }

    /// The rules of this moment.
    #[must_use]
    pub fn state(&self) -> ServingState {
        self.0.state.lock().clone()
    }

    /// Puts rules in force for this time. `by` is who changes them, for the log.
    pub fn change(&self, rules: ServingRules, lifetime: Duration, by: &str) {
        self.update(by, |state| {
            state.temporary = Some((rules, Instant::now() + lifetime));
            true
        });
    }

    /// Puts the rules of the settings in force again.
    pub fn reset(&self, by: &str) {
        self.update(by, |state| state.temporary.take().is_some());
    }

    /// Replaces the rules of the settings. Those of an operator stay in force until their time is over.
    pub fn configure(&self, configured: ServingRules, by: &str) {
        self.update(by, |state| {
            state.configured = configured;
            true
        });
    }

    /// A turn, drawn at random.
    #[must_use]
    pub fn draw_wave() -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a fraction of a small number"
        )]
        let wave = (fraction() * f64::from(WAVE_COUNT)) as usize;
        wave.min(WAVES - 1)
    }

    /// Revoked when it is the turn of the watches that hold it.
    #[must_use]
    pub fn wave(&self, wave: usize) -> Lease {
        self.0.waves[wave % WAVES].lock().clone()
    }

    /// In what time the watches of one turn change sides.
    #[must_use]
    pub fn wave_time(&self) -> Duration {
        self.switch_over() / WAVE_COUNT
    }

    /// In what time all open watches change sides.
    #[must_use]
    pub fn switch_over(&self) -> Duration {
        self.0.in_force.load().rules.switch_over()
    }

    /// Ends rules whose time is over, and tells open watches of changes. Never returns.
    pub async fn run(&self) -> Infallible {
        // If this task was restarted, some watches may not have been told.
        let mut sweep = Some(self.sweep_from(0));
        loop {
            let until = self.0.state.lock().temporary.as_ref().map(|(_, at)| *at);
            // Each of them only waits. A notification that comes before the wait is stored.
            tokio::select! {
                () = self.0.changed.notified() => {
                    // Frequent changes do not keep the later turns from being told.
                    sweep = Some(self.sweep_from(sweep.map_or(0, |sweep| sweep.next)));
                }
                () = self.0.rescheduled.notified() => {}
                () = at_or_never(until) => self.end_temporary(),
                () = at_or_never(sweep.as_ref().map(|sweep| sweep.at)) => {
                    sweep = sweep.and_then(|sweep| self.tell(sweep));
                }
            }
        }
    }

    /// All turns, beginning with this one.
    fn sweep_from(&self, next: usize) -> WaveSweep {
        WaveSweep {
            next,
            left: WAVES,
            at: Instant::now(),
            every: self.wave_time(),
        }
    }

    /// Tells the watches whose turn it is; returns what is left.
    fn tell(&self, sweep: WaveSweep) -> Option<WaveSweep> {
        let WaveSweep {
            next,
            left,
            at,
            every,
        } = sweep;
        let told = std::mem::take(&mut *self.0.waves[next % WAVES].lock());
        told.revoke();
        (left > 1).then(|| WaveSweep {
            next: (next + 1) % WAVES,
            left: left - 1,
            at: at + every,
            every,
        })
    }

    fn end_temporary(&self) {
        self.update("its time is over", |state| {
            // Another change may have come just now.
            let until = state.temporary.as_ref().map(|(_, until)| *until);
            let is_over = until.is_some_and(|until| until <= Instant::now());
            if is_over {
                state.temporary = None;
            }
            is_over
        });
    }

    /// `change` tells whether it has changed anything.
    fn update(&self, by: &str, change: impl FnOnce(&mut ServingState) -> bool) {
        let mut state = self.0.state.lock();
        if !change(&mut state) {
            return;
        }
        let (old, new) = (Arc::clone(&self.0.in_force.load()), state.current().clone());
        let until = state.temporary.as_ref().map(|(_, at)| *at);
        let seconds = until.map(|at| at.saturating_duration_since(Instant::now()).as_secs());
        self.0.metrics.overridden.set(until.is_some().into());
        // Under the lock, so that the lines are in the order of the changes.
        info!(by, old = %old.rules, new = %new, seconds, "the serving rules have changed");
        let are_others = old.rules != new;
        if are_others {
            let in_force = RulesInForce::new(new, &self.0.metrics);
            self.0.metrics.forget_all_but(&in_force.rules.names());
            self.0.in_force.store(Arc::new(in_force));
        }
        drop(state);
        self.0.rescheduled.notify_one();
        if are_others {
            self.0.changed.notify_one();
        }
    }
}

impl RulesInForce {
    fn new(rules: ServingRules, metrics: &ServingMetrics) -> Self {
        let names = rules.names();
        let counters = names.iter().map(|name| metrics.of_rule(name)).collect();
        Self { rules, counters }
    }
}

async fn at_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
