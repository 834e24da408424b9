//! Reads discovery and feature gates again and again, and ends the caches of resources that are gone or redefined.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashSet;
use tracing::{info, warn};

use super::{Registry, RegistryState};
use crate::error_chain::one_line;
use crate::resource::CacheKey;
use crate::upstream::discovery::{DiscoverError, Discovery, discover};
use crate::upstream::gates::gates;
use crate::view::Hub;

/// The period of reading discovery without demand; kube-controller-manager's value.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// The shortest time between two reads of discovery, however many requests for unknown resources arrive.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(2);

impl Registry {
    /// Reads which of upstream's feature gates are enabled.
    pub(crate) async fn learn_gates(&self) {
        let known = **self.gates.load();
        let learnt = Box::pin(gates(&self.client, known)).await;
        self.gates.store(Arc::new(learnt));
    }

    /// Reads discovery again, periodically and when an unknown resource was requested. Never returns.
    pub(crate) async fn follow_discovery(&self) {
        loop {
            tokio::time::sleep(DISCOVERY_PAUSE).await;
            // Losing a notification to the timeout is harmless: discovery is read in both cases.
            let _ = tokio::time::timeout(
                DISCOVERY_PERIOD - DISCOVERY_PAUSE,
                self.discovery_wanted.notified(),
            )
            .await;
            match discover(&self.client).await {
                Ok(discovery) => self.discovered(discovery),
                Err(error) => {
                    self.api_services.upstream_fails();
                    self.not_discovered(&error);
                }
            }
            self.learn_gates().await;
        }
    }

    pub(super) fn not_discovered(&self, error: &DiscoverError) {
        if self.discovery_log.lock().is_due(error.reason()) {
            let causes = one_line(error);
            warn!(
                error = causes,
                "cannot read discovery; continuing with the last one"
            );
        }
        if let Some(reason) = &mut *self.undiscovered.lock() {
            *reason = error.reason();
        }
    }

    pub(super) fn discovered(&self, discovery: Discovery) {
        if self.discovery_log.lock().end() {
            info!("discovery can be read again");
        }
        self.api_services.upstream_answers();
        // What failed now is what it was, as far as anybody knows.
        let discovery = Arc::new(discovery.keeping(&self.discovery.load()));
        // Before anything is closed: what starts from now on has the new definition.
        self.discovery.store(Arc::clone(&discovery));
        for key in self.redefined(&discovery) {
            warn!(resource = %key, "upstream has redefined the resource: clients must list again");
            self.close_slot(&key, Hub::expire);
        }
        for key in self.no_longer_offered(&discovery) {
            info!(resource = %key, "no longer offered upstream");
            self.close_slot(&key, Hub::close);
        }
        self.forwarded
            .forget_unknown(|gvr| discovery.resource(gvr).is_some());
        self.rediscovered.send_replace(());
        *self.undiscovered.lock() = None;
        for gvr in &self.settings.pinned {
            self.slot(&CacheKey::json(gvr));
        }
    }

    /// Caches of resources that have another kind, scope or other verbs now, such as a custom resource that was deleted and created anew.
    fn redefined(&self, discovery: &Discovery) -> Vec<CacheKey> {
        self.slots()
            .into_iter()
            .filter(|(key, slot)| {
                let now = discovery.resource(&key.gvr);
                now.is_some_and(|now| *now != slot.definition)
            })
            .map(|(key, _)| key)
            .collect()
    }

    /// Resources whose watches must end. A resource must be missing twice in a row, because a starting API server offers custom resources a
    /// moment after everything else.
    fn no_longer_offered(&self, discovery: &Discovery) -> Vec<CacheKey> {
        let mut state = self.state();
        let RegistryState { slots, missing, .. } = &mut *state;
        let now: HashSet<_, _> = slots
            .keys()
            .filter(|key| discovery.resource(&key.gvr).is_none())
            .cloned()
            .collect();
        let gone: Vec<_> = now.intersection(missing).cloned().collect();
        if now.len() > gone.len() {
            self.discovery_wanted.notify_one();
        }
        *missing = now;
        gone
    }
}
