//! Decides which resources are served from memory: starts their caches on demand and ends caches that are no longer used.

mod aggregation;
mod discovery;
mod drain;
mod forward;
mod handover;
mod ledger;
mod memory;
mod operators;
mod readiness;
mod resources;
mod restart;
mod status;
mod tables;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::api_services::ApiServiceFeed;
use super::bound_objects::KeptCache;
use super::checkpoints::Checkpoints;
use super::drain_flag::DrainFlag;
use super::handover::{Handover, HandoverOffers};
use super::hooks::Hooks;
use super::local_fetch::LocalFetch;
use super::older_states::OlderStates;
use super::operators::OperatorLimits;
use super::pressure::{HistoryCuts, MemoryRoom, PressureLevel};
use super::recorders::ResourceRecorder;
use super::slot::{ReadLimits, Slot, SlotParts, SlotState};
use crate::admission::{Admission, ResidentMemory};
use crate::cache::Retention;
use crate::cache_rule::{
    ApiServiceKnowledge, ForwardReason, may_cache, may_keep, must_prove_origin,
};
use crate::config::{CacheLists, ResourcePattern};
use crate::log_limit::FaultLog;
use crate::metrics::{ForwardedMetrics, ListenerMetrics, Metrics};
use crate::passthrough::Passthrough;
use crate::resource::{CacheKey, Encoding, Gates, Gvr};
use crate::serving_control::ServingControl;
use crate::tables::{OriginCheck, TableLists, Tables};
use crate::talkers::Talkers;
use crate::upstream::client::Client;
use crate::upstream::discovery::Discovery;
use crate::view::{Hub, ServedResource};
use crate::watch::RecentCuts;

/// How long a client waits for a cache that is being filled; then its request is forwarded or gets 429.
const FILL_WAIT: Duration = Duration::from_secs(10);
/// The same for requests that cost upstream little.
const SHORT_FILL_WAIT: Duration = Duration::from_secs(1);
/// The period of looking for idle caches.
const IDLE_PERIOD: Duration = Duration::from_secs(5);
/// Such periods between two sweeps of the open watches: a minute.
const SWEEP_ROUNDS: u64 = 12;

pub(super) struct RegistrySettings {
    pub(super) pinned: Vec<Gvr>,
    pub(super) cached: CacheLists,
    pub(super) retention: Retention,
    /// Events younger than this stay unless memory is short.
    pub(super) history_age_min: Duration,
    /// Resources whose clients can catch up.
    pub(super) catch_up: Vec<ResourcePattern>,
    pub(super) limits: ReadLimits,
    /// The limits of clients.
    pub(super) admission: Admission,
    /// Whether callers are authenticated. Then only authorized requests may share a stream.
    pub(super) is_guarded: bool,
    pub(super) hooks: Hooks,
    /// `None` keeps no checkpoints.
    pub(super) checkpoints: Option<Checkpoints>,
    /// `None` takes no caches over.
    pub(super) handover: Option<Arc<Handover>>,
    /// Whose reads memory answers.
    pub(super) serving: ServingControl,
    /// Whether clients connect with TLS, which takes memory for each connection.
    pub(super) is_tls: bool,
}

/// All caches of the gateway.
pub(super) struct Registry {
    settings: RegistrySettings,
    client: Arc<Client>,
    passthrough: Passthrough,
    operators: Option<OperatorLimits>,
    tables: Arc<Tables>,
    table_lists: TableLists,
    metrics: Arc<Metrics>,
    listener: ListenerMetrics,
    draining: DrainFlag,
    /// Set when a drain has begun, before clients are turned away.
    leaving: OnceLock<()>,
    discovery: ArcSwap<Discovery>,
    api_services: Arc<ApiServiceFeed>,
    /// What the rule goes by. Changed only by `apply`, which ends what it no longer allows.
    known: ArcSwap<ApiServiceKnowledge>,
    /// Why upstream's discovery was never read; `None` once it was.
    undiscovered: Mutex<Option<String>>,
    /// Limits the log lines about discovery that cannot be read.
    discovery_log: Mutex<FaultLog<String>>,
    /// Pinned caches, with a flag that is set once the cache was ready.
    pinned: HashMap<CacheKey, Arc<OnceLock<()>>, foldhash::fast::RandomState>,
    discovery_wanted: Arc<Notify>,
    /// Changes each time that discovery was read.
    rediscovered: watch::Sender<()>,
    offers: HandoverOffers,
    gates: ArcSwap<Gates>,
    /// What each history may have while memory is short.
    cuts: HistoryCuts,
    /// What new caches may take while memory is short.
    room: MemoryRoom,
    /// What lists and new watches hold of older states.
    older_states: OlderStates,
    /// The watches that were cut lately, for the status page.
    cut_watches: Arc<RecentCuts>,
    /// What clients ask for and get, likewise.
    talkers: Arc<Talkers>,
    forwarded: ForwardedMetrics,
    /// Requests that were forwarded although their callers might have been served from memory.
    permitted_forwards: Mutex<u64>,
    /// What the process held before its first cache.
    at_start: ResidentMemory,
    state: Mutex<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    slots: HashMap<CacheKey, Arc<Slot>, foldhash::fast::RandomState>,
    /// Resources with a slot that the last discovery did not list.
    missing: HashSet<CacheKey, foldhash::fast::RandomState>,
    /// How short memory is.
    pressure: PressureLevel,
    /// The tasks of all slots; dropped with the registry.
    tasks: JoinSet<()>,
}

