//! Checks in flight and those that wait for a place, both shared among payers.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

use super::RequirementCheck;
use crate::fairness::Peer;
use crate::fairness::fair_queue::{FairQueue, QueueDecision};

/// See the module. Dropped, all of its checks fail.
pub(super) struct CheckQueue {
    line: FairQueue<RequirementCheck>,
    /// They have a place, and are not started yet.
    admitted: Vec<(Peer, RequirementCheck)>,
    in_flight: JoinSet<()>,
    /// Whose places those in flight have.
    payers: HashMap<Id, Peer>,
}

impl CheckQueue {
    pub(super) fn new() -> Self {
        Self {
            line: FairQueue::new(IN_FLIGHT_MAX, WAITING_MAX),
            admitted: Vec::new(),
            in_flight: JoinSet::new(),
            payers: HashMap::new(),
        }
    }

    /// Takes a check for the payer, unless its part of the line is full, or all of it. [`start`](Self::start) is to be called
    /// afterwards: a check that is dropped needs a lock that the caller of this may hold.
    pub(super) fn accept(&mut self, payer: Peer, check: impl FnOnce() -> RequirementCheck) -> bool {
        match self.line.enter(payer) {
            QueueDecision::Runs => self.admitted.push((payer, check())),
            QueueDecision::MayWait(ticket) => {
                ticket.wait(check());
            }
            QueueDecision::Full(_) => return false,
        }
        true
    }

    /// Starts the checks that have a place.
    pub(super) fn start(&mut self) {
        for (payer, check) in self.admitted.drain(..) {
            let id = self.in_flight.spawn(check.run()).id();
            self.payers.insert(id, payer);
        }
    }

    /// Waits until a check has ended, and gives its place to the next one; `None` if there is none. May be cancelled.
    pub(super) async fn end_one(&mut self) -> Option<()> {
        let id = match self.in_flight.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        if let Some(payer) = self.payers.remove(&id) {
            self.line.leave(payer);
        }
        self.admitted
            .extend(std::iter::from_fn(|| self.line.admit_next()));
        self.start();
        Some(())
    }
}

/// Checks in flight: 26 of a payer that is alone, and some for others at any time. What upstream does for others is not to suffer.
pub(super) const IN_FLIGHT_MAX: usize = 32;

/// Checks that wait: 4,096 of a payer that is alone. What is not taken stays due, and is offered again a moment later.
pub(super) const WAITING_MAX: usize = 5120;
