//! Failures while an informer reads. They are counted and reported to a hook; none of them ends the informer.

use std::sync::Arc;

use strum::VariantArray;

use super::key::KeyError;
use super::raw::DecodeError;
use crate::decode::UpstreamStatus;
use crate::resource::{ObjectKey, ResourceVersion};
use crate::upstream::driver::{FrameRejection, RequestKind};

/// Called for every failure, by the informer's own tasks, so it must not block. Its panics are caught and counted.
pub type OnFailure = Arc<dyn Fn(&WatchFailure) + Send + Sync>;

/// One failure. The informer always continues: it repeats the request with back-off, or keeps the last good state of one object.
#[derive(Debug, thiserror::Error)]
pub enum WatchFailure {
    /// The server responded with an error, over HTTP or as the last event of a watch. 401 and 403 need other credentials; 404 means
    /// that the resource does not exist; 410 is ordinary; 429 and 5xx are usually temporary.
    #[error("the server refused a {request}: {} {} ({})", status.code, status.reason, status.message)]
    Refused {
        /// The kind of the request.
        request: RequestKind,
        /// The server's error.
        status: UpstreamStatus,
    },
    /// The connection could not be established, broke, or went silent.
    #[error("the connection for a {request} failed: {cause}")]
    Transport {
        /// The kind of the request.
        request: RequestKind,
        /// A description of the error.
        cause: String,
    },
    /// The response is not a list or a watch, is truncated, or has an object without a name or a version.
    #[error("the response to a {request} cannot be read: {cause}")]
    Unreadable {
        /// The kind of the request.
        request: RequestKind,
        /// Why the bytes were rejected.
        rejection: FrameRejection,
        /// A description: what was expected, and where.
        cause: String,
    },
    /// The JSON of one object does not fit its type. The store keeps the last state that did. Its deletion is still delivered.
    #[error("{key} at version {version} cannot be decoded")]
    Undecodable {
        /// Namespace and name of the object.
        key: ObjectKey,
        /// The version of the failed state.
        version: ResourceVersion,
        /// The decoding error.
        #[source]
        source: DecodeError,
    },
    /// The transform hook rejected one object. Same consequences as [`WatchFailure::Undecodable`].
    #[error("{key} at version {version} cannot be transformed")]
    Transform {
        /// Namespace and name of the object.
        key: ObjectKey,
        /// The version of the failed state.
        version: ResourceVersion,
        /// The hook's error.
        #[source]
        source: TransformError,
    },
    /// Decoding or transforming one object panicked. Same consequences as [`WatchFailure::Undecodable`].
    #[error("{step} {key} at version {version} panicked: {message}")]
    Panicked {
        /// Namespace and name of the object.
        key: ObjectKey,
        /// The version of the failed state.
        version: ResourceVersion,
        /// The step that panicked.
        step: FailedStep,
        /// The message of the panic.
        message: String,
    },
    /// The key function failed for one object. Same consequences as [`WatchFailure::Undecodable`].
    #[error("{key} at version {version} cannot be queued")]
    Key {
        /// Namespace and name of the object.
        key: ObjectKey,
        /// The version of the failed state.
        version: ResourceVersion,
        /// The key function's error.
        #[source]
        source: KeyError,
    },
    /// The server's state is older than the held state, as after restoring a backup. The informer accepts the server's state.
    #[error("the server went back from version {held} to {listed}")]
    WentBack {
        /// The version that the informer held before.
        held: ResourceVersion,
        /// The version of the server's list, which replaced it.
        listed: ResourceVersion,
    },
}

/// A step of processing an object before it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStep {
    /// Decoding the bytes into the user's type.
    Decode,
    /// Calling the transform hook.
    Transform,
}

impl std::fmt::Display for FailedStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Decode => "decoding",
            Self::Transform => "transforming",
        })
    }
}

/// Why a transform hook rejects an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransformError(String);

impl TransformError {
    /// An error with a message for people: lower case, no full stop.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The kinds of [`WatchFailure`], as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, VariantArray)]
#[repr(usize)]
pub enum FailureKind {
    /// [`WatchFailure::Refused`].
    Refused,
    /// [`WatchFailure::Transport`].
    Transport,
    /// [`WatchFailure::Unreadable`].
    Unreadable,
    /// [`WatchFailure::Undecodable`].
    Undecodable,
    /// [`WatchFailure::Transform`].
    Transform,
    /// [`WatchFailure::Panicked`].
    Panicked,
    /// [`WatchFailure::Key`].
    Key,
    /// [`WatchFailure::WentBack`].
    WentBack,
}

impl WatchFailure {
    /// The kind under which this failure is counted.
    #[must_use]
    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Refused { .. } => FailureKind::Refused,
            Self::Transport { .. } => FailureKind::Transport,
            Self::Unreadable { .. } => FailureKind::Unreadable,
            Self::Undecodable { .. } => FailureKind::Undecodable,
            Self::Transform { .. } => FailureKind::Transform,
            Self::Panicked { .. } => FailureKind::Panicked,
            Self::Key { .. } => FailureKind::Key,
            Self::WentBack { .. } => FailureKind::WentBack,
        }
    }

    /// The object that this failure concerns; `None` if it concerns the whole collection.
    #[must_use]
    pub const fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Undecodable { key, .. }
            | Self::Transform { key, .. }
            | Self::Panicked { key, .. }
            | Self::Key { key, .. } => Some(key),
            Self::Refused { .. }
            | Self::Transport { .. }
            | Self::Unreadable { .. }
            | Self::WentBack { .. } => None,
        }
    }
}
