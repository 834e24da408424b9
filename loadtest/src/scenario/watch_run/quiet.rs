//! The quiet end: after the last write nothing more happens, and then every open watch must have everything. Whoever is behind when
//! nothing more comes would stay behind until somebody writes again.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube_fanout::quiet::{BOUND, Silence};

use crate::recorder::{Control, now_ns};
use crate::results::Results;
use crate::verify::reference::Reference;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);
/// All threads of the swarm count who is behind within this time, also those with a hundred thousand members.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);

/// How a quiet end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// From the answer to the last write to the arrival of the last event.
    pub took: Duration,
    /// Who lacked something when nothing more came.
    pub lag: Option<Lag>,
}

/// Open watches without the newest events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// How many watches.
    pub watchers: usize,
    /// How many events the last of them lacks.
    pub events: usize,
}

/// The same in versions, which may be of other collections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLag {
    watchers: usize,
    versions: u64,
}

impl VersionLag {
    /// In events of the reference, which ends where everybody ought to be.
    pub fn in_events(self, reference: &Reference) -> Lag {
        let from = reference.last().saturating_sub(self.versions);
        Lag {
            watchers: self.watchers,
            events: reference.after(from, reference.last()).len(),
        }
    }
}

impl CatchUp {
    /// From two moments, nanoseconds since the epoch: the answer to the last write, and the last delivery.
    pub const fn between(written_ns: u64, delivered_ns: u64, lag: Option<Lag>) -> Self {
        Self {
            took: Duration::from_nanos(delivered_ns.saturating_sub(written_ns)),
            lag,
        }
    }

    /// Puts the end of a run into the newest column; whoever is behind is a fault.
    pub fn report(&self, results: &mut Results, name: &str) {
        results.figure(
            "quiet end: last event behind last write, ms",
            self.took_ms(),
        );
        let watchers = self.lag.map_or(0, |lag| lag.watchers);
        results.figure("quiet end: watchers behind", watchers as f64);
        if let Some(lag) = self.lag {
            results.fault(format!("{name}: {lag}"));
        }
        self.report_slowness(results, name);
    }

    /// Notes an end that came later than it should, although something always came.
    pub fn report_slowness(&self, results: &mut Results, name: &str) {
        if self.lag.is_none() && self.took > BOUND {
            let took = self.took_ms();
            results.note(format!(
                "{name}: {took:.0} ms until all had everything, while something always came: more than the machine could carry"
            ));
        }
    }

    /// Milliseconds that it took.
    pub fn took_ms(&self) -> f64 {
        self.took.as_secs_f64() * 1e3
    }
}

impl fmt::Display for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { watchers, events } = self;
        write!(
            f,
            "behind at the end: {watchers} watchers, up to {events} events; nothing came for {BOUND:?}"
        )
    }
}

/// Waits until `count` members are at their goal (none then), or until nothing has come for a while ([`BOUND`]) although some lack
/// something. Whoever comes after that was behind all the same: something else than a write has pushed it on.
///
/// # Errors
/// If `works` fails, or things are still coming after `wait`; says how far it came.
pub async fn settled(
    control: &Control,
    count: usize,
    wait: Duration,
    works: impl Fn() -> Result<()>,
) -> Result<Option<VersionLag>> {
    let count_of = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    let number_of = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let begun = Instant::now();
    let now = || PollCounts {
        arrivals: number_of(&control.arrivals),
        empty: number_of(&control.empty_looks),
    };
    let mut silence = SwarmSilence::begin(now(), begun.elapsed());
    while count_of(&control.progress) < count {
        works()?;
        let is_silent = silence.look(now(), begun.elapsed()) >= BOUND;
        let behind = count_of(&control.behind);
        // Those without a watch just now (who list again, or were told to come later) are waited for.
        if is_silent && behind > 0 {
            control.behind_by.store(0, Ordering::Relaxed);
            tokio::time::sleep(COUNTED_WITHIN).await;
            return Ok(Some(VersionLag {
                watchers: behind,
                versions: number_of(&control.behind_by).max(1),
            }));
        }
        if begun.elapsed() > wait {
            let there = count_of(&control.progress);
            bail!("after {wait:?} only {there} of {count} clients have reached the goal");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// What the swarm has found so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PollCounts {
    arrivals: u64,
    /// How often there was nothing to read.
    empty: u64,
}

/// How long nothing has come, as far as the swarm was there to see it: a swarm that is busy, or does not run, is not told of silence.
#[derive(Debug)]
struct SwarmSilence {
    found: PollCounts,
    silence: Silence,
    lasted: Duration,
}

impl SwarmSilence {
    const fn begin(found: PollCounts, at: Duration) -> Self {
        Self {
            found,
            silence: Silence::begin(found.arrivals, at),
            lasted: Duration::ZERO,
        }
    }

    fn look(&mut self, found: PollCounts, at: Duration) -> Duration {
        if found != self.found {
            self.lasted = self.silence.look(found.arrivals, at);
            self.found = found;
        }
        self.lasted
    }
}

/// The moment of the last write's answer, or now if nothing was written.
pub fn since(answer_ns: Option<u64>) -> u64 {
    answer_ns.filter(|at| *at > 0).unwrap_or_else(now_ns)
}

#[cfg(test)]
mod tests {
    //! What counts as silence.

    use super::*;

    #[test]
    fn only_time_in_which_the_swarm_looked_is_silence() {
        let at = Duration::from_millis;
        let looks = |empty| PollCounts {
            arrivals: 10,
            empty,
        };
        let mut silence = SwarmSilence::begin(looks(0), at(0));
        for step in 1..100 {
            assert_eq!(silence.look(looks(0), at(40 * step)), at(0));
        }
        // The first look proves no more than any other.
        for look in 1..=5 {
            silence.look(looks(look), at(4_000 + 40 * look));
        }
        assert_eq!(silence.look(looks(5), at(9_000)), at(210));
    }

    #[test]
    fn the_failing_line_tells_how_many_and_how_far() {
        let behind = Lag {
            watchers: 100,
            events: 2,
        };
        assert_eq!(
            behind.to_string(),
            "behind at the end: 100 watchers, up to 2 events; nothing came for 1s"
        );
    }
}
