//! What `serve` may ask the registry for.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response, Uri};
use tokio::time::Instant;

use super::{FILL_WAIT, Registry, SHORT_FILL_WAIT};
use crate::fairness::Peer;
use crate::metrics::{GiveUpReason, ListMetrics, VerbLabel};
use crate::protocol::request::Verb;
use crate::protocol::status::Status;
use crate::resource::{CacheKey, Gates, Gvr, ResourceVersion};
use crate::serve::resources::{
    Availability, BoxFuture, FillWait, ForwardPermit, ForwardRequest, ForwardedBody, Latest,
    RelayState, RequestOutcome, Resources, VersionReach,
};
use crate::slot::{FORWARDED_LIST_AGE_MAX, SlotState};
use crate::talkers::Talkers;
use crate::view::ServedResource;
use crate::watch::{WatchRecorder, WatchTable};

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

    fn compared_availability<'a>(
        &'a self,
        key: &'a CacheKey,
        _: FillWait,
        _: Peer,
    ) -> BoxFuture<'a, Availability> {
        Box::pin(async move {
            let Some(slot) = self.slot(key) else {
                return Availability::Forwarded(None);
            };
            match slot.settled(FILL_WAIT).await {
                SlotState::Ready(served) => Availability::Ready(served),
                SlotState::OtherEncoding => Availability::OtherEncoding,
                SlotState::Waiting(_)
                | SlotState::GivenUp(_)
                | SlotState::Gone
                | SlotState::Closed => Availability::Forwarded(None),
            }
        })
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
                // An earlier request has waited in vain; this one is forwarded at once, if there is a permit.
                _ if slot.is_slow() => Duration::ZERO,
                FillWait::Short => SHORT_FILL_WAIT,
                FillWait::Long => FILL_WAIT,
            };
            // A request that finds no permit after the first wait waits for the rest of `FILL_WAIT`.
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

    fn filled_at(&self, key: &CacheKey) -> Option<Instant> {
        self.existing_slot(key)?.cells.slot_state.ready_at()
    }

    fn before_history(&self, key: &CacheKey, peer: Peer) -> Option<ForwardPermit> {
        // Clients that a serving rule has forwarded come with versions that memory may never have had.
        let serving = &self.settings.serving;
        let is_ruled = serving.has_forwarded_within(FORWARDED_LIST_AGE_MAX);
        let permit = self.existing_slot(key)?.forward_again(peer, is_ruled);
        permit.map(Into::into)
    }

    fn has_passed(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        self.client.has_passed(uri, headers)
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

    fn forward(&self, forward: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        Box::pin(self.forward_upstream(forward))
    }

    fn takes_clients(&self) -> bool {
        self.leaving.get().is_none() && self.is_ready()
    }

    fn relay(&self) -> RelayState {
        if self.leaving.get().is_some() {
            RelayState::Draining
        } else if self.is_ready() {
            RelayState::Open(self.live_limits().get().relay_part)
        } else {
            RelayState::NotReady
        }
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

    fn talkers(&self) -> Option<&Arc<Talkers>> {
        Some(&self.talkers)
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
