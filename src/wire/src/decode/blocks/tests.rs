//! Blocks compared with a scan byte by byte.

use proptest::prelude::*;

use super::*;

/// Brackets and backslashes outside of strings, found byte by byte. Ends with the first such backslash, where readers fail.
fn outside_of(text: &[u8]) -> Vec<(usize, u8)> {
    let (mut inside, mut escaped) = (false, false);
    let mut found = Vec::new();
    for (at, byte) in text.iter().copied().enumerate() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match byte {
            b'\\' => {
                if !inside {
                    found.push((at, byte));
                    return found;
                }
                escaped = true;
            }
            b'"' => inside = !inside,
            b'{' | b'}' | b'[' | b']' if !inside => found.push((at, byte)),
            _ => {}
        }
    }
    found
}

fn positions(bits: u64) -> impl Iterator<Item = usize> {
    (0..BLOCK_LEN).filter(move |at| bits >> at & 1 == 1)
}

fn by_blocks(text: &[u8]) -> Vec<(usize, u8)> {
    let mut carry = Carry::default();
    let mut found = Vec::new();
    for (index, piece) in text.chunks(BLOCK_LEN).enumerate() {
        let mut block = [b' '; BLOCK_LEN];
        block[..piece.len()].copy_from_slice(piece);
        let outside = BlockMasks::of(&block).outside(&mut carry);
        let start = index * BLOCK_LEN;
        let both = outside.brackets | outside.backslashes;
        found.extend(positions(both).map(|at| (start + at, piece[at])));
    }
    let backslash = found.iter().position(|(_, byte)| *byte == b'\\');
    found.truncate(backslash.map_or(found.len(), |at| at + 1));
    found
}

#[test]
fn runs_of_backslashes_of_any_length_anywhere_escape_every_other_byte() {
    for start in 0..70 {
        for len in 0..70 {
            let text = format!("{}\"{}\"{{]", "a".repeat(start), "\\".repeat(len));
            let bytes = text.as_bytes();
            assert_eq!(by_blocks(bytes), outside_of(bytes), "{text}");
        }
    }
}

#[test]
fn bytes_that_look_like_brackets_are_none() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let brackets: Vec<u8> = all
        .chunks(BLOCK_LEN)
        .flat_map(|piece| {
            let block = BlockMasks::of(piece.first_chunk().unwrap());
            positions(block.brackets).map(|at| piece[at])
        })
        .collect();
    assert_eq!(brackets, b"[]{}");
}

#[test]
fn a_string_ends_at_its_first_quote_or_backslash() {
    assert_eq!(first_in_string(b"0123456789abcdef"), None);
    assert_eq!(first_in_string(b"0123456789abcde\""), Some(15));
    assert_eq!(first_in_string(b"01\\3\"56789abcdef"), Some(2));
}

proptest! {
    #[test]
    fn blocks_show_what_single_bytes_show(
        text in proptest::collection::vec(prop::sample::select(b"\\\\\\\"\"{}[]a ,\x80".to_vec()), 0..300),
    ) {
        prop_assert_eq!(by_blocks(&text), outside_of(&text));
    }
}
