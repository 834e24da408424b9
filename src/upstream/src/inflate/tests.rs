//! Members in any division are what was compressed; each event comes when its block has; broken ones are errors, and none is large at once.

use std::collections::VecDeque;
use std::io::Write;
use std::task::Waker;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::HeaderValue;
use proptest::prelude::*;

use super::*;

/// A body that has these frames, and then waits or ends.
struct Parts {
    frames: VecDeque<Frame<Bytes>>,
    then: Poll<()>,
}

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => self.then.map(|()| None),
        }
    }
}

/// What a reader has got: the bytes of each frame, and how it ended: `None` if more is waited for.
struct Read {
    frames: Vec<Bytes>,
    trailers: Option<HeaderMap>,
    end: Option<Result<(), String>>,
}

impl Read {
    fn whole(&self) -> Vec<u8> {
        self.frames.concat()
    }
}

fn body(coding: Option<&'static str>, parts: Parts) -> InflatedBody<Parts> {
    let mut response = Response::new(parts);
    if let Some(coding) = coding {
        let coding = HeaderValue::from_static(coding);
        response.headers_mut().insert(CONTENT_ENCODING, coding);
    }
    InflatedBody::of(response).into_body()
}

fn read(body: &mut InflatedBody<Parts>) -> Read {
    let mut read = Read {
        frames: Vec::new(),
        trailers: None,
        end: None,
    };
    loop {
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => read.frames.push(data),
                Err(trailers) => read.trailers = trailers.into_trailers().ok(),
            },
            Poll::Ready(Some(Err(error))) => {
                read.end = Some(Err(error.to_string()));
                return read;
            }
            Poll::Ready(None) => {
                read.end = Some(Ok(()));
                return read;
            }
            Poll::Pending => return read,
        }
    }
}

fn parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>, then: Poll<()>) -> Parts {
    let data = |part: &[u8]| Frame::data(Bytes::copy_from_slice(part));
    Parts {
        frames: parts.into_iter().map(data).collect(),
        then,
    }
}

/// All of a response in one part.
fn read_whole(bytes: &[u8]) -> Read {
    read(&mut body(Some("gzip"), parts([bytes], Poll::Ready(()))))
}

/// The pieces of a member that has one flushed block for each event, and its end.
fn member<'a>(events: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(3));
    let mut pieces = Vec::new();
    for event in events {
        encoder.write_all(event).unwrap();
        encoder.flush().unwrap();
        pieces.push(std::mem::take(encoder.get_mut()));
    }
    pieces.push(encoder.finish().unwrap());
    pieces
}

#[test]
fn an_event_can_be_read_when_its_block_has_come() {
    let events: [&[u8]; 3] = [b"{\"type\":\"ADDED\"}\n", &[b'x'; 200_000], b"{}\n"];
    let pieces = member(events);
    let mut body = body(Some("x-gzip"), parts([], Poll::Pending));
    for (event, piece) in events.iter().zip(&pieces) {
        let piece = Frame::data(Bytes::copy_from_slice(piece));
        body.body.frames.push_back(piece);
        let read = read(&mut body);
        assert!(read.whole() == *event && read.end.is_none());
    }
}

proptest! {
    #[test]
    fn any_division_gives_the_same_bytes(
        events in prop::collection::vec(prop::collection::vec(prop::sample::select(b"abc\n".as_slice()), 0..3_000), 0..5),
        len in 1_usize..300,
    ) {
        let member = member(events.iter().map(Vec::as_slice)).concat();
        let read = read(&mut body(Some("gzip"), parts(member.chunks(len), Poll::Ready(()))));
        prop_assert_eq!(read.whole(), events.concat());
        prop_assert_eq!(read.end, Some(Ok(())));
    }

    #[test]
    fn a_flipped_bit_is_an_error_or_changes_nothing(at in 0_usize..1_000, bit in 0_u8..8) {
        let event = b"an event like all others\n".repeat(20);
        let mut member = member([event.as_slice()]).concat();
        let at = at % member.len();
        member[at] ^= 1 << bit;
        let read = read_whole(&member);
        // The head has fields that mean nothing here.
        prop_assert!(matches!(read.end, Some(Err(_))) || read.whole() == event);
    }
}

#[test]
fn what_ends_within_a_member_or_goes_on_behind_it_is_an_error() {
    let whole = member([b"one\n".as_slice(), b"two\n"]).concat();
    for len in 0..whole.len() {
        let read = read_whole(&whole[..len]);
        assert!(matches!(read.end, Some(Err(_))), "{len}");
    }
    let more = [&whole[..], b"more"].concat();
    let read = read_whole(&more);
    assert_eq!(read.whole(), b"one\ntwo\n");
    let expected = "the response's gzip: bytes after its end";
    assert_eq!(read.end, Some(Err(expected.to_owned())));
}

#[test]
fn what_inflates_to_a_thousand_times_its_length_comes_in_small_parts() {
    const LEN: usize = 8 << 20;
    let zeros = vec![0; LEN];
    let read = read_whole(&member([zeros.as_slice()]).concat());
    assert_eq!(read.end, Some(Ok(())));
    assert_eq!(read.frames.iter().map(Bytes::len).sum::<usize>(), LEN);
    let longest = read.frames.iter().map(Bytes::len).max();
    assert!(longest <= Some(128 << 10), "{longest:?}");
}

#[test]
fn a_response_that_is_not_gzip_passes_as_it_is() {
    let mut frames = parts([b"\x1f\x8b".as_slice(), b"plain"], Poll::Ready(()));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    frames.frames.push_back(Frame::trailers(trailers.clone()));
    let read = read(&mut body(None, frames));
    assert_eq!(read.whole(), b"\x1f\x8bplain");
    assert_eq!((read.trailers, read.end), (Some(trailers), Some(Ok(()))));
}
