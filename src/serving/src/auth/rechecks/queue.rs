//! The checks in flight, and a queue of checks that wait for a permit. Both are shared fairly among the clients that pay for them.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};

use super::check::RequirementCheck;
use crate::fairness::Peer;
use crate::fairness::fair_queue::{FairQueue, QueueDecision};

/// A bounded queue of checks. When it is dropped, all of its checks count as failed.
pub(super) struct CheckQueue {
    queue: FairQueue<RequirementCheck>,
    /// Checks that have a permit and are not started yet.
    admitted: Vec<(Peer, RequirementCheck)>,
    in_flight: JoinSet<()>,
    /// The payers of the checks in flight.
    payers: HashMap<Id, Peer>,
}

impl CheckQueue {
    pub(super) fn new() -> Self {
        Self {
            queue: FairQueue::new(IN_FLIGHT_MAX, WAITING_MAX),
            admitted: Vec::new(),
            in_flight: JoinSet::new(),
            payers: HashMap::new(),
        }
    }

    /// Adds a check for the payer. `false` if the queue is full, for this payer or for all. Call [`start`](Self::start) afterwards,
    /// without the lock of the leases: dropping a check takes that lock, so this method neither starts nor drops checks.
    pub(super) fn accept(&mut self, payer: Peer, check: impl FnOnce() -> RequirementCheck) -> bool {
        match self.queue.enter(payer) {
            QueueDecision::Runs => self.admitted.push((payer, check())),
            QueueDecision::MayWait(ticket) => {
                ticket.wait(check());
            }
            QueueDecision::Full(_) => return false,
        }
        true
    }

    /// Starts the checks that have a permit.
    pub(super) fn start(&mut self) {
        for (payer, check) in self.admitted.drain(..) {
            let id = self.in_flight.spawn(check.run()).id();
            self.payers.insert(id, payer);
        }
    }

    /// Waits until a check has ended, and passes its permit to the next one; `None` if no check is in flight. Cancel-safe.
    pub(super) async fn end_one(&mut self) -> Option<()> {
        let id = match self.in_flight.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        if let Some(payer) = self.payers.remove(&id) {
            self.queue.leave(payer);
        }
        self.admitted
            .extend(std::iter::from_fn(|| self.queue.admit_next()));
        self.start();
        Some(())
    }
}

/// Maximum number of checks in flight, small so that checks do not slow down upstream for others. A single payer gets at most 26, so that
/// others always find a permit.
pub(super) const IN_FLIGHT_MAX: usize = 32;

/// Maximum number of waiting checks; a single payer gets at most 4,096. A check that does not fit stays due and is offered again with the
/// next scan.
pub(super) const WAITING_MAX: usize = 5120;
