//! Framing: any way of cutting a stream into chunks gives the same frames.

use proptest::prelude::*;

use super::*;

fn frames_of(framer: &mut LengthFramer) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while let Some(frame) = framer.next_frame().unwrap() {
        frames.push(frame.to_vec());
    }
    frames
}

const STREAM: &[u8] = b"\0\0\0\x01a\0\0\0\0\0\0\0\x05\0\0\0\x01b\0\0\0\x02c";
const FRAMES: [&[u8]; 3] = [b"\0\0\0\x01a", b"\0\0\0\0", b"\0\0\0\x05\0\0\0\x01b"];

#[test]
fn every_pair_of_cuts_gives_the_same_frames() {
    for first in 0..=STREAM.len() {
        for second in first..=STREAM.len() {
            let mut framer = LengthFramer::new(64);
            let mut frames = Vec::new();
            for chunk in [&STREAM[..first], &STREAM[first..second], &STREAM[second..]] {
                framer.push(chunk);
                frames.extend(frames_of(&mut framer));
            }
            assert_eq!(frames, FRAMES, "cut at {first} and {second}");
            assert!(framer.is_mid_frame());
        }
    }
}

#[test]
fn a_frame_as_long_as_the_limit_passes_and_one_byte_more_does_not() {
    let mut framer = LengthFramer::new(4);
    framer.push(b"\0\0\0\x04abcd\0\0\0\x05");
    assert_eq!(
        framer.next_frame(),
        Ok(Some(Bytes::from_static(b"\0\0\0\x04abcd")))
    );
    let refused = Err(FrameTooLong { frame_len_max: 4 });
    assert_eq!(framer.next_frame(), refused);
    assert_eq!(framer.next_frame(), refused);
}

#[test]
fn a_length_reserves_nothing() {
    let mut framer = LengthFramer::new(usize::MAX);
    framer.push(b"\xff\xff\xff\xff");
    assert_eq!(framer.next_frame(), Ok(None));
    assert!(framer.capacity() < 1024);
    assert!(framer.is_mid_frame());
}

#[test]
fn a_large_buffer_is_given_back_when_empty() {
    let mut framer = LengthFramer::new(1 << 20);
    framer.push(b"\0\x08\0\0");
    framer.push(&vec![b'x'; 1 << 19]);
    assert!(framer.next_frame().unwrap().is_some());
    assert_eq!(framer.next_frame(), Ok(None));
    assert_eq!(framer.capacity(), 0);
    assert!(!framer.is_mid_frame());
}

#[test]
fn a_frame_does_not_share_the_buffer() {
    let mut framer = LengthFramer::new(64);
    framer.push(STREAM);
    let frame = framer.next_frame().unwrap().unwrap();
    assert!(frame.is_unique());
    assert_eq!(Vec::from(frame).capacity(), 5);
}

proptest! {
    #[test]
    fn chunks_mean_nothing(bodies: Vec<Vec<u8>>, cuts: Vec<u8>) {
        let framed = |body: &Vec<u8>| {
            [&u32::try_from(body.len()).unwrap().to_be_bytes(), &body[..]].concat()
        };
        let expected: Vec<_> = bodies.iter().map(framed).collect();
        let stream = expected.concat();
        let mut framer = LengthFramer::new(1 << 10);
        let mut frames = Vec::new();
        let mut left = &stream[..];
        for cut in cuts.into_iter().map(usize::from).chain([stream.len()]) {
            let (chunk, rest) = left.split_at(cut.min(left.len()));
            left = rest;
            framer.push(chunk);
            frames.extend(frames_of(&mut framer));
        }
        prop_assert_eq!(frames, expected);
        prop_assert!(!framer.is_mid_frame());
    }
}
