//! Watches of Tables, which upstream alone can render: clients that ask alike share one upstream watch (decision 11).
//!
//! ```text
//! upstream ── one watch a key ──▶ Follower ──▶ ring of Kept ──▶ TableBody, one a client ──▶ clients
//! ```
//!
//! Lists, initial events and everything unusual are forwarded one by one.

mod body;
mod event;
mod request;
mod stream;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WARNING};
use http::{HeaderMap, Response};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::error;

use crate::metrics::{ByLabel, Metrics, TaskKind};
use crate::protocol::status::NO_CACHE;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::{CacheKey, ResourceVersion};
use crate::serve::resources::Permission;
use crate::task::catch_panic;
use crate::upstream::client::Client;
use crate::watch::WatchRecorder;
pub(crate) use body::TableBody;
use request::Key;
pub(crate) use request::{TableWatchRequest, candidate};
use stream::{StreamMember, TableStream, TableStreamEnd, TableStreamKeeper, TableStreamPhase};

/// Each keeps up to a megabyte. What is over is forwarded.
const STREAMS_MAX: usize = 128;
/// A stream outlives its last client for so long: scripts call kubectl again.
const IDLE: Duration = Duration::from_secs(10);

/// All shared streams.
pub(crate) struct Tables {
    shelf: Arc<StreamMap>,
    client: Arc<Client>,
    metrics: Arc<Metrics>,
    frame_len_max: usize,
    /// The tasks of all streams; they end with this.
    tasks: Mutex<JoinSet<()>>,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

/// Where streams are found.
#[derive(Debug, Default)]
struct StreamMap(Mutex<StreamMapState>);

#[derive(Debug, Default)]
struct StreamMapState {
    /// Of one key several if clients came with versions that the others did not reach back to.
    streams: HashMap<Key, Vec<Arc<TableStream>>, foldhash::fast::RandomState>,
    count: usize,
    is_closed: bool,
}

impl StreamMap {
    fn shelved(&self) -> MutexGuard<'_, StreamMapState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream away unless somebody has joined meanwhile: joining holds the same lock.
    fn take_unwatched(&self, stream: &Arc<TableStream>) -> bool {
        let mut shelved = self.shelved();
        let is_watched = stream.is_watched();
        if !is_watched {
            shelved.take(stream);
        }
        !is_watched
    }
}

impl StreamMapState {
    fn find(&self, key: &Key, after: ResourceVersion) -> Option<&Arc<TableStream>> {
        let alike = self.streams.get(key)?;
        alike.iter().find(|stream| stream.covers(after))
    }

    fn put(&mut self, stream: &Arc<TableStream>) {
        let alike = self.streams.entry(stream.key.clone()).or_default();
        alike.push(Arc::clone(stream));
        self.count += 1;
    }

    fn take(&mut self, stream: &Arc<TableStream>) {
        let Some(alike) = self.streams.get_mut(&stream.key) else {
            return;
        };
        let before = alike.len();
        alike.retain(|other| !Arc::ptr_eq(other, stream));
        self.count -= before - alike.len();
        if alike.is_empty() {
            self.streams.remove(&stream.key);
        }
    }
}

impl Tables {
    pub(crate) fn new(client: Arc<Client>, metrics: Arc<Metrics>, frame_len_max: usize) -> Self {
        Self {
            shelf: Arc::default(),
            client,
            metrics,
            frame_len_max,
            tasks: Mutex::default(),
        }
    }

    /// Answers a watch from a shared stream; `None` if it is to be forwarded by itself. `tally` counts a watch.
    pub(crate) async fn watch(
        self: &Arc<Self>,
        ask: TableWatchRequest,
        (headers, permission): (&HeaderMap, Option<&Permission>),
        tally: impl FnOnce() -> Arc<dyn WatchRecorder>,
    ) -> Option<Response<TableBody>> {
        let started = Instant::now();
        let member = self.join(&ask.key, ask.after)?;
        let TableStreamPhase::Open(warnings) = member.stream().settled().await else {
            return None;
        };
        let timeout = ask.timeout.lasts(crate::resource::fraction());
        let timeout = permission.map_or(timeout, |given| given.limit(started, timeout));
        let body = TableBody::new(Arc::clone(self), member, &ask, started + timeout, tally());
        let body = body.leased(permission.map(|given| given.lease.hold()));
        let mut answer = Response::new(body);
        let own = answer.headers_mut();
        own.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        own.insert(CACHE_CONTROL, NO_CACHE);
        for warning in warnings.iter() {
            own.append(WARNING, warning.clone());
        }
        Some(with_audit_id(answer, &audit_id(headers)))
    }

    /// A place in a stream that has everything after a version; starts one if need be and room is left.
    fn join(&self, key: &Key, after: ResourceVersion) -> Option<StreamMember> {
        let mut shelved = self.shelf.shelved();
        if shelved.is_closed {
            return None;
        }
        if let Some(stream) = shelved.find(key, after) {
            return Some(StreamMember::of(stream));
        }
        if shelved.count >= STREAMS_MAX {
            return None;
        }
        let (stream, writer) = TableStream::new(key.clone(), after);
        let member = StreamMember::of(&stream);
        shelved.put(&stream);
        drop(shelved);
        let follower = TableStreamKeeper {
            stream: Arc::clone(&stream),
            writer,
            client: Arc::clone(&self.client),
            metrics: self.metrics.tables((&CacheKey::json(&key.gvr)).into()),
            frame_len_max: self.frame_len_max,
        };
        let shelf = Arc::clone(&self.shelf);
        let ends = self.metrics.task_ends();
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            run(follow(follower, &stream, &shelf), (&stream, &shelf), &ends).await;
        });
        Some(member)
    }

    /// Ends all streams and starts no more.
    pub(crate) fn close(&self) {
        let streams = {
            let mut shelved = self.shelf.shelved();
            shelved.is_closed = true;
            std::mem::take(&mut shelved.streams)
        };
        streams
            .values()
            .flatten()
            .for_each(|stream| stream.close(TableStreamEnd::Closed));
        self.tasks().abort_all();
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs what feeds a stream. However that ends, the stream's clients end with it, and the next one begins another.
async fn run(
    work: impl Future<Output = ()>,
    (stream, shelf): (&Arc<TableStream>, &StreamMap),
    ends: &ByLabel<TaskKind>,
) {
    if let Err(panic) = catch_panic(work).await {
        error!(resource = %stream.key.gvr, %panic, "a table watch panicked; it ends");
        ends.inc(TaskKind::TableWatch);
    }
    stream.close(TableStreamEnd::Closed);
    shelf.shelved().take(stream);
}

/// Keeps a stream going for as long as somebody watches.
async fn follow(follower: TableStreamKeeper, stream: &Arc<TableStream>, shelf: &StreamMap) {
    let following = follower.run();
    let unwanted = async {
        loop {
            stream.unwatched_for(IDLE).await;
            if shelf.take_unwatched(stream) {
                return;
            }
        }
    };
    // Both are safe to cancel: the caller closes the stream, whichever is first.
    tokio::select! {
        () = following => {}
        () = unwanted => {}
    }
}

#[cfg(test)]
mod tests;
