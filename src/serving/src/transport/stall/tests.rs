//! Streams over an in-memory connection, with paused time.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prometheus::IntCounter;
use tokio::task::JoinSet;

use super::*;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const WINDOW_LEN: u32 = 1_024;
const FRAME_COUNT: usize = 20;

/// Frames as long as the window. If `signals` is set, the body reports that the gateway waits.
struct Frames {
    remaining: usize,
    signals: bool,
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.signals {
            signal(StallSignal {
                waiting: WaitingSide::Server,
                ends: false,
            });
        }
        let Some(remaining) = self.remaining.checked_sub(1) else {
            return Poll::Ready(None);
        };
        self.remaining = remaining;
        let bytes = vec![b'a'; WINDOW_LEN as usize];
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

/// The streams of a client, which are counted here.
fn executor(stalled: &IntCounter) -> StallExecutor {
    StallExecutor {
        client: [127, 0, 0, 1].into(),
        traffic: Traffic::default(),
        stalled: Some(StalledStreams::new(stalled.clone())),
        is_counted: Arc::default(),
        panics: None,
    }
}

/// A connection whose client accepts only a kilobyte of a stream until it reads.
pub(crate) async fn connect<B>(
    stalled: &IntCounter,
    tasks: &mut JoinSet<()>,
    answer: fn(&Request<Incoming>) -> B,
) -> SendRequest<Empty<Bytes>>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let (client, server) = tokio::io::duplex(1 << 20);
    let streams = executor(stalled);
    let service = service_fn(move |request| {
        std::future::ready(Ok::<_, Infallible>(Response::new(answer(&request))))
    });
    let connection = hyper::server::conn::http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(server), service);
    tasks.spawn(async move { connection.await.unwrap() });
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW_LEN)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    tasks.spawn(async move { connection.await.unwrap() });
    sender
}

fn frames(request: &Request<Incoming>) -> Frames {
    Frames {
        remaining: FRAME_COUNT,
        signals: request.uri().path() == "/judged",
    }
}

pub(crate) fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://a{path}"))
        .body(Empty::new())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_nothing_is_taken_from_is_reset_and_its_siblings_are_not() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let mut tasks = JoinSet::new();
    let mut sender = connect(&stalled, &mut tasks, frames).await;
    let judged = sender.send_request(request("/judged")).await.unwrap();
    let forwarded = sender.send_request(request("/forwarded")).await.unwrap();
    tokio::time::sleep(STALL_TIMEOUT - Duration::from_secs(1)).await;
    assert_eq!(stalled.get(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stalled.get(), 1);
    assert!(
        judged.into_body().collect().await.is_err(),
        "the stream is reset"
    );
    let whole = forwarded.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), FRAME_COUNT * WINDOW_LEN as usize);
    let next = sender.send_request(request("/judged")).await.unwrap();
    let whole = next.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), FRAME_COUNT * WINDOW_LEN as usize);
    assert_eq!(stalled.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_none_of_its_streams_is_counted_once() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let mut tasks = JoinSet::new();
    let mut sender = connect(&stalled, &mut tasks, frames).await;
    let mut streams = Vec::new();
    for _ in 0..7 {
        streams.push(sender.send_request(request("/judged")).await.unwrap());
    }
    tokio::time::sleep(STALL_TIMEOUT + Duration::from_secs(1)).await;
    for stream in streams {
        assert!(stream.into_body().collect().await.is_err(), "each is reset");
    }
    assert_eq!(stalled.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_a_little_now_and_then_is_served_to_the_end() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let mut tasks = JoinSet::new();
    let mut sender = connect(&stalled, &mut tasks, frames).await;
    let answer = sender.send_request(request("/judged")).await.unwrap();
    let mut body = answer.into_body();
    let mut len = 0;
    while let Some(frame) = body.frame().await {
        len += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(STALL_TIMEOUT / 4).await;
    }
    assert_eq!((len, stalled.get()), (FRAME_COUNT * WINDOW_LEN as usize, 0));
}

/// A stream that sends one of these signals, or none, each second.
async fn scripted(signals: Vec<Option<WaitingSide>>) {
    for waiting in signals {
        if let Some(waiting) = waiting {
            signal(StallSignal {
                waiting,
                ends: false,
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    std::future::pending::<()>().await;
}

/// A stream that signals once a minute that its client waits and that it ends soon.
async fn slow() {
    loop {
        signal(StallSignal {
            waiting: WaitingSide::Client,
            ends: true,
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_ends_by_itself_has_its_time_however_it_gets_on() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let streams = executor(&stalled);
    streams.execute(slow());
    tokio::time::sleep(ANSWER_TIME_MAX - Duration::from_secs(1)).await;
    assert_eq!(stalled.get(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stalled.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_waiting_for_the_client_is_bounded() {
    let stalled = IntCounter::new("stalled", "for a test").unwrap();
    let streams = executor(&stalled);
    use WaitingSide::{Client, Server};
    streams.execute(scripted(vec![]));
    streams.execute(scripted(vec![Some(Client)]));
    streams.execute(scripted(vec![Some(Server), None, Some(Client)]));
    streams.execute(scripted(vec![Some(Client), Some(Server), None]));
    tokio::time::sleep(10 * STALL_TIMEOUT).await;
    assert_eq!(stalled.get(), 1);
}
