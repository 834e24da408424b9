//! The interface between a driver and the store that it fills.

use std::fmt;
use std::future::{Future, ready};
use std::time::{Duration, Instant};

use crate::decode::Bookmark;
use crate::resource::{EventKind, Object, ObjectKey, ResourceVersion};

/// Upstream's versions went back further than the sink can follow, as after a restored backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream's versions went back")]
pub struct UpstreamWentBack;

/// What a sink knows of a change that arrived later than newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateChange {
    /// The state has the change, or a later one of the same object.
    Known,
    /// The state lacked the change, and has it now.
    Applied,
    /// The state lacks the change.
    Missing,
}

/// Receives the state of one resource and its changes.
///
/// Initial data is collected beside the state, from [`Sink::restart`] until [`Sink::replace`], which replaces the state in
/// one step. Live events may be collected until [`Sink::publish`]. They come in order, and none has a version below the
/// state's, except those of [`Sink::late`]. An event at exactly that version either repeats an event that was applied, which the sink must leave out, or is
/// another part of the same transaction.
pub trait Sink: Send + fmt::Debug {
    /// A watch was opened; its first events follow.
    fn watch_opened(&mut self) {}

    /// Bytes arrived at this time. The events of the next batch are in them, and in those that follow until it is published.
    fn arrived(&mut self, _at: Instant) {}

    /// A bookmark arrived; `object` is its object as upstream wrote it. [`Sink::replace`] or [`Sink::progress`] follows if
    /// the bookmark has that effect.
    fn bookmark(&mut self, _object: &[u8], _bookmark: &Bookmark) {}

    /// Initial data starts, or starts over: the sink drops what it has collected of it.
    fn restart(&mut self);

    /// Adds one object to the initial data; [`EventKind::Deleted`] removes it.
    fn initial(&mut self, kind: EventKind, object: Object);

    /// The initial data is complete and is the state at `version`. If there is much to do, [`Sink::ready`] does the rest.
    ///
    /// # Errors
    /// The sink cannot go back to this version. The driver ends.
    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack>;

    /// Adds one live event to the batch that [`Sink::publish`] ends.
    fn live(&mut self, kind: EventKind, object: Object);

    /// An event arrived whose version is below the state's. A deletion of an object that is held is applied, because its uid does not come
    /// back; nothing else is.
    fn late(&mut self, _kind: EventKind, _object: &Object) -> LateChange {
        LateChange::Known
    }

    /// How many objects the state has, with all live events; `None` if the sink cannot tell.
    fn object_count(&self) -> Option<usize> {
        None
    }

    /// Whether the state, with all live events, has these objects at these versions. Called if the sink can count its objects.
    fn holds(&self, _versions: &[(ObjectKey, ResourceVersion)]) -> bool {
        false
    }

    /// The continue token of a page of upstream's objects that is worth a look; `None` for the first page.
    fn page_start(&self) -> Option<String> {
        None
    }

    /// The newest version that the state was shown to be upstream's at: by the driver, or by a reader that compared the two.
    fn newest_given(&self) -> Option<ResourceVersion> {
        None
    }

    /// Publishes the live events since the last call.
    fn publish(&mut self);

    /// The state is now at `version`, although nothing changed. Everything before it has been published.
    fn progress(&mut self, version: ResourceVersion);

    /// Called every few seconds while nothing else happens.
    fn tick(&mut self) {}

    /// Whether the open watch was found to bring changes far too late. Resets the answer.
    fn is_lagging(&mut self) -> bool {
        false
    }

    /// How long an open watch may send nothing until [`Sink::watch_quiet`] is called; `None` if that is not needed.
    fn quiet_time(&self) -> Option<Duration> {
        None
    }

    /// The watch is open, and has sent nothing for a while.
    fn watch_quiet(&mut self) {}

    /// Until this time the driver may add events to the batch, because watches have not yet received the last one. `None`
    /// means that it publishes without delay.
    fn hold_until(&self) -> Option<Instant> {
        None
    }

    /// Waits until the sink can take more. Meanwhile nothing is read from upstream, so a slow sink needs no queue.
    ///
    /// # Errors
    /// The sink cannot go back to what [`Sink::replace`] was called for. The driver ends.
    fn ready(&mut self) -> impl Future<Output = Result<(), UpstreamWentBack>> + Send {
        ready(Ok(()))
    }
}