impl Registry {
    pub(super) fn new(
        settings: RegistrySettings,
        client: Client,
        passthrough: Passthrough,
        metrics: Arc<Metrics>,
        discovery: Result<Discovery, String>,
    ) -> Self {
        info!(
            resources = %settings.cached,
            "resources that may be cached; events and all other resources are forwarded"
        );
        let pinned = settings
            .pinned
            .iter()
            .map(|gvr| (CacheKey::json(gvr), Arc::default()));
        let client = Arc::new(client);
        let api_services = Arc::new(ApiServiceFeed::new(Arc::clone(&client)));
        let discovery_wanted = Arc::new(Notify::new());
        let undiscovered = discovery.as_ref().err().cloned();
        if undiscovered.is_some() {
            discovery_wanted.notify_one();
        }
        let tables = Tables::new(
            Arc::clone(&client),
            Arc::clone(&metrics),
            settings.limits.frame_len_max,
            origin_check(&client, &settings.cached),
        );
        let table_lists = TableLists::new(Arc::clone(&client), Arc::clone(&metrics));
        Self {
            pinned: pinned.collect(),
            undiscovered: Mutex::new(undiscovered),
            discovery_log: Mutex::default(),
            settings,
            client,
            passthrough,
            operators: None,
            tables: Arc::new(tables),
            table_lists,
            listener: metrics.listener(),
            forwarded: metrics.forwarded(),
            offers: HandoverOffers::new(metrics.served_handovers()),
            metrics,
            draining: DrainFlag::default(),
            leaving: OnceLock::new(),
            discovery: ArcSwap::from_pointee(discovery.unwrap_or_default()),
            known: ArcSwap::new(Arc::clone(&api_services.subscribe().borrow())),
            api_services,
            discovery_wanted,
            rediscovered: watch::Sender::new(()),
            gates: ArcSwap::default(),
            cuts: HistoryCuts::default(),
            room: MemoryRoom::default(),
            older_states: OlderStates::default(),
            cut_watches: Arc::default(),
            talkers: Arc::default(),
            permitted_forwards: Mutex::default(),
            at_start: ResidentMemory::read().unwrap_or_default(),
            state: Mutex::default(),
        }
    }

    /// Whose reads memory answers.
    pub(super) fn serving(&self) -> &ServingControl {
        &self.settings.serving
    }

    pub(super) fn with_operators(self, operators: Option<OperatorLimits>) -> Self {
        Self { operators, ..self }
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock()
    }

    /// Whether a cache of the resource is ready, in any encoding.
    fn has_cache(&self, gvr: &Gvr) -> bool {
        self.kept_cache(gvr).is_some()
    }

    /// The cache of a resource that is ready, in any encoding.
    pub(super) fn kept_cache(&self, gvr: &Gvr) -> Option<KeptCache> {
        let (slot, served) = self.ready_slot(gvr)?;
        Some(KeptCache {
            cache: served.cache,
            age: slot.recorder.age.now(),
        })
    }

    /// The slot of a resource whose cache is ready, in any encoding, and what it serves.
    fn ready_slot(&self, gvr: &Gvr) -> Option<(Arc<Slot>, ServedResource)> {
        [Encoding::Json, Encoding::Protobuf]
            .into_iter()
            .find_map(|encoding| {
                let gvr = gvr.clone();
                let slot = self.existing_slot(&CacheKey { gvr, encoding })?;
                let served = slot.served()?;
                Some((slot, served))
            })
    }

    fn existing_slot(&self, key: &CacheKey) -> Option<Arc<Slot>> {
        self.state().slots.get(key).cloned()
    }

    pub(super) fn start_pinned(&self) {
        for gvr in &self.settings.pinned {
            if self.slot(&CacheKey::json(gvr)).is_none() {
                warn!(resource = %gvr, "pinned resource: upstream does not offer it to list and watch (yet)");
            }
        }
    }

