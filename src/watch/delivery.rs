//! Brings watches over HTTP/1.1 to their clients, once the answer has been decided: the connection leaves hyper, and comes
//! back when the watch is over.
//!
//! ```text
//! listener ── deliver ──▶ Inbox ──▶ Worker ──▶ Group (who shares a view) ──▶ Stream, Stream, Stream …
//!                                     ▲ woken once a batch                      │ one write each, of the same bytes
//! listener ◀── the connection, when the watch is over ───────────────────────────┘
//! ```
//!
//! A worker owns its streams, so that nothing is locked on the way of an event. Clients of one view who stand alike are
//! written to in one go, from one piece that is made once, chunk framing included. Who cannot take it at once is on its
//! own until it has caught up, and delays nobody (`docs/decisions/0016-delivery.md`).

mod chunk;
mod group;
mod inbox;
mod stream;
mod supervisor;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::inbox::Inbox;
use self::supervisor::Supervisor;
use self::worker::{DeliveryWorker, NewStream};
use crate::metrics::{ByLabel, TaskKind};
use crate::transport::Transport;
use crate::watch::Watch;

/// How much is done before others have their turn.
#[derive(Clone, Copy, Debug)]
struct TurnLimits {
    /// Bytes of a chunk that clients share, framing left out, and one batch at least. Up to this length a chunk is one piece;
    /// longer ones are not copied.
    chunk_len: usize,
    /// Chunks kept during a pass: clients of one view stand at very few places.
    chunks: usize,
    /// Writes to one stream, of 64 KiB about, before other streams have their turn.
    stream_turn: usize,
    /// Streams looked at before other tasks of the thread have their turn: a tenth of a millisecond about.
    worker_turn: usize,
}

/// Tests have smaller ones.
const LIMITS: TurnLimits = TurnLimits {
    chunk_len: 64 << 10,
    chunks: 4,
    stream_turn: 8,
    worker_turn: 64,
};

/// The workers. They end with the last clone of this.
#[derive(Clone, Debug)]
pub(crate) struct Delivery(Arc<Workers>);

#[derive(Debug)]
struct Workers {
    inboxes: Vec<Arc<Inbox>>,
    /// Who gets the next stream.
    turn: Mutex<usize>,
    /// Aborted when dropped.
    _tasks: JoinSet<()>,
}

impl Delivery {
    /// Starts `count` workers on the present runtime. Their ends, which are panics, are counted in `ends`.
    pub(crate) fn start(count: usize, ends: Option<&ByLabel<TaskKind>>) -> Self {
        let mut tasks = JoinSet::new();
        let inboxes = (0..count.max(1)).map(|_| {
            let inbox = Arc::<Inbox>::default();
            let worker = DeliveryWorker::new(Arc::clone(&inbox), LIMITS);
            let supervisor = Supervisor::new(worker, ends.cloned());
            // The worker gives way by itself after some dozens of writes; tokio's own budget would cut each of them short.
            tasks.spawn(tokio::task::unconstrained(supervisor));
            inbox
        });
        let inboxes = inboxes.collect();
        Self(Arc::new(Workers {
            inboxes,
            turn: Mutex::new(0),
            _tasks: tasks,
        }))
    }

    /// Writes `head` and then the watch, until it is over. Gives the connection back if it can take another request.
    ///
    /// Dropped, it ends the watch and the connection.
    pub(crate) async fn deliver(
        &self,
        transport: Transport,
        head: Bytes,
        watch: Watch,
    ) -> Option<Transport> {
        let (done, is_done) = oneshot::channel();
        let (cursor, waiter) = watch.into_parts();
        self.inbox().arrives(Box::new(NewStream {
            transport,
            head,
            cursor,
            waiter,
            done,
        }));
        is_done.await.ok()
    }

    fn inbox(&self) -> &Inbox {
        // A number is never half written.
        let mut turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        *turn = (*turn + 1) % self.0.inboxes.len();
        &self.0.inboxes[*turn]
    }
}

#[cfg(test)]
mod tests;
