//! What waits for a worker: who was woken, and who is new. Bounded by the number of streams: each is noted once.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use super::worker::NewStream;
use crate::cache::{Mutex, MutexGuard};

/// Who was woken. Names are used again: a worker must not mind being told of somebody who is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeToken {
    /// A stream, by its key.
    Stream(usize),
    /// All who share a view, by the group's key.
    Group(usize),
}

#[derive(Debug)]
struct InboxState<A> {
    woken: Vec<WakeToken>,
    /// Whether a stream is noted above.
    is_stream_noted: Vec<bool>,
    arrivals: VecDeque<Box<A>>,
    /// The worker, if it waits.
    worker: Option<Waker>,
}

/// One worker's inbox.
#[derive(Debug)]
pub(super) struct Inbox<A = NewStream>(Mutex<InboxState<A>>);

impl<A> Default for Inbox<A> {
    fn default() -> Self {
        Self(Mutex::new(InboxState {
            woken: Vec::new(),
            is_stream_noted: Vec::new(),
            arrivals: VecDeque::new(),
            worker: None,
        }))
    }
}

impl<A> Inbox<A> {
    fn state(&self) -> MutexGuard<'_, InboxState<A>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a new stream over.
    pub(super) fn arrives(&self, arrival: Box<A>) {
        let worker = {
            let mut state = self.state();
            state.arrivals.push_back(arrival);
            state.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    fn wakes(&self, name: WakeToken) {
        let worker = {
            let mut state = self.state();
            if let WakeToken::Stream(key) = name {
                if state.is_stream_noted.len() <= key {
                    state.is_stream_noted.resize(key + 1, false);
                }
                if std::mem::replace(&mut state.is_stream_noted[key], true) {
                    return;
                }
            }
            state.woken.push(name);
            state.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// Moves what is there into the two lists, and notes whom to wake when more comes.
    pub(super) fn take(
        &self,
        woken: &mut Vec<WakeToken>,
        arrivals: &mut VecDeque<Box<A>>,
        worker: &Waker,
    ) {
        let mut state = self.state();
        let InboxState {
            woken: noted,
            is_stream_noted,
            ..
        } = &mut *state;
        for name in noted.drain(..) {
            if let WakeToken::Stream(key) = name {
                is_stream_noted[key] = false;
            }
            woken.push(name);
        }
        arrivals.append(&mut state.arrivals);
        match &mut state.worker {
            Some(noted) => noted.clone_from(worker),
            none => *none = Some(worker.clone()),
        }
    }
}

/// Wakes one name.
#[derive(Debug)]
struct Signal<A> {
    inbox: Arc<Inbox<A>>,
    name: WakeToken,
}

impl<A: Send> Wake for Signal<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.wakes(self.name);
    }
}

/// The waker of a name: it notes the name and wakes the worker.
pub(super) fn waker<A: Send + 'static>(inbox: &Arc<Inbox<A>>, name: WakeToken) -> Waker {
    let inbox = Arc::clone(inbox);
    Waker::from(Arc::new(Signal { inbox, name }))
}

#[cfg(all(test, fanout_loom))]
mod models;
