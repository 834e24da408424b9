//! Reads the state of a cache that another process has written: to a checkpoint, or to a handover.

use std::io::Read;
use std::time::{Instant, SystemTime};

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

/// The state of a resource of this kind in the cluster with this uid, if that is known.
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
