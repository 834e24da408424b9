//! An object in one allocation: numbers, the spans of its texts, the frame, and the texts that the frame does not contain.
//!
//! ```text
//! ┌─────────┬───────────────────┬─ body ───────────────────────────────────┐
//! │ numbers │ span of each text │ frame (head, object, tail) │ extra texts │
//! └─────────┴───────────────────┴──────────────────────────────────────────┘
//! ```
//! The span of a text usually points into the object's own bytes. A text that is escaped there, or that is the default of an
//! absent field, is stored as an extra text. Spans count from the body's first byte; their numbers have two bytes if the body
//! is shorter than 64 KiB, otherwise four. All numbers are little-endian. Labels are sorted by key for binary search,
//! because their number is bounded only by the size of the object. This module does not know the format of frames.

use std::iter;
use std::sync::Arc;

use smallvec::SmallVec;

use super::ObjectParts;
use crate::resource::{ByteSpan, Encoding, ResourceVersion};

/// Offsets of the numbers.
const VERSION: usize = 0;
const BODY: usize = 8;
const FRAME_LEN: usize = 12;
const START: usize = 16;
const TYPE_PREFIX_LEN: usize = 20;
const FIELDS: usize = 24;
const FLAGS: usize = 26;
const SPANS: usize = 28;

const WIDE: u8 = 1;
const PROTOBUF: u8 = 2;

/// Indexes of the texts that every object has. The fields follow, then the key and the value of each label.
const NAME: usize = 0;
const NAMESPACE: usize = 1;
const UID: usize = 2;
const DIGITS: usize = 3;
const FIRST_FIELD: usize = 4;

/// The bytes of the allocation. `Arc` puts two reference counts before them.
#[derive(Clone)]
pub(super) struct PackedBytes(Arc<[u8]>);

/// Memory that a [`PackedBytes`] takes besides its bytes: the reference counts.
const COUNTS_LEN: usize = 2 * size_of::<usize>();

/// The pieces that a frame is assembled from.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePieces<'a> {
    /// The bytes before the object.
    pub(super) head: &'a [u8],
    /// The object. Spans count from its first byte.
    pub(super) object: &'a [u8],
    /// Bytes to insert after the object's first byte; spans do not count them. May be empty.
    pub(super) types: &'a [u8],
    /// The bytes after the object.
    pub(super) tail: &'a [u8],
}

impl FramePieces<'_> {
    const fn len(&self) -> usize {
        self.head.len() + self.object.len() + self.types.len() + self.tail.len()
    }

    /// The frame offset of the object's byte at `at`, which is not its first.
    const fn frame_offset(&self, at: usize) -> usize {
        self.head.len() + self.types.len() + at
    }

    /// The pieces in the order of the frame.
    fn in_order(&self) -> [&[u8]; 5] {
        let (first, rest) = self.object.split_at(usize::from(!self.types.is_empty()));
        [self.head, first, self.types, rest, self.tail]
    }

    /// The frame offset of a text that was borrowed from the object; found by address, as `Bytes::slice_ref` does.
    fn offset_of(&self, text: &str) -> Option<usize> {
        let at = text
            .as_ptr()
            .addr()
            .checked_sub(self.object.as_ptr().addr())?;
        let is_inside = at <= self.object.len() && text.len() <= self.object.len() - at;
        is_inside.then_some(self.frame_offset(at))
    }
}

