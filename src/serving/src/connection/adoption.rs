//! Makes the streams of running watches on an HTTP/2 connection the delivery workers' (decision 65).

use std::task::Context;

use crate::transport::stall::StreamEnd;
use crate::transport::{AdoptedBody, AdoptedStream, Http2Writer, Traffic};
use crate::watch::Watch;
use crate::watch::delivery::Delivery;

/// What the streams of one connection need to become the workers'.
#[derive(Clone, Debug)]
pub(super) struct StreamAdopter {
    pub(super) writer: Http2Writer,
    pub(super) traffic: Traffic,
    pub(super) delivery: Delivery,
}

impl StreamAdopter {
    /// Begins with one stream, if that can be now; otherwise wakes its body if it can be later.
    pub(super) fn begin(
        &self,
        context: &Context<'_>,
        end: &StreamEnd,
    ) -> Option<(AdoptedStream, AdoptedBody)> {
        self.writer.adopt(&self.traffic, context.waker(), end)
    }

    /// Lets a delivery worker write the rest of the watch.
    pub(super) fn give(self, stream: AdoptedStream, watch: Box<Watch>) {
        self.delivery.adopt(stream, watch);
    }
}
