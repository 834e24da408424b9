//! Which caches are handed over to other gateways, and which are started because other gateways have them.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::info;

use super::Registry;
use crate::cache_rule::ApiServiceKnowledge;
use crate::consistency::may_be_read_later;
use crate::fairness::Peer;
use crate::handover::{CacheHandover, Handover};
use crate::protocol::status::Status;
use crate::resource::CacheKey;
use crate::serve::resources::ForwardedBody;
use crate::slot::SlotState;
use crate::upstream::driver::cluster_uid;

/// How long a handover waits for the cluster's uid. Where this gateway may not read it, the other one compares objects only.
const CLUSTER_TIME_MAX: Duration = Duration::from_secs(3);
/// How often the start looks whether upstream's resources, and who serves them, are known.
const DISCOVERY_POLL: Duration = Duration::from_millis(100);

impl Registry {
    /// The handover of a cache from other gateways, if there are any.
    pub(super) fn handover(&self, key: &CacheKey) -> Option<CacheHandover> {
        Some(self.settings.handover.as_ref()?.of(key, &self.metrics))
    }

    /// The other gateways, if any are named.
    pub(crate) fn other_gateways(&self) -> Option<&Arc<Handover>> {
        self.settings.handover.as_ref()
    }

    /// The caches that can be handed over.
    pub(super) fn ready_keys(&self) -> Vec<CacheKey> {
        let ready = self
            .slots()
            .into_iter()
            .filter(|(_, slot)| matches!(&*slot.cells.slot_state.borrow(), SlotState::Ready(_)));
        ready
            .filter(|(_, slot)| slot.staleness().is_none())
            .map(|(key, _)| key)
            .collect()
    }

    /// Hands a cache over. A cache that is not ready is not started: the other gateway had to wait for upstream either way. A stale one is
    /// not handed over: where it arrives, it would count as current.
    pub(super) async fn hand_cache_over(
        &self,
        key: &CacheKey,
        peer: Peer,
    ) -> Result<Response<ForwardedBody>, Status> {
        let slot = self.state().slots.get(key).cloned();
        let slot = slot.filter(|_| self.may_keep(&key.gvr));
        let slot = slot.filter(|slot| slot.staleness().is_none());
        let Some(served) = slot.and_then(|slot| slot.served()) else {
            return Err(self.offers.missing());
        };
        let permit = self.offers.permit(peer)?;
        let cluster = match timeout(CLUSTER_TIME_MAX, cluster_uid(&*self.client)).await {
            Ok(Ok(uid)) => Some(uid),
            Ok(Err(failure)) if !may_be_read_later(&failure) => None,
            Ok(Err(_)) | Err(_) => {
                return Err(self.offers.busy("the cluster's uid cannot be read now"));
            }
        };
        let response = self.offers.begin(permit, served, cluster);
        Ok(response.map(|body| ForwardedBody::new(body.map_err(Into::into))))
    }

    /// Starts the caches that other gateways have, because their clients will come here. The gateway is not ready before these caches are,
    /// or before the time of a handover is over.
    pub(crate) async fn start_handed_over(&self) {
        let Some(handover) = &self.settings.handover else {
            return;
        };
        let _settled = handover.settle();
        let give_up_at = Instant::now() + handover.time_max();
        let start = async {
            while self.undiscovered.lock().is_some()
                || matches!(**self.known.load(), ApiServiceKnowledge::Unread)
            {
                sleep(DISCOVERY_POLL).await;
            }
            // Each gateway's caches start at once: a gateway that does not respond holds up only itself.
            let start = |keys: Vec<CacheKey>| {
                for key in &keys {
                    if self.slot(key).is_none() {
                        info!(resource = %key, "not taken over: the resource is not cached");
                    }
                }
            };
            handover.each_index(start).await;
            for (_, slot) in self.slots() {
                slot.settled(give_up_at.saturating_duration_since(Instant::now()))
                    .await;
            }
        };
        if timeout_at(give_up_at, start).await.is_err() {
            info!("some caches were not taken over in time");
        }
    }
}
