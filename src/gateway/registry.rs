//! Decides which resources are served from memory: starts their caches on demand and ends caches that are no longer used.

mod aggregation;
mod discovery;
mod drain;
mod handover;
mod ledger;
mod memory;
mod operators;
mod readiness;
mod restart;
mod status;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::{HashMap, HashSet};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::api_services::ApiServiceFeed;
use super::checkpoints::Checkpoints;
use super::drain_flag::DrainFlag;
use super::forwarded::{ForwardRecord, HoldingBody, deadlines, lifetime_of};
use super::handover::{Handover, HandoverOffers};
use super::hooks::Hooks;
use super::local_fetch::LocalFetch;
use super::older_states::OlderStates;
use super::operators::OperatorLimits;
use super::pressure::{HistoryCuts, MemoryRoom, PressureLevel};
use super::recorders::ResourceRecorder;
use super::slot::{ReadLimits, Slot, SlotParts, SlotState};
use crate::admission::{Admission, ResidentMemory};
use crate::audit::event::ResponseStatus;
use crate::auth::impersonation::impersonates;
use crate::cache::Retention;
use crate::cache_rule::{
    ApiServiceKnowledge, ForwardReason, may_cache, may_keep, must_prove_origin,
};
use crate::config::{CacheLists, ResourcePattern};
use crate::fairness::Peer;
use crate::log_limit::FaultLog;
use crate::metrics::{GiveUpReason, ListMetrics, ListenerMetrics, Metrics, VerbLabel};
use crate::passthrough::{Passthrough, PassthroughRequest};
use crate::protocol::request::Verb;
use crate::protocol::status::Status;
use crate::protocol::{audit_id, with_audit_id};
use crate::resource::{CacheKey, Encoding, Gates, Gvr, ResourceVersion};
use crate::serve::resources::{
    Availability, BoxFuture, FillWait, ForwardLifetime, ForwardPermit, ForwardRequest,
    ForwardedBody, Latest, Permission, RequestOutcome, Resources, VersionReach,
};
use crate::serve::response_status;
use crate::tables::{self, OriginCheck, Tables};
use crate::upstream::client::Client;
use crate::upstream::discovery::Discovery;
use crate::view::{Hub, ServedResource};
use crate::watch::{RecentCuts, WatchRecorder, WatchTable};

