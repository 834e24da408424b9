//! The body of an answer, whoever gives it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::admission::ListPermit;
use crate::audit::AuditTrail;
use crate::protocol::BufList;
use crate::serve::list::{CompressedList, StreamedList};
use crate::serve::resources::{ForwardLifetime, ListRecorder};
use crate::transport::stall::{self, PauseHint, StallSignal, WaitingSide};
use crate::watch::WatchBody;

/// One of the bodies that clients get. `F` is what comes from elsewhere.
#[derive(Debug)]
pub enum AnswerBody<F> {
    /// All of it at once, with its length.
    Whole(Option<BufList>),
    /// A stream of one piece or none, whose length is not told beforehand.
    Stream(Option<BufList>),
    /// A list, streamed from a snapshot.
    List(Box<MeasuredList>),
    /// A watch. Boxed, as lists are: both are much larger than the others.
    Watch(Box<WatchBody>),
    /// From upstream, and how long that may take.
    Forwarded(F, ForwardLifetime),
}

/// A list that leaves as it is, or compressed.
#[derive(Debug)]
pub(super) enum Listing {
    Plain(StreamedList),
    Compressed(CompressedList),
}

/// A streamed list that is counted when it has left, or was given up.
#[derive(Debug)]
pub struct MeasuredList {
    list: Listing,
    started: Instant,
    tally: Option<Arc<dyn ListRecorder>>,
    /// Given back with the list, or before if its client does not take it.
    place: Option<ListPermit>,
    /// Of the audit log.
    pub(super) trail: Option<AuditTrail>,
}

impl MeasuredList {
    pub(super) fn new(
        list: Listing,
        started: Instant,
        tally: Option<Arc<dyn ListRecorder>>,
        place: Option<ListPermit>,
    ) -> Self {
        Self {
            list,
            started,
            tally,
            place,
            trail: None,
        }
    }
}

impl MeasuredList {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        if let Some(place) = &mut self.place {
            ready!(place.poll_work(context));
        }
        let polled = match &mut self.list {
            Listing::Plain(list) => Pin::new(list).poll_frame(context).map_err(Into::into),
            Listing::Compressed(list) => Pin::new(list).poll_frame(context).map_err(Into::into),
        };
        if let (Some(place), Poll::Ready(_)) = (&self.place, &polled) {
            place.gave_frame();
        }
        polled
    }
}

impl Drop for MeasuredList {
    fn drop(&mut self) {
        let Some(tally) = &self.tally else {
            return;
        };
        let items = match &self.list {
            Listing::Plain(list) => list.items(),
            Listing::Compressed(list) => {
                tally.compressed(list.counts());
                list.items()
            }
        };
        tally.listed(items, self.started.elapsed());
    }
}

impl<F> AnswerBody<F> {
    /// All of it at once.
    pub fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes.into()).filter(|pieces: &BufList| !pieces.is_empty()))
    }

    /// Whether the answer ends by itself, and soon; `None` if its client may pause for as long as it likes.
    const fn ends(&self) -> Option<bool> {
        match self {
            Self::Whole(_) | Self::Stream(_) | Self::List(_) => Some(true),
            Self::Watch(_) | Self::Forwarded(_, ForwardLifetime::Watch) => Some(false),
            Self::Forwarded(_, ForwardLifetime::Short) => Some(true),
            Self::Forwarded(_, ForwardLifetime::Long) => None,
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<F> AnswerBody<F>
where
    F: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    fn poll_any(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => {
                Poll::Ready(pieces.take().map(|pieces| Ok(Frame::data(pieces))))
            }
            Self::List(list) => list.poll_frame(context),
            Self::Watch(watch) => Pin::new(&mut **watch)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Self::Forwarded(body, _) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| {
                    frame
                        .map(|frame| frame.map_data(BufList::from))
                        .map_err(Into::into)
                }))
            }
        }
    }
}

impl<F> Body for AnswerBody<F>
where
    F: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = BufList;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, BoxError>>> {
        let this = self.get_mut();
        let polled = this.poll_any(context);
        if let Some(ends) = this.ends() {
            let waits = match &polled {
                Poll::Ready(_) => WaitingSide::Server,
                Poll::Pending => WaitingSide::Client,
            };
            stall::say(StallSignal { waits, ends });
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(pieces) => pieces.is_none(),
            // An empty one must be polled to its end, or it would be sent with its length.
            Self::Stream(_) => false,
            Self::List(list) => match &list.list {
                Listing::Plain(list) => list.is_end_stream(),
                Listing::Compressed(list) => list.is_end_stream(),
            },
            Self::Watch(watch) => watch.is_end_stream(),
            Self::Forwarded(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(pieces) => {
                SizeHint::with_exact(pieces.as_ref().map_or(0, |pieces| pieces.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
            Self::List(_) => SizeHint::default(),
            Self::Watch(watch) => watch.size_hint(),
            Self::Forwarded(body, _) => body.size_hint(),
        }
    }
}

impl<F: Body> PauseHint for AnswerBody<F> {
    fn pauses(&self) -> bool {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => pieces.is_none(),
            Self::List(list) => match &list.list {
                Listing::Plain(list) => list.is_end_stream(),
                Listing::Compressed(list) => list.is_end_stream(),
            },
            Self::Watch(watch) => watch.pauses(),
            Self::Forwarded(body, ForwardLifetime::Short) => body.is_end_stream(),
            // Whether upstream has more to say nobody knows.
            Self::Forwarded(_, ForwardLifetime::Watch | ForwardLifetime::Long) => false,
        }
    }
}
