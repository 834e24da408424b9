//! A body that passes on what it receives, unchanged, and hands a copy to a comparison that never delays it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use super::byte_budget::{ByteBudget, HeldBytes};

/// Items that may wait for a comparison: a busy watch fills it in seconds if its comparison has no turn.
const WAITING_MAX: usize = 1_024;

/// What a comparison learns of a forwarded body. If there was no room for an item, the reader has no more items.
#[derive(Debug)]
pub(crate) enum TeeItem {
    Chunk(Bytes, HeldBytes),
    /// Upstream sends nothing now, and the client has taken everything before.
    Idle,
    /// The end of the body.
    End,
    /// The body broke off, or its client left.
    Broken,
}

/// The comparison's end of a [`ShadowTee`].
pub(crate) type TeeReader = mpsc::Receiver<TeeItem>;

/// A body and its copy for a comparison.
#[derive(Debug)]
pub(crate) struct ShadowTee<B> {
    body: B,
    copies: Option<Copies>,
}

#[derive(Debug)]
struct Copies {
    items: mpsc::Sender<TeeItem>,
    budget: ByteBudget,
    is_idle: bool,
}

impl<B> ShadowTee<B> {
    pub(crate) fn new(body: B, budget: ByteBudget) -> (Self, TeeReader) {
        let (items, reader) = mpsc::channel(WAITING_MAX);
        let copies = Some(Copies {
            items,
            budget,
            is_idle: false,
        });
        (Self { body, copies }, reader)
    }

    /// Hands an item to the comparison, which gets no more if it has no room.
    fn hand_over(&mut self, item: impl FnOnce(&Copies) -> Option<TeeItem>) {
        let Some(copies) = &mut self.copies else {
            return;
        };
        let item = item(copies);
        copies.is_idle = matches!(item, Some(TeeItem::Idle));
        let is_over = matches!(item, None | Some(TeeItem::End | TeeItem::Broken));
        let is_taken = item.is_some_and(|item| copies.items.try_send(item).is_ok());
        if is_over || !is_taken {
            self.copies = None;
        }
    }
}

impl<B> Body for ShadowTee<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.hand_over(|copies| {
                        let held = copies.budget.hold(data.len())?;
                        Some(TeeItem::Chunk(data.clone(), held))
                    });
                }
                if this.body.is_end_stream() {
                    this.hand_over(|_| Some(TeeItem::End));
                }
            }
            Poll::Ready(Some(Err(_))) => this.hand_over(|_| Some(TeeItem::Broken)),
            Poll::Ready(None) => this.hand_over(|_| Some(TeeItem::End)),
            Poll::Pending => {
                if this.copies.as_ref().is_some_and(|copies| !copies.is_idle) {
                    this.hand_over(|_| Some(TeeItem::Idle));
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for ShadowTee<B> {
    fn drop(&mut self) {
        self.hand_over(|_| Some(TeeItem::Broken));
    }
}

#[cfg(test)]
mod tests;
