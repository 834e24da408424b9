//! Lists and watches of Tables: only upstream can render them, so clients with the same parameters share one upstream watch (decision 11), and
//! requests for lists (`list`).
//!
//! ```text
//! upstream ── one watch per key ──▶ TableStreamKeeper ──▶ ring of StoredTableEvent ──▶ TableBody, one per client ──▶ clients
//! ```
//!
//! `request` decides which watches can share a stream, `stream` reads the upstream watch into a ring, `event` is what the ring stores,
//! `response` joins a client to a stream, and `body` is its response body. Initial events and unusual requests are forwarded one by one.

mod body;
mod event;
mod list;
mod request;
mod response;
mod stream;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tracing::error;

use crate::fairness::{Peer, Permits};
use crate::metrics::{ByLabel, Metrics, TaskKind};
use crate::resource::{CacheKey, Gvr, ResourceVersion};
use crate::task::catch_panic;
use crate::upstream::client::Client;
pub use list::{TableList, TableListRequest, TableLists, is_unchanged};
use request::Key;
pub use request::{TableWatchRequest, candidate};
pub use stream::OriginCheck;
use stream::{StreamMember, TableStream, TableStreamEnd, TableStreamKeeper};

/// Each stream stores up to a megabyte. Watches beyond this number of streams, or beyond their client's share, are forwarded.
const STREAMS_MAX: usize = 128;
/// How long a stream outlives its last client: scripts call kubectl repeatedly.
const IDLE: Duration = Duration::from_secs(10);

/// All shared streams.
pub struct Tables {
    stream_map: Arc<StreamMap>,
    client: Arc<Client>,
    metrics: Arc<Metrics>,
    frame_len_max: usize,
    origin_check: OriginCheck,
    /// One for each stream.
    permits: Permits,
    /// The tasks of all streams; they end when this is dropped.
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

/// All streams by key.
#[derive(Debug, Default)]
struct StreamMap(Mutex<StreamMapState>);

#[derive(Debug, Default)]
struct StreamMapState {
    /// A key has several streams if clients came with versions that the older streams do not reach back to.
    streams: HashMap<Key, Vec<Arc<TableStream>>, foldhash::fast::RandomState>,
    is_closed: bool,
    /// How often streams were expired.
    expiries: u64,
    /// Watches whose events could not be read: they are forwarded.
    unreadable: HashSet<Key, foldhash::fast::RandomState>,
}

impl StreamMap {
    fn lock(&self) -> MutexGuard<'_, StreamMapState> {
        self.0.lock()
    }

    /// Removes a stream unless a client has joined it in the meantime; joining takes the same lock.
    fn remove_unwatched(&self, stream: &Arc<TableStream>) -> bool {
        let mut streams = self.lock();
        let is_watched = stream.is_watched();
        if !is_watched {
            streams.remove(stream);
        }
        !is_watched
    }
}

impl StreamMapState {
    fn find(&self, key: &Key, after: ResourceVersion) -> Option<&Arc<TableStream>> {
        let same_key = self.streams.get(key)?;
        same_key.iter().find(|stream| stream.covers(after))
    }

    fn put(&mut self, stream: &Arc<TableStream>) {
        let same_key = self.streams.entry(stream.key.clone()).or_default();
        same_key.push(Arc::clone(stream));
    }

    fn remove(&mut self, stream: &Arc<TableStream>) {
        let Some(same_key) = self.streams.get_mut(&stream.key) else {
            return;
        };
        same_key.retain(|other| !Arc::ptr_eq(other, stream));
        if same_key.is_empty() {
            self.streams.remove(&stream.key);
        }
    }
}

impl Tables {
    /// No stream yet. A frame has at most `frame_len_max` bytes.
    pub fn new(
        client: Arc<Client>,
        metrics: Arc<Metrics>,
        frame_len_max: usize,
        origin_check: OriginCheck,
    ) -> Self {
        Self {
            origin_check,
            stream_map: Arc::default(),
            client,
            metrics,
            frame_len_max,
            permits: Permits::new(STREAMS_MAX),
            tasks: Mutex::default(),
        }
    }

    /// Joins a stream that has all events after a version; starts one if necessary and if the client's share of streams allows it.
    fn join(&self, key: &Key, after: ResourceVersion, peer: Peer) -> Option<StreamMember> {
        self.join_in(self.stream_map.lock(), key, after, peer)
    }

