//! The inbox of a worker: woken streams and groups, and new streams. Its length is bounded by the number of streams, because each
//! is noted once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::new_stream::NewStream;
use crate::sync::{Mutex, MutexGuard};

/// A woken stream or group. Keys are reused, so the worker must ignore tokens of streams that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WakeToken {
    /// A stream, by its key.
    Stream(usize),
    /// All streams of a view, by the key of their group.
    Group(usize),
}

#[derive(Debug)]
struct InboxState<A> {
    woken: Vec<WakeToken>,
    /// For each stream key: whether the stream is in `woken`.
    is_stream_noted: Vec<bool>,
    arrivals: VecDeque<Box<A>>,
    /// The worker's waker, if it waits.
    worker: Option<Waker>,
}

/// The inbox of one worker.
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
        self.0.lock()
    }

    /// Passes a new stream to the worker.
    pub(super) fn push_arrival(&self, arrival: Box<A>) {
        let worker = {
            let mut state = self.state();
            state.arrivals.push_back(arrival);
            state.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    fn push_woken(&self, token: WakeToken) {
        let worker = {
            let mut state = self.state();
            if let WakeToken::Stream(key) = token {
                if state.is_stream_noted.len() <= key {
                    state.is_stream_noted.resize(key + 1, false);
                }
                if std::mem::replace(&mut state.is_stream_noted[key], true) {
                    return;
                }
            }
            state.woken.push(token);
            state.worker.take()
        };
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// Moves the content into the two lists, and stores the waker to call when more arrives.
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
        for token in noted.drain(..) {
            if let WakeToken::Stream(key) = token {
                is_stream_noted[key] = false;
            }
            woken.push(token);
        }
        arrivals.append(&mut state.arrivals);
        match &mut state.worker {
            Some(noted) => noted.clone_from(worker),
            none => *none = Some(worker.clone()),
        }
    }
}

/// The waker of one stream or group.
#[derive(Debug)]
struct Signal<A> {
    inbox: Arc<Inbox<A>>,
    token: WakeToken,
}

impl<A: Send> Wake for Signal<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.push_woken(self.token);
    }
}

/// A waker that puts the token into the inbox and wakes the worker.
pub(super) fn waker<A: Send + 'static>(inbox: &Arc<Inbox<A>>, token: WakeToken) -> Waker {
    let inbox = Arc::clone(inbox);
    Waker::from(Arc::new(Signal { inbox, token }))
}

#[cfg(all(test, feature = "loom"))]
mod models;
