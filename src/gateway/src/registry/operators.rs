//! Which limits apply to a client: those of the operators' port, or those of all others.

use super::Registry;
use crate::admission::Admission;
use crate::fairness::Peer;
use crate::passthrough::Passthrough;

impl Registry {
    /// The admission that limits the peer's lists and watches.
    pub(super) fn admission_of(&self, peer: Peer) -> &Admission {
        match &self.operators {
            Some(operators) if peer.is_operator() => &operators.admission,
            Some(_) | None => &self.settings.admission,
        }
    }

    /// The passthrough for the peer's requests.
    pub(super) fn passthrough_of(&self, peer: Peer) -> &Passthrough {
        match &self.operators {
            Some(operators) if peer.is_operator() => &operators.passthrough,
            Some(_) | None => &self.passthrough,
        }
    }
}
