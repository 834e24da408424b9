//! What goes wrong while an informer reads. Told to a hook and counted; none of it ends the informer.

use std::sync::Arc;

use super::key::KeyError;
use super::list_watch::DecodeError;
use crate::decode::UpstreamStatus;
use crate::resource::{ObjectKey, ResourceVersion};
use crate::upstream::driver::{FrameRejection, RequestKind};

/// Told of every failure, from the task that reads: it must not block. Panics in it are caught.
pub type OnFailure = Arc<dyn Fn(&WatchFailure) + Send + Sync>;

/// One thing that went wrong. The informer goes on by itself in every case: it asks again with back-off, or leaves one
/// object at its last good state.
#[derive(Debug, thiserror::Error)]
pub enum WatchFailure {
    /// The server answered with an error, over HTTP or as the last event of a watch: 401 and 403 want other credentials,
    /// 404 a resource, 410 is ordinary, 429 and 5xx pass.
    #[error("the server refused a {asked}: {} {} ({})", status.code, status.reason, status.message)]
    Refused {
        /// What was asked.
        asked: RequestKind,
        /// What the server said.
        status: UpstreamStatus,
    },
    /// No connection, or one that broke or went silent.
    #[error("the connection for a {asked} failed: {cause}")]
    Transport {
        /// What was asked.
        asked: RequestKind,
        /// In the words of whoever noticed.
        cause: String,
    },
    /// An answer that is no list or no watch, is truncated inside, or has an object without name or version.
    #[error("the answer to a {asked} cannot be read: {cause}")]
    Unreadable {
        /// What was asked.
        asked: RequestKind,
        /// In what way.
        rejection: FrameRejection,
        /// What was expected, and where.
        cause: String,
    },
    /// One object's JSON does not fit its type. The store keeps the last state that did; if it is deleted, so it is told.
    #[error("{key} at version {version} cannot be decoded")]
    Undecodable {
        /// The object.
        key: ObjectKey,
        /// Its version.
        version: ResourceVersion,
        /// What does not fit.
        #[source]
        source: DecodeError,
    },
    /// The transform hook refused one object; as [`WatchFailure::Undecodable`].
    #[error("{key} at version {version} cannot be transformed")]
    Transform {
        /// The object.
        key: ObjectKey,
        /// Its version.
        version: ResourceVersion,
        /// The hook's words.
        #[source]
        source: TransformError,
    },
    /// Decoding or transforming one object panicked; as [`WatchFailure::Undecodable`].
    #[error("{step} {key} at version {version} panicked: {message}")]
    Panicked {
        /// The object.
        key: ObjectKey,
        /// Its version.
        version: ResourceVersion,
        /// Where.
        step: FailedStep,
        /// What the panic said.
        message: String,
    },
    /// The key function failed for one object; as [`WatchFailure::Undecodable`].
    #[error("{key} at version {version} cannot be queued")]
    Key {
        /// Namespace and name.
        key: ObjectKey,
        /// Its version.
        version: ResourceVersion,
        /// The key function's words.
        #[source]
        source: KeyError,
    },
    /// The server's state is older than what was held, as after a restored backup. It is believed.
    #[error("the server went back from version {held} to {listed}")]
    WentBack {
        /// The version held until then.
        held: ResourceVersion,
        /// The version that replaced it.
        listed: ResourceVersion,
    },
}

/// What is done with an object between the wire and the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedStep {
    /// Bytes become the user's type.
    Decode,
    /// The transform hook.
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

/// Why a transform hook will not have an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransformError(String);

impl TransformError {
    /// For people.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The sorts of failure, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl FailureKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::Transport,
        Self::Unreadable,
        Self::Undecodable,
        Self::Transform,
        Self::Panicked,
        Self::Key,
        Self::WentBack,
    ];
}

impl WatchFailure {
    /// Its kind.
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

    /// The one object that it concerns; `None` if it concerns all of them.
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
