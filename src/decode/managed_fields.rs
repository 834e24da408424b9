//! Leaves `metadata.managedFields` out of an object, which is often a quarter of it.

use super::walk::members;
use crate::resource::Span;

/// A copy of an object without the member; `None` if it has none, or is no compact JSON.
#[must_use]
pub fn without_managed_fields(object: &[u8]) -> Option<Vec<u8>> {
    let cut = managed_fields(object)?;
    let (head, tail) = (&object[..cut.start as usize], &object[cut.end as usize..]);
    Some([head, tail].concat())
}

/// Where the member stands, with the comma that goes with it.
fn managed_fields(object: &[u8]) -> Option<Span> {
    let metadata = member(object, "metadata")?;
    let fields = metadata.of(object);
    let found = members(fields).ok()?;
    let place = found.iter().position(|(key, _)| *key == "managedFields")?;
    let (key_len, value) = (found[place].0.len(), found[place].1);
    // Compact JSON: key in quotes, colon, value.
    let at = (value.start as usize).checked_sub(key_len + 3)?;
    let end = value.end as usize;
    let (start, end) = if place > 0 {
        (at.checked_sub(1)?, end)
    } else {
        (at, if found.len() > 1 { end + 1 } else { end })
    };
    let is_whole = start < at && fields[start] == b',' || start == at;
    let offset = metadata.start;
    is_whole.then_some(Span {
        start: offset + u32::try_from(start).ok()?,
        end: offset + u32::try_from(end).ok()?,
    })
}

fn member(object: &[u8], name: &str) -> Option<Span> {
    let found = members(object).ok()?;
    found
        .into_iter()
        .find_map(|(key, span)| (key == name).then_some(span))
}
