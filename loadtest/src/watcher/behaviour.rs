//! Plans that watchers share, the behaviour of single watchers, and the visits of those that come and go.

use std::sync::atomic::{AtomicU64, Ordering};

use kube_fanout::resource::Encoding;

use super::polls::Polling;
use crate::swarm::pace::Slowness;
use crate::verify::reference::Part;

/// The version that watchers must reach, once it is set. Relaxed: it stands alone.
#[derive(Debug, Default)]
pub struct Goal(AtomicU64);

impl Goal {
    pub fn set(&self, version: u64) {
        self.0.store(version, Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|goal| *goal != 0)
    }
}

/// What all watchers of a group share.
#[derive(Debug)]
pub struct Plan {
    /// Path of the collection, such as `/api/v1/namespaces/default/configmaps`.
    pub path: String,
    /// More of the query, such as `&fieldSelector=spec.nodeName%3Dnode-1`; may be empty.
    pub selector: String,
    /// Version that all watches start after.
    pub start: u64,
    /// The stream's timeout in the request, seconds.
    pub timeout_s: u64,
    /// Most bytes of an event's line that are kept, if not all: thousands of clients may be in the middle of a long one.
    pub line_len_max: Option<usize>,
    /// Whether bookmarks are requested. A bookmark would push out pending events, and so hide that they were pending.
    pub bookmarks: bool,
    /// The part of the reference for its watchers, if a population is split by selectors.
    pub part: Part,
    /// Encoding of events and lists.
    pub encoding: Encoding,
    pub goal: Goal,
}

impl Plan {
    /// A plan for watchers of a whole collection.
    pub fn new(path: &str, start: u64, timeout_s: u64) -> Self {
        Self {
            path: path.to_owned(),
            selector: String::new(),
            start,
            timeout_s,
            line_len_max: None,
            bookmarks: true,
            part: Part::All,
            encoding: Encoding::Json,
            goal: Goal::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Reads, and its latencies are counted.
    Reads,
    /// Like `Reads`; in addition a sample of its events is checked byte by byte.
    Sampled,
    /// Reads, but its latencies are not counted: it corresponds to a slow watcher in another run.
    Excluded,
    /// Is slow when ordered to. Its latencies are not counted; its state is compared at the end, unless it skips events by renewing.
    Slow(Slowness),
    /// Leaves each watch with its first events, and asks for those after them.
    LongPolls,
    /// Lists again and again instead of watching.
    Polls(Polling),
    /// Comes and goes until the goal is set. Its latencies are not counted; its state is compared at the end.
    Visits {
        /// Seed for the length of its visits and the ways to return.
        seed: u64,
    },
}

impl Behaviour {
    /// Whether it watches from its start version to the end without a list.
    pub const fn reads_on(self) -> bool {
        match self {
            Self::Reads | Self::Sampled | Self::Excluded | Self::LongPolls => true,
            Self::Polls(_) | Self::Slow(_) | Self::Visits { .. } => false,
        }
    }

    /// Whether its state is compared with the server's at the end.
    pub fn is_compared(self) -> bool {
        match self {
            Self::Reads | Self::Sampled | Self::Excluded | Self::LongPolls | Self::Polls(_) => {
                false
            }
            Self::Slow(slowness) => slowness.renews_every.is_none(),
            Self::Visits { .. } => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    Resumes,
    ListClient,
    /// Watches from the run's start version.
    FromStart,
}

/// The visits of one watcher.
#[derive(Debug)]
pub struct Visits {
    random: fastrand::Rng,
    events_left: u64,
    fresh_starts: u32,
}

/// Most events of one visit.
const VISIT_EVENTS_MAX: u64 = 200;
/// Most fresh starts of one watcher, each a segment of its track; later it only resumes.
const FRESH_STARTS_MAX: u32 = 48;

impl Visits {
    pub fn begin(seed: u64) -> Self {
        let mut visits = Self {
            random: fastrand::Rng::with_seed(seed),
            events_left: 0,
            fresh_starts: 0,
        };
        visits.events_left = visits.random.u64(1..=VISIT_EVENTS_MAX);
        visits
    }

    pub fn event(&mut self) {
        self.events_left = self.events_left.saturating_sub(1);
    }

    /// Whether the visit is over.
    pub fn is_over(&self) -> bool {
        self.events_left == 0
    }

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
