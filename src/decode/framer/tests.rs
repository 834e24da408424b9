//! Framing: any way of cutting a stream into chunks gives the same lines.

use super::*;

fn lines_of(framer: &mut LineFramer) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    while let Some(line) = framer.next_line().unwrap() {
        lines.push(line.to_vec());
    }
    lines
}

const STREAM: &[u8] = b"{\"a\":1}\n\n{\"bb\":\"\xc3\xa9\"}\n\n\n{}\n{\"rest\":";
const LINES: [&[u8]; 3] = [b"{\"a\":1}\n", b"{\"bb\":\"\xc3\xa9\"}\n", b"{}\n"];

#[test]
fn every_chunk_length_gives_the_same_lines() {
    for chunk_len in 1..=STREAM.len() {
        let mut framer = LineFramer::new(64);
        let mut lines = Vec::new();
        for chunk in STREAM.chunks(chunk_len) {
            framer.push(chunk);
            lines.extend(lines_of(&mut framer));
        }
        assert_eq!(lines, LINES, "chunks of {chunk_len}");
        assert!(framer.is_mid_frame());
    }
}

#[test]
fn every_pair_of_cuts_gives_the_same_lines() {
    for first in 0..=STREAM.len() {
        for second in first..=STREAM.len() {
            let mut framer = LineFramer::new(64);
            let mut lines = Vec::new();
            for chunk in [&STREAM[..first], &STREAM[first..second], &STREAM[second..]] {
                framer.push(chunk);
                lines.extend(lines_of(&mut framer));
            }
            assert_eq!(lines, LINES, "cut at {first} and {second}");
        }
    }
}

#[test]
fn lines_may_be_taken_late() {
    let mut framer = LineFramer::new(64);
    let mut lines = Vec::new();
    for chunk in STREAM.chunks(5) {
        framer.push(chunk);
        lines.extend(framer.next_line().unwrap().map(|line| line.to_vec()));
    }
    lines.extend(lines_of(&mut framer));
    assert_eq!(lines, LINES);
}

#[test]
fn a_line_as_long_as_the_limit_passes_and_one_byte_more_does_not() {
    let mut framer = LineFramer::new(4);
    framer.push(b"abcd\nabcde\n");
    assert_eq!(framer.next_line(), Ok(Some(Bytes::from_static(b"abcd\n"))));
    let refused = Err(FrameTooLong { frame_len_max: 4 });
    assert_eq!(framer.next_line(), refused);
    assert_eq!(framer.next_line(), refused);
}

#[test]
fn an_unfinished_line_over_the_limit_is_refused_before_its_end() {
    let mut framer = LineFramer::new(4);
    framer.push(b"abcd");
    assert_eq!(framer.next_line(), Ok(None));
    framer.push(b"e");
    assert!(framer.next_line().is_err());
}

#[test]
fn a_stream_that_ends_after_a_newline_was_not_cut() {
    let mut framer = LineFramer::new(64);
    assert!(!framer.is_mid_frame());
    framer.push(b"{}\n");
    assert!(framer.next_line().unwrap().is_some());
    assert_eq!(framer.next_line(), Ok(None));
    assert!(!framer.is_mid_frame());
}

#[test]
fn a_large_buffer_is_given_back_when_empty() {
    let mut framer = LineFramer::new(1 << 20);
    framer.push(&vec![b'x'; 1 << 19]);
    assert_eq!(framer.next_line(), Ok(None));
    framer.push(b"\n");
    assert!(framer.next_line().unwrap().is_some());
    assert_eq!(framer.next_line(), Ok(None));
    assert_eq!(framer.capacity(), 0);
}

#[test]
fn a_line_does_not_share_the_buffer() {
    let mut framer = LineFramer::new(64);
    framer.push(b"one\ntwo\n");
    let line = framer.next_line().unwrap().unwrap();
    assert!(line.is_unique());
    assert_eq!(Vec::from(line).capacity(), 4);
}
