//! An object in one allocation: numbers, places of texts, the frame, and what texts do not stand in it.
//!
//! ```text
//! ┌─────────┬────────────────────┬─ body ─────────────────────────────────┐
//! │ numbers │ place of each text │ frame (head, object, tail) │ odd texts │
//! └─────────┴────────────────────┴────────────────────────────────────────┘
//! ```
//! A text is usually a place within the object's own bytes; one that was escaped there, or that is the default of an absent
//! field, is an odd text. Places count from the body's first byte and take two bytes a number where the body is short
//! enough, else four. All numbers are little-endian. Labels are in the order of their keys, so that one is found in few
//! steps among many: an object may have as many as fit in it. Knows nothing of what frames look like.

use std::iter;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{ByteSpan, ObjectParts, offset};
use crate::resource::{Encoding, ResourceVersion};

/// Where the numbers stand.
const VERSION: usize = 0;
const BODY: usize = 8;
const FRAME_LEN: usize = 12;
const START: usize = 16;
const TYPE_PREFIX_LEN: usize = 20;
const FIELDS: usize = 24;
const FLAGS: usize = 26;
const PLACES: usize = 28;

const WIDE: u8 = 1;
const PROTOBUF: u8 = 2;

/// Texts that every object has, by their place among the places. Fields follow, then keys and values of labels in turn.
const NAME: usize = 0;
const NAMESPACE: usize = 1;
const UID: usize = 2;
const DIGITS: usize = 3;
const FIRST_FIELD: usize = 4;

/// The bytes of the allocation. Two counts of references stand before them.
#[derive(Clone)]
pub(super) struct PackedBytes(Arc<[u8]>);

/// What a [`PackedBytes`] costs besides its bytes.
const COUNTS_LEN: usize = 2 * size_of::<usize>();

/// A frame in the pieces that it is put together from.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePieces<'a> {
    /// What stands before the object.
    pub(super) head: &'a [u8],
    /// The object: spans count from here.
    pub(super) object: &'a [u8],
    /// What is put in behind the object's first byte, which spans do not count; may be empty.
    pub(super) types: &'a [u8],
    /// What stands behind it.
    pub(super) tail: &'a [u8],
}

impl FramePieces<'_> {
    const fn len(&self) -> usize {
        self.head.len() + self.object.len() + self.types.len() + self.tail.len()
    }

    /// Where in the frame a byte of the object stands that is not its first.
    const fn place(&self, at: usize) -> usize {
        self.head.len() + self.types.len() + at
    }

    /// The pieces in the order of the frame.
    fn in_order(&self) -> [&[u8]; 5] {
        let (first, rest) = self.object.split_at(usize::from(!self.types.is_empty()));
        [self.head, first, self.types, rest, self.tail]
    }

    /// Where in the frame a text stands that was borrowed from the object, as `Bytes::slice_ref` finds it out.
    fn place_of(&self, text: &str) -> Option<usize> {
        let at = text
            .as_ptr()
            .addr()
            .checked_sub(self.object.as_ptr().addr())?;
        let is_inside = at <= self.object.len() && text.len() <= self.object.len() - at;
        is_inside.then_some(self.place(at))
    }
}

impl PackedBytes {
    pub(super) fn new(
        parts: &ObjectParts<'_>,
        encoding: Encoding,
        pieces: FramePieces<'_>,
    ) -> Self {
        let plan = PackedLayout::new(parts, pieces);
        let mut bytes: Arc<[u8]> = iter::repeat_n(0, plan.len()).collect();
        if let Some(out) = Arc::get_mut(&mut bytes) {
            plan.write(parts, encoding, pieces, out);
        }
        Self(bytes)
    }

