//! Chunked transfer coding (RFC 9112 §7.1): chunks for one client, and chunks shared by all clients at the same position.

use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::cache::{Arrival, Lagged, Sequence};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::view::View;

/// The last chunk of a body without trailers.
pub(super) const LAST: &[u8] = b"0\r\n\r\n";
const END: &[u8] = b"\r\n";

fn head(len: usize) -> Bytes {
    Bytes::from(format!("{len:x}\r\n"))
}

/// One chunk for a single client.
pub(super) fn chunked(buf: BufList) -> BufList {
    let mut chunk = BufList::from(head(buf.len()));
    chunk.append(buf);
    chunk.push(Bytes::from_static(END));
    chunk
}

/// The batches of a view from one position on, as one chunk.
#[derive(Debug)]
pub(super) struct SharedChunk {
    /// The batch that a client must be at to get this chunk, and the one it is at afterwards.
    pub(super) from: Sequence,
    pub(super) to: Sequence,
    /// The view has more batches at `to`, which did not fit.
    pub(super) has_more: bool,
    /// The sequences of the first and the last event.
    pub(super) first: Sequence,
    pub(super) last: Sequence,
    /// The lowest and the highest version of its events.
    pub(super) first_version: ResourceVersion,
    pub(super) last_version: ResourceVersion,
    pub(super) events: u64,
    /// Length of the events in bytes, without framing.
    pub(super) len: u64,
    /// When each of its batches arrived from upstream.
    pub(super) arrivals: SmallVec<[Arrival; 1]>,
    /// With the framing of HTTP/1.1's chunked encoding.
    pub(super) buf: BufList,
    /// Without it.
    pub(super) unframed: BufList,
}

impl SharedChunk {
    /// Reads the batches at `from`, up to about `len_max` bytes and at least one; `None` if there are none.
    ///
    /// # Errors
    /// [`Lagged`] if the view no longer has these batches.
    pub(super) fn read(
        view: &View,
        from: Sequence,
        len_max: usize,
    ) -> Result<Option<Self>, Lagged> {
        let mut frames: SmallVec<[Bytes; 4]> = SmallVec::new();
        let mut chunk = Self {
            from,
            to: from,
            has_more: false,
            first: 0,
            last: 0,
            first_version: ResourceVersion(u64::MAX),
            last_version: ResourceVersion(0),
            events: 0,
            len: 0,
            arrivals: SmallVec::new(),
            buf: BufList::default(),
            unframed: BufList::default(),
        };
        let mut len = 0;
        // Batches after this head wake the group again.
        let head = view.head();
        chunk.to = view.read(from, |batch| {
            if frames.is_empty() {
                chunk.first = batch.first;
            }
            chunk.last = batch.last;
            chunk.first_version = chunk.first_version.min(batch.first_version);
            chunk.last_version = chunk.last_version.max(batch.last_version);
            chunk.events += batch.count as u64;
            chunk.arrivals.push(batch.arrival);
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
        chunk.has_more = chunk.to < head;
        chunk.len = len as u64;
        (chunk.buf, chunk.unframed) = framed(&frames, len, len_max);
        Ok(Some(chunk))
    }
}

/// The frames with and without framing.
fn framed(frames: &[Bytes], len: usize, joined_len_max: usize) -> (BufList, BufList) {
    let head = head(len);
    if len > joined_len_max {
        let mut unframed = BufList::default();
        frames.iter().for_each(|frame| unframed.push(frame.clone()));
        let mut buf = BufList::from(head);
        buf.append(unframed.clone());
        buf.push(Bytes::from_static(END));
        return (buf, unframed);
    }
    let mut joined = BytesMut::with_capacity(head.len() + len + END.len());
    joined.put_slice(&head);
    frames.iter().for_each(|frame| joined.put_slice(frame));
    joined.put_slice(END);
    let joined = joined.freeze();
    let unframed = joined.slice(head.len()..head.len() + len);
    (joined.into(), unframed.into())
}
