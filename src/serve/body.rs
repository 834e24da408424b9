//! The body of an answer, whoever gives it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::admission::ListPlace;
use crate::audit::Trail;
use crate::protocol::Pieces;
use crate::serve::list::{CompressedList, StreamedList};
use crate::serve::resources::{Lasting, ListTally};
use crate::transport::stall::{self, Pauses, Waits, Word};
use crate::watch::WatchBody;

/// One of the bodies that clients get. `F` is what comes from elsewhere.
#[derive(Debug)]
pub enum AnswerBody<F> {
    /// All of it at once, with its length.
    Whole(Option<Pieces>),
    /// A stream of one piece or none, whose length is not told beforehand.
    Stream(Option<Pieces>),
    /// A list, streamed from a snapshot.
    List(Box<MeasuredList>),
    /// A watch. Boxed, as lists are: both are much larger than the others.
    Watch(Box<WatchBody>),
    /// From upstream, and how long that may take.
    Forwarded(F, Lasting),
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
    tally: Option<Arc<dyn ListTally>>,
    /// Given back with the list, or before if its client does not take it.
    place: Option<ListPlace>,
    /// Of the audit log.
    pub(super) trail: Option<Trail>,
}

impl MeasuredList {
    pub(super) fn new(
        list: Listing,
        started: Instant,
        tally: Option<Arc<dyn ListTally>>,
        place: Option<ListPlace>,
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
    ) -> Poll<Option<Result<Frame<Pieces>, BoxError>>> {
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
        Self::Whole(Some(bytes.into()).filter(|pieces: &Pieces| !pieces.is_empty()))
    }

    /// Whether the answer ends by itself, and soon; `None` if its client may pause for as long as it likes.
    const fn ends(&self) -> Option<bool> {
        match self {
            Self::Whole(_) | Self::Stream(_) | Self::List(_) => Some(true),
            Self::Watch(_) | Self::Forwarded(_, Lasting::Watch) => Some(false),
            Self::Forwarded(_, Lasting::Short) => Some(true),
            Self::Forwarded(_, Lasting::Long) => None,
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
    ) -> Poll<Option<Result<Frame<Pieces>, BoxError>>> {
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
                        .map(|frame| frame.map_data(Pieces::from))
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
    type Data = Pieces;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Pieces>, BoxError>>> {
        let this = self.get_mut();
        let polled = this.poll_any(context);
        if let Some(ends) = this.ends() {
            let waits = match &polled {
                Poll::Ready(_) => Waits::Server,
                Poll::Pending => Waits::Client,
            };
            stall::say(Word { waits, ends });
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

impl<F: Body> Pauses for AnswerBody<F> {
    fn pauses(&self) -> bool {
        match self {
            Self::Whole(pieces) | Self::Stream(pieces) => pieces.is_none(),
            Self::List(list) => match &list.list {
                Listing::Plain(list) => list.is_end_stream(),
                Listing::Compressed(list) => list.is_end_stream(),
            },
            Self::Watch(watch) => watch.pauses(),
            Self::Forwarded(body, Lasting::Short) => body.is_end_stream(),
            // Whether upstream has more to say nobody knows.
            Self::Forwarded(_, Lasting::Watch | Lasting::Long) => false,
        }
    }
}
