//! What a driver fills: it hands over what came, in the order that the reflector's effects name.

use std::fmt;
use std::future::{Future, ready};
use std::time::Instant;

use crate::resource::{EventKind, Object, ResourceVersion};

/// Upstream's versions went back, as after a restored backup, further than the sink can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream's versions went back")]
pub struct UpstreamWentBack;

/// Takes the state of one resource and what happens to it.
///
/// Initial data is gathered beside the state, between [`Sink::restart`] and [`Sink::replace`], and takes its place as one.
/// Live events may be gathered until [`Sink::publish`]; they are in order and none is older than what is held. One at the held
/// version either repeats what was told, and is to be left out, or is another part of one transaction.
pub trait Sink: Send + fmt::Debug {
    /// Initial data begins, perhaps again: what was gathered of it is dropped.
    fn restart(&mut self);

    /// One object of the initial data; a deletion takes it back.
    fn initial(&mut self, kind: EventKind, object: Object);

    /// The initial data is complete and is the state at `version`.
    ///
    /// # Errors
    /// The sink cannot go back to this version; the driver ends.
    fn replace(&mut self, version: ResourceVersion) -> Result<(), UpstreamWentBack>;

    /// One change of the state.
    fn live(&mut self, kind: EventKind, object: Object);

    /// What was gathered since the last time counts from now.
    fn publish(&mut self);

    /// The state stands at `version` though nothing changed. Everything before has been published.
    fn progress(&mut self, version: ResourceVersion);

    /// A few seconds went by without anything else to do.
    fn tick(&mut self) {}

    /// Until then more changes may be gathered, because nobody waits for the last ones.
    fn hold_until(&self) -> Option<Instant> {
        None
    }

    /// Waits until the sink can take more. Bytes stay with upstream meanwhile, so that a slow sink needs no queue.
    fn ready(&mut self) -> impl Future<Output = ()> + Send {
        ready(())
    }
}
