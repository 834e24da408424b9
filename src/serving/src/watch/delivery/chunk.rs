//! Chunked transfer coding (RFC 9112 §7.1): chunks for one client, and chunks shared by all clients at the same position.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;

use crate::cache::{Arrival, Checksum, Lagged, Sequence};
use crate::protocol::BufList;
use crate::resource::ResourceVersion;
use crate::view::{BatchBlock, View};
use crate::watch::WatchCompression;

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
    frames: SmallVec<[Bytes; 4]>,
    /// As it is, and as clients get it that accept gzip: each once such a client is reached.
    plain: Option<FramedChunk>,
    compressed: Option<CompressedChunk>,
    len_max: usize,
}

/// What is written to a client.
#[derive(Clone, Debug, Default)]
pub(super) struct FramedChunk {
    /// With the framing of HTTP/1.1's chunked encoding.
    pub(super) buf: BufList,
    /// Without it.
    pub(super) unframed: BufList,
}

/// A chunk as gzip.
#[derive(Debug, Default)]
struct CompressedChunk {
    blocks: SmallVec<[Arc<BatchBlock>; 4]>,
    sum: Checksum,
    /// By the number of blocks that refer to nothing before them.
    forms: SmallVec<[(usize, FramedChunk); 1]>,
    /// Length of what was sent.
    sent: u64,
    clients: u64,
}

impl SharedChunk {
    pub(super) fn empty(from: Sequence, len_max: usize) -> Self {
        Self {
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
            frames: SmallVec::new(),
            plain: None,
            compressed: None,
            len_max,
        }
    }

    /// Reads the batches at `from`, up to about `len_max` bytes and at least one; `None` if there are none.
    ///
    /// # Errors
    /// [`Lagged`] if the view no longer has these batches.
    pub(super) fn read(
        view: &View,
        from: Sequence,
        len_max: usize,
    ) -> Result<Option<Self>, Lagged> {
        let mut chunk = Self::empty(from, len_max);
        let mut len = 0;
        // Batches after this head wake the group again.
        let head = view.head();
        chunk.to = view.read(from, |batch| {
            if chunk.frames.is_empty() {
                chunk.first = batch.first;
            }
            chunk.last = batch.last;
            chunk.first_version = chunk.first_version.min(batch.first_version);
            chunk.last_version = chunk.last_version.max(batch.last_version);
            chunk.events += batch.count as u64;
            chunk.arrivals.push(batch.arrival);
            len += batch.frames.len();
            chunk.frames.push(batch.frames.clone());
            if len >= len_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if chunk.frames.is_empty() {
            return Ok(None);
        }
        chunk.has_more = chunk.to < head;
        chunk.len = len as u64;
        Ok(Some(chunk))
    }

    /// What a client is sent whose events are not compressed.
    pub(super) fn plain(&mut self) -> &FramedChunk {
        let (frames, len_max) = (&self.frames, self.len_max);
        self.plain
            .get_or_insert_with(|| FramedChunk::new(frames, len_max))
    }

    /// What a client is sent whose events are compressed, which counts as sent.
    pub(super) fn compressed(&mut self, client: &mut WatchCompression) -> &FramedChunk {
        let (from, to, len_max) = (self.from, self.to, self.len_max);
        let frames = &self.frames;
        let chunk = self
            .compressed
            .get_or_insert_with(|| CompressedChunk::new(from, frames, client));
        let mut following = client.following(from);
        let mut independent = 0;
        for (at, (block, frames)) in chunk.blocks.iter().zip(frames).enumerate() {
            if following < block.reach() {
                independent = at + 1;
            }
            following = following.saturating_add(frames.len());
        }
        client.advance(from, to, chunk.sum);
        let at = chunk.form(independent, frames, len_max);
        let form = &chunk.forms[at].1;
        chunk.sent += form.unframed.len() as u64;
        chunk.clients += 1;
        form
    }

    /// The length of what was sent to clients as gzip, before and after, if there were any.
    pub(super) fn compression(&self) -> Option<(u64, u64)> {
        let chunk = self.compressed.as_ref()?;
        Some((chunk.clients * self.len, chunk.sent))
    }
}

impl CompressedChunk {
    fn new(from: Sequence, frames: &[Bytes], client: &WatchCompression) -> Self {
        let mut chunk = Self::default();
        for (at, frames) in (from..).zip(frames) {
            let block = client.block(at, frames);
            chunk.sum = chunk.sum.then(block.sum());
            chunk.blocks.push(block);
        }
        chunk
    }

    /// The index of the form whose first `independent` blocks refer to nothing before them.
    fn form(&mut self, independent: usize, frames: &[Bytes], len_max: usize) -> usize {
        let mut forms = self.forms.iter();
        if let Some(at) = forms.position(|(count, _)| *count == independent) {
            return at;
        }
        let blocks = self.blocks.iter().zip(frames).enumerate();
        let blocks: SmallVec<[Bytes; 4]> = blocks
            .map(|(at, (block, frames))| match at < independent {
                true => block.independent(frames).clone(),
                false => block.following().clone(),
            })
            .collect();
        let form = FramedChunk::new(&blocks, len_max);
        self.forms.push((independent, form));
        self.forms.len() - 1
    }
}

impl FramedChunk {
    /// The parts as one chunk. They are copied into one slice if they are shorter than `joined_len_max`.
    fn new(parts: &[Bytes], joined_len_max: usize) -> Self {
        let len = parts.iter().map(Bytes::len).sum();
        let head = head(len);
        if len > joined_len_max {
            let mut unframed = BufList::default();
            parts.iter().for_each(|part| unframed.push(part.clone()));
            let mut buf = BufList::from(head);
            buf.append(unframed.clone());
            buf.push(Bytes::from_static(END));
            return Self { buf, unframed };
        }
        let mut joined = BytesMut::with_capacity(head.len() + len + END.len());
        joined.put_slice(&head);
        parts.iter().for_each(|part| joined.put_slice(part));
        joined.put_slice(END);
        let joined = joined.freeze();
        let unframed = joined.slice(head.len()..head.len() + len);
        Self {
            buf: joined.into(),
            unframed: unframed.into(),
        }
    }
}
