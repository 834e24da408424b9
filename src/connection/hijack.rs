//! How an HTTP/1.1 connection becomes something else: one of its requests leaves here what the connection's task goes on
//! with. Requests carry it as an extension; those without it come over connections that cannot change.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::websocket::Socket;
use crate::watch::Watch;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct HijackSlot(Arc<Mutex<Option<Hijacked>>>);

/// What comes after HTTP.
#[derive(Debug)]
pub(crate) enum Hijacked {
    /// A WebSocket, once HTTP has ended by itself.
    WebSocket(Box<Socket>),
    /// A watch that is written by others; HTTP goes on when it is over.
    Watch {
        /// The answer's head as it goes out.
        head: Bytes,
        /// What follows it.
        watch: Box<Watch>,
    },
}

impl HijackSlot {
    /// What was left, if anything.
    pub(crate) fn take(&self) -> Option<Hijacked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn put(&self, successor: Hijacked) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
    }

    /// Whether a watch waits here. HTTP does not end by itself for it.
    pub(crate) fn has_watch(&self) -> bool {
        let left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(*left, Some(Hijacked::Watch { .. }))
    }
}
