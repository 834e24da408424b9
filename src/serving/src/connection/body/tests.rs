//! How frames are split, and a response that has ended while its client reads nothing.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::task::Waker;
use std::time::Duration;

use http_body_util::BodyExt;
use prometheus::IntCounter;
use tokio::task::JoinSet;

use super::*;
use crate::serve::resources::ForwardedBody;
use crate::transport::stall::STALL_TIMEOUT;
use crate::transport::stall::tests::{WINDOW_LEN, connect, request};

/// Frames of these lengths in this order; then the body ends.
struct Script {
    frames: VecDeque<usize>,
}

impl Body for Script {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let len = self.frames.pop_front();
        Poll::Ready(len.map(|len| Ok(Frame::data(vec![b'a'; len].into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }
}

#[track_caller]
fn check(split: SplitMode, frames: &[usize], expected: &[usize]) {
    let frames = frames.iter().copied().collect();
    let script = Script { frames }.map_err(|never| match never {});
    let script = ForwardedBody::new(script);
    let mut body = ClientBody {
        split,
        ..AnswerBody::Forwarded(script, ForwardLifetime::Short).into()
    };
    let mut got = Vec::new();
    while !body.is_end_stream() {
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(frame))) = polled else {
            panic!("the script has frames");
        };
        got.push(frame.into_data().unwrap().len());
    }
    assert_eq!(got, expected);
}

#[test]
fn the_last_byte_before_a_pause_is_a_frame_of_its_own() {
    check(SplitMode::Divided, &[9_000, 8_000], &[9_000, 7_999, 1]);
    check(SplitMode::Divided, &[UNSEEN_LEN_MAX], &[UNSEEN_LEN_MAX]);
    check(
        SplitMode::Divided,
        &[UNSEEN_LEN_MAX + 1],
        &[UNSEEN_LEN_MAX, 1],
    );
    check(SplitMode::AsItComes, &[9_000, 8_000], &[9_000, 8_000]);
}

fn whole(_: &http::Request<hyper::body::Incoming>) -> ClientBody {
    let bytes = Bytes::from(vec![b'a'; 20 * WINDOW_LEN as usize]);
    ClientBody {
        split: SplitMode::Divided,
        ..AnswerBody::whole(bytes).into()
    }
}

/// The whole response fits into h2's buffers, so without the split it would be complete.
#[tokio::test(start_paused = true)]
async fn an_unread_response_is_reset_after_it_was_handed_over() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let mut tasks = JoinSet::new();
    let mut sender = connect(&stalled, &mut tasks, whole).await;
    let unread = sender.send_request(request("/")).await.unwrap();
    let read = sender.send_request(request("/")).await.unwrap();
    let read = read.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(read.len(), 20 * WINDOW_LEN as usize);
    tokio::time::sleep(STALL_TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(stalled.get(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stalled.get(), 1);
    assert!(
        unread.into_body().collect().await.is_err(),
        "the stream is reset"
    );
}
