//! What ends a watch that a rule forwards.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Completes when a watch that a rule forwards should end, because memory answers its client now.
pub struct SideEnd(Pin<Box<dyn Future<Output = ()> + Send>>);

impl SideEnd {
    /// The end at the completion of this future.
    #[must_use]
    pub fn at(end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(end))
    }
}

impl Future for SideEnd {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for SideEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SideEnd")
    }
}
