//! Requests that get the response to another one.

use super::Passthrough;
use super::lanes::ForwardLane;
use crate::fairness::Peer;

impl Passthrough {
    /// The permit of a short request that gets the response to another one; `None` if its client has no permit left.
    #[must_use]
    pub fn shared_request(&self, peer: Peer) -> Option<impl Sized + Send + Unpin + use<>> {
        self.lanes.acquire(ForwardLane::Requests, peer).ok()
    }
}
