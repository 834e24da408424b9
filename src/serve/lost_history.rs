//! Watches that begin in a history that upstream no longer has. Upstream does not notice, and would leave out events: their clients are
//! told to list again.

use super::{AnswerBody, ReadRequest, Service, ServiceResponse, with_content_type};
use crate::protocol::request::{Verb, WatchPlan, WatchStart};
use crate::protocol::status::Status;
use crate::resource::Encoding;
use crate::serve::resources::{ForwardPermit, Resources};
use crate::view::ServedResource;

impl<R: Resources> Service<R> {
    /// The answer to a watch that would be forwarded for want of a cache, although it may begin in a lost history.
    pub(super) fn lost_watch(&self, asked: &ReadRequest) -> Option<ServiceResponse<R>> {
        let options = asked.options.as_ref().ok()?;
        let is_watch = asked.verb == Verb::Watch;
        let plan = is_watch.then(|| WatchPlan::decide(options))?.ok()?;
        let WatchStart::After(version) = plan.start else {
            return None;
        };
        let encoding = asked.key.encoding;
        let is_lost = self.resources.may_be_lost(&asked.key, version);
        is_lost.then(|| {
            let status = Status::expired_watch(version, version);
            with_content_type(encoding.stream_type(), stream_of(&status, encoding))
        })
    }

    /// The right to have a watch forwarded instead of telling its client to list again, where it begins before the history.
    pub(super) fn permit_before_history(
        &self,
        asked: &ReadRequest,
        (start, served): (WatchStart, &ServedResource),
        status: &Status,
    ) -> Option<ForwardPermit> {
        let WatchStart::After(version) = start else {
            return None;
        };
        // Upstream would not notice that a version is of another history.
        let is_known = status.code == 410 && !served.cache.may_be_lost(version);
        is_known
            .then(|| self.resources.before_history(&asked.key, asked.peer))
            .flatten()
    }
}

/// The same for a watch that has a cache, but finds no room.
pub(super) fn lost_start(start: WatchStart, served: &ServedResource) -> Option<Status> {
    let WatchStart::After(version) = start else {
        return None;
    };
    let too_old = served.cache.resume_after(version).err()?;
    let is_lost = served.cache.may_be_lost(version);
    is_lost.then(|| Status::expired_watch(version, too_old.floor))
}

/// A stream that ends at once with this.
pub(super) fn stream_of<F>(status: &Status, encoding: Encoding) -> AnswerBody<F> {
    AnswerBody::Stream(Some(status.error_event(encoding).into()))
}