    /// As [`Self::join`], for a client of another stream. `None` if streams were expired since it joined that one: another server may serve
    /// the resource, and nothing has asked the rule of what may be shared again.
    fn rejoin(
        &self,
        key: &Key,
        after: ResourceVersion,
        peer: Peer,
        expiries: u64,
    ) -> Option<StreamMember> {
        let streams = self.stream_map.lock();
        if streams.expiries != expiries {
            return None;
        }
        self.join_in(streams, key, after, peer)
    }

    fn join_in(
        &self,
        mut streams: MutexGuard<'_, StreamMapState>,
        key: &Key,
        after: ResourceVersion,
        peer: Peer,
    ) -> Option<StreamMember> {
        if streams.is_closed || streams.unreadable.contains(key) {
            return None;
        }
        if let Some(stream) = streams.find(key, after) {
            return Some(StreamMember::of(stream));
        }
        let permit = self.permits.try_acquire(peer)?;
        let (stream, writer) = TableStream::new(key.clone(), after);
        let member = StreamMember::of(&stream);
        streams.put(&stream);
        drop(streams);
        let keeper = TableStreamKeeper {
            stream: Arc::clone(&stream),
            writer,
            client: Arc::clone(&self.client),
            metrics: self.metrics.tables((&CacheKey::json(&key.gvr)).into()),
            frame_len_max: self.frame_len_max,
            origin_check: Arc::clone(&self.origin_check),
            _permit: permit,
        };
        let stream_map = Arc::clone(&self.stream_map);
        let ends = self.metrics.task_ends();
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            run(
                keep(keeper, &stream, &stream_map),
                (&stream, &stream_map),
                &ends,
            )
            .await;
        });
        Some(member)
    }

    /// Ends all streams; no stream is started afterwards.
    pub fn close(&self) {
        let streams = {
            let mut streams = self.stream_map.lock();
            streams.is_closed = true;
            std::mem::take(&mut streams.streams)
        };
        streams
            .values()
            .flatten()
            .for_each(|stream| stream.close(TableStreamEnd::Closed));
        self.tasks().abort_all();
    }

    /// Ends the streams of these resources with 410: their clients list again.
    pub fn expire(&self, is_expired: impl Fn(&Gvr) -> bool) {
        let expired: Vec<_> = {
            let mut streams = self.stream_map.lock();
            streams.expiries += 1;
            let streams = streams.streams.iter();
            let expired = streams.filter(|(key, _)| is_expired(&key.gvr));
            expired.flat_map(|(_, streams)| streams).cloned().collect()
        };
        expired
            .iter()
            .for_each(|stream| stream.close(TableStreamEnd::Expired));
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock()
    }
}

/// Runs the task that feeds a stream. When it ends, or panics, the stream's clients end with it, and the next client starts a new stream.
async fn run(
    work: impl Future<Output = ()>,
    (stream, stream_map): (&Arc<TableStream>, &StreamMap),
    ends: &ByLabel<TaskKind>,
) {
    if let Err(panic) = catch_panic(work).await {
        error!(resource = %stream.key.gvr, %panic, "the task of a table watch panicked; its clients' watches end");
        ends.inc(TaskKind::TableWatch);
    }
    stream.close(TableStreamEnd::Closed);
    let mut streams = stream_map.lock();
    streams.remove(stream);
    if matches!(stream.end(), Some(TableStreamEnd::Unreadable)) {
        // Upstream may have been repaired by the time that so many others were not.
        if streams.unreadable.len() >= STREAMS_MAX {
            streams.unreadable.clear();
        }
        streams.unreadable.insert(stream.key.clone());
    }
}

/// Runs a stream until it ends or has had no client for [`IDLE`].
async fn keep(keeper: TableStreamKeeper, stream: &Arc<TableStream>, stream_map: &StreamMap) {
    let running = keeper.run();
    let idle = async {
        loop {
            stream.unwatched_for(IDLE).await;
            if stream_map.remove_unwatched(stream) {
                return;
            }
        }
    };
    // Cancelling either is safe: the caller closes the stream in both cases.
    tokio::select! {
        () = running => {}
        () = idle => {}
    }
}

#[cfg(test)]
mod tests;
