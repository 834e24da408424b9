//! Follows pods and service accounts, to notice when one is gone that tokens are bound to. Holds only their uids. A pod that is being deleted
//! is not gone: upstream accepts its tokens until its deletion is complete.
//!
//! Where clients are served from a cache of the resource, it tells what is deleted; else a watch of metadata does. When one takes over from the
//! other, deletions may be in neither. So what was known stays until the new one has listed, and then all tokens are compared with the list.

mod cache_reader;
mod contact;
mod live_uids;
mod uid_set;
mod uid_sink;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::refusal_log::log_refusal_once;
use crate::auth::followed::Followed;
use crate::auth::leases::LivenessCheck;
use crate::informer::{ListWatch, Reflector};
use crate::resource::Gvr;
use crate::upstream::client::Client;
use crate::upstream::driver::Fetch;
use cache_reader::CacheReader;
pub(super) use cache_reader::{CacheLookup, KeptCache};
use contact::FeedContact;
use live_uids::{LiveUids, OnDeleted};
use uid_sink::UidSink;

/// Who is told what happens to pods and service accounts.
pub(super) struct DeletionReports {
    /// Called with the uids of those that are gone.
    pub(super) on_deleted: OnDeleted,
    /// Called after all of one resource were listed.
    pub(super) on_listed: Arc<dyn Fn(LivenessCheck) + Send + Sync>,
}

/// Follows pods and service accounts in all namespaces.
pub(super) struct BoundObjectFeed<F = Client> {
    fetch: Arc<F>,
    followed: Arc<Followed>,
    reports: DeletionReports,
}

impl<F: Fetch> BoundObjectFeed<F> {
    pub(super) fn new(fetch: F, followed: Arc<Followed>, reports: DeletionReports) -> Self {
        Self {
            fetch: Arc::new(fetch),
            followed,
            reports,
        }
    }

    /// Follows both resources. Never returns.
    pub(super) async fn run(&self, caches: &CacheLookup) -> Infallible {
        let pods = Arc::new(LiveUids::new(Arc::clone(&self.reports.on_deleted)));
        let accounts = Arc::new(LiveUids::new(Arc::clone(&self.reports.on_deleted)));
        // The branches never return.
        tokio::select! {
            never = self.follow("pods", &pods, caches) => never,
            never = self.follow("serviceaccounts", &accounts, caches) => never,
            never = self.report(&pods, &accounts) => never,
        }
    }

    async fn follow(
        &self,
        resource: &str,
        live: &Arc<LiveUids>,
        caches: &CacheLookup,
    ) -> Infallible {
        let gvr = Gvr::new("", "v1", resource);
        let is_cached = async || {
            while caches(&gvr).is_none() {
                sleep(READ_PERIOD).await;
            }
        };
        loop {
            if timeout(CACHE_WAIT, is_cached()).await.is_err() {
                // Both branches are safe to cancel: what the watch has told stays known, and the cache is read as a list.
                tokio::select! {
                    () = is_cached() => {}
                    never = self.watch(&gvr, live) => match never {},
                }
            }
            let mut reader = CacheReader::new(live);
            while let Some(kept) = caches(&gvr) {
                reader.read(&kept, Instant::now());
                drop(kept);
                sleep(READ_PERIOD).await;
            }
        }
    }

    async fn watch(&self, gvr: &Gvr, live: &Arc<LiveUids>) -> Infallible {
        let reflector = Reflector::new(Arc::clone(&self.fetch), ListWatch::metadata(gvr));
        let reading = reflector
            .on_failure(log_refusal_once(gvr, UNWATCHED))
            .run(UidSink::new(Arc::clone(live)));
        Box::pin(reading).await;
        // A reflector ends if its sink cannot follow; this sink always can.
        std::future::pending().await
    }

    /// Says whether deletions are noticed, for as long as upstream is heard of, and what has been listed.
    async fn report(&self, pods: &Arc<LiveUids>, accounts: &Arc<LiveUids>) -> Infallible {
        let contacts = [&pods.contact, &accounts.contact];
        loop {
            if contacts.map(FeedContact::take_listed).contains(&true) {
                (self.reports.on_listed)(liveness(pods, accounts));
            }
            let now = Instant::now();
            let are_followed = contacts.iter().all(|contact| contact.is_current(now));
            if are_followed != self.followed.has_bound_objects() {
                self.followed.set_bound_objects(are_followed);
                match are_followed {
                    true => tracing::info!("deletions of pods and service accounts are noticed"),
                    false => tracing::warn!(
                        "upstream's pods or service accounts are not heard of: their deletion is not noticed"
                    ),
                }
            }
            // All branches are safe to cancel: a change that is missed here is seen at the next look.
            tokio::select! {
                () = contacts[0].changed() => {}
                () = contacts[1].changed() => {}
                () = sleep(CONTACT_PERIOD) => {}
            }
        }
    }
}

/// Whether upstream may have all that a user's token is bound to.
fn liveness(pods: &Arc<LiveUids>, accounts: &Arc<LiveUids>) -> LivenessCheck {
    let (pods, accounts) = (Arc::clone(pods), Arc::clone(accounts));
    Arc::new(move |user| {
        let is_account = user.service_account().is_some() && !user.uid.is_empty();
        user.pod_uid().is_none_or(|uid| pods.may_have(uid))
            && (!is_account || accounts.may_have(&user.uid))
    })
}

/// How often silence is looked for.
const CONTACT_PERIOD: Duration = Duration::from_secs(5);
/// How often a cache is read. It adds to the time from a deletion to the review of its tokens.
const READ_PERIOD: Duration = Duration::from_millis(250);
/// How long a cache is waited for before a watch begins: at the start one may be restored, and one that has ended may be filled again.
const CACHE_WAIT: Duration = Duration::from_secs(2);

/// The log line if the gateway may not watch one of the resources.
const UNWATCHED: &str = "the gateway may not watch this resource: tokens of deleted pods and service accounts end only when they are checked again";

#[cfg(test)]
mod tests;
