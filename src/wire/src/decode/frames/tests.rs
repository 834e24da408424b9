//! Framing: any way of cutting a stream into chunks gives the same frames.

use proptest::prelude::*;

use super::*;

const fn lines(frame_len_max: usize) -> Frames {
    Frames::new(Encoding::Json, frame_len_max)
}

const fn counted(frame_len_max: usize) -> Frames {
    Frames::new(Encoding::Protobuf, frame_len_max)
}

fn taken(framer: &mut Frames) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = framer.next_frame().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

const LINE_STREAM: &[u8] = b"{\"a\":1}\n\n{\"bb\":\"\xc3\xa9\"}\n\n\n{}\n{\"rest\":";
const LINES: [&[u8]; 3] = [b"{\"a\":1}\n", b"{\"bb\":\"\xc3\xa9\"}\n", b"{}\n"];

#[test]
fn every_chunk_length_gives_the_same_lines() {
    for chunk_len in 1..=LINE_STREAM.len() {
        let mut framer = lines(64);
        let mut found = Vec::new();
        for chunk in LINE_STREAM.chunks(chunk_len) {
            framer.push(chunk);
            found.extend(taken(&mut framer));
        }
        assert_eq!(found, LINES, "chunks of {chunk_len}");
        assert!(framer.is_mid_frame());
    }
}

/// Cuts a stream that ends within a frame at every pair of positions, and expects these frames each time.
#[track_caller]
fn check_cuts(encoding: Encoding, stream: &[u8], expected: &[&[u8]]) {
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            let mut framer = Frames::new(encoding, 64);
            let mut found = Vec::new();
            for chunk in [&stream[..first], &stream[first..second], &stream[second..]] {
                framer.push(chunk);
                found.extend(taken(&mut framer));
            }
            assert_eq!(found, expected, "cut at {first} and {second}");
            assert!(framer.is_mid_frame());
        }
    }
}

#[test]
fn every_pair_of_cuts_gives_the_same_lines() {
    check_cuts(Encoding::Json, LINE_STREAM, &LINES);
}

#[test]
fn lines_may_be_taken_late() {
    let mut framer = lines(64);
    let mut found = Vec::new();
    for chunk in LINE_STREAM.chunks(5) {
        framer.push(chunk);
        found.extend(framer.next_frame().unwrap().map(<[u8]>::to_vec));
    }
    found.extend(taken(&mut framer));
    assert_eq!(found, LINES);
}

#[test]
fn a_line_as_long_as_the_limit_passes_and_one_byte_more_does_not() {
    let mut framer = lines(4);
    framer.push(b"abcd\nabcde\n");
    assert_eq!(framer.next_frame(), Ok(Some(&b"abcd\n"[..])));
    let refused = Err(FrameTooLong { frame_len_max: 4 });
    assert_eq!(framer.next_frame(), refused);
    assert_eq!(framer.next_frame(), refused);
}

#[test]
fn an_unfinished_line_over_the_limit_is_refused_before_its_end() {
    let mut framer = lines(4);
    framer.push(b"abcd");
    assert_eq!(framer.next_frame(), Ok(None));
    framer.push(b"e");
    assert!(framer.next_frame().is_err());
}

#[test]
fn a_stream_that_ends_after_a_newline_was_not_cut() {
    let mut framer = lines(64);
    assert!(!framer.is_mid_frame());
    framer.push(b"{}\n");
    assert!(framer.next_frame().unwrap().is_some());
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(!framer.is_mid_frame());
}

#[test]
fn a_large_buffer_is_given_back_when_empty() {
    let mut framer = lines(1 << 20);
    framer.push(&vec![b'x'; 1 << 19]);
    assert_eq!(framer.next_frame(), Ok(None));
    framer.push(b"\n");
    assert!(framer.next_frame().unwrap().is_some());
    assert_eq!(framer.next_frame(), Ok(None));
    assert_eq!(framer.capacity(), 0);
}

const COUNTED_STREAM: &[u8] = b"\0\0\0\x01a\0\0\0\0\0\0\0\x05\0\0\0\x01b\0\0\0\x02c";
const COUNTED: [&[u8]; 3] = [b"\0\0\0\x01a", b"\0\0\0\0", b"\0\0\0\x05\0\0\0\x01b"];

#[test]
fn every_pair_of_cuts_gives_the_same_counted_frames() {
    check_cuts(Encoding::Protobuf, COUNTED_STREAM, &COUNTED);
}

#[test]
fn a_counted_frame_as_long_as_the_limit_passes_and_one_byte_more_does_not() {
    let mut framer = counted(4);
    framer.push(b"\0\0\0\x04abcd\0\0\0\x05");
    assert_eq!(framer.next_frame(), Ok(Some(&b"\0\0\0\x04abcd"[..])));
    let refused = Err(FrameTooLong { frame_len_max: 4 });
    assert_eq!(framer.next_frame(), refused);
    assert_eq!(framer.next_frame(), refused);
}

#[test]
fn a_length_reserves_nothing() {
    let mut framer = counted(usize::MAX);
    framer.push(b"\xff\xff\xff\xff");
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(framer.capacity() < 1024);
    assert!(framer.is_mid_frame());
}

#[test]
fn a_large_buffer_of_a_counted_frame_is_given_back() {
    let mut framer = counted(1 << 20);
    framer.push(b"\0\x08\0\0");
    framer.push(&vec![b'x'; 1 << 19]);
    assert!(framer.next_frame().unwrap().is_some());
    assert_eq!(framer.next_frame(), Ok(None));
    assert_eq!(framer.capacity(), 0);
    assert!(!framer.is_mid_frame());
}

proptest! {
    #[test]
    fn chunks_mean_nothing_to_counted_frames(bodies: Vec<Vec<u8>>, cuts: Vec<u8>) {
        let framed = |body: &Vec<u8>| {
            [&u32::try_from(body.len()).unwrap().to_be_bytes(), &body[..]].concat()
        };
        let expected: Vec<_> = bodies.iter().map(framed).collect();
        let stream = expected.concat();
        let mut framer = counted(1 << 10);
        let mut frames = Vec::new();
        let mut left = &stream[..];
        for cut in cuts.into_iter().map(usize::from).chain([stream.len()]) {
            let (chunk, rest) = left.split_at(cut.min(left.len()));
            left = rest;
            framer.push(chunk);
            frames.extend(taken(&mut framer));
        }
        prop_assert_eq!(frames, expected);
        prop_assert!(!framer.is_mid_frame());
    }
}
