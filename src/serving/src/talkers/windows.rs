//! Counts of the present and the last window, and the names that lead them. Time is an argument.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::heavy_hitters::HeavyHitters;

/// The length of a window. Two are counted, the present one and the one before it.
const WINDOW: Duration = Duration::from_secs(600);

/// Names that are shown of those with the most of one thing.
const TOP: usize = 8;

/// What is counted over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TalkCounts {
    /// Requests that were answered from memory or forwarded.
    pub requests: u64,
    /// The lists among them.
    pub lists: u64,
    /// Bytes of bodies of responses.
    pub bytes: u64,
}

/// A user or a user agent, and what it asked for and got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talker {
    /// The name; empty if it is not known.
    pub name: String,
    /// Watches that are open now.
    pub watches: u64,
    /// What was counted over time.
    pub counts: TalkCounts,
}

#[derive(Debug, Default)]
pub(super) struct TalkWindows {
    present: TalkWindow,
    last: TalkWindow,
}

#[derive(Debug, Default)]
struct TalkWindow {
    /// `None` for one that never began.
    began: Option<Instant>,
    requests: HeavyHitters,
    lists: HeavyHitters,
    bytes: HeavyHitters,
}

impl TalkWindow {
    fn began(at: Instant) -> Self {
        Self {
            began: Some(at),
            ..Self::default()
        }
    }
}

impl TalkWindows {
    /// Begins a window if the present one is over. Windows follow each other without gaps, so that what is counted is at most two of them long.
    fn advance(&mut self, now: Instant) {
        let Some(began) = self.present.began else {
            self.present = TalkWindow::began(now);
            return;
        };
        let elapsed = now.saturating_duration_since(began);
        if elapsed < WINDOW {
            return;
        }
        let into_present = Duration::from_secs(elapsed.as_secs() % WINDOW.as_secs());
        let present = TalkWindow::began(now.checked_sub(into_present).unwrap_or(now));
        let ended = std::mem::replace(&mut self.present, present);
        self.last = match elapsed < 2 * WINDOW {
            true => ended,
            false => TalkWindow::default(),
        };
    }

    pub(super) fn add(&mut self, name: &str, counts: TalkCounts, now: Instant) {
        self.advance(now);
        self.present.requests.add(name, counts.requests);
        self.present.lists.add(name, counts.lists);
        self.present.bytes.add(name, counts.bytes);
    }

    /// The time since the beginning of what is counted.
    pub(super) fn covered(&self, now: Instant) -> Duration {
        let began = self.last.began.or(self.present.began);
        began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    /// Those that have most of anything, by name.
    pub(super) fn top(&mut self, open: &HeavyHitters, now: Instant) -> Vec<Talker> {
        self.advance(now);
        let sum = |of: fn(&TalkWindow) -> &HeavyHitters| {
            let mut sum = of(&self.last).clone();
            for (name, count) in of(&self.present).counts() {
                sum.add(name, count);
            }
            sum
        };
        let requests = sum(|window| &window.requests);
        let lists = sum(|window| &window.lists);
        let bytes = sum(|window| &window.bytes);
        let names: BTreeSet<_> = [&requests, &lists, &bytes, open]
            .into_iter()
            .flat_map(leaders)
            .collect();
        let talker = |name: &str| Talker {
            name: name.to_owned(),
            watches: open.count(name),
            counts: TalkCounts {
                requests: requests.count(name),
                lists: lists.count(name),
                bytes: bytes.count(name),
            },
        };
        names.into_iter().map(talker).collect()
    }
}

fn leaders(counts: &HeavyHitters) -> Vec<&str> {
    let mut names: Vec<_> = counts.counts().collect();
    names.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
    names.truncate(TOP);
    names.into_iter().map(|(name, _)| name).collect()
}