/// How long a client waits for a cache that is being filled; then its request is forwarded or gets 429.
const FILL_WAIT: Duration = Duration::from_secs(10);
/// The same for requests that cost upstream little.
const SHORT_FILL_WAIT: Duration = Duration::from_secs(1);
/// The period of looking for idle caches.
const IDLE_PERIOD: Duration = Duration::from_secs(5);

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
        Self {
            pinned: pinned.collect(),
            undiscovered: Mutex::new(undiscovered),
            discovery_log: Mutex::default(),
            settings,
            client,
            passthrough,
            operators: None,
            tables: Arc::new(tables),
            listener: metrics.listener(),
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
            at_start: ResidentMemory::read().unwrap_or_default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn with_operators(self, operators: Option<OperatorLimits>) -> Self {
        Self { operators, ..self }
    }

    fn state(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock()
    }

    /// Whether a cache of the resource is ready, in any encoding.
    fn has_cache(&self, gvr: &Gvr) -> bool {
        [Encoding::Json, Encoding::Protobuf]
            .into_iter()
            .any(|encoding| {
                let gvr = gvr.clone();
                let slot = self.existing_slot(&CacheKey { gvr, encoding });
                slot.is_some_and(|slot| slot.served().is_some())
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
        loop {
            tokio::time::sleep(IDLE_PERIOD).await;
            for key in self.retire_unwanted() {
                info!(resource = %key, "ending a cache: idle, or its resource is gone");
                self.close_slot(&key, Hub::close);
            }
            self.forget_unused();
            self.slots().iter().for_each(|(_, slot)| slot.report_age());
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

    /// Answers a watch of Tables from a shared stream; `None` for every other request. It needs a watch permit, as a watch from memory
    /// does.
    async fn table_watch(&self, forward: &mut ForwardRequest) -> Option<Response<ForwardedBody>> {
        let (http, info) = (&forward.request.http, &forward.request.info);
        let gvr = tables::candidate(http, info)?;
        if !self.is_for_memory(&gvr) {
            return None;
        }
        let namespaced = self.discovery.load().resource(&gvr)?.namespaced;
        let table_request = tables::TableWatchRequest::of(http, info, namespaced)?;
        let permission = forward.caller.permission.as_ref();
        if !may_share(self.settings.is_guarded, permission, http.headers()) {
            return None;
        }
        let (trail, peer) = (forward.trail.as_ref(), forward.caller.peer);
        let permit = match self.admission_of(peer).resuming_watch(peer) {
            Ok(permit) => permit,
            Err(refused) => {
                if let Some(trail) = trail {
                    trail.respond(response_status(&refused));
                }
                let answer = refused.to_response().map(|body| {
                    ForwardedBody::new(Full::from(body).map_err(|never| match never {}))
                });
                return Some(with_audit_id(answer, &audit_id(http.headers())));
            }
        };
        let caller = (http.headers(), permission);
        let table_request = table_request.of_peer(peer);
        let answer = self
            .tables
            .watch(table_request, caller, || self.tally(&CacheKey::json(&gvr)))
            .await?;
        // It may have joined after the streams of its group were ended.
        if !self.is_for_memory(&gvr) {
            return None;
        }
        if let Some(trail) = trail {
            trail.respond(ResponseStatus::of_code(answer.status().as_u16()));
        }
        Some(answer.map(|body| {
            let body = body.holding(permit).recorded(trail.cloned());
            HoldingBody::boxed(body, forward.permit.take())
        }))
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

/// Whether a request may share a stream with others. Unauthenticated and impersonating requests are left to upstream.
fn may_share(is_guarded: bool, permission: Option<&Permission>, headers: &HeaderMap) -> bool {
    permission.is_some() || !is_guarded && !impersonates(headers)
}

impl Resources for Registry {
    fn gates(&self) -> Gates {
        **self.gates.load()
    }

    fn may_serve(&self, gvr: &Gvr) -> bool {
        if !self.may_keep(gvr) {
            return false;
        }
        let discovery = self.discovery.load();
        let resource = discovery.resource(gvr);
        match resource {
            Some(resource) => resource.can_be_cached(),
            None => {
                self.discovery_wanted.notify_one();
                // A cache knows better than a discovery that lacks its resource for the first time.
                self.has_cache(gvr)
            }
        }
    }

    fn availability<'a>(
        &'a self,
        key: &'a CacheKey,
        wait: FillWait,
        peer: Peer,
    ) -> BoxFuture<'a, Availability> {
        Box::pin(async move {
            let Some(slot) = self.slot(key) else {
                return Availability::Forwarded(None);
            };
            let first = match wait {
                // One request has found out; the others need not wait as long.
                _ if slot.is_slow() => Duration::ZERO,
                FillWait::Short => SHORT_FILL_WAIT,
                FillWait::Long => FILL_WAIT,
            };
            for wait in [first, FILL_WAIT - first] {
                match slot.settled(wait).await {
                    SlotState::Ready(served) => return Availability::Ready(served),
                    SlotState::OtherEncoding => return Availability::OtherEncoding,
                    SlotState::Waiting(_) | SlotState::GivenUp(GiveUpReason::Unavailable) => {
                        slot.note_wait(wait);
                    }
                    SlotState::GivenUp(_) | SlotState::Gone | SlotState::Closed => {
                        return Availability::Forwarded(None);
                    }
                }
                if peer.is_operator() {
                    // The operators' own limits of forwarded requests apply.
                    return Availability::Forwarded(None);
                }
                if let Some(permit) = slot.forward(peer) {
                    return Availability::Forwarded(Some(permit.into()));
                }
            }
            Availability::Filling {
                retry_after_seconds: slot.retry_after_seconds(),
            }
        })
    }

    fn before_history(&self, key: &CacheKey, peer: Peer) -> Option<ForwardPermit> {
        self.existing_slot(key)?.forward_again(peer).map(Into::into)
    }

    fn may_be_lost(&self, key: &CacheKey, version: ResourceVersion) -> bool {
        let slot = self.existing_slot(key);
        slot.is_some_and(|slot| slot.cells.loss.covers(version))
    }

    fn version_reach<'a>(
        &'a self,
        key: &'a CacheKey,
        version: ResourceVersion,
    ) -> BoxFuture<'a, VersionReach> {
        Box::pin(async move {
            match self.existing_slot(key) {
                Some(slot) => slot.version_reach(&self.client, &key.gvr, version).await,
                None => VersionReach::Reached,
            }
        })
    }

    fn staleness(&self, key: &CacheKey) -> Option<Duration> {
        self.existing_slot(key)?.staleness()
    }

    fn latest<'a>(&'a self, served: &'a ServedResource) -> BoxFuture<'a, Latest> {
        Box::pin(async move {
            match self.existing_slot(&served.cache.kind().cache_key()) {
                Some(slot) => slot.latest(&self.client, served).await,
                None => Latest::Unknown,
            }
        })
    }

    fn forward(&self, mut forward: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        Box::pin(async move {
            if let Some(mut answer) = self.table_watch(&mut forward).await {
                answer.extensions_mut().insert(ForwardLifetime::Watch);
                return answer;
            }
            let ForwardRequest {
                mut request,
                caller,
                ..
            } = forward;
            let record = ForwardRecord::begin(forward.trail, &caller);
            // The other API server's caches may be behind what this client has read before.
            if self.client.has_moved()
                && let Some(uri) = request.info.at_latest(request.http.uri())
            {
                *request.http.uri_mut() = uri;
            }
            let lifetime = lifetime_of(&request.http, &request.info);
            let deadlines = deadlines(&caller, lifetime, forward.permit);
            let passthrough = self.passthrough_of(caller.peer);
            let request = PassthroughRequest {
                http: request.http,
                peer: caller.peer,
                address: request.connection.address,
                forwarding: caller.forwarding,
            };
            let answer = match lifetime {
                ForwardLifetime::Watch => {
                    let deadlines = deadlines.drained_by(self.draining.end_of_watch());
                    passthrough.forward_watch(request, deadlines).await
                }
                ForwardLifetime::Long => passthrough.forward_long(request, deadlines).await,
                ForwardLifetime::Short => passthrough.forward(request, deadlines).await,
            };
            let trail = record.answered(&answer);
            let mut answer = answer.map(|body| HoldingBody::boxed(body, trail));
            answer.extensions_mut().insert(lifetime);
            answer
        })
    }

    fn takes_clients(&self) -> bool {
        self.leaving.get().is_none() && self.is_ready()
    }

    fn handover_keys(&self) -> Vec<CacheKey> {
        self.ready_keys()
    }

    fn hand_over<'a>(
        &'a self,
        key: &'a CacheKey,
        peer: Peer,
    ) -> BoxFuture<'a, Result<Response<ForwardedBody>, Status>> {
        Box::pin(self.hand_cache_over(key, peer))
    }

    fn tally(&self, key: &CacheKey) -> Arc<dyn WatchRecorder> {
        let slot = self.existing_slot(key);
        let streams = slot.map_or_else(
            || Arc::new(self.stream_recorder(key)),
            |slot| Arc::clone(&slot.streams),
        );
        (self.settings.hooks.watch_recorder)(streams)
    }

    fn watch_table(&self, key: &CacheKey) -> Option<Arc<WatchTable>> {
        Some(Arc::clone(&self.existing_slot(key)?.streams.table))
    }

    fn list_metrics(&self, key: &CacheKey) -> Option<ListMetrics> {
        Some(self.existing_slot(key)?.streams.metrics.lists.clone())
    }

    fn answered(&self, answered: RequestOutcome<'_>) {
        let verb = if answered.verb == Verb::List {
            VerbLabel::List
        } else {
            VerbLabel::Watch
        };
        if let Some(slot) = self.state().slots.get(answered.key) {
            slot.streams.metrics.requests.inc(verb, answered.code);
        }
    }
}

#[cfg(test)]
mod tests;
