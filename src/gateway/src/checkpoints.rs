//! Keeps the checkpoint of one cache up to date, and reads it back (decision 43).
//!
//! The task follows the cache's history as a client does: it never holds the writer up, and all work on files is done on threads for
//! blocking work. After an error it starts over with a new file; the old one stays valid until the new one replaces it.

mod file_queue;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use file_queue::{FileGeneration, FileQueue};

use super::restored::{RestoreError, WantedState, clock, read_state};
use crate::blocking::spawn_blocking;
use crate::cache::{Epoch, Sequence, WatchCache};
use crate::checkpoint::directory::StateDirectory;
use crate::checkpoint::{
    Capture, CheckpointContent, CheckpointError, CheckpointHeader, CheckpointReader,
    CheckpointWriter, JournalEnd, events_between,
};
use crate::config::ResourcePattern;
use crate::log_limit::FaultLog;
use crate::metrics::{CheckpointMetrics, Metrics, RestoreOutcome};
use crate::resource::{CacheKey, Gvr};
use crate::view::{Marker, ServedResource};

/// A file is written anew once its journal is longer than its base and longer than this.
const JOURNAL_LEN_MIN: u64 = 16 << 20;
/// The pause after an error.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// Upstream keeps the history of more than a minute.
const RECENT_AGE_MAX: Duration = Duration::from_secs(60);
/// Two blocks of a checkpoint, one of records and one sealed.
const BUFFERS_LEN_MAX: usize = 512 << 10;
/// One file is written anew at a time: several would compete for the disk, and for memory with the clients.
const REWRITES_MAX: usize = 1;

/// The checkpoints of all caches.
#[derive(Debug)]
pub(super) struct Checkpoints {
    directory: Arc<StateDirectory>,
    interval: Duration,
    excluded: Vec<ResourcePattern>,
    rewrites: Arc<Semaphore>,
    /// The work on each file.
    queues: Mutex<HashMap<CacheKey, FileQueue, foldhash::fast::RandomState>>,
    /// Number of running tasks that write.
    followers: watch::Sender<usize>,
}

/// The checkpoint of one cache.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    key: CacheKey,
    directory: Arc<StateDirectory>,
    interval: Duration,
    rewrites: Arc<Semaphore>,
    queue: FileQueue,
    followers: watch::Sender<usize>,
    metrics: CheckpointMetrics,
    /// Limits the log lines about a file that cannot be written.
    fault_log: Arc<Mutex<FaultLog<String>>>,
}

impl Checkpoints {
    pub(super) fn new(
        directory: StateDirectory,
        interval: Duration,
        excluded: Vec<ResourcePattern>,
    ) -> Self {
        Self {
            directory: Arc::new(directory),
            interval,
            excluded,
            rewrites: Arc::new(Semaphore::new(REWRITES_MAX)),
            queues: Mutex::default(),
            followers: watch::Sender::new(0),
        }
    }

    /// The checkpoint of a cache; `None` if the resource has none.
    pub(super) fn of(&self, key: &CacheKey, metrics: &Metrics) -> Option<Checkpoint> {
        let is_secret = key.gvr == Gvr::new("", "v1", "secrets");
        let is_excluded = self.excluded.iter().any(|pattern| pattern.covers(&key.gvr))
            || (is_secret && self.directory.key().is_none());
        (!is_excluded).then(|| Checkpoint {
            key: key.clone(),
            directory: Arc::clone(&self.directory),
            interval: self.interval,
            rewrites: Arc::clone(&self.rewrites),
            queue: self.queue(key),
            followers: self.followers.clone(),
            metrics: metrics.checkpoint(key.into()),
            fault_log: Arc::default(),
        })
    }

    fn queue(&self, key: &CacheKey) -> FileQueue {
        let mut queues = self.queues.lock();
        // The others' caches have ended.
        queues.retain(|known, queue| known == key || queue.is_shared());
        queues.entry(key.clone()).or_default().clone()
    }

    /// Waits until the tasks that were told to end have written their files, at most this long.
    pub(super) async fn finish(&self, wait: Duration) {
        let mut followers = self.followers.subscribe();
        let finished = followers.wait_for(|count| *count == 0);
        if tokio::time::timeout(wait, finished).await.is_err() {
            warn!("the last changes of some caches are not in their checkpoints: the disk is slow");
        }
    }

    /// The caches that had a checkpoint when the process started.
    pub(super) fn keys(&self) -> Vec<CacheKey> {
        self.directory.keys().unwrap_or_else(|error| {
            warn!(%error, "cannot read the state directory (--state-dir)");
            Vec::new()
        })
    }
}

