//! Chunked transfer coding (RFC 9112 §7.1): for one client, or once for all who stand alike.

use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::cache::{Lagged, Sequence};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::view::View;

/// Ends a body without trailers.
pub(super) const LAST: &[u8] = b"0\r\n\r\n";
const END: &[u8] = b"\r\n";
/// The size of a chunk in hexadecimal and a line end.
const HEAD_LEN_MAX: usize = 18;

fn head(len: usize) -> Bytes {
    Bytes::from(format!("{len:x}\r\n"))
}

/// One chunk of what a single client gets.
pub(super) fn chunked(pieces: BufList) -> BufList {
    let mut chunk = BufList::from(head(pieces.len()));
    chunk.append(pieces);
    chunk.push(Bytes::from_static(END));
    chunk
}

/// The batches of a view from one place on, as one chunk.
#[derive(Debug)]
pub(super) struct SharedChunk {
    /// Where a client must stand to get it, and where it stands afterwards.
    pub(super) from: Sequence,
    pub(super) to: Sequence,
    /// The view has more at `to`, left out because the chunk is long enough.
    pub(super) is_cut: bool,
    /// The first event's place in the history, and the last one's.
    pub(super) first: Sequence,
    pub(super) last: Sequence,
    /// The lowest version in it.
    pub(super) first_version: ResourceVersion,
    pub(super) events: u64,
    /// Bytes of the events.
    pub(super) len: u64,
    /// When its batches became readable.
    pub(super) published_at: SmallVec<[std::time::Instant; 1]>,
    /// The chunk, framing included.
    pub(super) pieces: BufList,
}

impl SharedChunk {
    /// Takes what waits at `from`, up to about `len_max` bytes and one batch at least; `None` if nothing does.
    ///
    /// # Errors
    /// [`Lagged`] when the view no longer has it.
    pub(super) fn read(
        view: &View,
        from: Sequence,
        len_max: usize,
    ) -> Result<Option<Self>, Lagged> {
        let mut frames: SmallVec<[Bytes; 4]> = SmallVec::new();
        let mut chunk = Self {
            from,
            to: from,
            is_cut: false,
            first: 0,
            last: 0,
            first_version: ResourceVersion(u64::MAX),
            events: 0,
            len: 0,
            published_at: SmallVec::new(),
            pieces: BufList::default(),
        };
        let mut len = 0;
        // What comes later wakes the group.
        let head = view.head();
        chunk.to = view.read(from, |batch| {
            if frames.is_empty() {
                chunk.first = batch.first;
            }
            chunk.last = batch.last;
            chunk.first_version = chunk.first_version.min(batch.first_version);
            chunk.events += batch.count as u64;
            chunk.published_at.push(batch.published_at);
            len += batch.frames.len();
            frames.push(batch.frames.clone());
            if len >= len_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if frames.is_empty() {
            return Ok(None);
        }
        chunk.is_cut = chunk.to < head;
        chunk.len = len as u64;
        chunk.pieces = framed(&frames, len, len_max);
        Ok(Some(chunk))
    }
}

fn framed(frames: &[Bytes], len: usize, joined_len_max: usize) -> BufList {
    if len > joined_len_max {
        let mut pieces = BufList::from(head(len));
        frames.iter().for_each(|frame| pieces.push(frame.clone()));
        pieces.push(Bytes::from_static(END));
        return pieces;
    }
    let mut joined = BytesMut::with_capacity(HEAD_LEN_MAX + len + END.len());
    joined.put_slice(&head(len));
    frames.iter().for_each(|frame| joined.put_slice(frame));
    joined.put_slice(END);
    BufList::from(joined.freeze())
}
