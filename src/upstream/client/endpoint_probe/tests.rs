//! What the answers to a check say.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::upstream::client::{ConnectSource, EndpointState, ForwardIdentity};

/// A server of two paths over HTTP/1.1, one request a connection.
struct Stub {
    url: http::Uri,
    /// Status and body of the namespace kube-system.
    answer: Arc<Mutex<(u16, String)>>,
    /// Requests that were neither of `/readyz` nor of the namespace.
    others: Arc<AtomicUsize>,
}

impl Stub {
    async fn new(status: u16, body: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stub = Self {
            url: url.parse().unwrap(),
            answer: Arc::new(Mutex::new((status, body))),
            others: Arc::default(),
        };
        let (answer, others) = (stub.answer.clone(), stub.others.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head(&mut stream).await;
                let (status, body) = match head {
                    head if head.contains(" /readyz ") => (200, "ok".to_owned()),
                    head if head.contains("/kube-system?") => answer.lock().clone(),
                    _ => {
                        others.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                };
                let length = body.len();
                let text = format!(
                    "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                // The client closes the connection if the body is too long for it.
                let _ = stream.write_all(text.as_bytes()).await;
            }
        });
        stub
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// The namespace, with an annotation of this length.
fn namespace(len: usize) -> String {
    let text = "x".repeat(len);
    format!(r#"{{"metadata":{{"uid":"u","annotations":{{"a":"{text}"}}}}}}"#)
}

async fn client(stubs: &[&Stub]) -> Client {
    let url = stubs[0].url.clone();
    let source = ConnectSource::Url { url, ca_file: None };
    let urls = stubs.iter().map(|stub| stub.url.clone()).collect();
    Client::connect_to(source, urls).await.unwrap()
}

#[tokio::test]
async fn a_server_is_identified_by_a_namespace_of_any_length_and_kept_without() {
    let one = Stub::new(200, namespace(1 << 20)).await;
    let other = Stub::new(200, namespace(4 << 20)).await;
    let client = client(&[&one, &other]).await;
    client.check_endpoints().await;
    assert_eq!(client.probe(0).await, ProbeOutcome::Ready);
    assert_eq!(client.probe(1).await, ProbeOutcome::Unidentified);
    for (status, expected) in [
        (429, ProbeOutcome::Unidentified),
        (401, ProbeOutcome::Unauthorized),
        (200, ProbeOutcome::Identified(Some("u".to_owned()))),
    ] {
        *other.answer.lock() = (status, namespace(0));
        assert_eq!(client.probe(1).await, expected);
    }
}

#[test]
fn only_a_refusal_or_a_uid_says_something_about_the_cluster() {
    let named = br#"{"kind":"Namespace","metadata":{"uid":"u"}}"#.as_slice();
    let status = br#"{"kind":"Status"}"#.as_slice();
    let uid = ProbeOutcome::Identified(Some("u".to_owned()));
    for (code, body, expected) in [
        (200, named, uid),
        (200, status, ProbeOutcome::Unidentified),
        (401, status, ProbeOutcome::Unauthorized),
        (403, status, ProbeOutcome::Identified(None)),
        (404, status, ProbeOutcome::Identified(None)),
        (429, status, ProbeOutcome::Unidentified),
        (500, status, ProbeOutcome::Unidentified),
        (504, status, ProbeOutcome::Unidentified),
    ] {
        let code = StatusCode::from_u16(code).unwrap();
        assert_eq!(identity(code, Some(body)), expected, "{code}");
    }
    assert_eq!(identity(StatusCode::OK, None), ProbeOutcome::Unidentified);
}

#[tokio::test]
async fn an_upgrade_whose_answer_is_lost_is_not_sent_again() {
    let one = Stub::new(200, namespace(0)).await;
    let other = Stub::new(200, namespace(0)).await;
    let client = client(&[&one, &other]).await;
    client.check_endpoints().await;
    let sent = || one.others.load(Ordering::Relaxed) + other.others.load(Ordering::Relaxed);
    let request = |path| Request::get(path).body(RequestBody::Empty).unwrap();
    let identity = ForwardIdentity::Gateway;
    let lost = client
        .send_upgrade(identity, request("/api/v1/namespaces/n/pods/p/exec"))
        .await;
    assert!(matches!(lost, Err(SendError::Broken(_) | SendError::Lost)));
    assert_eq!(sent(), 1);
    let lost = client.forward(identity, request("/api")).await;
    assert!(lost.is_err());
    assert_eq!(sent(), 5, "a read is sent twice to each");
}

#[derive(Debug, Default)]
struct Recorded(Mutex<Vec<(usize, EndpointFailure)>>);

impl EndpointRecorder for Recorded {
    fn state(&self, _: usize, _: EndpointState) {}

    fn active(&self, _: usize) {}

    fn activated(&self, _: usize) {}

    fn failed(&self, index: usize, failure: EndpointFailure) {
        self.0.lock().push((index, failure));
    }
}

#[tokio::test]
async fn a_server_of_another_cluster_is_counted_once() {
    let one = Stub::new(200, namespace(0)).await;
    let other = Stub::new(200, namespace(0).replace("\"u\"", "\"v\"")).await;
    let client = client(&[&one, &other]).await;
    let recorded = Arc::new(Recorded::default());
    client.record_endpoints(recorded.clone());
    for _ in 0..3 {
        client.check_endpoints().await;
    }
    assert_eq!(*recorded.0.lock(), [(1, EndpointFailure::Foreign)]);
}
