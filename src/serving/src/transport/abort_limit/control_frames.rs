//! A budget for the HTTP/2 frames that carry neither requests nor bodies. The HTTP/2 library answers them itself and does not report
//! them, so they are counted in the bytes that it reads. Only frame heads are parsed, and nothing is allocated.
//!
//! Clients need such frames: an occasional PING, WINDOW_UPDATE for what they have read, the reset of a watch. Therefore requests and
//! written bytes earn frames, and time earns a few; frames beyond the budget are a flood.
//!
//! Trailers have a budget of their own, which nothing earns: the library keeps them, with up to 90 bytes of memory for each byte on the wire,
//! until the stream's response has been read. No client of Kubernetes sends any.

use tokio::time::Instant;

use super::AbortAction;
use crate::transport::frame_heads::{CONTINUATION, DATA, HEAD_LEN, HEADERS, HeadParser};

/// Frames that a connection may send without earning them. GOAWAY follows; after as many again the connection is closed.
const BURST: i64 = 1_000;
/// Frames earned per second, up to [`BURST`]. Keepalive PINGs come at most once in ten seconds.
const FRAMES_PER_SECOND: i64 = 10;
/// Frames earned by a request: WINDOW_UPDATE, PRIORITY, RST_STREAM.
const FRAMES_PER_REQUEST: i64 = 4;
/// Bytes to write to earn a frame. Go's client sends WINDOW_UPDATE for the stream and for the connection after 4 KiB each; a simple client
/// sends both after each event, and no event, not even a bookmark, is shorter than twice this length.
const BYTES_PER_FRAME: i64 = 64;
/// The most frames that can be saved: a client may read gigabytes before it sends WINDOW_UPDATE.
const SAVED_MAX: i64 = 1 << 20;

/// Bytes of trailers on a connection. GOAWAY follows; after as many again the connection is closed.
const TRAILERS_LEN_MAX: usize = 4 << 10;

/// The budget of one connection.
#[derive(Debug)]
pub(crate) struct ControlFrames {
    parser: HeadParser,
    /// The remaining budget in bytes; a frame costs [`BYTES_PER_FRAME`].
    saved: i64,
    earned_at: Instant,
    /// The newest stream that the client has opened.
    last_stream: u32,
    /// Whether the latest HEADERS frame was one of trailers.
    in_trailers: bool,
    trailers_len: usize,
}

impl ControlFrames {
    /// The budget of a new connection. Its first `preface_len` bytes are not frames.
    pub(crate) fn new(preface_len: usize, now: Instant) -> Self {
        Self {
            parser: HeadParser::new(preface_len),
            saved: BURST * BYTES_PER_FRAME,
            earned_at: now,
            last_stream: 0,
            in_trailers: false,
            trailers_len: 0,
        }
    }

    /// Records that `len` bytes were written to the client.
    pub(crate) fn written(&mut self, len: usize) {
        let earned = i64::try_from(len).unwrap_or(i64::MAX);
        self.earn(earned, SAVED_MAX * BYTES_PER_FRAME);
    }

    /// Records bytes that were read. `now` is called only if they contain control frames.
    pub(crate) fn read(&mut self, bytes: &[u8], now: impl FnOnce() -> Instant) -> AbortAction {
        let (mut control, mut requests) = (0, 0);
        let Self {
            last_stream,
            in_trailers,
            trailers_len,
            ..
        } = self;
        self.parser.read(bytes, |frame| {
            match frame.kind {
                // The HTTP/2 library limits empty ones itself.
                DATA => return,
                CONTINUATION => {}
                HEADERS => {
                    // HEADERS on a stream that was opened before are its trailers, or an error.
                    *in_trailers = frame.stream <= *last_stream;
                    *last_stream = frame.stream.max(*last_stream);
                    requests += i64::from(!*in_trailers);
                }
                _ => {
                    control += 1;
                    return;
                }
            }
            if *in_trailers {
                *trailers_len = trailers_len.saturating_add(HEAD_LEN + frame.len);
            }
        });
        self.earn(
            requests * FRAMES_PER_REQUEST * BYTES_PER_FRAME,
            SAVED_MAX * BYTES_PER_FRAME,
        );
        if control > 0 {
            self.earn_by_time(now());
            self.saved = self.saved.saturating_sub(control * BYTES_PER_FRAME);
        }
        self.action()
    }

    fn action(&self) -> AbortAction {
        if self.saved <= -BURST * BYTES_PER_FRAME || self.trailers_len > 2 * TRAILERS_LEN_MAX {
            AbortAction::Cut
        } else if self.saved < 0 || self.trailers_len > TRAILERS_LEN_MAX {
            AbortAction::GoAway
        } else {
            AbortAction::Serve
        }
    }

    fn earn_by_time(&mut self, now: Instant) {
        let millis = now.saturating_duration_since(self.earned_at).as_millis();
        self.earned_at = now;
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        let earned = millis.saturating_mul(FRAMES_PER_SECOND * BYTES_PER_FRAME) / 1_000;
        self.earn(earned, BURST * BYTES_PER_FRAME);
    }

    /// Adds `earned`, but not beyond `most`; savings that are larger already stay.
    fn earn(&mut self, earned: i64, most: i64) {
        self.saved = self.saved.saturating_add(earned).min(most.max(self.saved));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PING: u8 = 6;

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        frame_on(1, kind, len)
    }

    fn frame_on(stream: u32, kind: u8, len: u8) -> Vec<u8> {
        let head = [&[0, 0, len, kind, 0][..], &stream.to_be_bytes()];
        [&head.concat()[..], &vec![kind; len.into()]].concat()
    }

