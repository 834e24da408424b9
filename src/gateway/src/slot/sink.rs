//! The sink of a slot's driver. It passes everything on to the cache, and keeps what others act on: whether requests can be served, the
//! template of bookmarks, the size of the cache, and how often the watch was opened. It counts no metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::prior_state::{StateCounter, StateOutcome};
use super::state::SlotStateMachine;
use crate::checkpoint::{CheckpointContent, CheckpointHeader};
use crate::decode::{Bookmark, WatchLine, scan_envelope, scan_watch};
use crate::pressure::CutFollower;
use crate::protocol::continue_token::ContinueToken;
use crate::recorders::ResourceRecorder;
use crate::resource::{
    EventKind, FieldTable, Object, ObjectKey, ResourceKind, ResourceVersion, random,
};
use crate::upstream::cache_sink::{CacheSink, HistoryMemory};
use crate::upstream::sink::{LateChange, Sink, UpstreamWentBack};
use crate::view::{BookmarkTemplate, ServedResource};

/// Approximate bytes that a slot's cache holds, until the next attempt begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheLen(Arc<Mutex<CacheLens>>);

#[derive(Clone, Copy, Debug, Default)]
struct CacheLens {
    /// Objects, history and deletions.
    total: usize,
    /// All but the objects.
    history: HistoryMemory,
}

impl CacheLen {
    pub(crate) fn load(&self) -> usize {
        self.0.lock().total
    }

    /// What was collected of a list that is not complete yet.
    pub(crate) fn collected(&self) -> usize {
        self.0.lock().history.initial
    }

    /// What the cache holds beyond its objects.
    pub(crate) fn history(&self) -> HistoryMemory {
        self.0.lock().history
    }

    /// Bytes that the next cache needs after this one was evicted: those of its objects, or of what was collected of a list; 0 if it had not
    /// begun.
    pub(super) fn needed(&self) -> usize {
        let CacheLens { total, history } = *self.0.lock();
        total
            .saturating_sub(history.events + history.tombstones)
            .max(history.initial)
    }

    fn store(&self, cache: &CacheSink) {
        *self.0.lock() = CacheLens {
            total: cache.cache_len(),
            history: cache.history_memory(),
        };
    }

    /// Before a new cache: nothing is held.
    pub(super) fn forget(&self) {
        *self.0.lock() = CacheLens::default();
    }

    fn store_history(&self, history: HistoryMemory) {
        self.0.lock().history = history;
    }
}

/// How long an open watch may be silent before upstream counts as continuing the history that it was opened in. Upstream accepts a watch
/// whose version is too old with 200, too, and then refuses it by its first event, which it sends at once. Nothing proves on a quiet
/// resource that no refusal follows, and its first bookmark may take a minute.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// A state from before that is not served yet.
#[derive(Debug)]
pub(super) struct UnprovenState {
    /// `None` once it is counted what became of the state.
    counter: Option<StateCounter>,
    /// Whether upstream has sent an event that follows it.
    is_continued: bool,
}

impl UnprovenState {
    fn end(mut self, outcome: StateOutcome) {
        if let Some(counter) = self.counter.take() {
            counter.count(outcome);
        }
    }
}

impl Drop for UnprovenState {
    fn drop(&mut self) {
        if let Some(counter) = self.counter.take() {
            counter.count(StateOutcome::Abandoned);
        }
    }
}

/// Fills the cache of one attempt.
#[derive(Debug)]
pub(super) struct SlotSink {
    pub(super) cache_sink: CacheSink,
    pub(super) served: ServedResource,
    pub(super) slot_state: SlotStateMachine,
    pub(super) recorder: Arc<ResourceRecorder>,
    pub(super) cache_len: CacheLen,
    /// How often the upstream watch was opened.
    pub(super) connections: watch::Sender<u64>,
    /// Notified when an event shows that upstream has lost a version that clients have.
    pub(super) contradicted: Arc<Notify>,
    /// Set when the open watch was found to lag.
    pub(super) lag: Arc<Mutex<bool>>,
    /// Set while the cache holds a state from before, and upstream has not yet shown that it continues its history.
    pub(super) unproven: Option<UnprovenState>,
    /// Whether a list is not served yet.
    pub(super) is_listed: bool,
    /// Whether upstream has accepted a watch. What cannot be followed is not served: it would be given up, and served again later, and each
    /// time the clients' watches would end.
    pub(super) is_watched: bool,
    /// Tells when the history is to shrink because memory is short.
    pub(super) cuts: CutFollower,
}

impl SlotSink {
    /// Fills the cache with a state from before, which [`Self::serve_when_continued`] allows to be served.
    pub(super) async fn restore(&mut self, restored: CheckpointContent) {
        let ServedResource { cache, hub } = &self.served;
        if let Some(template) = bookmark_of(&restored.header, cache.kind()) {
            hub.learn_bookmark(template);
        }
        self.cache_sink.restore(restored.state).await;
        self.store_len();
    }

    /// Serves the state from before once upstream continues its history.
    pub(super) fn serve_when_continued(&mut self, counter: StateCounter) {
        self.unproven = Some(UnprovenState {
            counter: Some(counter),
            is_continued: false,
        });
    }

    /// Serves the state from before, if there is one that is not served yet.
    fn serve_unproven(&mut self) {
        if let Some(state) = self.unproven.take()
            && self.served.cache.snapshot().is_some()
        {
            state.end(StateOutcome::Used);
            self.serve_state();
        }
    }

    fn store_len(&self) {
        self.cache_len.store(&self.cache_sink);
    }

