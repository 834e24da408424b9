//! Waits until a cache has reached a version, as long as kube-apiserver would (docs/PROTOCOL.md §3.1, §10).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::view::ServedResource;

/// How long kube-apiserver waits for its cache to be fresh enough.
pub(super) const WAIT: Duration = Duration::from_secs(3);
/// `Retry-After` of the response if that was not enough.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The cache did not reach the requested version in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreshError {
    requested: ResourceVersion,
    current: ResourceVersion,
}

impl FreshError {
    pub(super) fn new(requested: ResourceVersion, served: &ServedResource) -> Self {
        Self {
            requested,
            current: served.hub.reached().version,
        }
    }

    pub(super) fn into_status(self) -> Status {
        Status::timeout_too_large(self.requested, self.current, RETRY_AFTER_SECONDS)
    }
}

/// Waits until the resource's views have reached `version`, up to `limit`; returns whether they have.
pub async fn wait_until_fresh(
    served: &ServedResource,
    version: ResourceVersion,
    limit: Duration,
) -> bool {
    if served.hub.reached().version >= version {
        return true;
    }
    let waiter = served.hub.progress_waiter();
    let reached = poll_fn(|context| {
        waiter.arm(context.waker());
        // Check after arming, so that progress in between is not missed.
        if served.hub.reached().version >= version || served.hub.is_closed() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    // Ignore the timeout: whether the version was reached is checked below.
    let _ = tokio::time::timeout(limit, reached).await;
    served.hub.reached().version >= version
}
