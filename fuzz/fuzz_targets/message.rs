//! A simple protobuf reader, for comparison: every field of a number, by the specification, without optimisations.

/// The values of all length-delimited fields with this number; `None` if the bytes are not a message.
pub fn all(mut bytes: &[u8], number: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let len = match tag & 7 {
            0 => {
                varint(&mut bytes)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = bytes.split_at_checked(len)?;
        if tag == number << 3 | 2 {
            found.push(value);
        }
        bytes = rest;
    }
    Some(found)
}

/// The same values as text.
pub fn text(bytes: &[u8], number: u64) -> Option<Vec<&str>> {
    let found = all(bytes, number)?.into_iter();
    found.map(|value| std::str::from_utf8(value).ok()).collect()
}

/// At most ten bytes, of which the last contributes a single bit.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
