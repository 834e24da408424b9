//! What a client's HTTP/2 frames say about the windows for what it is sent.

use crate::transport::frame_heads::{
    ACK, FrameHead, FramePart, HeadParser, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

/// Without the reserved bit.
const INCREMENT_MASK: u32 = u32::MAX >> 1;
const INCREMENT_LEN: usize = 4;

/// What a client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum InboundEvent {
    /// The window of the connection has grown, bytes.
    Granted(u32),
    /// The settings may have changed: that of the windows of all streams, for example.
    Settings,
    /// A stream is reset.
    Reset(u32),
}

/// Follows what is read from the client.
#[derive(Debug)]
pub(in crate::transport) struct InboundFrames {
    parser: HeadParser,
    /// What is known of the increment that is being read.
    increment: Option<u32>,
    increment_len: usize,
}

impl InboundFrames {
    /// The first `preface_len` bytes are not frames.
    pub(in crate::transport) const fn new(preface_len: usize) -> Self {
        Self {
            parser: HeadParser::new(preface_len),
            increment: None,
            increment_len: 0,
        }
    }

    /// Whether the client's next byte begins a frame.
    pub(in crate::transport) const fn is_between_frames(&self) -> bool {
        self.parser.is_between_frames()
    }

    /// Records what was read.
    pub(in crate::transport) fn read(
        &mut self,
        mut bytes: &[u8],
        mut event: impl FnMut(InboundEvent),
    ) {
        while !bytes.is_empty() {
            match self.parser.next(&mut bytes) {
                FramePart::Head(head) => self.begin(head, &mut event),
                FramePart::Payload(payload) => self.collect(payload, &mut event),
                FramePart::Unfinished => {}
            }
        }
    }

    fn begin(&mut self, head: FrameHead, event: &mut impl FnMut(InboundEvent)) {
        (self.increment, self.increment_len) = (None, 0);
        match head.kind {
            SETTINGS if !head.has(ACK) => event(InboundEvent::Settings),
            RST_STREAM => event(InboundEvent::Reset(head.stream)),
            // One of another length is an error, for which the HTTP/2 library closes the connection.
            WINDOW_UPDATE if head.stream == 0 && head.len == INCREMENT_LEN => {
                self.increment = Some(0);
            }
            _ => {}
        }
    }

    fn collect(&mut self, payload: &[u8], event: &mut impl FnMut(InboundEvent)) {
        let Some(increment) = &mut self.increment else {
            return;
        };
        for byte in payload {
            *increment = *increment << 8 | u32::from(*byte);
            self.increment_len += 1;
        }
        if self.increment_len == INCREMENT_LEN {
            event(InboundEvent::Granted(*increment & INCREMENT_MASK));
            self.increment = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let head = FrameHead {
            len: payload.len(),
            kind,
            flags,
            stream,
        };
        [&head.encoded()[..], payload].concat()
    }

    #[test]
    fn grants_settings_and_resets_are_found_however_they_are_cut() {
        let sent = [
            b"preface".to_vec(),
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]),
            frame(WINDOW_UPDATE, 0, 0, &[0x80, 0, 1, 2]),
            frame(WINDOW_UPDATE, 0, 3, &[0, 0, 9, 9]),
            frame(SETTINGS, ACK, 0, &[]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1]),
            frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]),
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ]
        .concat();
        let expected = [
            InboundEvent::Settings,
            InboundEvent::Granted(258),
            InboundEvent::Reset(5),
            InboundEvent::Granted(INCREMENT_MASK),
        ];
        for step in 1..=sent.len() {
            let mut frames = InboundFrames::new(b"preface".len());
            let mut events = Vec::new();
            for piece in sent.chunks(step) {
                frames.read(piece, |event| events.push(event));
            }
            assert_eq!(events, expected, "{step}");
            assert!(frames.is_between_frames());
        }
    }
}
