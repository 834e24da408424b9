//! The states that a cache can continue from instead of listing upstream: its checkpoint, and the caches of other gateways.

use std::fmt;

use parking_lot::Mutex;

use crate::checkpoint::CheckpointContent;
use crate::checkpoints::Checkpoint;
use crate::handover::CacheHandover;
use crate::metrics::{HandoverOutcome, RestoreOutcome};
use crate::restored::WantedState;

/// Where a state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateOrigin {
    /// The checkpoint of this gateway.
    Checkpoint,
    Peer,
}

/// The states of one slot.
pub(super) struct PriorStates {
    checkpoint: Option<Checkpoint>,
    handover: Option<CacheHandover>,
    /// Whether the next cache may continue from the checkpoint: not after its history was lost.
    may_restore: bool,
    /// The same for the caches of other gateways.
    may_take: bool,
    /// Whether this attempt uses a state, or reads one.
    is_used: Mutex<bool>,
    /// Whether an attempt failed that used a state. Until a cache is served again, upstream is listed.
    is_suspect: bool,
}

/// What became of a state that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateOutcome {
    /// The cache continues from it.
    Used,
    /// Upstream no longer has its version, and was listed.
    Expired,
    /// Upstream contradicts it.
    OtherHistory,
    /// The attempt ended before upstream had continued from it.
    Abandoned,
}

/// Counts what becomes of one state.
#[derive(Clone, Default)]
pub(super) struct StateCounter {
    checkpoint: Option<Checkpoint>,
    handover: Option<CacheHandover>,
}

impl fmt::Debug for StateCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCounter").finish_non_exhaustive()
    }
}

impl StateCounter {
    pub(super) fn count(&self, outcome: StateOutcome) {
        if let Some(checkpoint) = &self.checkpoint {
            checkpoint.count(match outcome {
                StateOutcome::Used => RestoreOutcome::Restored,
                StateOutcome::Expired => RestoreOutcome::Expired,
                StateOutcome::OtherHistory => RestoreOutcome::Refused,
                StateOutcome::Abandoned => RestoreOutcome::Abandoned,
            });
        }
        if let Some(handover) = &self.handover {
            handover.count(match outcome {
                StateOutcome::Used => HandoverOutcome::Taken,
                StateOutcome::Expired => HandoverOutcome::Expired,
                StateOutcome::OtherHistory => HandoverOutcome::OtherHistory,
                StateOutcome::Abandoned => HandoverOutcome::Abandoned,
            });
        }
    }
}

impl PriorStates {
    pub(super) const fn new(
        checkpoint: Option<Checkpoint>,
        handover: Option<CacheHandover>,
    ) -> Self {
        Self {
            checkpoint,
            handover,
            may_restore: true,
            may_take: true,
            is_used: Mutex::new(false),
            is_suspect: false,
        }
    }

    /// Whether there can be a state, or one is written.
    pub(super) const fn is_possible(&self) -> bool {
        self.checkpoint.is_some() || self.handover.is_some()
    }

    /// The checkpoint, to write to.
    pub(super) fn checkpoint(&self) -> Option<Checkpoint> {
        self.checkpoint.clone()
    }

    /// The state that is wanted; `None` if there is none that can be used.
    pub(super) async fn load(
        &self,
        wanted: &WantedState,
    ) -> Option<(CheckpointContent, StateOrigin)> {
        if self.is_suspect {
            return None;
        }
        // Before: reading may need more memory than there is.
        *self.is_used.lock() = true;
        let found = self.find(wanted).await;
        *self.is_used.lock() = found.is_some();
        found
    }

    /// Notes how an attempt ended: whether a cache was served, or it failed in a way that may be the state's fault. Else each attempt
    /// would fail alike.
    pub(super) fn end_attempt(&mut self, is_served: bool, may_be_at_fault: bool) {
        let was_used = std::mem::take(self.is_used.get_mut());
        if is_served {
            self.is_suspect = false;
        } else if was_used && may_be_at_fault {
            self.is_suspect = true;
        }
    }

    /// Of the checkpoint if that is recent; then of another gateway, which follows upstream and is never too old; then of an old checkpoint.
    async fn find(&self, wanted: &WantedState) -> Option<(CheckpointContent, StateOrigin)> {
        let checkpoint = self.checkpoint.as_ref().filter(|_| self.may_restore);
        let handover = self.handover.as_ref().filter(|_| self.may_take);
        let is_first = match (checkpoint, handover) {
            (Some(checkpoint), Some(_)) => checkpoint.is_recent().await,
            (Some(_) | None, _) => true,
        };
        if let Some(content) = restore(checkpoint.filter(|_| is_first), wanted).await {
            return Some((content, StateOrigin::Checkpoint));
        }
        if let Some(handover) = handover
            && let Some(content) = handover.take(wanted).await
        {
            return Some((content, StateOrigin::Peer));
        }
        let content = restore(checkpoint.filter(|_| !is_first), wanted).await?;
        Some((content, StateOrigin::Checkpoint))
    }

    /// Counts what becomes of a state that was loaded.
    pub(super) fn counter(&self, origin: StateOrigin) -> StateCounter {
        let (checkpoint, handover) = match origin {
            StateOrigin::Checkpoint => (self.checkpoint.clone(), None),
            StateOrigin::Peer => (None, self.handover.clone()),
        };
        StateCounter {
            checkpoint,
            handover,
        }
    }

    /// Loads no state from there any more, and removes the checkpoint.
    pub(super) fn forget(&mut self, origin: StateOrigin) {
        match origin {
            StateOrigin::Checkpoint => {
                self.may_restore = false;
                if let Some(checkpoint) = &self.checkpoint {
                    checkpoint.remove();
                }
            }
            StateOrigin::Peer => self.may_take = false,
        }
    }
}

async fn restore(
    checkpoint: Option<&Checkpoint>,
    wanted: &WantedState,
) -> Option<CheckpointContent> {
    checkpoint?.restore(wanted).await
}
