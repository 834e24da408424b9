//! The labels of metrics about memory.

use strum::{IntoStaticStr, VariantArray};

/// A part of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum MemoryPart {
    /// The program and what it had before its first cache: code, threads, certificates, discovery.
    Process,
    /// The cached objects.
    Objects,
    /// The lists of cached objects, and the positions that were found in them.
    Indexes,
    /// The history of events.
    History,
    /// Deletions for clients that catch up.
    Tombstones,
    /// What lists and new watches hold of states that are not the newest any more, beyond the history.
    OlderStates,
    /// Lists that are being read from upstream.
    Filling,
    /// Events laid out for watches.
    Frames,
    /// Compressed blocks of lists.
    Blocks,
    /// Clients' connections.
    Connections,
    /// Watches that are answered from memory.
    Watches,
    /// Lists that are being sent, and forwarded requests.
    Requests,
    /// Buffers of checkpoints.
    Checkpoints,
    /// What is allocated beyond the parts above.
    Other,
    /// What is resident and not allocated: the allocator keeps it for what comes next.
    Free,
}

/// What is given up while memory is short, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PressureStep {
    /// What can be made again: frames laid out for watches, compressed blocks, older states.
    Frames,
    /// History: clients that were away for long list again.
    History,
    /// Admission: new watches get 429, and lists while another one runs.
    Admission,
    /// Caches: their requests are forwarded.
    Eviction,
}
