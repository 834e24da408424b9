//! Splitting any bytes into any chunks gives the lines that splitting at newlines gives. The first four bytes are the lengths of the
//! chunks, repeated; the rest is the data.
#![no_main]

use kube_fanout::decode::Frames;
use kube_fanout::resource::Encoding;
use libfuzzer_sys::fuzz_target;

const FRAME_LEN_MAX: usize = 48;

fuzz_target!(|input: &[u8]| {
    let Some((cuts, bytes)) = input.split_first_chunk::<4>() else {
        return;
    };
    let mut framer = Frames::new(Encoding::Json, FRAME_LEN_MAX);
    let mut expected = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>();
    let rest = expected.pop_if(|line| !line.ends_with(b"\n"));
    let is_short = expected
        .iter()
        .map(|line| line.len() - 1)
        .chain(rest.iter().map(Vec::len))
        .all(|len| len <= FRAME_LEN_MAX);
    expected.retain(|line| line.len() > 1);

    let mut lines = Vec::new();
    let mut left = bytes;
    let mut cuts = cuts.iter().cycle();
    while !left.is_empty() {
        let len = cuts.next().map_or(1, |len| usize::from(*len));
        let (chunk, tail) = left.split_at(len.clamp(1, left.len()));
        framer.push(chunk);
        left = tail;
        loop {
            match framer.next_frame() {
                Ok(Some(line)) => lines.push(line.to_vec()),
                Ok(None) => break,
                Err(_) => {
                    assert!(!is_short);
                    assert!(expected.starts_with(&lines));
                    assert!(framer.next_frame().is_err(), "the error stays");
                    return;
                }
            }
        }
        assert!(framer.capacity() <= 2 * (FRAME_LEN_MAX + 1 + 255) + 64);
    }
    assert!(is_short);
    assert_eq!(lines, expected);
    assert_eq!(framer.is_mid_frame(), rest.is_some());
});
