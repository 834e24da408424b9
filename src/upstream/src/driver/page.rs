//! The request for one page of a list, and the response to one that was sent early.

use bytes::Bytes;

use super::fault::AttemptFailure;
use crate::reflector::{Action, ListVersion};

/// A request for one page of a list.
#[derive(Debug)]
pub(super) struct UpstreamPageRequest {
    pub(super) version: ListVersion,
    pub(super) continue_token: Option<String>,
    pub(super) limit: Option<u32>,
}

impl UpstreamPageRequest {
    /// The page request of an action; `None` if the action is not a list.
    pub(super) fn of(action: &Action) -> Option<Self> {
        match action {
            Action::List {
                resource_version,
                continue_token,
                limit,
                ..
            } => Some(Self {
                version: *resource_version,
                continue_token: continue_token.clone(),
                limit: *limit,
            }),
            Action::WatchList { .. }
            | Action::Watch { .. }
            | Action::Compare
            | Action::WaitUntil(_)
            | Action::Stop(_) => None,
        }
    }
}

/// The response to a page request that was sent while the previous page was read. It is used only if the reflector then
/// asks for exactly this page.
#[derive(Debug)]
pub(super) struct PageAhead {
    pub(super) action: Action,
    pub(super) response: Result<Bytes, AttemptFailure>,
}
