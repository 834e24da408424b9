//! Follows pods and service accounts upstream, to notice when one is gone that tokens are bound to. Holds only their uids. A pod that is being
//! deleted is not gone: upstream accepts its tokens until its deletion is complete.

mod contact;
mod uid_set;
mod uid_sink;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::refusal_log::log_refusal_once;
use crate::auth::followed::Followed;
use crate::informer::{ListWatch, Reflector};
use crate::resource::Gvr;
use crate::upstream::client::Client;
use crate::upstream::driver::Fetch;
use contact::FeedContact;
use uid_sink::{OnDeleted, UidSink};

/// Watches the metadata of pods and service accounts in all namespaces.
pub(super) struct BoundObjectFeed<F = Client> {
    fetch: Arc<F>,
    followed: Arc<Followed>,
    on_deleted: OnDeleted,
}

impl<F: Fetch> BoundObjectFeed<F> {
    pub(super) fn new(fetch: F, followed: Arc<Followed>, on_deleted: OnDeleted) -> Self {
        Self {
            fetch: Arc::new(fetch),
            followed,
            on_deleted,
        }
    }

    /// Follows both resources. Never returns.
    pub(super) async fn run(&self) -> Infallible {
        let (pods, accounts) = (
            Arc::new(FeedContact::default()),
            Arc::new(FeedContact::default()),
        );
        // The branches never return.
        tokio::select! {
            never = self.follow("pods", &pods) => never,
            never = self.follow("serviceaccounts", &accounts) => never,
            never = self.report([&pods, &accounts]) => never,
        }
    }

    async fn follow(&self, resource: &str, contact: &Arc<FeedContact>) -> Infallible {
        let gvr = Gvr::new("", "v1", resource);
        let sink = UidSink::new(Arc::clone(&self.on_deleted), Arc::clone(contact));
        let reflector = Reflector::new(Arc::clone(&self.fetch), ListWatch::metadata(&gvr));
        let reading = reflector
            .on_failure(log_refusal_once(&gvr, UNWATCHED))
            .run(sink);
        Box::pin(reading).await;
        // A reflector ends if its sink cannot follow; this sink always can.
        std::future::pending().await
    }

    /// Says whether deletions are noticed, for as long as upstream is heard of.
    async fn report(&self, contacts: [&Arc<FeedContact>; 2]) -> Infallible {
        loop {
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

/// How often silence is looked for.
const CONTACT_PERIOD: Duration = Duration::from_secs(5);

/// The log line if the gateway may not watch one of the resources.
const UNWATCHED: &str = "the gateway may not watch this resource: tokens of deleted pods and service accounts end only when they are checked again";

#[cfg(test)]
mod tests;
