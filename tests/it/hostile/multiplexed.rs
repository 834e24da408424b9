//! HTTP/2 as ordinary clients use it: many watches on one connection, the limit of streams, and the end of a connection in a drain.

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::frames::{
    DATA, GOAWAY, HEADERS, MAX_CONCURRENT_STREAMS, NO_ERROR, PING, REFUSED_STREAM, RESET,
    RawConnection, SETTINGS, frame, get, reset,
};
use crate::hostile::stage::Stage;
use crate::support::PATIENCE;

const CONFIGMAPS: &str = "/api/v1/namespaces/shared/configmaps";
const WATCH: &str = "/api/v1/nodes?watch=1&resourceVersion=0";
/// The limit of streams per connection that docs/CONFIGURATION.md documents.
const STREAMS_MAX: u32 = 1_200;

type Sender = SendRequest<Empty<Bytes>>;

async fn connect(stage: &Stage, tasks: &mut JoinSet<()>) -> Sender {
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tasks.spawn(async move {
        // The test does not depend on how the connection ends.
        let _ = connection.await;
    });
    sender
}

async fn send_get(mut sender: Sender, target: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://a{target}"))
        .body(Empty::new())
        .unwrap();
    let response = tokio::time::timeout(PATIENCE, sender.send_request(request)).await;
    response.unwrap().unwrap()
}

/// The types and names of the next `count` events, in order.
async fn names(mut watch: Incoming, count: usize) -> Vec<String> {
    let mut buffer = Vec::new();
    while buffer.iter().filter(|byte| **byte == b'\n').count() < count {
        let frame = tokio::time::timeout(PATIENCE, watch.frame()).await.unwrap();
        buffer.extend_from_slice(frame.unwrap().unwrap().data_ref().unwrap());
    }
    let lines = std::str::from_utf8(&buffer).unwrap().lines();
    let name = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap();
        format!("{} {name}", event["type"].as_str().unwrap())
    };
    lines.map(name).collect()
}

async fn all_watches_of_one_connection_get_all_events(count: usize) {
    const EVENT_COUNT: usize = 20;
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut tasks = JoinSet::new();
    let sender = connect(&stage, &mut tasks).await;
    let list = send_get(sender.clone(), CONFIGMAPS).await.into_body();
    let list: serde_json::Value =
        serde_json::from_slice(&list.collect().await.unwrap().to_bytes()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let target = format!("{CONFIGMAPS}?watch=1&resourceVersion={from}");
    let watches = join_all((0..count).map(|_| send_get(sender.clone(), &target))).await;
    for number in 0..EVENT_COUNT {
        stage.create(CONFIGMAPS, &format!("shared-{number}")).await;
    }
    let expected: Vec<_> = (0..EVENT_COUNT)
        .map(|number| format!("ADDED shared-{number}"))
        .collect();
    let seen = watches.into_iter().map(|watch| {
        assert_eq!(watch.status(), 200);
        names(watch.into_body(), EVENT_COUNT)
    });
    for seen in join_all(seen).await {
        assert_eq!(seen, expected);
    }
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_watches_of_one_connection_get_all_events() {
    all_watches_of_one_connection_get_all_events(100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_of_one_connection_get_all_events() {
    all_watches_of_one_connection_get_all_events(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_streams_is_told_and_one_more_is_refused_alone() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    let first = raw.next().await.unwrap();
    assert_eq!(first.kind, SETTINGS);
    let limit = first.payload.chunks(6).find_map(|setting| {
        let name = u16::from_be_bytes([setting[0], setting[1]]);
        (name == MAX_CONCURRENT_STREAMS)
            .then(|| u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]))
    });
    assert_eq!(limit, Some(STREAMS_MAX));
    for number in 0..STREAMS_MAX {
        raw.send(&get(2 * number + 1, WATCH)).await;
    }
    raw.sync().await;
    let more = 2 * STREAMS_MAX + 1;
    raw.send(&get(more, WATCH)).await;
    let refused = raw.until(|frame| frame.is(RESET, more)).await;
    assert_eq!(refused.last().unwrap().u32_at(0), REFUSED_STREAM);
    assert!(refused.iter().all(|frame| frame.kind != GOAWAY));
    // After one stream is reset, another can be opened.
    raw.send(&[reset(1), get(more + 2, WATCH)].concat()).await;
    raw.until(|frame| frame.is(HEADERS, more + 2)).await;
    stage.check_and_shut_down(witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_watches_cleanly_and_refuses_what_comes_after_its_goaway() {
    let stage = Stage::new().await;
    let witness = stage.witness().await;
    witness.check().await;
    let mut raw = RawConnection::connect(stage.address, &[]).await;
    raw.send(&get(1, WATCH)).await;
    raw.until(|frame| frame.is(DATA, 1)).await;
    stage.begin_drain();
    let mut frames = raw
        .until(|frame| frame.kind == PING && frame.flags == 0)
        .await;
    let first = frames.iter().find(|frame| frame.kind == GOAWAY).unwrap();
    // The first GOAWAY refuses no stream, because requests may be on their way; the last one, after the ping, refuses all new streams.
    assert_eq!(
        (first.u32_at(0), first.u32_at(4)),
        ((1 << 31) - 1, NO_ERROR)
    );
    let ping = frames.pop().unwrap();
    raw.send(&frame(PING, 1, 0, &ping.payload)).await;
    frames.extend(raw.until(|frame| frame.kind == GOAWAY).await);
    let last = frames.last().unwrap();
    assert_eq!((last.u32_at(0), last.u32_at(4)), (1, NO_ERROR));
    raw.send(&get(3, WATCH)).await;
    while let Some(frame) = raw.next().await {
        frames.push(frame);
    }
    assert!(
        frames
            .iter()
            .any(|frame| frame.stream == 1 && frame.ends_stream())
    );
    assert!(frames.iter().all(|frame| frame.kind != RESET));
    assert!(frames.iter().all(|frame| frame.stream != 3));
    stage.shut_down().await;
}