impl Checkpoint {
    /// The state that the checkpoint holds; `None` if there is none that can be used.
    pub(super) async fn restore(&self, wanted: &WantedState) -> Option<CheckpointContent> {
        let (this, wanted) = (self.clone(), wanted.clone());
        let began = Instant::now();
        let read = self
            .queue
            .run(move || this.read(&wanted))
            .await
            .unwrap_or_else(|panic| Err(CheckpointError::Damaged(panic.to_string()).into()));
        let resource = &self.key;
        match read {
            Ok(Some(restored)) => {
                let state = &restored.state;
                let (objects, events, version) =
                    (state.base.len(), state.events.len(), state.version);
                info!(%resource, objects, events, %version, elapsed = ?began.elapsed(), "read the checkpoint");
                Some(restored)
            }
            Ok(None) => {
                self.count(RestoreOutcome::Missing);
                None
            }
            Err(error) => {
                warn!(%resource, %error, "the checkpoint is not used; the resource is listed upstream");
                self.count(RestoreOutcome::Refused);
                None
            }
        }
    }

    /// Whether the checkpoint was written to so recently that upstream still has everything since.
    pub(super) async fn is_recent(&self) -> bool {
        let this = self.clone();
        let age = spawn_blocking(move || this.directory.age(&this.key)).await;
        let age = age.ok().and_then(Result::ok).flatten();
        age.is_some_and(|age| age < RECENT_AGE_MAX)
    }

    /// Approximate bytes of memory that writing the checkpoint takes: two blocks, or as much as the file has.
    pub(super) fn buffers_len(&self) -> usize {
        usize::try_from(self.metrics.bytes.get())
            .unwrap_or(0)
            .min(BUFFERS_LEN_MAX)
    }

    /// Counts what became of the checkpoint.
    pub(super) fn count(&self, outcome: RestoreOutcome) {
        self.metrics.restores.inc(outcome);
    }

    fn read(&self, wanted: &WantedState) -> Result<Option<CheckpointContent>, RestoreError> {
        let opened = self
            .directory
            .read(&self.key)
            .map_err(CheckpointError::from)?;
        let Some((file, len)) = opened else {
            return Ok(None);
        };
        let reader = CheckpointReader::open(file, len, self.directory.key())?;
        let restored = read_state(reader, wanted)?;
        if let JournalEnd::Cut(reason) = &restored.end {
            info!(resource = %self.key, reason, "the end of the checkpoint is missing; continuing from what precedes it");
        }
        Ok(Some(restored))
    }

    /// Removes the file, because its history is no longer upstream's or nobody uses the resource. What follows a cache now writes no more.
    pub(super) fn remove(&self) {
        let this = self.clone();
        self.queue
            .remove(move || match this.directory.remove(&this.key) {
                Ok(()) => this.metrics.bytes.set(0),
                Err(error) => this.failed(&error),
            });
    }

    fn failed(&self, error: &io::Error) {
        self.metrics.errors.inc();
        if self.fault_log.lock().is_due(error.to_string()) {
            warn!(resource = %self.key, %error, "cannot write the checkpoint");
        }
    }

    /// Starts a task that writes the checkpoint of a cache and appends what changes. It ends with the guard, or writes a last time and
    /// ends once `end` is set.
    pub(super) fn follow(
        self,
        served: ServedResource,
        cluster: Option<String>,
        end: watch::Receiver<bool>,
    ) -> FollowGuard {
        let guard_end = end.clone();
        self.followers.send_modify(|count| *count += 1);
        let count = FollowerCount(self.followers.clone());
        let followed = FollowedCache {
            served,
            cluster,
            generation: self.queue.generation(),
        };
        let task = tokio::spawn(async move {
            let _count = count;
            self.write_until(followed, end).await;
        });
        FollowGuard {
            task,
            end: guard_end,
        }
    }

    async fn write_until(self, followed: FollowedCache, mut end: watch::Receiver<bool>) {
        let mut file = None;
        let mut pause = self.interval;
        loop {
            // An error inside means that the slot is gone; then there is no later write either.
            let ended = tokio::time::timeout(pause, end.wait_for(|end| *end));
            let is_last = ended.await.is_ok();
            match self.write(file.take(), &followed, is_last).await {
                Ok(next) => {
                    if next.is_some() && self.fault_log.lock().end() {
                        info!(resource = %self.key, "the checkpoint is written again");
                    }
                    (file, pause) = (next, self.interval);
                }
                Err(error) => {
                    self.failed(&error);
                    pause = RETRY_PAUSE;
                }
            }
            if is_last {
                return;
            }
        }
    }

    /// Appends to the file what it lacks, or writes a new one if there is none or if it cannot be continued.
    async fn write(
        &self,
        file: Option<CheckpointFile>,
        followed: &FollowedCache,
        is_last: bool,
    ) -> io::Result<Option<CheckpointFile>> {
        let Some(snapshot) = followed.served.cache.snapshot() else {
            return Ok(None);
        };
        let continued = file.filter(|file| file.epoch == snapshot.epoch && !file.is_long());
        let permit = match &continued {
            Some(_) => None,
            None => Arc::clone(&self.rewrites).acquire_owned().await.ok(),
        };
        let (this, followed) = (self.clone(), followed.clone());
        let written = self.queue.write(followed.generation, move || {
            let _permit = permit;
            let appended = continued
                .map(|file| file.append(&followed.served.cache))
                .transpose()?;
            let mut file = match appended.flatten() {
                Some(file) => file,
                None => this.rewrite(&followed)?,
            };
            if is_last {
                file.writer.out().sync_data()?;
            }
            let len = i64::try_from(file.len()).unwrap_or(i64::MAX);
            this.metrics.bytes.set(len);
            Ok(file)
        });
        written.await.map_err(io::Error::other)?.transpose()
    }