impl PackedBytes {
    pub(super) fn new(
        parts: &ObjectParts<'_>,
        encoding: Encoding,
        pieces: FramePieces<'_>,
    ) -> Self {
        let layout = PackedLayout::new(parts, pieces);
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, layout.len()).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            layout.write(parts, encoding, pieces, out);
        }
        Self(bytes)
    }

    #[expect(
        clippy::expect_used,
        reason = "the bytes always hold the numbers and the spans, and never change"
    )]
    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.0[at..]
            .first_chunk()
            .expect("packed bytes hold their numbers and spans")
    }

    fn number(&self, at: usize) -> usize {
        u32::from_le_bytes(self.read(at)) as usize
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.0[FLAGS] & flag != 0
    }

    pub(super) fn encoding(&self) -> Encoding {
        if self.has_flag(PROTOBUF) {
            Encoding::Protobuf
        } else {
            Encoding::Json
        }
    }

    pub(super) fn version(&self) -> ResourceVersion {
        ResourceVersion(u64::from_le_bytes(self.read(VERSION)))
    }

    /// Where in the frame the object starts.
    pub(super) fn start(&self) -> usize {
        self.number(START)
    }

    pub(super) fn type_prefix_len(&self) -> usize {
        self.number(TYPE_PREFIX_LEN)
    }

    pub(super) fn frame_len(&self) -> usize {
        self.number(FRAME_LEN)
    }

    fn body(&self) -> &[u8] {
        &self.0[self.number(BODY)..]
    }

    pub(super) fn frame(&self) -> &[u8] {
        &self.body()[..self.frame_len()]
    }

    /// Where in [`PackedBytes::as_ref`] the frame starts.
    pub(super) fn frame_at(&self) -> usize {
        self.number(BODY)
    }

    /// Bytes of memory, without the allocator's overhead.
    pub(super) fn memory_len(&self) -> usize {
        COUNTS_LEN + self.0.len()
    }

    /// Start and end of a text in the body.
    fn span(&self, text: usize) -> (usize, usize) {
        if self.has_flag(WIDE) {
            let at = SPANS + text * 8;
            (self.number(at), self.number(at + 4))
        } else {
            let at = SPANS + text * 4;
            let short = |at| usize::from(u16::from_le_bytes(self.read(at)));
            (short(at), short(at + 2))
        }
    }

    fn text_bytes(&self, text: usize) -> &[u8] {
        let (start, end) = self.span(text);
        &self.body()[start..end]
    }

    /// Texts are copied from `str`, so this never falls back to the empty string.
    fn text(&self, text: usize) -> &str {
        str::from_utf8(self.text_bytes(text)).unwrap_or_default()
    }

    /// Namespace and name.
    pub(super) fn key(&self) -> (&[u8], &[u8]) {
        (self.text_bytes(NAMESPACE), self.text_bytes(NAME))
    }

    pub(super) fn uid(&self) -> &str {
        self.text(UID)
    }

    /// Where the version's digits are in the object.
    pub(super) fn version_span(&self) -> ByteSpan {
        let (start, end) = self.span(DIGITS);
        let from = |at: usize| offset(at - self.start());
        ByteSpan {
            start: from(start),
            end: from(end),
        }
    }

    fn field_count(&self) -> usize {
        usize::from(u16::from_le_bytes(self.read(FIELDS)))
    }

    pub(super) fn field(&self, index: usize) -> Option<&str> {
        (index < self.field_count()).then(|| self.text(FIRST_FIELD + index))
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        (FIRST_FIELD..FIRST_FIELD + self.field_count()).map(|text| self.text(text))
    }

    /// The index of the first label's key, and one past the index of the last label's value; each value follows its key.
    fn label_spans(&self) -> (usize, usize) {
        let span_len = if self.has_flag(WIDE) { 8 } else { 4 };
        let end = (self.number(BODY) - SPANS) / span_len;
        (FIRST_FIELD + self.field_count(), end)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let (first, end) = self.label_spans();
        (first..end)
            .step_by(2)
            .map(|key| (self.text(key), self.text(key + 1)))
    }

    /// The value of the first label with this key.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let (first, end) = self.label_spans();
        let key_at = |label: usize| self.text_bytes(first + 2 * label);
        let count = (end - first) / 2;
        let (mut low, mut high) = (0, count);
        while low < high {
            #[cfg(test)]
            tests::COMPARED.set(tests::COMPARED.get() + 1);
            let middle = low.midpoint(high);
            if key_at(middle) < key.as_bytes() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let is_found = low < count && key_at(low) == key.as_bytes();
        is_found.then(|| self.text(first + 2 * low + 1))
    }
}

impl AsRef<[u8]> for PackedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Where each text goes, and how long the body is.
struct PackedLayout {
    spans: SmallVec<[(usize, usize); 32]>,
    body_len: usize,
    is_wide: bool,
}

