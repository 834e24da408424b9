//! An open watch's hold on the side that answers it. It is woken when the rules have changed, in its turn.

use std::task::Waker;
use std::time::Duration;

use super::control::ServingControl;
use super::subject::SubjectUser;
use crate::auth::lease::LeaseHold;
use crate::config::{Answerer, ReadSubject};

/// A watch's hold on the side that answers it.
#[derive(Debug)]
pub struct SideHold {
    control: ServingControl,
    /// Its user.
    pub(crate) user: SubjectUser,
    wave: usize,
    lease: LeaseHold,
}

impl SideHold {
    /// The hold of a watch that memory answers.
    #[must_use]
    pub fn new(control: ServingControl, user: SubjectUser) -> Self {
        let wave = ServingControl::draw_wave();
        let lease = control.wave(wave).hold();
        Self {
            control,
            user,
            wave,
            lease,
        }
    }

    /// Wakes `waker` when the side may have changed.
    pub(crate) fn arm(&mut self, waker: &Waker) {
        self.lease.arm(waker);
    }

    /// Whether the rules may have changed since the hold was made or renewed. Arm first, so that no change is missed in between.
    pub(crate) fn is_due(&self) -> bool {
        self.lease.is_revoked()
    }

    /// Waits for the next change. [`arm`](Self::arm) it, and then ask [`leaves`](Self::leaves).
    pub(crate) fn renew(&mut self) {
        self.lease = self.control.wave(self.wave).hold();
    }

    /// In what time a watch from memory is to end because upstream answers its client now; `None` if memory still does. A watch without
    /// bookmarks goes on unless everything is forwarded: its client may have to list if it ends.
    pub(crate) fn leaves(
        &self,
        subject: &ReadSubject<'_>,
        has_bookmarks: bool,
    ) -> Option<Duration> {
        let is_upstream = match self.control.would_answer(subject) {
            Answerer::Upstream(_) | Answerer::Shadow(_) => true,
            Answerer::Memory(_) | Answerer::User => false,
        };
        let is_movable = has_bookmarks || self.control.is_passthrough();
        (is_upstream && is_movable).then(|| self.control.wave_time())
    }
}
