//! Reads the state of a cache that another process has written: to a checkpoint, or to a handover.

use std::io::Read;
use std::time::{Instant, SystemTime};

use super::live::LiveLimits;
use super::pressure::restored_max;
use crate::admission::in_use;

use crate::checkpoint::{
    CheckpointContent, CheckpointError, CheckpointReader, JournalEnd, WriteClock,
};
use crate::resource::ResourceKind;

/// Why a state is not used; then the cache is filled from upstream.
#[derive(Debug, thiserror::Error)]
pub(super) enum RestoreError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("it holds another resource, or the resource in another form")]
    OtherResource,
    #[error("it is another cluster's")]
    OtherCluster,
    #[error("it is a cluster's whose uid this gateway may not read")]
    UnknownCluster,
}

/// The moment on both clocks.
pub(super) fn clock() -> WriteClock {
    WriteClock::new(Instant::now(), SystemTime::now())
}

/// What a stored or handed-over state must fit to be used.
#[derive(Clone, Debug)]
pub(super) struct WantedState {
    pub(super) kind: ResourceKind,
    /// The cluster's uid, if it is known.
    pub(super) cluster: Option<String>,
    pub(super) limits: LiveLimits,
}

impl WantedState {
    /// Bytes by which the process exceeds what histories may bring it to. Read again and again, because several states may be read at the
    /// same time.
    fn excess(&self) -> usize {
        let max = self.limits.get().memory_max;
        let in_use = if max == 0 { None } else { in_use() };
        in_use.map_or(0, |len| len.saturating_sub(restored_max(max)))
    }
}

/// The state that is wanted, with as much history as there is memory for. A state that has a cluster's uid is not used if this cluster's is
/// not known.
pub(super) fn read_state<R: Read>(
    reader: CheckpointReader<R>,
    wanted: &WantedState,
) -> Result<CheckpointContent, RestoreError> {
    let header = reader.header();
    if !header.is_of(&wanted.kind) {
        return Err(RestoreError::OtherResource);
    }
    match (header.cluster.as_deref(), wanted.cluster.as_deref()) {
        (Some(_), None) => return Err(RestoreError::UnknownCluster),
        (Some(known), Some(cluster)) if known != cluster => {
            return Err(RestoreError::OtherCluster);
        }
        (Some(_), Some(_)) | (None, _) => {}
    }
    Ok(reader.restore(clock(), &|| wanted.excess())?)
}

/// A state that ends early although it is whole was damaged by who wrote it.
pub(super) fn whole(content: CheckpointContent) -> Result<CheckpointContent, RestoreError> {
    match content.end {
        JournalEnd::Whole => Ok(content),
        JournalEnd::Cut(reason) => Err(CheckpointError::Damaged(reason).into()),
    }
}