impl PackedLayout {
    fn new(parts: &ObjectParts<'_>, pieces: FramePieces<'_>) -> Self {
        let mut body_len = pieces.len();
        let mut span_of = |text: &str| {
            let start = match pieces.offset_of(text) {
                _ if text.is_empty() => 0,
                Some(start) => start,
                None => {
                    body_len += text.len();
                    body_len - text.len()
                }
            };
            (start, start + text.len())
        };
        let mut spans: SmallVec<[_; 32]> = [&parts.name, &parts.namespace, &parts.uid]
            .map(|text| span_of(text))
            .into_iter()
            .collect();
        let digits = [parts.version_span.start, parts.version_span.end];
        let [start, end] = digits.map(|at| pieces.frame_offset(at as usize));
        spans.push((start, end));
        spans.extend(parts.fields.iter().map(|text| span_of(text)));
        let first_label = spans.len();
        for (key, value) in &parts.labels {
            spans.extend([span_of(key), span_of(value)]);
        }
        sort_labels(parts, &mut spans[first_label..]);
        Self {
            spans,
            body_len,
            is_wide: u16::try_from(body_len).is_err(),
        }
    }

    fn body_at(&self) -> usize {
        SPANS + self.spans.len() * if self.is_wide { 8 } else { 4 }
    }

    fn len(&self) -> usize {
        self.body_at() + self.body_len
    }

    fn write(
        &self,
        parts: &ObjectParts<'_>,
        encoding: Encoding,
        pieces: FramePieces<'_>,
        out: &mut [u8],
    ) {
        let mut out = Cursor { out, at: 0 };
        let flags = [
            (self.is_wide, WIDE),
            (encoding == Encoding::Protobuf, PROTOBUF),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        // Field tables are compiled in, with far fewer fields than fit in 16 bits.
        let fields = u16::try_from(parts.fields.len()).unwrap_or(u16::MAX);
        out.put(&parts.resource_version.0.to_le_bytes());
        for number in [self.body_at(), pieces.len(), pieces.head.len()] {
            out.put(&offset(number).to_le_bytes());
        }
        let type_prefix_len = parts.type_prefix_len + offset(pieces.types.len());
        out.put(&type_prefix_len.to_le_bytes());
        out.put(&fields.to_le_bytes());
        out.put(&[flags.map(|(_, flag)| flag).sum(), 0]);
        for (start, end) in &self.spans {
            for number in [*start, *end].map(offset) {
                let bytes = number.to_le_bytes();
                out.put(if self.is_wide { &bytes } else { &bytes[..2] });
            }
        }
        for piece in pieces.in_order() {
            out.put(piece);
        }
        let texts = [&parts.name, &parts.namespace, &parts.uid].into_iter();
        let labels = parts.labels.iter().flat_map(|(key, value)| [key, value]);
        for text in texts.chain(&parts.fields).chain(labels) {
            if pieces.offset_of(text).is_none() {
                out.put(text.as_bytes());
            }
        }
    }
}

/// Sorts the labels' spans by key; labels with equal keys keep their order. Servers write labels sorted, so this usually has
/// nothing to do.
fn sort_labels(parts: &ObjectParts<'_>, spans: &mut [(usize, usize)]) {
    let labels = &parts.labels;
    if labels.is_sorted_by(|(key, _), (next, _)| key <= next) {
        return;
    }
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|label| &labels[*label].0);
    let unsorted = spans.to_vec();
    for (index, label) in order.into_iter().enumerate() {
        spans[2 * index] = unsorted[2 * label];
        spans[2 * index + 1] = unsorted[2 * label + 1];
    }
}

struct Cursor<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.at + bytes.len();
        self.out[self.at..end].copy_from_slice(bytes);
        self.at = end;
    }
}

#[expect(
    clippy::expect_used,
    reason = "frames are bounded far below 4 GiB where they are read"
)]
pub(super) fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a frame is shorter than 4 GiB")
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use crate::resource::{Object, ObjectParts};

    thread_local! {
        /// Number of keys that label lookups have compared.
        pub(in crate::resource::object) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_label_is_found_in_few_steps_among_many() {
        let labels: Vec<_> = (0..10_000)
            .rev()
            .map(|index| (format!("k{index:05}").into(), index.to_string().into()))
            .collect();
        let parts = ObjectParts {
            labels,
            ..ObjectParts::default()
        };
        let object = Object::new(parts, b"{}");
        assert_eq!(object.label("k00000"), Some("0"));
        assert_eq!(object.label("k09999"), Some("9999"));
        COMPARED.set(0);
        for index in 0..100 {
            assert_eq!(
                object.label(&format!("k{index:05}")),
                Some(&*index.to_string())
            );
            assert_eq!(object.label(&format!("absent{index}")), None);
        }
        // Fourteen steps halve 10,000 to one.
        assert!(
            COMPARED.get() <= 200 * 14,
            "{} keys compared",
            COMPARED.get()
        );
    }
}
