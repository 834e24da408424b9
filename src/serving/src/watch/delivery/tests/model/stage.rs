//! The stage of a model run: the history, and events that are published at moments that no script step can choose.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use crate::cache::samples::{Dice, Sample, World};
use crate::resource::ResourceVersion;
use crate::selector::{LabelSelector, Selector};
use crate::watch::WatchRecorder;

/// The selector of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sees {
    All,
    Tier,
    Namespace,
}

impl Sees {
    pub(super) const ALL: [Self; 3] = [Self::All, Self::Tier, Self::Namespace];

    pub(super) fn selector(self) -> Selector {
        match self {
            Self::All => Selector::default(),
            Self::Tier => Selector {
                labels: LabelSelector::parse("tier=x").unwrap(),
                ..Selector::default()
            },
            Self::Namespace => Selector {
                namespace: Some("a".into()),
                ..Selector::default()
            },
        }
    }

    pub(super) fn sees(self, sample: &Sample) -> bool {
        match self {
            Self::All => true,
            Self::Tier => sample.tier == Some("x"),
            Self::Namespace => sample.key.starts_with("a/"),
        }
    }
}

/// The history, and the publications within the code under test.
pub(super) struct Stage {
    pub(super) world: Mutex<World>,
    /// Maximum data length of an object.
    data_len_max: u64,
    interruptions: Mutex<Interruptions>,
}

struct Interruptions {
    dice: Dice,
    /// One in so many calls publishes an event; none if 0.
    odds: u64,
    /// Number of events that may still be published.
    remaining: u64,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stage")
    }
}

impl Stage {
    pub(super) fn new(world: World, seed: u64, data_len_max: u64) -> Self {
        Self {
            world: Mutex::new(world),
            data_len_max,
            interruptions: Mutex::new(Interruptions {
                dice: Dice(seed),
                odds: 0,
                remaining: 0,
            }),
        }
    }

    /// Publishes up to `count` events during writes and recordings, at each with a chance of one in `odds`.
    pub(super) fn set_odds(&self, odds: u64, count: u64) {
        let mut interruptions = self.interruptions.lock().unwrap();
        (interruptions.odds, interruptions.remaining) = (odds, count);
    }

    pub(super) fn interrupt(&self) {
        let is_due = {
            let mut interruptions = self.interruptions.lock().unwrap();
            let odds = interruptions.odds;
            let is_due = interruptions.remaining > 0 && interruptions.dice.once_in(odds);
            interruptions.remaining -= u64::from(is_due);
            is_due
        };
        if is_due {
            self.publish(1);
        }
    }

    /// Publishes `count` changes as one batch.
    pub(super) fn publish(&self, count: u64) {
        let mut world = self.world.lock().unwrap();
        let changes = (0..count)
            .map(|_| {
                // Most objects have little data or none.
                let len_max = if world.dice.once_in(3) {
                    self.data_len_max
                } else {
                    8
                };
                world.data_len = world.dice.index(len_max + 1);
                world.happen()
            })
            .collect();
        world.apply(changes);
    }

    /// Upstream sends a bookmark.
    pub(super) fn progress(&self) {
        let mut world = self.world.lock().unwrap();
        world.version += 1 + world.dice.below(4);
        let (version, now) = (ResourceVersion(world.version), world.now);
        world.writer.progress(version, now);
    }
}

impl WatchRecorder for Stage {
    fn delivered(&self, _: u64, _: u64) {
        self.interrupt();
    }

    fn delayed(&self, _: Duration, _: u64) {
        self.interrupt();
    }
}

/// Whether a task was woken.
#[derive(Debug)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    /// Starts raised, because a new task is polled once.
    pub(super) fn raised() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }

    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn lower(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }
}
