//! The quiet end: after the last write nothing more happens, and then every open watch must have everything. Whoever is behind when
//! nothing more comes would stay behind until somebody writes again.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::recorder::{Control, now_ns};
use crate::sheet::Sheet;
use crate::verify::reference::Reference;

/// So long nothing may come while an open watch lacks an event.
pub const BOUND: Duration = Duration::from_secs(1);
/// Shorter pauses between two arrivals are a busy machine's.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// How much silence one look may prove: a machine that did not let us look for longer may not have let the server send.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// How often it is looked.
const LOOK: Duration = Duration::from_millis(5);
/// All threads of the swarm count who is behind within this time, also those with a hundred thousand members.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);

/// How a quiet end went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    /// From the answer to the last write to the arrival of the last event.
    pub took: Duration,
    /// Who lacked something when nothing more came.
    pub behind: Option<Behind>,
}

/// Open watches without the newest events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// How many watches.
    pub watchers: usize,
    /// How many events the last of them lacks.
    pub events: usize,
}

/// The same in versions, which may be of other collections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    watchers: usize,
    versions: u64,
}

impl Distance {
    /// In events of the reference, which ends where everybody ought to be.
    pub fn in_events(self, reference: &Reference) -> Behind {
        let from = reference.last().saturating_sub(self.versions);
        Behind {
            watchers: self.watchers,
            events: reference.after(from, reference.last()).len(),
        }
    }
}

impl Quiet {
    /// From two moments, nanoseconds since the epoch: the answer to the last write, and the last delivery.
    pub const fn between(written_ns: u64, delivered_ns: u64, behind: Option<Behind>) -> Self {
        Self {
            took: Duration::from_nanos(delivered_ns.saturating_sub(written_ns)),
            behind,
        }
    }

    /// Puts the end of a run into the newest column; whoever is behind is a fault.
    pub fn report(&self, sheet: &mut Sheet, name: &str) {
        sheet.figure(
            "quiet end: last event behind last write, ms",
            self.took_ms(),
        );
        let watchers = self.behind.map_or(0, |behind| behind.watchers);
        sheet.figure("quiet end: watchers behind", watchers as f64);
        if let Some(behind) = self.behind {
            sheet.fault(format!("{name}: {behind}"));
        }
        self.report_slowness(sheet, name);
    }

    /// Notes an end that came later than it should, although something always came.
    pub fn report_slowness(&self, sheet: &mut Sheet, name: &str) {
        if self.behind.is_none() && self.took > BOUND {
            let took = self.took_ms();
            sheet.note(format!(
                "{name}: {took:.0} ms until all had everything, while something always came: more than the machine could carry"
            ));
        }
    }

    /// Milliseconds that it took.
    pub fn took_ms(&self) -> f64 {
        self.took.as_secs_f64() * 1e3
    }
}

impl fmt::Display for Behind {
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
) -> Result<Option<Distance>> {
    let count_of = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    let number_of = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let begun = Instant::now();
    let now = || {
        let arrivals = number_of(&control.arrivals);
        (arrivals, number_of(&control.empty_looks))
    };
    let (arrivals, empty_looks) = now();
    let mut silence = Silence::begin(arrivals, empty_looks, begun);
    while count_of(&control.progress) < count {
        works()?;
        let (arrivals, empty_looks) = now();
        let is_silent = silence.look(arrivals, empty_looks, Instant::now()) >= BOUND;
        let behind = count_of(&control.behind);
        // Those without a watch just now (who list again, or were told to come later) are waited for.
        if is_silent && behind > 0 {
            control.behind_by.store(0, Ordering::Relaxed);
            tokio::time::sleep(COUNTED_WITHIN).await;
            return Ok(Some(Distance {
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

/// How long nothing has come, as far as the swarm was there to see it: a swarm that is busy, or does not run, is not told of silence.
///
/// Long pauses add up: a server that sends what waits a little at a time, by a timer, leaves its clients behind too.
#[derive(Debug)]
pub struct Silence {
    arrivals: u64,
    empty_looks: u64,
    looked_at: Instant,
    /// Long pauses that are over.
    pauses: Duration,
    /// The one that goes on.
    lasted: Duration,
}

impl Silence {
    /// Begins now.
    pub fn begin(arrivals: u64, empty_looks: u64, now: Instant) -> Self {
        Self {
            arrivals,
            empty_looks,
            looked_at: now,
            pauses: Duration::ZERO,
            lasted: Duration::ZERO,
        }
    }

    /// How long it has lasted, given how often something has come so far and how often the swarm found nothing to read.
    pub fn look(&mut self, arrivals: u64, empty_looks: u64, now: Instant) -> Duration {
        if arrivals != self.arrivals {
            (self.pauses, self.lasted) = (self.long(), Duration::ZERO);
            (self.arrivals, self.empty_looks, self.looked_at) = (arrivals, empty_looks, now);
        } else if empty_looks != self.empty_looks {
            self.lasted += now.duration_since(self.looked_at).min(LOOK_MAX);
            (self.empty_looks, self.looked_at) = (empty_looks, now);
        }
        self.long()
    }

    /// All long pauses.
    fn long(&self) -> Duration {
        let is_long = self.lasted >= PAUSE_MIN;
        self.pauses + if is_long { self.lasted } else { Duration::ZERO }
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
    fn only_time_in_which_the_swarm_looked_and_nothing_came_is_silence() {
        let begun = Instant::now();
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let mut silence = Silence::begin(10, 0, begun);
        // The swarm has not looked.
        assert_eq!(silence.look(10, 0, at(40)), Duration::ZERO);
        for look in 1..=5 {
            silence.look(10, look, at(40 * look));
        }
        // The machine stood still.
        assert_eq!(silence.look(10, 6, at(9_000)), Duration::from_millis(250));
        // A short pause is forgotten, a long one is not.
        assert_eq!(silence.look(11, 7, at(9_010)), Duration::from_millis(250));
        assert_eq!(silence.look(11, 8, at(9_050)), Duration::from_millis(250));
        assert_eq!(silence.look(12, 9, at(9_060)), Duration::from_millis(250));
        for look in 1..=4 {
            silence.look(12, 9 + look, at(9_060 + 50 * look));
        }
        assert_eq!(silence.look(12, 14, at(9_270)), Duration::from_millis(460));
    }

    #[test]
    fn the_failing_line_tells_how_many_and_how_far() {
        let behind = Behind {
            watchers: 100,
            events: 2,
        };
        assert_eq!(
            behind.to_string(),
            "behind at the end: 100 watchers, up to 2 events; nothing came for 1s"
        );
    }
}
