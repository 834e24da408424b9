//! The witness: a well-behaved watcher that must receive every write once and in order, whatever other clients do meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::hostile::stage::{HttpClient, until};
use crate::support::quiet::missing_in_quiet;

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// Slow enough not to keep the machine busy.
const WRITE_PERIOD: Duration = Duration::from_millis(10);
/// Writes after the hostile part of a test, so that damage done by its end is detected, too.
const LAST_WRITES: usize = 5;

/// A writer at the API server and a watcher at the gateway.
pub(crate) struct Witness {
    /// The type and the name of each event received.
    seen: Arc<Mutex<Vec<String>>>,
    /// The number of objects written.
    written: Arc<AtomicUsize>,
    /// Whether the writer should stop.
    stop: Arc<AtomicBool>,
    /// The reader and the writer.
    tasks: JoinSet<()>,
}

impl Witness {
    /// Starts the writer and the watcher, and waits for a first event.
    pub(crate) async fn start(gateway: SocketAddr, apiserver: SocketAddr) -> Self {
        let client: HttpClient = Client::builder(TokioExecutor::new()).build_http();
        let list = send(&client, format!("http://{gateway}{PATH}"), None).await;
        let list: Value =
            serde_json::from_slice(&list.collect().await.unwrap().to_bytes()).unwrap();
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let uri = format!("http://{gateway}{PATH}?watch=1&resourceVersion={from}");
        let body = send(&client, uri, None).await;
        let mut witness = Self {
            seen: Arc::default(),
            written: Arc::default(),
            stop: Arc::default(),
            tasks: JoinSet::new(),
        };
        let seen = Arc::clone(&witness.seen);
        witness.tasks.spawn(read(body, seen));
        let (written, stop) = (Arc::clone(&witness.written), Arc::clone(&witness.stop));
        witness
            .tasks
            .spawn(write(client, apiserver, written, stop));
        let seen = Arc::clone(&witness.seen);
        until("the witness receives a first event", async || {
            !seen.lock().unwrap().is_empty()
        })
        .await;
        witness
    }

    /// Stops the writer, and checks that the watcher has received each write once and in order.
    pub(crate) async fn check(mut self) {
        let written = self.written.load(Ordering::Relaxed);
        // The gateway may still be recovering, and backing off before it watches upstream again.
        until("the witness has received what was written so far", async || {
            self.seen.lock().unwrap().len() >= written
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        // The first task to end is the writer, because the watcher's stream stays open.
        self.tasks.join_next().await.unwrap().unwrap();
        let written = self.written.load(Ordering::Relaxed);
        let seen = || self.seen.lock().unwrap().len();
        let missing = async || (seen()..written).map(name).collect();
        let missing = missing_in_quiet(missing, || seen() as u64).await;
        assert!(missing.is_empty(), "the witness did not receive {missing:?}");
        let expected: Vec<_> = (0..written)
            .map(|number| format!("ADDED {}", name(number)))
            .collect();
        assert_eq!(*self.seen.lock().unwrap(), expected);
        assert_eq!(self.tasks.len(), 1, "the watch of the witness has ended");
    }
}

fn name(number: usize) -> String {
    format!("witness-{number:06}")
}

/// Creates the object if there is one, and reads the URI otherwise.
async fn send(client: &HttpClient, uri: String, object: Option<Value>) -> Incoming {
    let (method, expected) = match object {
        Some(_) => ("POST", StatusCode::CREATED),
        None => ("GET", StatusCode::OK),
    };
    let body = object.map_or_else(Bytes::new, |object| object.to_string().into());
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/json")
        .body(Full::new(body))
        .unwrap();
    let answer = client.request(request).await.unwrap();
    assert_eq!(answer.status(), expected);
    answer.into_body()
}

async fn read(mut body: Incoming, seen: Arc<Mutex<Vec<String>>>) {
    let mut buffer = Vec::new();
    while let Some(frame) = body.frame().await {
        buffer.extend_from_slice(frame.unwrap().data_ref().unwrap());
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let kind = event["type"].as_str().unwrap();
            let name = event["object"]["metadata"]["name"].as_str();
            let entry = format!("{kind} {}", name.unwrap_or_default());
            seen.lock().unwrap().push(entry);
        }
    }
    seen.lock()
        .unwrap()
        .push("the end of the stream".to_owned());
}

async fn write(
    client: HttpClient,
    apiserver: SocketAddr,
    written: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
) {
    let mut interval = tokio::time::interval(WRITE_PERIOD);
    let mut remaining = LAST_WRITES;
    while remaining > 0 {
        interval.tick().await;
        if stop.load(Ordering::Relaxed) {
            remaining -= 1;
        }
        let number = written.load(Ordering::Relaxed);
        let object = json!({"metadata": {"name": name(number)}});
        let created = send(&client, format!("http://{apiserver}{PATH}"), Some(object)).await;
        created.collect().await.unwrap();
        written.store(number + 1, Ordering::Relaxed);
    }
}
