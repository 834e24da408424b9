//! What the answers to a check say.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::client::{ConnectSource, EndpointState, ForwardIdentity, ResponseBodyError};
use crate::samples::certificates::{Authority, Folder};

/// A watch that never ends.
const STREAM_PATH: &str = "/api/v1/pods?watch=1";

/// A server of three paths over HTTP/1.1, one request a connection.
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
            let mut streams = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head(&mut stream).await;
                let (status, body) = match head {
                    head if head.contains(" /readyz ") => (200, "ok".to_owned()),
                    head if head.contains("/kube-system?") => answer.lock().clone(),
                    head if head.contains(STREAM_PATH) => {
                        let text =
                            "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nevent\r\n";
                        stream.write_all(text.as_bytes()).await.unwrap();
                        streams.push(stream);
                        continue;
                    }
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

/// A server that is ready and tells this uid.
fn ready(uid: ClusterUid) -> ProbeOutcome {
    ProbeOutcome::Answered(ProbeAnswer {
        unready: None,
        is_authorized: true,
        uid,
    })
}

fn told(uid: &str) -> ClusterUid {
    ClusterUid::Told(uid.to_owned())
}

#[tokio::test]
async fn a_server_is_identified_by_a_namespace_of_any_length() {
    let one = Stub::new(200, namespace(1 << 20)).await;
    let other = Stub::new(200, namespace(4 << 20)).await;
    let client = client(&[&one, &other]).await;
    assert_eq!(client.probe(0).await, ready(told("u")));
    assert_eq!(client.probe(1).await, ready(ClusterUid::Untold));
    let refused = ProbeOutcome::Answered(ProbeAnswer {
        unready: None,
        is_authorized: false,
        uid: ClusterUid::Denied,
    });
    for (status, expected) in [
        (429, ready(ClusterUid::Untold)),
        (401, refused),
        (200, ready(told("u"))),
    ] {
        *other.answer.lock() = (status, namespace(0));
        assert_eq!(client.probe(1).await, expected);
    }
}

#[test]
fn only_a_refusal_or_a_uid_says_something_about_the_cluster() {
    let named = br#"{"kind":"Namespace","metadata":{"uid":"u"}}"#.as_slice();
    let status = br#"{"kind":"Status"}"#.as_slice();
    for (code, body, expected) in [
        (200, named, told("u")),
        (200, status, ClusterUid::Untold),
        (401, status, ClusterUid::Denied),
        (403, status, ClusterUid::Denied),
        (404, status, ClusterUid::Denied),
        (429, status, ClusterUid::Untold),
        (500, status, ClusterUid::Untold),
        (504, status, ClusterUid::Untold),
    ] {
        let code = StatusCode::from_u16(code).unwrap();
        assert_eq!(cluster_uid(code, Some(body)), expected, "{code}");
    }
    assert_eq!(cluster_uid(StatusCode::OK, None), ClusterUid::Untold);
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

/// A server over TLS and HTTP/2, which counts its connections.
struct Multiplexed {
    url: http::Uri,
    folder: Folder,
    /// Which connection each request came over, and its path.
    requests: Arc<Mutex<Vec<(usize, String)>>>,
    /// The connection on which requests are not answered any more.
    silent: Arc<Mutex<Option<usize>>>,
    is_ready: Arc<AtomicBool>,
}

impl Multiplexed {
    async fn new() -> Self {
        crate::client::transport::install_crypto_provider();
        let (authority, folder) = (Authority::new("servers"), Folder::create());
        folder.write("ca.pem", authority.0.pem());
        let pair = authority.sign("localhost");
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem().as_bytes()).unwrap();
        let mut config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![pair.der()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stub = Self {
            url: format!("https://localhost:{port}").parse().unwrap(),
            folder,
            requests: Arc::default(),
            silent: Arc::default(),
            is_ready: Arc::new(AtomicBool::new(true)),
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(stub.serve(listener, acceptor));
        stub
    }

    fn serve(
        &self,
        listener: TcpListener,
        acceptor: TlsAcceptor,
    ) -> impl Future<Output = ()> + use<> {
        let (requests, silent) = (self.requests.clone(), self.silent.clone());
        let is_ready = self.is_ready.clone();
        async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let stream = acceptor.accept(stream).await.unwrap();
                let (requests, silent) = (requests.clone(), silent.clone());
                let is_ready = is_ready.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let path = request.uri().path().to_owned();
                    requests.lock().push((number, path.clone()));
                    let is_silent = *silent.lock() == Some(number);
                    let is_ready = is_ready.load(Ordering::Relaxed);
                    async move {
                        if is_silent {
                            std::future::pending::<()>().await;
                        }
                        let code = if path == READY_PATH && !is_ready {
                            500
                        } else {
                            200
                        };
                        let response = http::Response::builder().status(code);
                        response.body(Full::<Bytes>::from(namespace(0)))
                    }
                });
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        }
    }

    /// A client of this server, and of one that is gone.
    async fn client(&self) -> Client {
        let url = self.url.clone();
        let source = ConnectSource::Url {
            url: url.clone(),
            ca_file: Some(self.folder.0.join("ca.pem")),
        };
        let gone = http::Uri::from_static("https://localhost:1");
        Client::connect_to(source, vec![url, gone]).await.unwrap()
    }

    /// The connections that requests with paths for which `is_asked` returns true came over.
    fn connections(&self, is_asked: impl Fn(&str) -> bool) -> BTreeSet<usize> {
        let requests = self.requests.lock();
        let asked = requests.iter().filter(|(_, path)| is_asked(path));
        asked.map(|(number, _)| *number).collect()
    }
}

