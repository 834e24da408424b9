//! The open watches of one cache, with their clients, for the status page; and the watches that were cut lately.
//!
//! A watch enters when it starts and leaves when it ends. In between it takes no lock: it only notes its position
//! ([`WatchProgress`]). Whoever looks at the table holds one of its shards at a time, which only watches wait for that start or end.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;

use super::progress::{ReadStage, WatchProgress};
use crate::cache::Sequence;
use crate::config::ReadSubject;
use crate::metrics::WatchEnd;
use crate::resource::CacheKey;
use crate::serving_control::SubjectUser;
use crate::talkers::{OpenWatches, TalkerName, Talkers};
use crate::view::{ServedResource, View};

/// Bounds the time that a look holds a lock: about a thousand watches at 16,000.
const SHARDS: usize = 16;
/// The parts of a table that are swept one by one.
pub const SWEEPS: usize = SHARDS;
/// Number of watches that were cut lately that are remembered.
const CUTS_MAX: usize = 50;
/// Names of clients are cut to this many bytes.
const NAME_LEN_MAX: usize = 160;
/// A client that leaves while an event has waited for it for so long has left because it was slow.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// The client of a watch, as logs and the status page name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchClient {
    /// The name of the user; empty if callers are not authenticated.
    pub user: Box<str>,
    /// The `User-Agent` header.
    pub user_agent: Box<str>,
    /// The address of the connection.
    pub address: IpAddr,
}

impl WatchClient {
    /// Names are shortened: clients choose them.
    #[must_use]
    pub fn new(user: &str, user_agent: &str, address: IpAddr) -> Self {
        Self {
            user: shortened(user).into(),
            user_agent: shortened(user_agent).into(),
            address: address.to_canonical(),
        }
    }

    /// The names that what it asks for and gets is counted under.
    #[must_use]
    pub fn talker(&self) -> TalkerName<'_> {
        TalkerName {
            user: &self.user,
            user_agent: &self.user_agent,
        }
    }
}

/// The first bytes of a name that a client chose.
pub(crate) fn shortened(name: &str) -> &str {
    let mut end = name.len().min(NAME_LEN_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[derive(Debug)]
struct WatchEntry {
    client: WatchClient,
    opened_at: Instant,
    served: ServedResource,
    view: Arc<View>,
    progress: WatchProgress,
}

/// What a look at an open watch shows.
#[derive(Clone, Copy, Debug)]
pub struct WatchPosition<'a> {
    /// The watch's client.
    pub client: &'a WatchClient,
    /// When the watch was opened.
    pub opened_at: Instant,
    /// The cache and views that it reads.
    pub served: &'a ServedResource,
    /// Whether it waits for a version that is still in the future. Until then, there is nothing for it to read.
    pub is_future: bool,
    /// Whether its connection has not taken all of its initial events, or of its catch-up.
    pub is_initial: bool,
    /// The first event that its connection has not taken; `None` if it has taken all.
    pub unread: Option<UnreadEvent>,
}

/// The first event that a connection has not taken; of initial events, the one that follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadEvent {
    /// Its sequence. If that is forgotten, it is that of the oldest event in the history.
    pub sequence: Sequence,
    /// Whether it is nowhere in memory any more: the watch ends as soon as its connection takes something.
    pub is_lost: bool,
    /// Since when the client waits for it: what was published before the client came has not kept it waiting. `None` if it was dropped at
    /// this moment.
    pub waits_since: Option<Instant>,
}

impl WatchEntry {
    fn position(&self) -> WatchPosition<'_> {
        let (cursor, stage) = self.progress.read();
        WatchPosition {
            client: &self.client,
            opened_at: self.opened_at,
            served: &self.served,
            is_future: stage == ReadStage::Future,
            is_initial: matches!(stage, ReadStage::Initial(_)),
            unread: self.unread(cursor, stage),
        }
    }

    fn unread(&self, cursor: Sequence, stage: ReadStage) -> Option<UnreadEvent> {
        let ring = self.served.cache.history();
        let is_initial = matches!(stage, ReadStage::Initial(_));
        let (sequence, is_in_view) = match stage {
            ReadStage::Future => return None,
            ReadStage::Initial(next) | ReadStage::History(next) => (Some(next), false),
            // Initial events are read before the view.
            ReadStage::View if self.view.head() <= cursor => return None,
            ReadStage::View => (self.view.first_of(cursor), self.view.keeps(cursor)),
        };
        let oldest = ring.oldest();
        let is_lost = !is_in_view && sequence.is_none_or(|sequence| sequence < oldest);
        let sequence = sequence.unwrap_or(oldest);
        let mut arrived_at = None;
        // If the event is evicted in between, its time remains unknown.
        let _ = ring.read(sequence.max(oldest), |_, event| {
            arrived_at = Some(event.arrived_at());
            std::ops::ControlFlow::Break(())
        });
        let waits_since = match is_initial {
            true => Some(self.opened_at),
            false => arrived_at.map(|at| at.max(self.opened_at)),
        };
        (is_initial || sequence < ring.head()).then_some(UnreadEvent {
            sequence,
            is_lost,
            waits_since,
        })
    }
}

/// The open watches of one cache.
#[derive(Debug)]
pub struct WatchTable {
    key: CacheKey,
    shards: [Mutex<Slab<Arc<WatchEntry>>>; SHARDS],
    cuts: Arc<RecentCuts>,
    talkers: Arc<Talkers>,
}

impl WatchTable {
    /// An empty table of the cache of this key.
    #[must_use]
    pub fn new(key: CacheKey, cuts: Arc<RecentCuts>, talkers: Arc<Talkers>) -> Self {
        Self {
            key,
            shards: std::array::from_fn(|_| Mutex::default()),
            cuts,
            talkers,
        }
    }

