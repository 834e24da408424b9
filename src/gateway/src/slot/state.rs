//! The state of a slot's cache, and the transitions between states.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics::GiveUpReason;
use crate::view::{EndSchedule, Hub, ServedResource};

/// The state of a slot's cache.
#[derive(Clone, Debug)]
pub(crate) enum SlotState {
    /// Not ready yet, for this reason.
    Waiting(&'static str),
    /// Requests are served from it.
    Ready(ServedResource),
    /// There is no cache, for this reason, and requests are forwarded. Filling it is retried.
    GivenUp(GiveUpReason),
    /// Upstream has the resource, but not in this encoding.
    OtherEncoding,
    /// Upstream no longer has the resource.
    Gone,
    Closed,
}

/// The state of a slot, which its task changes and all requests read. It changes in these ways only:
///
/// ```text
/// Waiting, GivenUp, OtherEncoding ── serve ──▶ Ready
/// every state but Closed ── replace ──▶ Waiting, GivenUp, OtherEncoding, Gone
/// every state ── close ──▶ Closed
/// ```
#[derive(Clone, Debug)]
pub(crate) struct SlotStateMachine {
    state: watch::Sender<SlotState>,
    /// Set when the slot, or an earlier one of the same resource, has become ready for the first time.
    filled: Arc<OnceLock<()>>,
    /// When the cache that is served became ready.
    ready_at: Arc<Mutex<Option<Instant>>>,
    /// When the watches end, if that is known.
    end_schedule: Arc<OnceLock<Arc<EndSchedule>>>,
}

impl SlotStateMachine {
    pub(super) fn new(filled: Arc<OnceLock<()>>) -> Self {
        Self {
            state: watch::Sender::new(SlotState::Waiting("starting")),
            filled,
            ready_at: Arc::default(),
            end_schedule: Arc::default(),
        }
    }

    /// The current state; holds back all changes while it is borrowed.
    pub(crate) fn borrow(&self) -> watch::Ref<'_, SlotState> {
        self.state.borrow()
    }

    /// Since when the cache is ready; `None` if it is not.
    pub(crate) fn ready_at(&self) -> Option<Instant> {
        let is_ready = matches!(&*self.borrow(), SlotState::Ready(_));
        is_ready.then(|| *self.ready_at.lock()).flatten()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<SlotState> {
        self.state.subscribe()
    }

    /// Serves requests from a cache that was filled, unless it is served already or the slot was closed. `before` is called if the state
    /// changes, before any request sees it. Returns whether the state has changed.
    pub(super) fn serve(&self, served: &ServedResource, before: impl FnOnce()) -> bool {
        let is_served = self.state.send_if_modified(|state| {
            let is_next = match state {
                SlotState::Waiting(_) | SlotState::GivenUp(_) | SlotState::OtherEncoding => true,
                SlotState::Ready(_) | SlotState::Gone | SlotState::Closed => false,
            };
            if is_next {
                before();
                // Fails if it is set already.
                let _ = self.filled.set(());
                *self.ready_at.lock() = Some(Instant::now());
                *state = SlotState::Ready(served.clone());
            }
            is_next
        });
        // A schedule that comes later finds the state.
        if is_served && let Some(schedule) = self.end_schedule.get() {
            served.hub.schedule_end(schedule);
        }
        is_served
    }

    /// Ends each watch at a time of the schedule, of this cache and of later ones. The first schedule counts.
    pub(super) fn schedule_end(&self, schedule: &Arc<EndSchedule>) {
        // Fails if there is one already.
        let _ = self.end_schedule.set(Arc::clone(schedule));
        if let SlotState::Ready(served) = &*self.state.borrow() {
            served.hub.schedule_end(schedule);
        }
    }

    /// Replaces the state after the end of a cache or of an attempt to fill one, so that no new request reaches the cache. Then ends the
    /// watches of the cache that was served until now. A closed slot stays closed.
    pub(super) fn replace(&self, next: SlotState, end: fn(&Hub)) {
        let mut last = SlotState::Closed;
        self.state.send_if_modified(|state| {
            if matches!(state, SlotState::Closed) {
                return false;
            }
            last = std::mem::replace(state, next);
            true
        });
        if let SlotState::Ready(served) = last {
            end(&served.hub);
        }
    }

    /// Ends the watches, and everything else for good: if a cache becomes ready at this moment, it is not served.
    pub(super) fn close(&self, end: fn(&Hub)) {
        if let SlotState::Ready(served) = self.state.send_replace(SlotState::Closed) {
            end(&served.hub);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::samples::{World, kind};
    use crate::resource::Layout;
    use kube_fanout_wire::selector::Selector;
    use std::time::Duration;

    fn served() -> ServedResource {
        let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
        let world = World::new(1, 100, Arc::clone(&hub) as _);
        let cache = Arc::clone(world.writer.cache());
        ServedResource { cache, hub }
    }

    #[test]
    fn a_slot_becomes_ready_only_after_its_preparation() {
        let filled = Arc::new(OnceLock::new());
        let (slot_state, served) = (SlotStateMachine::new(Arc::clone(&filled)), served());
        let seen = slot_state.subscribe();
        let mut calls = 0;
        let before = || {
            calls += 1;
            assert!(!seen.has_changed().unwrap() && filled.get().is_none());
        };
        assert!(slot_state.serve(&served, before));
        assert_eq!(calls, 1);
        assert!(seen.has_changed().unwrap() && filled.get().is_some());
        assert!(!slot_state.serve(&served, || unreachable!("it is ready already")));

        slot_state.replace(SlotState::GivenUp(GiveUpReason::Memory), Hub::close);
        assert!(served.hub.is_closed() && !served.hub.is_expired());
        assert!(filled.get().is_some(), "the flag stays");
        assert!(slot_state.serve(&served, || {}));
    }

    #[test]
    fn a_schedule_is_for_caches_that_become_ready_later_too() {
        let schedule = Arc::new(EndSchedule::new(
            std::time::Instant::now(),
            Duration::ZERO,
            0.0,
        ));
        for is_ready_first in [true, false] {
            let (slot_state, served) = (SlotStateMachine::new(Arc::default()), served());
            if is_ready_first {
                assert!(slot_state.serve(&served, || {}));
            }
            let early = served.hub.join(&Selector::default());
            assert!(early.view.end_schedule().is_none());
            slot_state.schedule_end(&schedule);
            if !is_ready_first {
                assert!(slot_state.serve(&served, || {}));
            }
            let late = served.hub.join(&Selector::default());
            assert!(early.view.end_schedule().is_some() && late.view.end_schedule().is_some());
            assert!(!early.view.is_closed());
        }
    }

    #[test]
    fn a_closed_slot_stays_closed() {
        let (slot_state, served) = (SlotStateMachine::new(Arc::default()), served());
        assert!(slot_state.serve(&served, || {}));
        slot_state.close(Hub::close);
        assert!(served.hub.is_closed());
        assert!(!slot_state.serve(&served, || unreachable!("it is closed")));
        slot_state.replace(SlotState::Waiting("again"), Hub::expire);
        assert!(matches!(&*slot_state.borrow(), SlotState::Closed));
        assert!(!served.hub.is_expired());
    }
}
