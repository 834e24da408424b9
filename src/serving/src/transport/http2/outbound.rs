//! Follows the frames that h2 writes: which of them are withheld from the client, and when a frame of somebody else may follow.

use std::io::IoSlice;

use crate::transport::frame_heads::{
    CONTINUATION, END_HEADERS, FrameHead, FramePart, HEAD_LEN, HEADERS, HeadParser,
};

/// What to do with the first bytes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum WriteSpan {
    /// So many bytes go to the client.
    Passed(usize),
    /// So many bytes do not.
    Withheld(usize),
}

/// What h2 has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum OutboundEvent {
    Head(FrameHead),
    /// So many bytes of the payload of a withheld frame on this stream.
    Withheld {
        stream: u32,
        len: usize,
    },
}

#[derive(Debug)]
pub(in crate::transport) struct OutboundFrames {
    parser: HeadParser,
    /// The stream of the frame whose payload comes next, if it is withheld.
    withheld: Option<u32>,
    /// Nothing may come between HEADERS and its CONTINUATION frames.
    in_header_block: bool,
}

impl Default for OutboundFrames {
    fn default() -> Self {
        Self {
            parser: HeadParser::new(0),
            withheld: None,
            in_header_block: false,
        }
    }
}

impl OutboundFrames {
    /// Whether a frame of somebody else may follow what h2 has written.
    pub(in crate::transport) const fn is_between_frames(&self) -> bool {
        self.parser.is_between_frames() && !self.in_header_block
    }

    /// The first bytes of what h2 writes next that are all passed on, or all withheld. h2 writes the head of a frame as a whole.
    pub(in crate::transport) fn span(
        &self,
        slices: &[IoSlice<'_>],
        mut withholds: impl FnMut(&FrameHead) -> bool,
    ) -> WriteSpan {
        let all: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut parser = self.parser.clone();
        let (mut at, mut is_payload_withheld) = (0, self.withheld.is_some());
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let before = rest.len();
                let part = parser.next(&mut rest);
                at += before - rest.len();
                match part {
                    FramePart::Payload(payload) if is_payload_withheld => {
                        return WriteSpan::Withheld(payload.len());
                    }
                    FramePart::Payload(_) | FramePart::Unfinished => {}
                    FramePart::Head(head) => {
                        is_payload_withheld = false;
                        // A head that began in an earlier write was passed on.
                        let Some(start) = at.checked_sub(HEAD_LEN).filter(|_| withholds(&head))
                        else {
                            continue;
                        };
                        return match start {
                            0 => WriteSpan::Withheld(HEAD_LEN),
                            _ => WriteSpan::Passed(start),
                        };
                    }
                }
            }
        }
        WriteSpan::Passed(all)
    }

    /// Records that the first `len` bytes of the slices were taken, all of one span.
    pub(in crate::transport) fn take(
        &mut self,
        slices: &[IoSlice<'_>],
        mut len: usize,
        is_withheld: bool,
        mut event: impl FnMut(OutboundEvent),
    ) {
        for slice in slices {
            let mut rest = &slice[..slice.len().min(len)];
            len -= rest.len();
            while !rest.is_empty() {
                match self.parser.next(&mut rest) {
                    FramePart::Head(head) => {
                        self.withheld = is_withheld.then_some(head.stream).filter(|_| head.len > 0);
                        if matches!(head.kind, HEADERS | CONTINUATION) {
                            self.in_header_block = !head.has(END_HEADERS);
                        }
                        event(OutboundEvent::Head(head));
                    }
                    FramePart::Payload(payload) => {
                        if let Some(stream) = self.withheld {
                            let len = payload.len();
                            event(OutboundEvent::Withheld { stream, len });
                        }
                    }
                    FramePart::Unfinished => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::frame_heads::{DATA, END_STREAM};

    fn frame(kind: u8, flags: u8, stream: u32, len: usize) -> Vec<u8> {
        let head = FrameHead {
            len,
            kind,
            flags,
            stream,
        };
        [
            &head.encoded()[..],
            &vec![u8::try_from(stream).unwrap(); len],
        ]
        .concat()
    }

    /// Writes frames as h2 does, some of them together, to somebody who accepts at most `step` bytes at once; returns what is passed on, and
    /// the bytes withheld.
    fn write(writes: &[Vec<u8>], step: usize) -> (Vec<u8>, usize) {
        let mut frames = OutboundFrames::default();
        let (mut passed, mut withheld) = (Vec::new(), 0);
        for bytes in writes {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (first, second) = rest.split_at(rest.len() / 2);
                let slices = [IoSlice::new(first), IoSlice::new(second)];
                let span = frames.span(&slices, |head| head.kind == DATA && head.stream == 3);
                let taken = match span {
                    WriteSpan::Passed(len) => {
                        let len = len.min(step);
                        passed.extend_from_slice(&rest[..len]);
                        frames.take(&slices, len, false, |_| {});
                        len
                    }
                    WriteSpan::Withheld(len) => {
                        frames.take(&slices, len, true, |event| match event {
                            OutboundEvent::Withheld { stream: 3, len } => withheld += len,
                            OutboundEvent::Withheld { stream, .. } => panic!("{stream}"),
                            OutboundEvent::Head(_) => {}
                        });
                        len
                    }
                };
                rest = &rest[taken..];
            }
        }
        assert!(frames.is_between_frames());
        (passed, withheld)
    }

    #[test]
    fn frames_of_one_stream_are_withheld_however_they_are_cut() {
        let others = [
            frame(HEADERS, END_HEADERS, 3, 40),
            frame(DATA, 0, 5, 300),
            frame(DATA, END_STREAM, 5, 0),
            frame(6, 0, 0, 8),
        ];
        let [a, b, c, d] = others.clone();
        let [e, f, g] = [0, 500, 70].map(|len| frame(DATA, 0, 3, len));
        for writes in [
            vec![
                a.clone(),
                e.clone(),
                b.clone(),
                f.clone(),
                g.clone(),
                c.clone(),
                d.clone(),
            ],
            vec![[a, e, b].concat(), [f, g].concat(), [c, d].concat()],
        ] {
            for step in 1..600 {
                assert_eq!(write(&writes, step), (others.concat(), 570), "{step}");
            }
        }
    }

    #[test]
    fn nothing_comes_between_the_parts_of_a_header_block() {
        let mut frames = OutboundFrames::default();
        let mut take = |frame: Vec<u8>| {
            frames.take(&[IoSlice::new(&frame)], frame.len(), false, |_| {});
            frames.is_between_frames()
        };
        assert!(take(frame(DATA, 0, 1, 10)));
        assert!(!take(frame(HEADERS, END_STREAM, 1, 10)));
        assert!(!take(frame(CONTINUATION, 0, 1, 10)));
        assert!(take(frame(CONTINUATION, END_HEADERS, 1, 10)));
        assert!(!take(frame(DATA, 0, 1, 10)[..15].to_vec()));
    }
}
