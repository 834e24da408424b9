//! The well-behaved watcher that must see every write once and in order, whatever others do meanwhile.

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

use crate::quiet_end::missing_in_quiet;
use crate::stage::{HttpClient, until};

const PATH: &str = "/api/v1/namespaces/default/configmaps";
/// A small churn: the machine is not to be kept busy.
const WRITE_PERIOD: Duration = Duration::from_millis(10);
/// Writes after the hostility, so that a witness that was hurt by its end is found out too.
const LAST_WRITES: usize = 5;

/// Writer and watcher, running.
pub(crate) struct Witness {
    seen: Arc<Mutex<Vec<String>>>,
    written: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
    running: JoinSet<()>,
}

impl Witness {
    /// Watches through the gateway what is written at the API server.
    pub(crate) async fn begin(gateway: SocketAddr, apiserver: SocketAddr) -> Self {
        let client: HttpClient = Client::builder(TokioExecutor::new()).build_http();
        let list = ask(&client, format!("http://{gateway}{PATH}"), None).await;
        let list: Value =
            serde_json::from_slice(&list.collect().await.unwrap().to_bytes()).unwrap();
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let uri = format!("http://{gateway}{PATH}?watch=1&resourceVersion={from}");
        let body = ask(&client, uri, None).await;
        let mut witness = Self {
            seen: Arc::default(),
            written: Arc::default(),
            enough: Arc::default(),
            running: JoinSet::new(),
        };
        let seen = Arc::clone(&witness.seen);
        witness.running.spawn(read(body, seen));
        let (written, enough) = (Arc::clone(&witness.written), Arc::clone(&witness.enough));
        witness
            .running
            .spawn(write(client, apiserver, written, enough));
        let first = Arc::clone(&witness.seen);
        until("the witness sees a first event", async || {
            !first.lock().unwrap().is_empty()
        })
        .await;
        witness
    }

    /// Ends the writes; by then the watcher has seen each once and in order.
    pub(crate) async fn check(mut self) {
        let written = self.written.load(Ordering::Relaxed);
        // What was done to the gateway may have ended just now, and it may wait before it asks upstream again.
        until("the witness has what was written so far", async || {
            self.seen.lock().unwrap().len() >= written
        })
        .await;
        self.enough.store(true, Ordering::Relaxed);
        // The writer ends first: the watcher's stream is open.
        self.running.join_next().await.unwrap().unwrap();
        let written = self.written.load(Ordering::Relaxed);
        let seen = || self.seen.lock().unwrap().len();
        let missing = async || (seen()..written).map(name).collect();
        let missing = missing_in_quiet(missing, || seen() as u64).await;
        assert!(missing.is_empty(), "the witness lacks {missing:?}");
        let expected: Vec<_> = (0..written)
            .map(|number| format!("ADDED {}", name(number)))
            .collect();
        assert_eq!(*self.seen.lock().unwrap(), expected);
        assert_eq!(self.running.len(), 1, "its watch is open");
    }
}

fn name(number: usize) -> String {
    format!("witness-{number:06}")
}

async fn ask(client: &HttpClient, uri: String, object: Option<Value>) -> Incoming {
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
    let mut gathered = Vec::new();
    while let Some(frame) = body.frame().await {
        gathered.extend_from_slice(frame.unwrap().data_ref().unwrap());
        while let Some(end) = gathered.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = gathered.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let kind = event["type"].as_str().unwrap();
            let name = event["object"]["metadata"]["name"].as_str();
            let word = format!("{kind} {}", name.unwrap_or_default());
            seen.lock().unwrap().push(word);
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
    enough: Arc<AtomicBool>,
) {
    let mut pace = tokio::time::interval(WRITE_PERIOD);
    let mut left = LAST_WRITES;
    while left > 0 {
        pace.tick().await;
        if enough.load(Ordering::Relaxed) {
            left -= 1;
        }
        let number = written.load(Ordering::Relaxed);
        let object = json!({"metadata": {"name": name(number)}});
        let created = ask(&client, format!("http://{apiserver}{PATH}"), Some(object)).await;
        created.collect().await.unwrap();
        written.store(number + 1, Ordering::Relaxed);
    }
}
