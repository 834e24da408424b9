//! The labels of metrics about memory.

use super::Label;

/// A part of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Label for MemoryPart {
    const ALL: &'static [Self] = &[
        Self::Process,
        Self::Objects,
        Self::Indexes,
        Self::History,
        Self::Tombstones,
        Self::OlderStates,
        Self::Filling,
        Self::Frames,
        Self::Blocks,
        Self::Connections,
        Self::Watches,
        Self::Requests,
        Self::Checkpoints,
        Self::Other,
        Self::Free,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Objects => "objects",
            Self::Indexes => "indexes",
            Self::History => "history",
            Self::Tombstones => "tombstones",
            Self::OlderStates => "older_states",
            Self::Filling => "filling",
            Self::Frames => "frames",
            Self::Blocks => "blocks",
            Self::Connections => "connections",
            Self::Watches => "watches",
            Self::Requests => "requests",
            Self::Checkpoints => "checkpoints",
            Self::Other => "other",
            Self::Free => "free",
        }
    }
}

/// What is given up while memory is short, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

impl Label for PressureStep {
    const ALL: &'static [Self] = &[Self::Frames, Self::History, Self::Admission, Self::Eviction];

    fn as_str(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::History => "history",
            Self::Admission => "admission",
            Self::Eviction => "eviction",
        }
    }
}
