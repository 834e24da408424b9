//! Clients that accept gzip and cannot read it as it comes, noticed by how they leave.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::watch::shortened;

/// A client that fails at the first event leaves at once; one that reads stays, for minutes mostly.
const SOON: Duration = Duration::from_secs(5);
/// So many watches in a row, each begun after the last one was left, are no chance.
const LEFT_MAX: u32 = 3;
/// How long the client's watches are sent as they are. Then it may have been updated.
const PLAIN_TIME: Duration = Duration::from_secs(3600);
/// Clients choose their agents, so only so many are followed at a time.
const CLIENTS_MAX: usize = 1024;

type Clients = HashMap<(Box<str>, Box<str>), LeftWatches, foldhash::fast::RandomState>;

/// The clients, by user and `User-Agent`, that have lately left compressed watches at once.
#[derive(Debug, Default)]
pub struct GzipReaders(Mutex<Clients>);

/// Watches that a client left at once, one after the other.
#[derive(Clone, Copy, Debug)]
struct LeftWatches {
    count: u32,
    last: Instant,
}

/// One compressed watch, whose end tells whether its client can read it.
#[derive(Debug)]
pub struct GzipTrial {
    readers: Arc<GzipReaders>,
    client: (Box<str>, Box<str>),
    began: Instant,
    /// When the client was sent the first event or bookmark.
    sent: Option<Instant>,
}

impl GzipReaders {
    /// A compressed watch that begins now; `None` if this client does not seem to be able to read it.
    #[must_use]
    pub fn begin(self: &Arc<Self>, user: &str, agent: &str) -> Option<GzipTrial> {
        let now = Instant::now();
        let client = (shortened(user).into(), shortened(agent).into());
        let mut clients = self.0.lock();
        if let Some(left) = clients.get(&client)
            && left.count >= LEFT_MAX
        {
            if now < left.last + PLAIN_TIME {
                return None;
            }
            clients.remove(&client);
        }
        drop(clients);
        Some(GzipTrial {
            readers: Arc::clone(self),
            client,
            began: now,
            sent: None,
        })
    }
}

impl GzipTrial {
    /// Notes that the client is sent an event or a bookmark.
    pub(super) fn sent(&mut self) {
        self.sent.get_or_insert_with(Instant::now);
    }

    /// Notes the end of the watch, and whether the client has left by itself.
    pub(super) fn ended(&self, has_left: bool) {
        let now = Instant::now();
        let clients = &mut *self.readers.0.lock();
        if now > self.sent.unwrap_or(self.began) + SOON {
            // Without an event it shows nothing.
            let can_read = |left: &LeftWatches| left.count < LEFT_MAX;
            if self.sent.is_some() && clients.get(&self.client).is_some_and(can_read) {
                clients.remove(&self.client);
            }
            return;
        }
        if !has_left {
            return;
        }
        make_room(clients, now);
        let first = LeftWatches {
            count: 0,
            last: self.began,
        };
        let left = clients.entry(self.client.clone()).or_insert(first);
        // Watches that were open together were left together.
        if left.count > 0 && self.began <= left.last {
            return;
        }
        *left = LeftWatches {
            count: left.count + 1,
            last: now,
        };
        if left.count == LEFT_MAX {
            let (user, agent) = (&*self.client.0, &*self.client.1);
            tracing::info!(
                user,
                agent,
                "this client leaves compressed watches at once, so it gets them uncompressed for an hour"
            );
        }
    }
}

/// Makes room for one more client: forgets the one that is known least and longest.
fn make_room(clients: &mut Clients, now: Instant) {
    if clients.len() < CLIENTS_MAX {
        return;
    }
    clients.retain(|_, left| now < left.last + PLAIN_TIME);
    if clients.len() < CLIENTS_MAX {
        return;
    }
    let least = clients
        .iter()
        .min_by_key(|(_, left)| (left.count, left.last));
    if let Some(client) = least.map(|(client, _)| client.clone()) {
        clients.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch of this client that is left this long after its first event.
    async fn leave(readers: &Arc<GzipReaders>, agent: &str, after: Duration) {
        let mut trial = readers.begin("user", agent).unwrap();
        trial.sent();
        tokio::time::advance(after).await;
        trial.ended(true);
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    const AT_ONCE: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_each_time_at_once_cannot_read() {
        let readers: Arc<GzipReaders> = Arc::default();
        for _ in 0..LEFT_MAX {
            leave(&readers, "a", AT_ONCE).await;
        }
        assert!(readers.begin("user", "a").is_none());
        assert!(readers.begin("other", "a").is_some());
        assert!(readers.begin("user", "b").is_some());
        tokio::time::advance(PLAIN_TIME).await;
        for _ in 0..LEFT_MAX {
            leave(&readers, "a", AT_ONCE).await;
        }
        assert!(readers.begin("user", "a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_for_a_while_can_read() {
        let readers: Arc<GzipReaders> = Arc::default();
        for has_left in [true, false] {
            for _ in 1..LEFT_MAX {
                leave(&readers, "a", AT_ONCE).await;
            }
            let mut trial = readers.begin("user", "a").unwrap();
            trial.sent();
            tokio::time::advance(SOON * 2).await;
            trial.ended(has_left);
        }
        leave(&readers, "a", AT_ONCE).await;
        assert!(readers.begin("user", "a").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_events_tells_only_whether_its_header_was_refused() {
        let readers: Arc<GzipReaders> = Arc::default();
        for waits in [false, true, false] {
            let mut trial: GzipTrial = readers.begin("user", "a").unwrap();
            if waits {
                tokio::time::advance(SOON * 2).await;
                // The first event comes late, and the client leaves.
                trial.sent();
            }
            trial.ended(true);
            tokio::time::advance(AT_ONCE).await;
            let quiet = readers.begin("user", "b").unwrap();
            tokio::time::advance(SOON * 2).await;
            quiet.ended(true);
        }
        assert!(readers.begin("user", "a").is_none());
        assert!(readers.begin("user", "b").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_of_one_connection_are_left_once() {
        let readers: Arc<GzipReaders> = Arc::default();
        let trials: Vec<_> = (0..5)
            .map(|_| readers.begin("user", "a").unwrap())
            .collect();
        for mut trial in trials {
            trial.sent();
            trial.ended(true);
        }
        tokio::time::advance(AT_ONCE).await;
        leave(&readers, "a", AT_ONCE).await;
        assert!(readers.begin("user", "a").is_some());
        leave(&readers, "a", AT_ONCE).await;
        assert!(readers.begin("user", "a").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn clients_are_followed_up_to_a_bound() {
        let readers: Arc<GzipReaders> = Arc::default();
        for _ in 0..LEFT_MAX {
            leave(&readers, "a", AT_ONCE).await;
        }
        for agent in 0..2 * CLIENTS_MAX {
            leave(&readers, &agent.to_string(), AT_ONCE).await;
        }
        assert_eq!(readers.0.lock().len(), CLIENTS_MAX);
        assert!(readers.begin("user", "a").is_none(), "it is known best");
    }
}
