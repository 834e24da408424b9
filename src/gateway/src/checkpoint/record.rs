//! Records: what a block holds, each with a type and, where it has bytes, their length.

use crate::resource::{EventKind, ResourceVersion};

const HEADER: u8 = 1;
const OBJECT: u8 = 2;
const BASE_END: u8 = 3;
const EVENT: u8 = 4;
const VERSION: u8 = 5;
const PROVEN: u8 = 6;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The file's header, JSON. The first record.
    Header(&'a [u8]),
    /// An object of the base, as a watch frame. Ordered by key.
    Object(&'a [u8]),
    /// The base is complete; it has this many objects.
    BaseEnd(u64),
    /// An event of the history.
    Event {
        kind: EventKind,
        /// When it was published, in milliseconds since 1970.
        at_ms: u64,
        /// The object's frame; its type may be another one than the event's.
        frame: &'a [u8],
    },
    /// The resource has reached this version, with all records before this one.
    Version(ResourceVersion),
    /// With all records before this one the state was proven to be upstream's at this version, which clients may have.
    Proven(ResourceVersion),
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Header(json) => {
                out.push(HEADER);
                push_bytes(out, json);
            }
            Self::Object(frame) => {
                out.push(OBJECT);
                push_bytes(out, frame);
            }
            Self::BaseEnd(count) => {
                out.push(BASE_END);
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::Event { kind, at_ms, frame } => {
                out.push(EVENT);
                out.push(kind_code(*kind));
                out.extend_from_slice(&at_ms.to_le_bytes());
                push_bytes(out, frame);
            }
            Self::Version(version) => {
                out.push(VERSION);
                out.extend_from_slice(&version.0.to_le_bytes());
            }
            Self::Proven(version) => {
                out.push(PROVEN);
                out.extend_from_slice(&version.0.to_le_bytes());
            }
        }
    }

    /// Takes the first record of the bytes; `None` if they do not begin with a whole record.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let [code] = take_array(bytes)?;
        Some(match code {
            HEADER => Self::Header(take_bytes(bytes)?),
            OBJECT => Self::Object(take_bytes(bytes)?),
            BASE_END => Self::BaseEnd(take_number(bytes)?),
            EVENT => {
                let [kind] = take_array(bytes)?;
                Self::Event {
                    kind: kind_of(kind)?,
                    at_ms: take_number(bytes)?,
                    frame: take_bytes(bytes)?,
                }
            }
            VERSION => Self::Version(ResourceVersion(take_number(bytes)?)),
            PROVEN => Self::Proven(ResourceVersion(take_number(bytes)?)),
            _ => return None,
        })
    }
}

/// Frames and headers are shorter than 4 GiB; a longer one would be cut, and the reader refuse the file.
fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*array)
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    take_array(bytes).map(u64::from_le_bytes)
}

fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take_array(bytes)?) as usize;
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

const fn kind_code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Added => 1,
        EventKind::Modified => 2,
        EventKind::Deleted => 3,
    }
}

const fn kind_of(code: u8) -> Option<EventKind> {
    match code {
        1 => Some(EventKind::Added),
        2 => Some(EventKind::Modified),
        3 => Some(EventKind::Deleted),
        _ => None,
    }
}
