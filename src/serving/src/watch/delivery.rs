//! Delivers watches. Over HTTP/1.1 the connection of an accepted watch leaves hyper, and returns to hyper when the watch ends. Over HTTP/2
//! the connection stays, and a worker writes the stream's frames between h2's (decision 65).
//!
//! ```text
//! listener ── deliver ──▶ Inbox ──▶ Worker ──▶ Group (streams of a view) ──▶ Stream, Stream, Stream …
//!                                     ▲ woken once per batch                   │ one write each, of the same bytes
//! listener ◀── the connection, when the watch has ended ───────────────────────┘
//! ```
//!
//! A worker owns its streams, so no lock is taken per event. Clients of one view at the same position are written to in one pass,
//! from one chunk that is made once, HTTP framing included. A client that cannot take the chunk at once reads by itself until it
//! has caught up, and delays no other (`docs/decisions/0016-delivery.md`).

mod chunk;
mod client_stream;
mod group;
mod inbox;
mod limits;
mod new_stream;
mod pace;
mod stream;
mod supervisor;
mod worker;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::client_stream::ClientStream;
use self::inbox::Inbox;
use self::limits::LIMITS;
use self::new_stream::NewStream;
use self::supervisor::Supervisor;
use self::worker::DeliveryWorker;
use crate::metrics::{ByLabel, TaskKind};
use crate::transport::{AdoptedStream, Transport};
use crate::watch::Watch;

/// A handle to the delivery workers. They end when the last clone of it is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Delivery(Arc<Workers>);

#[derive(Debug)]
struct Workers {
    inboxes: Vec<Arc<Inbox>>,
    /// Index of the worker that got the last stream.
    last_worker: Mutex<usize>,
    /// Aborts the workers when the last handle is dropped.
    _tasks: JoinSet<()>,
}

impl Delivery {
    /// Starts `count` workers on the current runtime. `ends` counts workers that panic.
    pub(crate) fn start(count: usize, ends: Option<&ByLabel<TaskKind>>) -> Self {
        let mut tasks = JoinSet::new();
        let inboxes = (0..count.max(1)).map(|_| {
            let inbox = Arc::<Inbox>::default();
            let worker = DeliveryWorker::new(Arc::clone(&inbox), LIMITS);
            let supervisor = Supervisor::new(worker, ends.cloned());
            // The worker yields by itself after some dozens of writes; tokio's own budget would cut each of these turns short.
            tasks.spawn(tokio::task::unconstrained(supervisor));
            inbox
        });
        let inboxes = inboxes.collect();
        Self(Arc::new(Workers {
            inboxes,
            last_worker: Mutex::new(0),
            _tasks: tasks,
        }))
    }

    /// Writes `head` and then the watch, until it ends. Returns the connection if it can take another request, or if its
    /// client has stopped reading.
    ///
    /// Dropping the future ends the watch and the connection.
    pub(crate) async fn deliver(
        &self,
        transport: Transport,
        head: Bytes,
        watch: Box<Watch>,
    ) -> Option<Transport> {
        let (done, returned) = oneshot::channel();
        let worker = self.next_worker();
        self.0.inboxes[worker].push_arrival(Box::new(NewStream {
            client: ClientStream::Http1 { transport, done },
            head,
            watch,
        }));
        returned.await.ok()
    }

    /// Writes the rest of a watch on its HTTP/2 stream, until one of the two ends.
    pub(crate) fn adopt(&self, stream: AdoptedStream, watch: Box<Watch>) {
        let worker = stream.worker(|| self.next_worker());
        self.0.inboxes[worker].push_arrival(Box::new(NewStream {
            client: ClientStream::Http2(stream),
            head: Bytes::new(),
            watch,
        }));
    }

    /// Whether a worker has got a stream; there must be several workers.
    #[cfg(test)]
    pub(crate) fn is_used(&self) -> bool {
        *self.0.last_worker.lock() > 0
    }

    fn next_worker(&self) -> usize {
        let mut last_worker = self.0.last_worker.lock();
        *last_worker = (*last_worker + 1) % self.0.inboxes.len();
        *last_worker
    }
}

#[cfg(test)]
mod tests;
