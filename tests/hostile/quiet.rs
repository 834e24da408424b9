//! Large objects written one after the other, and then nothing: every watcher has all of them, though no later event pushes
//! them on.

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

use crate::quiet_end::missing_in_quiet;
use crate::stage::Stage;
use crate::tls::Serving;

const CONFIGMAPS: &str = "/api/v1/namespaces/quiet/configmaps";
const NAME: &str = "large";
/// How many objects, and bytes of each: more than one write takes, and far more, together or each alone.
const BURSTS: [(usize, usize); 3] = [(2, 70_000), (20, 20_000), (2, 1_000_000)];

fn request(target: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{target}"))
        .header("host", "localhost")
        .body(Empty::new())
        .unwrap()
}

/// Opens a watch on a connection of its own.
async fn watch_on<S>(stream: S, target: &str, tasks: &mut JoinSet<()>) -> Response<Incoming>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tasks.spawn(async move {
        // How it ends is nobody's concern.
        let _ = connection.await;
    });
    sender.send_request(request(target)).await.unwrap()
}

async fn put(stage: &Stage, number: usize, data_len: usize) {
    let object = serde_json::json!({
        "metadata": {"name": NAME},
        // Writing the same again would be no event.
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

/// What has come of one watch, and is not looked at yet.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    lines: usize,
}

/// Reads all that comes.
async fn gather(mut watch: Incoming, gathered: Arc<Mutex<Gathered>>, arrivals: Arc<AtomicU64>) {
    while let Some(frame) = watch.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        let mut gathered = gathered.lock().unwrap();
        gathered.lines += memchr::memchr_iter(b'\n', &data).count();
        gathered.bytes.extend_from_slice(&data);
        arrivals.fetch_add(1, Ordering::Relaxed);
    }
}

async fn all_have_everything(stage: &Stage, watches: Vec<Response<Incoming>>) {
    let arrivals = Arc::<AtomicU64>::default();
    let (mut reading, mut all) = (JoinSet::new(), Vec::new());
    for watch in watches {
        let gathered = Arc::<Mutex<Gathered>>::default();
        all.push(Arc::clone(&gathered));
        reading.spawn(gather(watch.into_body(), gathered, Arc::clone(&arrivals)));
    }
    for (count, data_len) in BURSTS {
        for number in 0..count {
            put(stage, number, data_len).await;
        }
        let missing = async || {
            let lacks = |gathered: &Arc<Mutex<Gathered>>| gathered.lock().unwrap().lines < count;
            let behind = all.iter().enumerate().filter(|(_, one)| lacks(one));
            behind
                .map(|(number, _)| format!("watch {number}"))
                .collect()
        };
        let missing = missing_in_quiet(missing, || arrivals.load(Ordering::Relaxed)).await;
        assert!(
            missing.is_empty(),
            "behind at the end, {count} writes of {data_len} bytes: {missing:?}"
        );
        let take = |one: &Arc<Mutex<Gathered>>| std::mem::take(&mut *one.lock().unwrap());
        let all: Vec<_> = all.iter().map(take).collect();
        let first = &all[0].bytes;
        assert!(first.ends_with(b"\n"), "nothing but whole lines");
        let written = first
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        assert!(written.clone().all(|line| line.len() > data_len));
        assert_eq!(written.count(), count);
        assert!(all.iter().all(|one| one.bytes == *first));
    }
    assert!(reading.try_join_next().is_none(), "all watches are open");
    reading.shutdown().await;
}

/// The target of a watch of what follows.
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
    all_have_everything(&stage, watches).await;
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
    all_have_everything(&stage, watches).await;
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
    all_have_everything(&stage, watches).await;
    tasks.shutdown().await;
    stage.ended().await;
}