    fn requests(count: u32) -> Vec<u8> {
        let heads = (0..count).map(|number| frame_on(2 * number + 1, HEADERS, 8));
        heads.collect::<Vec<_>>().concat()
    }

    /// How many of these frames can be sent until the action is `action`.
    fn until(frames: &mut ControlFrames, now: Instant, kind: u8, action: AbortAction) -> i64 {
        let sent = frame(kind, 8);
        (1..)
            .find(|_| frames.read(&sent, || now) >= action)
            .unwrap()
    }

    #[test]
    fn a_flood_of_any_kind_is_sent_away_and_then_cut() {
        let now = Instant::now();
        for kind in [2, 3, 4, PING, 8, 0x42] {
            let mut frames = ControlFrames::new(0, now);
            assert_eq!(
                until(&mut frames, now, kind, AbortAction::GoAway),
                BURST + 1
            );
            assert_eq!(until(&mut frames, now, kind, AbortAction::Cut), BURST - 1);
        }
    }

    #[test]
    fn time_requests_and_bytes_earn_frames() {
        let start = Instant::now();
        let mut frames = ControlFrames::new(0, start);
        until(&mut frames, start, PING, AbortAction::GoAway);
        let now = start + Duration::from_secs(50);
        let earned = 50 * FRAMES_PER_SECOND;
        assert_eq!(until(&mut frames, now, PING, AbortAction::GoAway), earned);
        // Not more than the burst, however long the client is silent.
        let now = now + Duration::from_secs(86_400);
        assert_eq!(
            until(&mut frames, now, PING, AbortAction::GoAway),
            BURST + 1
        );
        assert_eq!(frames.read(&requests(100), || now), AbortAction::Serve);
        let earned = 100 * FRAMES_PER_REQUEST;
        assert_eq!(until(&mut frames, now, 8, AbortAction::GoAway), earned);
        frames.written(1 << 20);
        let earned = (1 << 20) / BYTES_PER_FRAME;
        assert_eq!(until(&mut frames, now, 8, AbortAction::GoAway), earned);
    }

    /// Trailers earn nothing, and nothing earns trailers; the continuations of a request are not trailers.
    #[test]
    fn trailers_are_few_and_short() {
        let now = Instant::now();
        let mut frames = ControlFrames::new(0, now);
        frames.written(1 << 30);
        let continued = [requests(1), frame(CONTINUATION, 200).repeat(1_000)].concat();
        assert_eq!(frames.read(&continued, || now), AbortAction::Serve);
        let trailers = [frame(HEADERS, 100), frame(CONTINUATION, 82)].concat();
        let count = |frames: &mut ControlFrames, action| {
            (1..100).find(|_| frames.read(&trailers, || now) >= action)
        };
        let most = TRAILERS_LEN_MAX / trailers.len();
        assert_eq!(count(&mut frames, AbortAction::GoAway), Some(most + 1));
        // A request in between changes nothing.
        frames.read(&frame_on(3, HEADERS, 8), || now);
        assert_eq!(count(&mut frames, AbortAction::Cut), Some(most));

        let mut frames = ControlFrames::new(0, now);
        frames.read(&requests(2), || now);
        until(&mut frames, now, PING, AbortAction::GoAway);
        assert_eq!(frames.read(&frame(HEADERS, 1), || now), AbortAction::GoAway);
    }

    /// A client without savings that sends WINDOW_UPDATE for stream and connection after each of the shortest events.
    #[test]
    fn windows_for_each_event_are_no_flood() {
        const BOOKMARK: &[u8] = b"{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\",\"creationTimestamp\":null}}}\n";
        let now = Instant::now();
        let mut frames = ControlFrames::new(0, now);
        for _ in 0..100_000 {
            frames.written(HEAD_LEN + BOOKMARK.len());
            assert_eq!(
                frames.read(&frame(8, 4).repeat(2), || now),
                AbortAction::Serve
            );
        }
    }

    /// Each stream sends WINDOW_UPDATE when it starts, and two for each DATA frame of its list.
    #[test]
    fn a_thousand_streams_that_read_lists_are_no_flood() {
        let now = Instant::now();
        let mut frames = ControlFrames::new(0, now);
        for number in 0..1_000 {
            let heads = [frame_on(2 * number + 1, HEADERS, 30), frame(8, 4)].concat();
            assert_eq!(frames.read(&heads, || now), AbortAction::Serve);
        }
        for _ in 0..64 * 1_000 {
            frames.written(HEAD_LEN + (16 << 10));
            assert_eq!(
                frames.read(&frame(8, 4).repeat(2), || now),
                AbortAction::Serve
            );
        }
    }

    /// gRPC's shortest keepalive interval, for more than eleven days.
    #[test]
    fn pings_that_keep_a_connection_alive_are_no_flood() {
        let mut now = Instant::now();
        let mut frames = ControlFrames::new(0, now);
        for _ in 0..100_000 {
            now += Duration::from_secs(10);
            assert_eq!(frames.read(&frame(PING, 8), || now), AbortAction::Serve);
        }
    }

    /// Go's client reading a list: 4 MiB are written at once, then it sends two WINDOW_UPDATE frames for each 4 KiB.
    #[test]
    fn windows_for_what_was_written_are_no_flood() {
        let now = Instant::now();
        let mut frames = ControlFrames::new(0, now);
        for _ in 0..100 {
            frames.written(4 << 20);
            for _ in 0..2 * (4 << 20) / (4 << 10) {
                assert_eq!(frames.read(&frame(8, 4), || now), AbortAction::Serve);
            }
        }
    }
}
