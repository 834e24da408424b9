//! What watchers have in common, how single ones behave, and when those that come and go do so.

use std::sync::atomic::{AtomicU64, Ordering};

use kube_fanout::resource::Encoding;

use crate::swarm::pace::Slowness;

/// What all watchers of a group have in common.
#[derive(Debug)]
pub struct Plan {
    /// Path of the collection, such as `/api/v1/namespaces/default/configmaps`.
    pub path: String,
    /// What a watcher asks besides, such as `&fieldSelector=spec.nodeName%3Dnode-1`, or nothing.
    pub selector: String,
    /// Version that all begin after.
    pub start: u64,
    /// How long the server is asked to keep the stream.
    pub timeout_s: u64,
    /// Bytes of an event's line that are looked at, if not all: thousands of clients in the middle of a long one would keep it.
    pub line_len_max: Option<usize>,
    /// Whether bookmarks are asked for. One would bring what lies behind it, and so hide that it had been left there.
    pub bookmarks: bool,
    /// Which part of the reference its watchers see, of a population that is split by selectors.
    pub part: usize,
    /// How events and lists are written.
    pub encoding: Encoding,
    goal: AtomicU64,
}

impl Plan {
    /// For watchers of a whole collection.
    pub fn new(path: &str, start: u64, timeout_s: u64) -> Self {
        Self {
            path: path.to_owned(),
            selector: String::new(),
            start,
            timeout_s,
            line_len_max: None,
            bookmarks: true,
            part: 0,
            encoding: Encoding::Json,
            goal: AtomicU64::new(0),
        }
    }

    /// Tells the watchers the version that they must reach.
    pub fn set_goal(&self, version: u64) {
        // Relaxed: stands alone.
        self.goal.store(version, Ordering::Relaxed);
    }

    /// That version, once it is known.
    pub fn goal(&self) -> Option<u64> {
        // Relaxed: stands alone.
        Some(self.goal.load(Ordering::Relaxed)).filter(|goal| *goal != 0)
    }
}

/// How one watcher behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Reads, and its latencies count.
    Reads,
    /// As `Reads`, and a sample of its events is checked byte by byte.
    Sampled,
    /// Reads, but its latencies do not count: it stands for one that is slow in another run.
    Excluded,
    /// Is slow when told to; its latencies do not count, its state is compared at the end, unless it skips events of its own will.
    Slow(Slowness),
    /// Comes and goes until the goal is known; its latencies do not count, its state is compared at the end.
    Visits {
        /// Decides how long it stays and how it comes back.
        seed: u64,
    },
}

impl Behaviour {
    /// Whether it reads one stream from the beginning to the end.
    pub const fn reads_on(self) -> bool {
        match self {
            Self::Reads | Self::Sampled | Self::Excluded => true,
            Self::Slow(_) | Self::Visits { .. } => false,
        }
    }

    /// Whether its state is compared with the server's in the end.
    pub fn is_compared(self) -> bool {
        match self {
            Self::Reads | Self::Sampled | Self::Excluded => false,
            Self::Slow(slowness) => slowness.renews_every.is_none(),
            Self::Visits { .. } => true,
        }
    }
}

/// How a visitor comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// Watches on from where it left.
    Resumes,
    /// Lists what is there and watches on.
    ListClient,
    /// Watches from the version that the run began with.
    FromStart,
}

/// A visitor's plans.
#[derive(Debug)]
pub struct Visits {
    random: fastrand::Rng,
    events_left: u64,
    fresh_starts: u32,
}

/// Events of one visit.
const VISIT_EVENTS_MAX: u64 = 200;
/// Fresh starts of one visitor, each a segment of its proof; afterwards it only resumes.
const FRESH_STARTS_MAX: u32 = 48;

impl Visits {
    /// A first visit.
    pub fn begin(seed: u64) -> Self {
        let mut visits = Self {
            random: fastrand::Rng::with_seed(seed),
            events_left: 0,
            fresh_starts: 0,
        };
        visits.events_left = visits.random.u64(1..=VISIT_EVENTS_MAX);
        visits
    }

    /// An event has come.
    pub fn event(&mut self) {
        self.events_left = self.events_left.saturating_sub(1);
    }

    /// Whether the visit is over.
    pub fn is_over(&self) -> bool {
        self.events_left == 0
    }

    /// Plans the next visit.
    pub fn come_back(&mut self) -> Return {
        self.events_left = self.random.u64(1..=VISIT_EVENTS_MAX);
        let back = match self.random.u8(0..3) {
            0 => Return::Resumes,
            _ if self.fresh_starts == FRESH_STARTS_MAX => Return::Resumes,
            1 => Return::ListClient,
            _ => Return::FromStart,
        };
        self.fresh_starts += u32::from(back != Return::Resumes);
        back
    }
}
