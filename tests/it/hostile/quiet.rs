//! Large objects are written one after the other, and then nothing is: every watcher must receive all of them, although no later event
//! wakes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::hostile::stage::Stage;
use crate::hostile::tls::Serving;
use crate::support::quiet::missing_in_quiet;

const CONFIGMAPS: &str = "/api/v1/namespaces/quiet/configmaps";
const NAME: &str = "large";
/// The number of writes and the bytes of each: more than fits into one write to a socket, and far more, together or each alone.
const BURSTS: [(usize, usize); 3] = [(2, 70_000), (20, 20_000), (2, 1_000_000)];

fn request(target: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{target}"))
        .header("host", "localhost")
        .body(Empty::new())
        .unwrap()
}

/// Opens a watch on this stream over HTTP/1.1.
async fn watch_on<S>(stream: S, target: &str, tasks: &mut JoinSet<()>) -> Response<Incoming>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move {
        // The test does not depend on how the connection ends.
        let _ = connection.await;
    });
    sender.send_request(request(target)).await.unwrap()
}

async fn put(stage: &Stage, number: usize, data_len: usize) {
    let object = serde_json::json!({
        "metadata": {"name": NAME},
        // Without a change there would be no event.
        "data": {"d": "d".repeat(data_len), "number": number.to_string()},
    });
    let target = format!("http://{}{CONFIGMAPS}/{NAME}", stage.apiserver.address());
    let request = Request::put(target)
        .header("content-type", "application/json")
        .body(Full::from(object.to_string()))
        .unwrap();
    let put = stage.client.request(request).await.unwrap();
    assert_eq!(put.status(), http::StatusCode::OK);
}

/// What has been received of one watch since the last check.
#[derive(Default)]
struct ReceivedEvents {
    bytes: Vec<u8>,
    lines: usize,
}

/// Reads a watch to its end.
async fn receive(
    mut watch: Incoming,
    received: Arc<Mutex<ReceivedEvents>>,
    arrivals: Arc<AtomicU64>,
) {
    while let Some(frame) = watch.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        let mut received = received.lock().unwrap();
        received.lines += memchr::memchr_iter(b'\n', &data).count();
        received.bytes.extend_from_slice(&data);
        arrivals.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes bursts of large objects, and checks that all watches receive all of them, in the same bytes.
async fn check_all_receive_everything(stage: &Stage, watches: Vec<Response<Incoming>>) {
    let arrivals = Arc::<AtomicU64>::default();
    let (mut reading, mut all) = (JoinSet::new(), Vec::new());
    for watch in watches {
        let received = Arc::<Mutex<ReceivedEvents>>::default();
        all.push(Arc::clone(&received));
        reading.spawn(receive(
            watch.into_body(),
            received,
            Arc::clone(&arrivals),
        ));
    }
    for (count, data_len) in BURSTS {
        for number in 0..count {
            put(stage, number, data_len).await;
        }
        let missing = async || {
            let is_behind = |received: &Arc<Mutex<ReceivedEvents>>| {
                received.lock().unwrap().lines < count
            };
            let behind = all.iter().enumerate().filter(|(_, received)| is_behind(received));
            behind
                .map(|(number, _)| format!("watch {number}"))
                .collect()
        };
        let missing = missing_in_quiet(missing, || arrivals.load(Ordering::Relaxed)).await;
        assert!(
            missing.is_empty(),
            "behind after {count} writes of {data_len} bytes: {missing:?}"
        );
        let take = |received: &Arc<Mutex<ReceivedEvents>>| {
            std::mem::take(&mut *received.lock().unwrap())
        };
        let all: Vec<_> = all.iter().map(take).collect();
        let first = &all[0].bytes;
        assert!(first.ends_with(b"\n"), "the last event is incomplete");
        let events = first
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        assert!(events.clone().all(|line| line.len() > data_len));
        assert_eq!(events.count(), count);
        assert!(all.iter().all(|received| received.bytes == *first));
    }
    assert!(reading.try_join_next().is_none(), "a watch has ended");
    reading.shutdown().await;
}

/// Creates the object, and returns the target of a watch of its later changes.
async fn target(stage: &Stage) -> String {
    stage.create(CONFIGMAPS, NAME).await;
    let created = stage.ask_apiserver("GET", CONFIGMAPS).await;
    let list: serde_json::Value = serde_json::from_slice(created.body()).unwrap();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    format!("{CONFIGMAPS}?watch=1&resourceVersion={from}")
}

#[tokio::test]
async fn watchers_of_large_objects_have_all_of_them_over_http1() {
    let stage = Stage::new().await;
    let (target, mut tasks) = (target(&stage).await, JoinSet::new());
    let mut watches = Vec::new();
    for _ in 0..100 {
        let stream = TcpStream::connect(stage.address).await.unwrap();
        watches.push(watch_on(stream, &target, &mut tasks).await);
    }
    check_all_receive_everything(&stage, watches).await;
    tasks.shutdown().await;
    stage.ended().await;
}

#[tokio::test]
async fn watchers_of_large_objects_have_all_of_them_over_tls() {
    let tls = Serving::new("quiet");
    let stage = Stage::with(|settings| settings.transport = tls.transport()).await;
    let (target, mut tasks) = (target(&stage).await, JoinSet::new());
    let mut watches = Vec::new();
    for _ in 0..30 {
        let stream = TcpStream::connect(stage.address).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let stream = tls.connector().connect(name, stream).await.unwrap();
        watches.push(watch_on(stream, &target, &mut tasks).await);
    }
    check_all_receive_everything(&stage, watches).await;
    tasks.shutdown().await;
    stage.ended().await;
}

#[tokio::test]
async fn watchers_of_large_objects_have_all_of_them_over_http2() {
    let stage = Stage::new().await;
    let (target, mut tasks) = (target(&stage).await, JoinSet::new());
    let mut watches = Vec::new();
    for _ in 0..3 {
        let stream = TcpStream::connect(stage.address).await.unwrap();
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        for _ in 0..10 {
            watches.push(sender.send_request(request(&target)).await.unwrap());
        }
    }
    check_all_receive_everything(&stage, watches).await;
    tasks.shutdown().await;
    stage.ended().await;
}
