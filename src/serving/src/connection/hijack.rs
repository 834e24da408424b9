//! The slot through which a request takes over its HTTP/1.1 connection. The request's future puts a watch or a WebSocket into the slot,
//! and the connection's task takes it out. HTTP/2 connections have no slot.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::websocket::Socket;
use crate::watch::Watch;

/// A slot shared by a connection's task and the requests on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HijackSlot(Arc<Mutex<Option<Hijacked>>>);

/// What replaces HTTP on the connection.
#[derive(Debug)]
pub(crate) enum Hijacked {
    /// A WebSocket. It starts when hyper has ended HTTP on the connection.
    WebSocket(Box<Socket>),
    /// A watch that the delivery workers write. HTTP continues on the connection after the watch.
    Watch {
        /// The response head to send, in wire format.
        head: Bytes,
        /// The events that follow the head.
        watch: Box<Watch>,
    },
}

impl HijackSlot {
    pub(crate) fn take(&self) -> Option<Hijacked> {
        self.0.lock().take()
    }

    pub(crate) fn put(&self, hijacked: Hijacked) {
        *self.0.lock() = Some(hijacked);
    }

    /// Whether the slot holds a watch. hyper does not end HTTP by itself then, so the connection's task must stop polling it.
    pub(crate) fn has_watch(&self) -> bool {
        let slot = self.0.lock();
        matches!(*slot, Some(Hijacked::Watch { .. }))
    }
}
