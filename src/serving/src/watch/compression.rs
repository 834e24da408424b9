//! A watch whose client accepts gzip: one member from the first event to the last. Batches of the view come compressed from there, once for
//! all clients; what only this client gets is sent as it is (decision 66).

mod readers;

use std::sync::Arc;

use bytes::Bytes;

use crate::cache::{Checksum, DeflateBlock, Sequence};
use crate::protocol::BufList;
use crate::protocol::gzip::GzipMember;
use crate::view::{BatchBlock, CompressedWatch, GzipWeight, REACH, View};
pub use readers::{GzipReaders, GzipTrial};

/// The compressed stream of one client.
#[derive(Debug)]
pub(crate) struct WatchCompression {
    watch: CompressedWatch,
    /// `None` if nothing depends on it.
    trial: Option<GzipTrial>,
    phase: MemberPhase,
    /// The client was last sent this many bytes of the view's events, up to the batch at `next`. More than [`REACH`] are not counted.
    following: usize,
    next: Sequence,
}

#[derive(Debug)]
enum MemberPhase {
    New,
    Begun(GzipMember),
    Ended,
}

impl WatchCompression {
    /// The compression of a watch of this view.
    pub(super) fn new(view: &View, weight: GzipWeight, trial: Option<GzipTrial>) -> Self {
        Self {
            trial,
            watch: view.compress(weight),
            phase: MemberPhase::New,
            following: 0,
            next: 0,
        }
    }

    /// The header, unless it is sent. It comes before everything else, also if there is no event yet.
    pub(super) fn begin(&mut self) -> Option<Bytes> {
        matches!(self.phase, MemberPhase::New).then(|| {
            self.phase = MemberPhase::Begun(GzipMember::default());
            GzipMember::header()
        })
    }

    /// Events for this client alone, as they are sent.
    pub(super) fn alone(&mut self, events: BufList) -> BufList {
        self.following = 0;
        self.trial.iter_mut().for_each(GzipTrial::sent);
        let mut sent = self.begin().map(BufList::from).unwrap_or_default();
        if let MemberPhase::Begun(member) = &mut self.phase {
            sent.append(member.stored_parts(events));
        }
        sent
    }

    /// A block of initial events, as it is sent. The first one comes after the header.
    pub(super) fn shared(&mut self, block: &DeflateBlock) -> BufList {
        self.following = 0;
        self.trial.iter_mut().for_each(GzipTrial::sent);
        let mut sent = self.begin().map(BufList::from).unwrap_or_default();
        if let MemberPhase::Begun(member) = &mut self.phase {
            sent.push(member.block(block));
        }
        sent
    }

    /// The block of the batch at `at`, which is `frames`.
    pub(crate) fn block(&self, at: Sequence, frames: &[u8]) -> Arc<BatchBlock> {
        self.watch.block(at, frames)
    }

    /// The number of the view's bytes before the batch at `from` that were sent last.
    pub(crate) const fn following(&self, from: Sequence) -> usize {
        if self.next == from { self.following } else { 0 }
    }

    /// Counts batches of the view from `from` up to `to`, whose checksum is `sum`, as sent.
    pub(crate) fn advance(&mut self, from: Sequence, to: Sequence, sum: Checksum) {
        let len = usize::try_from(sum.len()).unwrap_or(REACH);
        self.following = REACH.min(self.following(from).saturating_add(len));
        self.next = to;
        self.trial.iter_mut().for_each(GzipTrial::sent);
        if let MemberPhase::Begun(member) = &mut self.phase {
            member.add(sum);
        }
    }

    /// The trailer, once.
    pub(super) fn end(&mut self) -> Option<BufList> {
        let mut sent = self.begin().map(BufList::from).unwrap_or_default();
        match std::mem::replace(&mut self.phase, MemberPhase::Ended) {
            MemberPhase::Begun(member) => sent.push(member.trailer()),
            MemberPhase::New | MemberPhase::Ended => return None,
        }
        Some(sent)
    }

    /// Notes the end of the watch, and whether the client has left by itself.
    pub(super) fn ended(&self, has_left: bool) {
        self.trial.iter().for_each(|trial| trial.ended(has_left));
    }

    /// Whether the trailer is still to be sent.
    pub(super) const fn is_open(&self) -> bool {
        !matches!(self.phase, MemberPhase::Ended)
    }
}
