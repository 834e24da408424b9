//! A new watch, on its way to a worker.

use bytes::Bytes;

use super::client_stream::ClientStream;
use crate::watch::Watch;

/// A watch on its way from its connection's task to the worker that will serve it.
#[derive(Debug)]
pub(super) struct NewStream {
    pub(super) client: ClientStream,
    /// What is sent before the first event.
    pub(super) head: Bytes,
    pub(super) watch: Box<Watch>,
}
