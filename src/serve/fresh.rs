//! Waiting until a cache has reached a version, for as long as kube-apiserver would (docs/PROTOCOL.md §3.1, §10).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::protocol::status::Status;
use crate::resource::ResourceVersion;
use crate::view::ServedResource;

/// kube-apiserver's patience.
pub(super) const WAIT: Duration = Duration::from_secs(3);
/// What it advises afterwards.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The cache did not get there in time.
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

/// Waits until the resource's views have reached `version`, for so long; whether they have.
pub async fn wait_until_fresh(
    served: &ServedResource,
    version: ResourceVersion,
    patience: Duration,
) -> bool {
    if served.hub.reached().version >= version {
        return true;
    }
    let waiter = served.hub.progress_waiter();
    let reached = poll_fn(|context| {
        waiter.arm(context.waker());
        // Looked at after arming: progress made in between is seen.
        if served.hub.reached().version >= version || served.hub.is_closed() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    // The time-out is an answer, not a failure of the wait.
    let _ = tokio::time::timeout(patience, reached).await;
    served.hub.reached().version >= version
}
