//! Watches that start in a history that upstream has lost. Upstream would not notice and leave events out, so these clients get 410
//! and list again.

use super::body::AnswerBody;
use super::negotiated_read::NegotiatedRead;
use super::read_request::ReadRequest;
use super::resources::{ForwardPermit, VersionReach};
use super::response::with_content_type;
use super::service::{Service, ServiceResponse};
use crate::protocol::request::{Verb, WatchPlan, WatchStart};
use crate::protocol::status::Status;
use crate::resource::{CacheKey, Encoding};
use crate::view::ServedResource;

impl Service {
    /// The 410 for a watch that would be forwarded because there is no cache of this key, if it may start in a lost history.
    pub(super) async fn lost_watch(
        &self,
        read: &ReadRequest,
        key: &CacheKey,
    ) -> Option<ServiceResponse> {
        let is_watch = read.verb == Verb::Watch;
        let plan = is_watch.then(|| WatchPlan::decide(&read.options))??;
        let WatchStart::After(version) = plan.start else {
            return None;
        };
        let is_lost = self.resources.may_be_lost(key, version)
            || self.resources.version_reach(key, version).await == VersionReach::Lost;
        is_lost.then(|| {
            let status = Status::expired_watch(version, version);
            let stream = self.refused_stream(key, &status, key.encoding);
            with_content_type(key.encoding.stream_type(), stream)
        })
    }

    /// The reach of the version that a watch of this cache starts from.
    pub(super) async fn start_reach(
        &self,
        key: &CacheKey,
        start: WatchStart,
        served: &ServedResource,
    ) -> VersionReach {
        match start {
            WatchStart::After(version) if version > served.hub.reached().version => {
                self.resources.version_reach(key, version).await
            }
            WatchStart::After(_) | WatchStart::FromNow { .. } | WatchStart::Initial { .. } => {
                VersionReach::Reached
            }
        }
    }

    /// A stream of one ERROR event, which ends a watch before its first event.
    pub(super) fn refused_stream(
        &self,
        key: &CacheKey,
        status: &Status,
        encoding: Encoding,
    ) -> AnswerBody {
        if status.code == 410 {
            self.resources.tally(key).expired_at_start();
        }
        AnswerBody::Stream(Some(status.error_event(encoding).into()))
    }

    /// A permit to forward a watch that starts before the cache's history, instead of answering it with 410.
    pub(super) fn permit_before_history(
        &self,
        read: &NegotiatedRead<'_>,
        start: WatchStart,
        status: &Status,
    ) -> Option<ForwardPermit> {
        let WatchStart::After(version) = start else {
            return None;
        };
        // Upstream would not notice a version of a lost history, so such a watch is not forwarded.
        let is_known = status.code == 410 && !read.served.cache.may_be_lost(version);
        is_known
            .then(|| {
                self.resources
                    .before_history(read.key, read.authorized.peer)
            })
            .flatten()
    }
}

/// The 410 for a watch from a version of a lost history.
pub(super) fn lost_version(start: WatchStart, served: &ServedResource) -> Option<Status> {
    let WatchStart::After(version) = start else {
        return None;
    };
    let floor = served.hub.reached().version;
    Some(Status::expired_watch(version, floor))
}

/// The 410 for a watch that has a cache but finds no room in its views, if it may start in a lost history.
pub(super) fn lost_start(start: WatchStart, served: &ServedResource) -> Option<Status> {
    let WatchStart::After(version) = start else {
        return None;
    };
    let too_old = served.cache.resume_after(version).err()?;
    served
        .cache
        .may_be_lost(version)
        .then(|| Status::expired_watch(version, too_old.floor))
}