    #[expect(
        clippy::expect_used,
        reason = "written with its numbers and places, and never changed"
    )]
    fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.0[at..]
            .first_chunk()
            .expect("bytes as they were laid out")
    }

    fn number(&self, at: usize) -> usize {
        u32::from_le_bytes(self.read(at)) as usize
    }

    fn is(&self, flag: u8) -> bool {
        self.0[FLAGS] & flag != 0
    }

    pub(super) fn encoding(&self) -> Encoding {
        if self.is(PROTOBUF) {
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

    /// Where the frame starts in [`PackedBytes::as_ref`].
    pub(super) fn frame_at(&self) -> usize {
        self.number(BODY)
    }

    /// Bytes of memory, but for what an allocator adds.
    pub(super) fn memory_len(&self) -> usize {
        COUNTS_LEN + self.0.len()
    }

    /// Start and end of a text in the body.
    fn place(&self, text: usize) -> (usize, usize) {
        if self.is(WIDE) {
            let at = PLACES + text * 8;
            (self.number(at), self.number(at + 4))
        } else {
            let at = PLACES + text * 4;
            let short = |at| usize::from(u16::from_le_bytes(self.read(at)));
            (short(at), short(at + 2))
        }
    }

    fn text_bytes(&self, text: usize) -> &[u8] {
        let (start, end) = self.place(text);
        &self.body()[start..end]
    }

    /// Texts were `str` when they were written, and are still: this cannot fail.
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

    /// Where the version's digits stand in the object.
    pub(super) fn version_span(&self) -> ByteSpan {
        let (start, end) = self.place(DIGITS);
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

    /// The first label's key among the places, and one past the last label's value; a value follows its key.
    fn label_places(&self) -> (usize, usize) {
        let place_len = if self.is(WIDE) { 8 } else { 4 };
        let end = (self.number(BODY) - PLACES) / place_len;
        (FIRST_FIELD + self.field_count(), end)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let (first, end) = self.label_places();
        (first..end)
            .step_by(2)
            .map(|key| (self.text(key), self.text(key + 1)))
    }

    /// The value of the first label with this key.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let (first, end) = self.label_places();
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

/// Where everything will stand.
struct PackedLayout {
    places: SmallVec<[(usize, usize); 32]>,
    body_len: usize,
    is_wide: bool,
}

impl PackedLayout {
    fn new(parts: &ObjectParts<'_>, pieces: FramePieces<'_>) -> Self {
        let mut body_len = pieces.len();
        let mut place = |text: &str| {
            let start = match pieces.place_of(text) {
                _ if text.is_empty() => 0,
                Some(start) => start,
                None => {
                    body_len += text.len();
                    body_len - text.len()
                }
            };
            (start, start + text.len())
        };
        let mut places: SmallVec<[_; 32]> = [&parts.name, &parts.namespace, &parts.uid]
            .map(|text| place(text))
            .into_iter()
            .collect();
        let digits = [parts.version_span.start, parts.version_span.end];
        let [start, end] = digits.map(|at| pieces.place(at as usize));
        places.push((start, end));
        places.extend(parts.fields.iter().map(|text| place(text)));
        let first_label = places.len();
        for (key, value) in &parts.labels {
            places.extend([place(key), place(value)]);
        }
        sort_labels(parts, &mut places[first_label..]);
        Self {
            places,
            body_len,
            is_wide: u16::try_from(body_len).is_err(),
        }
    }

    fn body_at(&self) -> usize {
        PLACES + self.places.len() * if self.is_wide { 8 } else { 4 }
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
        // A table has at most as many fields as a word has bits.
        let fields = u16::try_from(parts.fields.len()).unwrap_or(u16::MAX);
        out.put(&parts.resource_version.0.to_le_bytes());
        for number in [self.body_at(), pieces.len(), pieces.head.len()] {
            out.put(&offset(number).to_le_bytes());
        }
        let type_prefix_len = parts.type_prefix_len + offset(pieces.types.len());
        out.put(&type_prefix_len.to_le_bytes());
        out.put(&fields.to_le_bytes());
        out.put(&[flags.map(|(_, flag)| flag).sum(), 0]);
        for (start, end) in &self.places {
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
            if pieces.place_of(text).is_none() {
                out.put(text.as_bytes());
            }
        }
    }
}

/// Brings the labels' places into the order of their keys; of equal keys the first stays the first. Servers write them in this
/// order, so that there is usually nothing to do.
fn sort_labels(parts: &ObjectParts<'_>, places: &mut [(usize, usize)]) {
    let labels = &parts.labels;
    if labels.is_sorted_by(|(key, _), (next, _)| key <= next) {
        return;
    }
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|label| &labels[*label].0);
    let as_written = places.to_vec();
    for (place, label) in order.into_iter().enumerate() {
        places[2 * place] = as_written[2 * label];
        places[2 * place + 1] = as_written[2 * label + 1];
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

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use crate::resource::{Object, ObjectParts};

    thread_local! {
        /// Keys that were compared to find labels.
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
        // Fourteen steps halve 10,000 down to one.
        assert!(
            COMPARED.get() <= 200 * 14,
            "{} keys compared",
            COMPARED.get()
        );
    }
}
