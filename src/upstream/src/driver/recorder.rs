//! What a driver reports.

use std::fmt;

use http::HeaderValue;
use strum::{IntoStaticStr, VariantArray};

use super::fault::{FailureReport, FrameRejection};
use crate::reflector::{GiveUp, RelistReason};

/// Receives the progress and the failures of a driver, for metrics and logs. Nothing else may depend on it: state belongs to
/// the sink. Called from the driver's task.
pub trait DriverRecorder: Send + Sync + fmt::Debug {
    /// This many bytes of a response body arrived.
    fn received(&self, _bytes: usize) {}
    /// A frame or a page could not be used.
    fn rejected(&self, _reason: FrameRejection) {}
    /// All objects are requested anew, for this reason.
    fn relisted(&self, _reason: RelistReason) {}
    /// The watch was opened, or has ended.
    fn connected(&self, _connected: WatchConnection) {}
    /// A watch was opened, by an answer with this date.
    fn dated(&self, _date: &HeaderValue) {}
    /// A bookmark arrived.
    fn bookmark(&self) {}
    /// Upstream has shown that the state is its own, by an event, a bookmark, a list or a comparison.
    fn proven(&self) {}
    /// An attempt failed. The reflector decides what is tried next.
    fn failed(&self, _report: FailureReport<'_>) {}
    /// An event or a bookmark was left out, because its version is lower than the held state's.
    fn ignored(&self) {}
}

/// Whether the watch upstream is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchConnection {
    /// The watch is open.
    Yes,
    /// The watch has ended, in this way.
    No(UpstreamWatchEnd),
}

/// How a watch upstream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UpstreamWatchEnd {
    /// Between two frames, as watches regularly do, or because a silent watch is to be opened again.
    Closed,
    /// The connection broke or went silent.
    Disconnected,
    /// With an ERROR event, or because the driver stopped.
    Error,
    /// With a frame that cannot be used.
    Undecodable,
    /// The cache ended: it was idle, it was given up, or upstream no longer has the resource. No driver reports this: it is dropped.
    Idle,
    /// The gateway shuts down. No driver reports this: it is dropped.
    Drain,
}

/// Why a driver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverEnd {
    /// Upstream no longer knows the resource.
    Gone,
    /// Upstream's versions went back, as after a restored backup. The sink must be built again.
    WentBack,
    /// The reflector stopped after too many failures. Only one made with `ReflectorMachine::giving_up` does so.
    GivenUp(GiveUp),
}
