//! The quiet end: after the last write no more events follow, and every open watch must have everything. A watcher that is behind then
//! would stay behind until the next write.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube_fanout::quiet::{BOUND, Silence};

use super::done_wait;
use crate::recorder::{Control, now_ns};
use crate::recording::Recording;
use crate::results::Results;
use crate::verify::reference::Reference;

/// How often the counters are polled.
const LOOK: Duration = Duration::from_millis(5);
/// All threads of the swarm update their counts within this time, also those with a hundred thousand members.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);

/// The time to catch up, and the watchers that did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// From the response to the last write to the arrival of the last event.
    pub duration: Duration,
    /// The watchers that lacked events when no more arrived.
    pub lag: Option<Lag>,
}

/// Open watches without the newest events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    pub watchers: usize,
    /// Number of events that the last of them lacks.
    pub events: usize,
}

/// The same in versions, some of which may belong to other collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLag {
    pub watchers: usize,
    versions: u64,
}

impl VersionLag {
    /// In events of the reference, whose end is the goal.
    fn in_events(self, reference: &Reference) -> Lag {
        let from = reference.last().saturating_sub(self.versions);
        Lag {
            watchers: self.watchers,
            events: reference.after(from, reference.last()).len(),
        }
    }
}

impl CatchUp {
    /// Waits until `count` watchers have reached their goals, after a last write that was answered at this time.
    pub async fn of(
        control: &Control,
        count: usize,
        recording: &Recording,
        written_ns: u64,
    ) -> Result<Self> {
        let lag = wait_for_goal(control, count, done_wait(count)).await?;
        let delivered_ns = control.last_delivery_ns.load(Ordering::Relaxed);
        Ok(Self {
            duration: Duration::from_nanos(delivered_ns.saturating_sub(written_ns)),
            lag: lag.map(|lag| lag.in_events(&recording.reference())),
        })
    }

    /// Adds the end of a run to the newest column; a watcher that is behind is a fault.
    pub fn report(&self, results: &mut Results, name: &str) {
        results.figure(
            "quiet end: last event behind last write, ms",
            self.duration_ms(),
        );
        let watchers = self.lag.map_or(0, |lag| lag.watchers);
        results.figure("quiet end: watchers behind", watchers as f64);
        if let Some(lag) = self.lag {
            results.fault(format!("{name}: {lag}"));
        }
        self.report_slowness(results, name);
    }

    /// Notes an end that took longer than the bound, although events still arrived.
    pub fn report_slowness(&self, results: &mut Results, name: &str) {
        if self.lag.is_none() && self.duration > BOUND {
            let duration = self.duration_ms();
            results.note(format!(
                "{name}: {duration:.0} ms until all watchers had everything, while events still arrived: the machine was overloaded"
            ));
        }
    }

    pub fn duration_ms(&self) -> f64 {
        self.duration.as_secs_f64() * 1e3
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

/// Waits until `count` members have reached their goal (returns none), or until nothing has arrived for [`BOUND`] although some are behind.
/// Members that get there later were behind all the same: something other than a write has pushed out the events.
pub async fn wait_for_goal(
    control: &Control,
    count: usize,
    wait: Duration,
) -> Result<Option<VersionLag>> {
    let count_of = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    let number_of = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let started = Instant::now();
    let now = || PollCounts {
        arrivals: number_of(&control.arrivals),
        empty: number_of(&control.empty_looks),
    };
    let mut silence = SwarmSilence::begin(now(), started.elapsed());
    while count_of(&control.progress) < count {
        let is_silent = silence.look(now(), started.elapsed()) >= BOUND;
        let behind = count_of(&control.behind);
        // Members without an open watch (which list again or pause) are waited for.
        if is_silent && behind > 0 {
            control.behind_by.store(0, Ordering::Relaxed);
            tokio::time::sleep(COUNTED_WITHIN).await;
            return Ok(Some(VersionLag {
                watchers: behind,
                versions: number_of(&control.behind_by).max(1),
            }));
        }
        if started.elapsed() > wait {
            let there = count_of(&control.progress);
            bail!("after {wait:?} only {there} of {count} clients have reached the goal");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Counters of the swarm at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PollCounts {
    arrivals: u64,
    /// How often there was nothing to read.
    empty: u64,
}

/// Measures for how long nothing has arrived. Time in which the swarm is busy or does not run does not count.
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

/// When the last write was answered; now, if nothing was written.
pub fn since(answer_ns: Option<u64>) -> u64 {
    answer_ns.filter(|at| *at > 0).unwrap_or_else(now_ns)
}

#[cfg(test)]
mod tests {
    //! Which time counts as silence.

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
        // The first poll proves no more than any other.
        for look in 1..=5 {
            silence.look(looks(look), at(4_000 + 40 * look));
        }
        assert_eq!(silence.look(looks(5), at(9_000)), at(210));
    }
}