    /// Has the cache ended if upstream has lost a version that clients have.
    fn follow_proofs(&self) {
        if self.cache_sink.is_contradicted() {
            self.contradicted.notify_one();
        }
    }

    /// Shortens the history as far as memory requires, or lets it grow again.
    fn follow_pressure(&mut self) {
        if let Some(bound) = self.cuts.next() {
            self.cache_sink
                .cut_history(bound.cuts, bound.recent_max, bound.age_max);
        }
    }

    /// Serves a list once it is published, and upstream has accepted a watch.
    fn serve_listed(&mut self) {
        if self.cache_sink.is_listing() || !self.is_listed {
            return;
        }
        self.store_len();
        if self.is_watched {
            self.is_listed = false;
            self.serve_state();
        }
    }

    /// Makes the slot ready, unless it is, or there is no state yet.
    fn serve_state(&self) {
        let Some(snapshot) = self.served.cache.snapshot() else {
            return;
        };
        if self
            .slot_state
            .serve(&self.served, || self.recorder.filled())
        {
            let (objects, version) = (snapshot.objects.len(), snapshot.resource_version);
            let resource = self.served.cache.kind().cache_key();
            tracing::info!(%resource, objects, %version, "serving from memory");
        }
    }
}

/// The template of the bookmarks that the checkpoint's gateway sent.
fn bookmark_of(header: &CheckpointHeader, kind: &ResourceKind) -> Option<BookmarkTemplate> {
    let frame = header.bookmark_frame()?;
    let envelope = scan_envelope(kind.encoding, &frame).ok()?;
    let line = scan_watch(kind.encoding, &frame, FieldTable::default()).ok()?;
    let WatchLine::Bookmark(bookmark) = line else {
        return None;
    };
    BookmarkTemplate::seen(envelope.object.of(&frame), bookmark.version_span, kind)
}

impl Sink for SlotSink {
    fn watch_opened(&mut self) {
        self.connections.send_modify(|count| *count += 1);
        self.is_watched = true;
        self.serve_listed();
    }

    fn is_lagging(&mut self) -> bool {
        std::mem::take(&mut *self.lag.lock())
    }

    fn quiet_time(&self) -> Option<Duration> {
        self.unproven.as_ref().map(|_| QUIET_TIME)
    }

    fn watch_quiet(&mut self) {
        self.serve_unproven();
    }

    fn arrived(&mut self, at: Instant) {
        self.cache_sink.arrived(at);
    }

    /// The bookmark that completes the initial data comes before [`SlotSink::replace`], so the first client gets bookmarks that look as
    /// upstream's do.
    fn bookmark(&mut self, object: &[u8], bookmark: &Bookmark) {
        let ServedResource { cache, hub } = &self.served;
        if let Some(template) = BookmarkTemplate::seen(object, bookmark.version_span, cache.kind())
            && template != hub.bookmark()
        {
            hub.learn_bookmark(template);
        }
    }

    fn restart(&mut self) {
        if let Some(state) = self.unproven.take() {
            state.end(StateOutcome::Expired);
        }
        self.cache_sink.restart();
        self.cache_len
            .store_history(self.cache_sink.history_memory());
    }

    fn initial(&mut self, kind: EventKind, object: Object) {
        self.cache_sink.initial(kind, object);
        self.cache_len
            .store_history(self.cache_sink.history_memory());
    }

    /// The first call makes the slot ready, if a watch is open or was: after the state was published and dispatched, and after metrics show it.
    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack> {
        self.cache_sink.replace(version)?;
        self.is_listed = true;
        self.serve_listed();
        Ok(())
    }

    fn live(&mut self, kind: EventKind, object: Object) {
        if let Some(state) = &mut self.unproven {
            state.is_continued = true;
        }
        self.cache_sink.live(kind, object);
    }

    fn late(&mut self, kind: EventKind, object: &Object) -> LateChange {
        self.cache_sink.late(kind, object)
    }

    fn object_count(&self) -> Option<usize> {
        self.cache_sink.object_count()
    }

    fn holds(&self, versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        self.cache_sink.holds(versions)
    }

    /// The page after an object at random, so that any difference is found sooner or later.
    fn page_start(&self) -> Option<String> {
        let snapshot = self.served.cache.snapshot()?;
        let count = u64::try_from(snapshot.objects.len()).ok()?;
        let at = usize::try_from(random() % count.max(1)).ok()?;
        let key = ObjectKey::from(snapshot.objects.iter().nth(at)?.key());
        let token = ContinueToken::after(key.as_str(), ResourceVersion::default());
        Some(token.at_latest().encode())
    }

    fn newest_given(&self) -> Option<ResourceVersion> {
        self.cache_sink.newest_given()
    }

    fn publish(&mut self) {
        self.cache_sink.publish();
        self.follow_proofs();
        self.follow_pressure();
        self.store_len();
        // Called before a refusal, too.
        if self
            .unproven
            .as_ref()
            .is_some_and(|state| state.is_continued)
        {
            self.serve_unproven();
        }
    }

    fn progress(&mut self, version: ResourceVersion) {
        self.cache_sink.progress(version);
        self.follow_proofs();
        self.serve_unproven();
    }

    fn tick(&mut self) {
        self.follow_pressure();
        self.cache_sink.tick();
        self.store_len();
    }

    fn hold_until(&self) -> Option<Instant> {
        self.cache_sink.hold_until()
    }

    async fn ready(&mut self) -> Result<(), UpstreamWentBack> {
        self.cache_sink.ready().await?;
        self.serve_listed();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
