//! Any cut of any bytes into chunks gives the lines that splitting at newlines gives.
#![no_main]

use kube_fanout::decode::LineFramer;
use libfuzzer_sys::fuzz_target;

const FRAME_LEN_MAX: usize = 48;

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (bytes, cuts) = input;
    let mut framer = LineFramer::new(FRAME_LEN_MAX);
    let mut expected = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect::<Vec<_>>();
    let rest = expected.pop().unwrap_or_default();
    let is_short = expected
        .iter()
        .chain([&rest])
        .all(|line| line.len() <= FRAME_LEN_MAX);
    expected.retain(|line| !line.is_empty());

    let mut lines = Vec::new();
    let mut left = &bytes[..];
    let mut cuts = cuts.into_iter();
    while !left.is_empty() {
        let len = cuts
            .next()
            .map_or(left.len(), usize::from)
            .clamp(1, left.len());
        framer.push(&left[..len]);
        left = &left[len..];
        loop {
            match framer.next_line() {
                Ok(Some(line)) => lines.push(line.to_vec()),
                Ok(None) => break,
                Err(_) => {
                    assert!(!is_short);
                    assert!(expected.starts_with(&lines));
                    return;
                }
            }
        }
    }
    assert!(is_short);
    assert_eq!(lines, expected);
    assert_eq!(framer.is_mid_frame(), !rest.is_empty());
});