async fn answered(client: &Client) -> StatusCode {
    let request = Request::get("/api").body(RequestBody::Empty).unwrap();
    client.send(request).await.unwrap().status()
}

#[tokio::test]
async fn checks_share_a_connection_with_no_other_request() {
    let server = Multiplexed::new().await;
    let client = server.client().await;
    for _ in 0..3 {
        client.check_endpoints().await;
        assert_eq!(answered(&client).await, StatusCode::OK);
    }
    let checks = server.connections(|path| path != "/api");
    let others = server.connections(|path| path == "/api");
    assert_eq!(
        (checks.len(), others.len()),
        (1, 1),
        "{checks:?} {others:?}"
    );
    assert!(checks.is_disjoint(&others));
}

#[tokio::test]
async fn a_connection_that_is_silent_fails_one_check_and_not_the_next() {
    let server = Multiplexed::new().await;
    let client = server.client().await;
    client.check_endpoints().await;
    let used = server.connections(|path| path == READY_PATH);
    *server.silent.lock() = used.first().copied();
    tokio::time::pause();
    let first = client.probe(0).await;
    assert!(matches!(first, ProbeOutcome::Failed { .. }), "{first:?}");
    tokio::time::resume();
    let second = tokio::time::timeout(Duration::from_secs(60), client.probe(0));
    assert_eq!(second.await.unwrap(), ready(told("u")));
    assert_eq!(server.connections(|path| path == READY_PATH).len(), 2);
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_for_its_uid_too() {
    let server = Multiplexed::new().await;
    let client = server.client().await;
    server.is_ready.store(false, Ordering::Relaxed);
    let unready = ProbeOutcome::Answered(ProbeAnswer {
        unready: Some("/readyz answers 500 Internal Server Error".to_owned()),
        is_authorized: true,
        uid: told("u"),
    });
    assert_eq!(client.probe(0).await, unready);
}

#[tokio::test]
async fn a_server_that_is_not_ready_and_tells_so_late_counts_as_unready() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: http::Uri = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    let gone = http::Uri::from_static("http://127.0.0.1:1");
    let (source, urls) = (url.clone(), vec![url, gone]);
    let source = ConnectSource::Url {
        url: source,
        ca_file: None,
    };
    let client = Client::connect_to(source, urls).await.unwrap();
    let recorded = Arc::new(Recorded::default());
    client.record_endpoints(recorded.clone());
    // The paused clock does not advance by itself while a blocking task runs.
    let (arrived, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let blocking = tokio::task::spawn_blocking(move || wait.recv());
    tokio::time::pause();
    let check = tokio::spawn(async move { client.check(0).await });
    let (mut ready, _) = listener.accept().await.unwrap();
    assert!(head(&mut ready).await.contains(READY_PATH));
    tokio::time::advance(PROBE_TIMEOUT / 2).await;
    let answer = b"HTTP/1.1 500 x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    ready.write_all(answer).await.unwrap();
    let (mut hanging, _) = listener.accept().await.unwrap();
    assert!(head(&mut hanging).await.contains(CLUSTER_PATH));
    arrived.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    check.await.unwrap();
    assert_eq!(*recorded.0.lock(), [(0, EndpointFailure::Status)]);
}

#[tokio::test]
async fn what_a_server_of_another_cluster_sends_to_callers_ends() {
    let one = Stub::new(200, namespace(0)).await;
    let other = Stub::new(200, namespace(0)).await;
    let client = client(&[&one, &other]).await;
    client.check_endpoints().await;
    let endpoints = &client.shared.endpoints;
    let index = endpoints.next(&[]).unwrap();
    let watch = |client: Client| async move {
        let request = Request::get(STREAM_PATH).body(RequestBody::Empty).unwrap();
        let answer = client.forward_watch(ForwardIdentity::Caller, request).await;
        let mut body = answer.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "event");
        body
    };
    let mut body = watch(client.clone()).await;
    // Another one is ready: only the gateway's own watches move to it.
    let gone = ProbeOutcome::Failed {
        failure: EndpointFailure::Connect,
        reason: String::new(),
    };
    endpoints.probed(index, gone, Instant::now());
    assert_ne!(endpoints.next(&[]), Some(index));
    let next = tokio::time::timeout(Duration::ZERO, body.frame());
    assert!(next.await.is_err());
    endpoints.probed(index, ready(told("v")), Instant::now());
    let next = tokio::time::timeout(Duration::from_secs(60), body.frame());
    let error = next.await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, ResponseBodyError::Abandoned));
}