    /// Shows every open watch to `visit`, in any order.
    pub fn visit(&self, mut visit: impl FnMut(WatchPosition<'_>)) {
        for shard in &self.shards {
            for (_, entry) in &*shard.lock() {
                visit(entry.position());
            }
        }
    }

    /// Counts what was sent to the watches of one of [`SWEEPS`] parts since its last sweep, for their clients; and the watches themselves, if
    /// `open` is given.
    pub fn sweep(&self, part: usize, mut open: Option<&mut OpenWatches>) {
        for (_, entry) in &*self.shards[part].lock() {
            let talker = entry.client.talker();
            if let Some(open) = &mut open {
                open.add(talker);
            }
            self.talkers.add_bytes(talker, entry.progress.take_bytes());
        }
    }

    fn enter(self: &Arc<Self>, entry: WatchEntry) -> TableRegistration {
        let entry = Arc::new(entry);
        // Addresses of allocations are spread well enough, and cost nothing to find.
        let shard = (Arc::as_ptr(&entry).addr() >> 7) % SHARDS;
        let index = self.shards[shard].lock().insert(Arc::clone(&entry));
        TableRegistration {
            table: Arc::clone(self),
            entry,
            shard,
            index,
        }
    }
}

/// The place of an open watch in the table, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct TableRegistration {
    table: Arc<WatchTable>,
    entry: Arc<WatchEntry>,
    shard: usize,
    index: usize,
}

/// What the table is told when a watch enters.
#[derive(Debug)]
pub(super) struct RegistrationRequest {
    pub(super) client: WatchClient,
    pub(super) served: ServedResource,
    pub(super) view: Arc<View>,
    /// The next batch of the view, and from where the watch reads.
    pub(super) position: (Sequence, ReadStage),
    pub(super) opened_at: Instant,
}

impl TableRegistration {
    pub(super) fn enter(table: &Arc<WatchTable>, new: RegistrationRequest) -> Self {
        let (cursor, stage) = new.position;
        table.enter(WatchEntry {
            client: new.client,
            opened_at: new.opened_at,
            served: new.served,
            view: new.view,
            progress: WatchProgress::new(cursor, stage),
        })
    }

    pub(super) fn client(&self) -> IpAddr {
        self.entry.client.address
    }

    /// The watch of this user as serving rules see it.
    pub(super) fn subject<'a>(&'a self, user: &'a SubjectUser) -> ReadSubject<'a> {
        let client = &self.entry.client;
        ReadSubject {
            user: user.known(),
            agent: &client.user_agent,
            resource: &self.table.key.gvr,
            address: client.address,
        }
    }

    /// Notes where the watch is, and how many bytes were sent to it.
    pub(super) fn note(&self, cursor: Sequence, stage: ReadStage, bytes: u64) {
        self.entry.progress.note(cursor, stage, bytes);
    }

    /// Counts the bytes that were sent in all, without those that a sweep has counted.
    pub(super) fn count_bytes(&self, bytes: u64) {
        let entry = &self.entry;
        let bytes = entry.progress.take_bytes_of(bytes);
        self.table.talkers.add_bytes(entry.client.talker(), bytes);
    }

    /// Remembers the watch if it ends because its client is slow.
    pub(super) fn end(&self, end: WatchEnd, events: u64, now: Instant) {
        let waited = || {
            let since = self.entry.position().unread?.waits_since?;
            Some(now.saturating_duration_since(since))
        };
        let (reason, lag) = match end {
            WatchEnd::Lagged => (CutReason::Lagged, waited()),
            WatchEnd::Stalled => (CutReason::Stalled, waited()),
            WatchEnd::ClientGone => match waited() {
                Some(lag) if lag >= SLOW_AFTER => (CutReason::Disconnected, Some(lag)),
                Some(_) | None => return,
            },
            WatchEnd::Timeout
            | WatchEnd::Revoked
            | WatchEnd::CacheGone
            | WatchEnd::Rebalance
            | WatchEnd::Drain
            | WatchEnd::Reclaimed
            | WatchEnd::SwitchOver => return,
        };
        self.table.cuts.push(WatchCut {
            key: self.table.key.clone(),
            client: self.entry.client.clone(),
            reason,
            lag,
            events,
            at: now,
            open_for: now.saturating_duration_since(self.entry.opened_at),
        });
    }
}

impl Drop for TableRegistration {
    fn drop(&mut self) {
        self.table.shards[self.shard].lock().remove(self.index);
    }
}

/// Why a slow watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// Its events were no longer in the history.
    Lagged,
    /// Its client had stopped reading.
    Stalled,
    /// Its connection ended while events waited for it.
    Disconnected,
}

/// A watch that ended because its client was slow.
#[derive(Clone, Debug)]
pub struct WatchCut {
    /// The cache that was watched.
    pub key: CacheKey,
    /// The watch's client.
    pub client: WatchClient,
    /// Why it ended.
    pub reason: CutReason,
    /// How long the first unread event had waited, if that is known.
    pub lag: Option<Duration>,
    /// Events that were sent.
    pub events: u64,
    /// When it ended.
    pub at: Instant,
    /// How long it was open.
    pub open_for: Duration,
}

/// The watches that were cut lately, of all caches.
#[derive(Debug, Default)]
pub struct RecentCuts(Mutex<VecDeque<WatchCut>>);

impl RecentCuts {
    fn push(&self, cut: WatchCut) {
        let mut cuts = self.0.lock();
        if cuts.len() == CUTS_MAX {
            cuts.pop_front();
        }
        cuts.push_back(cut);
    }

    /// All of them, the latest first.
    #[must_use]
    pub fn latest(&self) -> Vec<WatchCut> {
        self.0.lock().iter().rev().cloned().collect()
    }
}
