//! What a watch sends before it reads the history: initial events, a catch-up, or nothing.

use std::sync::Arc;
use std::task::Waker;

use super::catch_up::CatchUpEvents;
use super::initial::{FirstFrame, InitialEvents};
use super::initial_block::InitialBlocks;
use super::limits::FrameLimits;
use super::start::Start;
use crate::admission::ListPermit;
use crate::cache::Sequence;
use crate::resource::ResourceVersion;
use crate::view::{ServedResource, View};

/// Why the first events cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstEventsError {
    /// An object cannot be projected; the stream ends.
    Unprojectable,
    /// The client has to list.
    Expired,
}

/// The events before those of the history, which all are from one snapshot.
#[derive(Debug)]
pub(super) enum FirstEvents {
    Initial(Box<InitialEvents>),
    CatchUp(Box<CatchUpEvents>),
}

impl FirstEvents {
    /// The first events of a watch, and the sequence and the version at which the events after them start.
    pub(super) fn of(start: Start, bookmarks: bool) -> (Option<Self>, Sequence, ResourceVersion) {
        match start {
            Start::Initial {
                snapshot,
                version,
                marker,
            } => {
                let sequence = snapshot.sequence;
                let initial = InitialEvents::new(snapshot, version, marker);
                (Some(Self::Initial(Box::new(initial))), sequence, version)
            }
            Start::CatchUp(catch_up) => {
                let snapshot = catch_up.snapshot();
                let (sequence, version) = (snapshot.sequence, snapshot.resource_version);
                let events = CatchUpEvents::new(catch_up, bookmarks);
                (Some(Self::CatchUp(Box::new(events))), sequence, version)
            }
            Start::After { sequence, version } => (None, sequence, version),
        }
    }

    /// Holds the permit until the last frame is made.
    pub(super) fn hold(&mut self, permit: Option<ListPermit>) {
        match self {
            Self::Initial(initial) => initial.hold(permit),
            Self::CatchUp(catch_up) => catch_up.hold(permit),
        }
    }

    /// Sends as compressed blocks what many clients get.
    pub(super) fn compress(&mut self, blocks: Arc<dyn InitialBlocks>) {
        match self {
            Self::Initial(initial) => initial.compress(blocks),
            Self::CatchUp(_) => {}
        }
    }

    /// Whether the next frame has to be waited for.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Initial(initial) => initial.waits(),
            Self::CatchUp(_) => false,
        }
    }

    /// Wakes `waker` when the next frame is there, if it has to be waited for; returns whether it is there already.
    pub(super) fn arm(&mut self, waker: &Waker) -> bool {
        match self {
            Self::Initial(initial) => initial.arm(waker),
            Self::CatchUp(_) => false,
        }
    }

    /// Whether all of them are sent.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Initial(initial) => initial.is_done(),
            Self::CatchUp(catch_up) => catch_up.is_over(),
        }
    }

    /// The next frame.
    pub(super) fn next_frame(
        &mut self,
        view: &View,
        served: &ServedResource,
        limits: &FrameLimits,
    ) -> Result<FirstFrame, FirstEventsError> {
        match self {
            Self::Initial(initial) => initial
                .next_frame(view, served, limits)
                .map_err(|_| FirstEventsError::Unprojectable),
            // Also if an object cannot be projected: a client that resumed would reach the same object again.
            Self::CatchUp(catch_up) => match catch_up.next_frame(view, served, limits) {
                Ok((Some(events), count)) => Ok(FirstFrame::Events(events, count)),
                Ok((None, _)) => Ok(FirstFrame::Nothing),
                Err(_) => Err(FirstEventsError::Expired),
            },
        }
    }
}
