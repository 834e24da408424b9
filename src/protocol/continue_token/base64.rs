//! URL-safe base64 without padding. Decoding is as lenient as Go's, and names the byte that Go names: clients see that index in the error, and
//! decoders of crates report other ones.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The decoded bytes, or the index of the first wrong byte of the text.
pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, usize> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut group, mut digits) = (0_u32, 0_u8);
    for (at, byte) in text.iter().enumerate() {
        if matches!(byte, b'\r' | b'\n') {
            continue;
        }
        group = group << 6 | digit(*byte).ok_or(at)?;
        digits += 1;
        if digits == 4 {
            out.extend_from_slice(&group.to_be_bytes()[1..]);
            (group, digits) = (0, 0);
        }
    }
    match digits {
        // One digit is less than a byte; the error names the digit's index.
        1 => return Err(text.len() - 1),
        2 => out.extend_from_slice(&(group << 12).to_be_bytes()[1..2]),
        3 => out.extend_from_slice(&(group << 6).to_be_bytes()[1..3]),
        _ => {}
    }
    Ok(out)
}

fn digit(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(digit.into())
}
