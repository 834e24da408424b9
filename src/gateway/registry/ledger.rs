//! Shows in the metrics what each part of the process holds in memory (decision 50). Nothing is decided here.
//!
//! Caches count what they hold. What is not ours to count, such as the buffers of hyper and rustls, is estimated: a number that is known,
//! times bytes that were measured.

use super::Registry;
use crate::admission::ResidentMemory;
use crate::gateway::pressure::MemoryReading;
use crate::gateway::slot::CacheMemory;
use crate::metrics::{MemoryMetrics, MemoryPart};

/// A connection: hyper's buffers, and the task.
const CONNECTION_LEN: usize = 24 << 10;
/// What TLS adds to a connection.
const TLS_LEN: usize = 8 << 10;
/// A watch, and its connection: over HTTP/1.1, which most watches use, hyper and its buffers are gone.
const WATCH_LEN: usize = 5 << 10;
/// Each further watch of a connection, over HTTP/2.
const STREAM_LEN: usize = 2 << 10;
/// A list that is being sent, or a forwarded request: frames on their way, and a stream upstream.
const REQUEST_LEN: usize = 16 << 10;
/// A view: its selector, its entries in the index, and two rings.
const VIEW_LEN: usize = 4 << 10;

impl Registry {
    /// Reads what the process has in memory, and shows what each part holds. `resident` is the process's memory at the same time.
    pub(super) fn read_memory(
        &self,
        metrics: &MemoryMetrics,
        resident: ResidentMemory,
    ) -> MemoryReading {
        let slots = self.slots();
        let caches: Vec<_> = slots.iter().map(|(_, slot)| slot.memory()).collect();
        let parts = self.memory_parts(&caches, resident);
        for (part, len) in parts {
            metrics.set(part, len);
        }
        let total = i64::try_from(resident.total).unwrap_or(i64::MAX);
        metrics.resident.set(total);
        let sum = |counts: fn(MemoryPart) -> bool| {
            let counted = parts.iter().filter(|(part, _)| counts(*part));
            counted.map(|(_, len)| *len).fold(0, usize::saturating_add)
        };
        MemoryReading {
            resident: resident.total,
            held: sum(|_| true),
            derived: sum(|part| part == MemoryPart::Frames || part == MemoryPart::Blocks),
            history: caches
                .iter()
                .map(|cache| cache.history.events)
                .max()
                .unwrap_or_default(),
        }
    }

    fn memory_parts(
        &self,
        caches: &[CacheMemory],
        resident: ResidentMemory,
    ) -> [(MemoryPart, usize); 13] {
        let sum = |len: fn(&CacheMemory) -> usize| caches.iter().map(len).sum::<usize>();
        let tls_len = TLS_LEN * usize::from(self.settings.is_tls);
        let admission = self.metrics.admission();
        let requests = admission.lists_running.get()
            + admission.lists_slow.get()
            + self.metrics.passthrough().requests_active.get();
        let count = |gauge: i64| usize::try_from(gauge).unwrap_or(0);
        let watches = usize::try_from(self.metrics.cached_watches()).unwrap_or(usize::MAX);
        let connections = count(self.listener.connections.get());
        let watching = watches.min(connections);
        let views = sum(|cache| cache.views);
        [
            (MemoryPart::Process, self.process_len(resident)),
            (MemoryPart::Objects, sum(|cache| cache.chunks.objects)),
            (
                MemoryPart::Indexes,
                sum(|cache| cache.chunks.indexes) + views * VIEW_LEN,
            ),
            (MemoryPart::History, sum(|cache| cache.history.events)),
            (
                MemoryPart::Tombstones,
                sum(|cache| cache.history.tombstones),
            ),
            (MemoryPart::OlderStates, self.older_states.memory()),
            (MemoryPart::Filling, sum(|cache| cache.history.initial)),
            (MemoryPart::Frames, sum(|cache| cache.frames)),
            (MemoryPart::Blocks, sum(|cache| cache.chunks.blocks)),
            (
                MemoryPart::Connections,
                (connections - watching) * CONNECTION_LEN + connections * tls_len,
            ),
            (
                MemoryPart::Watches,
                watching * WATCH_LEN + (watches - watching).saturating_mul(STREAM_LEN),
            ),
            (
                MemoryPart::Requests,
                count(requests).saturating_mul(REQUEST_LEN),
            ),
            (MemoryPart::Checkpoints, sum(|cache| cache.checkpoint)),
        ]
    }

    /// The program's pages, and what the process had allocated before its first cache.
    fn process_len(&self, resident: ResidentMemory) -> usize {
        let at_start = self.at_start;
        resident.files + at_start.total.saturating_sub(at_start.files)
    }
}
