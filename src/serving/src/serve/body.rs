//! The body of a response. The connection chooses how it is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use tokio::time::Instant;

use crate::admission::ListPermit;
use crate::audit::AuditTrail;
use crate::metrics::ListMetrics;
use crate::protocol::BufList;
use crate::serve::list::{CompressedList, ListBody};
use crate::serve::resources::{BoxError, ForwardLifetime, ForwardedBody};
use crate::talkers::Talk;
use crate::watch::{Watch, WatchRecall};

/// The body of a response.
#[derive(Debug)]
pub enum AnswerBody {
    /// A body of known length, in memory.
    Whole(Option<BufList>),
    /// A stream of one chunk or none, sent without a length.
    Stream(Option<BufList>),
    /// A list, streamed from a snapshot.
    List(Box<MeasuredList>),
    /// A watch. Boxed, as lists are: both are much larger than the other variants.
    Watch(Box<Watch>),
    /// A body from upstream, and how long it may last.
    Forwarded(ForwardedBody, ForwardLifetime),
}

/// A list, compressed or not.
#[derive(Debug)]
pub(super) enum ListStream {
    Plain(ListBody),
    Compressed(CompressedList),
}

/// A streamed list, which is recorded when it is complete or the client has left.
#[derive(Debug)]
pub struct MeasuredList {
    list: ListStream,
    started: Instant,
    metrics: Option<ListMetrics>,
    /// Released with the list, or earlier if the client stops reading.
    permit: Option<ListPermit>,
    /// Keeps the audit event open.
    pub(super) trail: Option<AuditTrail>,
    /// Counts what is sent for the client.
    pub(super) talk: Option<Talk>,
}

impl MeasuredList {
    pub(super) fn new(
        list: ListStream,
        started: Instant,
        metrics: Option<ListMetrics>,
        permit: Option<ListPermit>,
    ) -> Self {
        Self {
            list,
            started,
            metrics,
            permit,
            trail: None,
            talk: None,
        }
    }
}

impl Body for MeasuredList {
    type Data = BufList;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        let this = self.get_mut();
        if let Some(permit) = &mut this.permit
            && let Err(lost) = ready!(permit.poll_work(context))
        {
            return Poll::Ready(Some(Err(lost.into())));
        }
        let polled = match &mut this.list {
            ListStream::Plain(list) => Pin::new(list).poll_frame(context).map_err(Into::into),
            ListStream::Compressed(list) => Pin::new(list).poll_frame(context).map_err(Into::into),
        };
        if let (Some(permit), Poll::Ready(_)) = (&this.permit, &polled) {
            permit.gave_frame();
        }
        if let (Some(talk), Poll::Ready(Some(Ok(frame)))) = (&mut this.talk, &polled) {
            talk.sent(frame.data_ref().map_or(0, Buf::remaining));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.list {
            ListStream::Plain(list) => list.is_end_stream(),
            ListStream::Compressed(list) => list.is_end_stream(),
        }
    }
}

impl Drop for MeasuredList {
    fn drop(&mut self) {
        let Some(metrics) = &self.metrics else {
            return;
        };
        let items = match &self.list {
            ListStream::Plain(list) => list.items(),
            ListStream::Compressed(list) => {
                let blocks = list.counts();
                metrics.blocks_made.inc_by(blocks.made as u64);
                metrics.blocks_shared.inc_by(blocks.shared as u64);
                list.items()
            }
        };
        metrics.record(items, self.started.elapsed());
    }
}

impl AnswerBody {
    /// The next part of the body.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => {
                Poll::Ready(pieces.take().map(|pieces| Ok(Frame::data(pieces))))
            }
            Self::List(list) => Pin::new(&mut **list).poll_frame(context),
            Self::Watch(watch) => Pin::new(&mut **watch)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Self::Forwarded(body, _) => Pin::new(body)
                .poll_frame(context)
                .map_ok(|frame| frame.map_data(BufList::from)),
        }
    }

    /// Ends a watch when its connection is recalled.
    pub(super) fn follow(&mut self, recall: &WatchRecall) {
        match self {
            Self::Watch(watch) => watch.follow(recall),
            Self::Whole(_) | Self::Stream(_) | Self::List(_) | Self::Forwarded(..) => {}
        }
    }

    /// A body in memory.
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes.into()).filter(|body: &BufList| !body.is_empty()))
    }
}
