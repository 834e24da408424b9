//! Clients that accept gzip and cannot read it as it comes, noticed by how they leave.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A client that fails at the first event leaves at once; one that reads stays, for minutes mostly.
const SOON: Duration = Duration::from_secs(5);
/// So many watches in a row that are left soon are no chance.
const LEFT_MAX: u32 = 3;
/// How long the client's watches are sent as they are. Then it may have been updated.
const PLAIN_TIME: Duration = Duration::from_secs(3600);
/// Clients choose their names, so only so many are followed at a time.
const AGENTS_MAX: usize = 1024;

/// What is known of clients that got compressed watches, by `User-Agent`.
#[derive(Debug, Default)]
pub struct GzipReaders(Mutex<HashMap<Box<str>, Trials, foldhash::fast::RandomState>>);

/// Watches that a client left soon, one after the other.
#[derive(Debug)]
struct Trials {
    left: u32,
    last: Instant,
}

impl GzipReaders {
    /// Whether clients with this name have not shown that they cannot read compressed watches.
    #[must_use]
    pub fn can_read(&self, agent: &str, now: Instant) -> bool {
        let mut agents = self.0.lock();
        let is_over = |trials: &Trials| now >= trials.last + PLAIN_TIME;
        if agents.get(agent).is_some_and(is_over) {
            agents.remove(agent);
        }
        trials_left(&agents, agent) < LEFT_MAX
    }

    /// Notes that the client left a watch by itself this long after it began; returns whether its watches are from now on sent as they are.
    fn left(&self, agent: &str, after: Duration, now: Instant) -> bool {
        let mut agents = self.0.lock();
        if after > SOON {
            if trials_left(&agents, agent) < LEFT_MAX {
                agents.remove(agent);
            }
            return false;
        }
        if agents.len() >= AGENTS_MAX && !agents.contains_key(agent) {
            agents.retain(|_, trials| now < trials.last + PLAIN_TIME);
            if agents.len() >= AGENTS_MAX {
                return false;
            }
        }
        let trials = agents
            .entry(agent.into())
            .or_insert(Trials { left: 0, last: now });
        trials.left += 1;
        trials.last = now;
        trials.left == LEFT_MAX
    }
}

fn trials_left(
    agents: &HashMap<Box<str>, Trials, foldhash::fast::RandomState>,
    agent: &str,
) -> u32 {
    agents.get(agent).map_or(0, |trials| trials.left)
}

/// One compressed watch, whose end tells whether its client can read it.
#[derive(Debug)]
pub struct GzipTrial {
    readers: Arc<GzipReaders>,
    agent: Box<str>,
    began: Instant,
}

impl GzipTrial {
    /// A watch of a client with this name that begins now.
    #[must_use]
    pub fn new(readers: Arc<GzipReaders>, agent: &str) -> Self {
        Self {
            readers,
            agent: agent.into(),
            began: Instant::now(),
        }
    }

    /// Notes that the client has left after it was sent events.
    pub(super) fn left(&self) {
        let now = Instant::now();
        if self.readers.left(&self.agent, now - self.began, now) {
            let agent = &*self.agent;
            tracing::info!(
                agent,
                "clients of this name leave compressed watches at once, so they get them uncompressed for an hour"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_ENOUGH: Duration = Duration::from_millis(10);

    fn leave(readers: &GzipReaders, agent: &str, times: usize, now: Instant) {
        (0..times).for_each(|_| {
            readers.left(agent, SOON_ENOUGH, now);
        });
    }

    #[test]
    fn a_client_that_leaves_each_time_at_once_cannot_read() {
        let (readers, now) = (GzipReaders::default(), Instant::now());
        leave(&readers, "a", 2, now);
        assert!(readers.can_read("a", now));
        assert!(readers.left("a", SOON_ENOUGH, now), "this is logged");
        assert!(!readers.left("a", SOON_ENOUGH, now), "once");
        assert!(!readers.can_read("a", now));
        assert!(readers.can_read("b", now));
        assert!(readers.can_read("a", now + PLAIN_TIME));
        leave(&readers, "a", 2, now + PLAIN_TIME);
        assert!(readers.can_read("a", now + PLAIN_TIME), "counted anew");
    }

    #[test]
    fn a_client_that_stays_can_read() {
        let (readers, now) = (GzipReaders::default(), Instant::now());
        leave(&readers, "a", 2, now);
        readers.left("a", SOON * 2, now);
        leave(&readers, "a", 2, now);
        assert!(readers.can_read("a", now));
        // A watch that began before they were sent as they are says nothing new.
        leave(&readers, "a", 1, now);
        readers.left("a", SOON * 2, now);
        assert!(!readers.can_read("a", now));
    }

    #[test]
    fn names_are_followed_up_to_a_bound() {
        let (readers, now) = (GzipReaders::default(), Instant::now());
        for name in 0..AGENTS_MAX {
            leave(&readers, &name.to_string(), 1, now);
        }
        leave(&readers, "one more", 3, now);
        assert!(readers.can_read("one more", now));
        leave(&readers, "one more", 3, now + PLAIN_TIME);
        assert!(!readers.can_read("one more", now + PLAIN_TIME));
    }
}
