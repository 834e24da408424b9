//! Shows in the metrics what each part of the process holds in memory (decision 50). Nothing is decided here.
//!
//! Caches count what they hold. What is not ours to count, such as the buffers of hyper and rustls, is estimated: a number that is known,
//! times bytes that were measured. What the program has allocated beyond that, and what the allocator keeps for later, are parts of their
//! own, so that the parts sum up to what is resident.

use std::time::Duration;

use tokio::time::Instant;

use super::Registry;
use crate::admission::ResidentMemory;
use crate::metrics::{MemoryMetrics, MemoryPart};
use crate::pressure::MemoryReading;
use crate::slot::CacheMemory;

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
        let caches: Vec<_> = self.slots().iter().map(|(_, slot)| slot.memory()).collect();
        let parts = self.memory_parts(&caches, resident);
        let named = parts.map(|(_, len)| len).into_iter().sum();
        let rest = UnnamedMemory::new(named, resident, self.at_start);
        let unnamed = [
            (MemoryPart::Other, rest.other),
            (MemoryPart::Free, rest.free),
        ];
        for (part, len) in parts.into_iter().chain(unnamed) {
            metrics.set(part, len);
        }
        let total = i64::try_from(resident.total).unwrap_or(i64::MAX);
        metrics.resident.set(total);
        let derived = parts
            .iter()
            .filter(|(part, _)| *part == MemoryPart::Frames || *part == MemoryPart::Blocks)
            .map(|(_, len)| *len)
            .fold(0, usize::saturating_add);
        MemoryReading {
            resident: resident.total,
            // What is free is not in use.
            held: named.saturating_add(rest.other),
            derived,
            history: caches
                .iter()
                .map(|cache| cache.history.events)
                .max()
                .unwrap_or_default(),
            oldest: caches
                .iter()
                .filter_map(|cache| cache.history.evictable_since)
                .min()
                .map_or(Duration::ZERO, |at| {
                    Instant::now().into_std().saturating_duration_since(at)
                }),
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

    /// The program's pages, and what the process had before its first cache.
    fn process_len(&self, resident: ResidentMemory) -> usize {
        resident.files + own_len(self.at_start)
    }
}

/// What is resident and does not come from files.
const fn own_len(memory: ResidentMemory) -> usize {
    memory.total.saturating_sub(memory.files)
}

/// What is resident and belongs to none of the parts that are counted or estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnnamedMemory {
    other: usize,
    /// Held by the allocator for later use.
    free: usize,
}

impl UnnamedMemory {
    /// `named` is the sum of the other parts. What was there at the start is one of them, so it counts neither as allocated nor as free.
    fn new(named: usize, resident: ResidentMemory, at_start: ResidentMemory) -> Self {
        if resident.allocated == 0 {
            // The allocator does not count.
            return Self { other: 0, free: 0 };
        }
        let process = resident.files + own_len(at_start);
        let allocated = resident.allocated.saturating_sub(at_start.allocated);
        let grown = own_len(resident).saturating_sub(own_len(at_start));
        Self {
            other: allocated.saturating_sub(named.saturating_sub(process)),
            free: grown.saturating_sub(allocated),
        }
    }
}

fn count(gauge: i64) -> usize {
    usize::try_from(gauge).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A process of mebibytes: resident, from files, allocated.
    fn process([total, files, allocated]: [usize; 3]) -> ResidentMemory {
        ResidentMemory {
            total: total * MIB,
            files: files * MIB,
            allocated: allocated * MIB,
        }
    }

    /// What is unnamed in a process that began with 20 MiB, 12 of them from files and 5 allocated.
    #[track_caller]
    fn check(now: [usize; 3], named: usize, other: usize, free: usize) {
        let start = process([20, 12, 5]);
        let expected = UnnamedMemory {
            other: other * MIB,
            free: free * MIB,
        };
        assert_eq!(
            UnnamedMemory::new(named * MIB, process(now), start),
            expected
        );
    }

    #[test]
    fn unnamed_memory_is_other_or_free_and_completes_the_sum() {
        check([20, 12, 5], 20, 0, 0);
        // 75 are allocated since the start, of which 60 are named; 80 came from the system.
        check([100, 12, 80], 80, 15, 5);
        // The same after more of the program was read.
        check([103, 15, 80], 83, 15, 5);
        // Nearly everything was freed and stays resident.
        check([100, 12, 6], 20, 1, 79);
    }

    #[test]
    fn estimates_that_are_too_high_do_not_count_below_nothing() {
        check([100, 12, 80], 110, 0, 5);
        check([18, 12, 4], 20, 0, 0);
        // Allocated and never touched: not resident.
        check([30, 12, 45], 20, 40, 0);
    }

    #[test]
    fn an_allocator_that_does_not_count_leaves_the_rest_unknown() {
        check([100, 12, 0], 60, 0, 0);
    }
}