    /// Writes a new file and replaces the old one with it. If it does not fit, neither is there afterwards.
    fn rewrite(&self, followed: &FollowedCache) -> io::Result<CheckpointFile> {
        let FollowedCache {
            served, cluster, ..
        } = followed;
        let room = self.directory.room_for(&self.key)?;
        let Some(capture) = fitting_capture(&served.cache, room) else {
            self.directory.remove(&self.key)?;
            self.metrics.bytes.set(0);
            return Err(io::Error::other(
                "it does not fit (twice --memory-max, and 8Gi at most)",
            ));
        };
        let clock = clock();
        let version = capture.snapshot().resource_version;
        let bookmark = served.hub.bookmark().frame(version, Marker::None);
        let kind = served.cache.kind();
        let header =
            CheckpointHeader::new(kind, cluster.clone(), &capture, (&bookmark, clock.unix_ms));
        let out = self.directory.write_aside(&self.key)?;
        let key = self.directory.key();
        let mut writer = CheckpointWriter::create(out, key, &header, &capture, clock)?;
        self.directory.replace(&self.key, writer.out())?;
        self.metrics.writes.inc();
        let (base_len, _) = writer.lens();
        Ok(CheckpointFile {
            writer,
            epoch: capture.epoch(),
            next: capture.next_sequence(),
            // Blocks and their heads may make the file a little longer than was estimated.
            room: room.max(base_len),
        })
    }
}

/// What is written of a cache: with as much of its history as fits into `room` bytes; `None` if not even the objects do.
fn fitting_capture(cache: &WatchCache, room: u64) -> Option<Capture> {
    let mut capture = Capture::of(cache)?;
    capture.shorten_to(room);
    (capture.frames_len() <= room).then_some(capture)
}

/// Ends the task that follows a cache, unless that task was told to write a last time.
#[derive(Debug)]
pub(super) struct FollowGuard {
    task: JoinHandle<()>,
    end: watch::Receiver<bool>,
}

impl Drop for FollowGuard {
    fn drop(&mut self) {
        if !*self.end.borrow() {
            self.task.abort();
        }
    }
}

/// Counts a running task until it is dropped.
struct FollowerCount(watch::Sender<usize>);

impl Drop for FollowerCount {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A cache whose checkpoint is written.
#[derive(Clone)]
struct FollowedCache {
    served: ServedResource,
    /// The cluster's uid, if it is known.
    cluster: Option<String>,
    /// When the file was removed since, nothing is written any more.
    generation: FileGeneration,
}

/// A file that is appended to.
struct CheckpointFile {
    writer: CheckpointWriter<File>,
    epoch: Epoch,
    /// The first event that the file does not hold.
    next: Sequence,
    /// The length that the file may reach.
    room: u64,
}

impl CheckpointFile {
    fn len(&self) -> u64 {
        let (base, journal) = self.writer.lens();
        base + journal
    }

    /// Whether a new file would be much shorter, or this one is longer than it may be.
    fn is_long(&self) -> bool {
        let (base, journal) = self.writer.lens();
        journal > base.max(JOURNAL_LEN_MIN) || self.len() > self.room
    }

    /// Appends what the cache has published since; `None` if the cache has forgotten a part of it.
    fn append(mut self, cache: &WatchCache) -> io::Result<Option<Self>> {
        // Before the snapshot, as in `Capture::of`.
        let given = cache.newest_given();
        let Some(snapshot) = cache
            .snapshot()
            .filter(|snapshot| snapshot.epoch == self.epoch)
        else {
            return Ok(None);
        };
        let Ok(events) = events_between(cache, self.next, snapshot.sequence) else {
            return Ok(None);
        };
        let version = snapshot.resource_version;
        self.writer
            .append(&events, version, given.max(version), clock())?;
        self.next = snapshot.sequence;
        Ok(Some(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::samples::captured_log::CapturedLog;

    #[tokio::test]
    async fn a_checkpoint_that_cannot_be_written_is_logged_once_for_each_cause() {
        let (log, _guard) = CapturedLog::start();
        let name = format!("kube-fanout-{}", crate::protocol::random_uuid());
        let folder = std::env::temp_dir().join(name);
        let directory = StateDirectory::open(&folder, None, 0).unwrap();
        let checkpoints = Checkpoints::new(directory, Duration::ZERO, Vec::new());
        let key = CacheKey::json(&Gvr::new("", "v1", "pods"));
        let checkpoint = checkpoints.of(&key, &Metrics::new().unwrap()).unwrap();
        for _ in 0..5 {
            checkpoint.failed(&io::Error::other("it does not fit"));
        }
        assert_eq!(checkpoint.metrics.errors.get(), 5);
        assert_eq!(log.lines_with("cannot write the checkpoint").len(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