    /// The slot of a cache, which is started if upstream has the resource; `None` if the resource is not served from memory.
    fn slot(&self, key: &CacheKey) -> Option<Arc<Slot>> {
        let gvr = &key.gvr;
        if !self.may_keep(gvr) {
            return None;
        }
        let mut state = self.state();
        if let Some(slot) = state.slots.get(key) {
            slot.touch();
            return Some(Arc::clone(slot));
        }
        let discovery = self.discovery.load();
        let Some(resource) = discovery.resource(gvr) else {
            self.discovery_wanted.notify_one();
            return None;
        };
        // Asked again under the lock: what is known may have changed, and the caches that must end have been collected under it.
        let may_start = resource.can_be_cached() && self.is_for_memory(gvr);
        if !may_start || self.draining.is_begun() {
            return None;
        }
        let recorder = ResourceRecorder::new(&self.metrics, key, self.draining.clone())
            .asking_for_discovery(Arc::clone(&self.discovery_wanted));
        let parts = SlotParts {
            resource: resource.clone(),
            encoding: key.encoding,
            client: Arc::clone(&self.client),
            must_prove_origin: must_prove_origin(gvr, &self.settings.cached),
            retention: self.settings.retention,
            tombstones_len_max: self.tombstones_len_max(gvr),
            limits: self.settings.limits.clone(),
            recorder: Arc::new(recorder),
            filled: self.pinned.get(key).cloned().unwrap_or_default(),
            observer: self.settings.hooks.observer,
            cuts: self.cuts.clone(),
            room: self.room.clone(),
            older_states: self.older_states.clone(),
            checkpoint: self.checkpoint(key),
            handover: self.handover(key),
            rediscovered: self.rediscovered.subscribe(),
        };
        info!(resource = %key, "starting a cache");
        let streams = Arc::new(self.stream_recorder(key));
        while state.tasks.try_join_next().is_some() {}
        let slot = Arc::new(Slot::start(parts, &mut state.tasks, streams));
        state.slots.insert(key.clone(), Arc::clone(&slot));
        Some(slot)
    }

    /// All slots. Callers use them without the registry's lock, because each slot may take locks of its own.
    fn slots(&self) -> Vec<(CacheKey, Arc<Slot>)> {
        let state = self.state();
        state
            .slots
            .iter()
            .map(|(key, slot)| (key.clone(), Arc::clone(slot)))
            .collect()
    }

    /// Closes a slot for good, and its watches in this way.
    fn close_slot(&self, key: &CacheKey, end: fn(&Hub)) {
        let slot = {
            let mut state = self.state();
            // Under the lock: a new slot of the same key creates its series and writes its checkpoint after this.
            self.metrics.forget(key.into());
            let slot = state.slots.remove(key);
            slot.inspect(|slot| slot.remove_checkpoint())
        };
        if let Some(slot) = slot {
            slot.close(end);
        }
    }

    /// Ends caches that were not used for a while, and reports how old the others are. Never returns.
    pub(super) async fn end_idle(&self) {
        let mut rounds = 0_u64;
        loop {
            tokio::time::sleep(IDLE_PERIOD).await;
            for key in self.retire_unwanted() {
                info!(resource = %key, "ending a cache: idle, or its resource is gone");
                self.close_slot(&key, Hub::close);
            }
            self.forget_unused();
            self.slots().iter().for_each(|(_, slot)| slot.report_age());
            rounds += 1;
            if rounds.is_multiple_of(SWEEP_ROUNDS) {
                self.sweep_watches().await;
            }
        }
    }

    /// Caches whose resource is gone, and idle ones, which no watch can join from now on.
    fn retire_unwanted(&self) -> Vec<CacheKey> {
        // Clients that a drain has sent away come back to the next process, which continues from the checkpoints of these caches.
        if self.draining.is_begun() {
            return Vec::new();
        }
        let timeout = self.settings.limits.live.get().idle_timeout;
        self.slots()
            .into_iter()
            .filter(|(key, slot)| {
                let is_gone = matches!(&*slot.cells.slot_state.borrow(), SlotState::Gone);
                is_gone || (!self.is_pinned(key) && slot.retire_if_idle(timeout))
            })
            .map(|(key, _)| key)
            .collect()
    }

    /// Whether the resource may be served other than by forwarding; if not, why.
    fn may_cache(&self, gvr: &Gvr) -> Result<(), ForwardReason> {
        may_cache(gvr, &self.settings.cached, &self.known.load())
    }

    fn is_for_memory(&self, gvr: &Gvr) -> bool {
        self.may_cache(gvr).is_ok()
    }

    /// Whether a cache or a shared stream that there is already may be served.
    fn may_keep(&self, gvr: &Gvr) -> bool {
        may_keep(gvr, &self.settings.cached, &self.known.load())
    }
}

/// Tells whether kube-apiserver itself has answered the requests for a resource so far.
fn origin_check(client: &Arc<Client>, lists: &CacheLists) -> OriginCheck {
    let (client, lists) = (Arc::clone(client), lists.clone());
    Arc::new(move |gvr| {
        let unproven = must_prove_origin(gvr, &lists).then(|| gvr.clone());
        let fetch = LocalFetch::new(Arc::clone(&client), unproven);
        Box::pin(async move { fetch.check().await.map_err(|error| error.to_string()) })
    })
}

#[cfg(test)]
mod tests;
