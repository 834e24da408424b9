//! Connections that keep the gateway waiting, over in-memory streams with paused time.

mod adoption;
mod drain;
mod go_away;
mod handshakes;
mod heads;
mod identity;
mod recall;
mod stalled;

use http::{Request, Response, StatusCode, Version};
use std::convert::Infallible;
use std::future::ready;

use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Body;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::head_timer::IDLE_TIMEOUT;
use super::*;
use crate::admission::samples::unlimited;
use crate::cache::samples::{World, kind};
use crate::metrics::Metrics;
use crate::resource::{CacheKey, Layout};
use crate::serve::resources::{
    Availability, BoxFuture, FillWait, ForwardLifetime, ForwardRequest, ForwardedBody, Latest,
    RequestOutcome as AnsweredRequest, Resources,
};
use crate::transport::LINGER_TIME;
use crate::view::{Hub, ServedResource};
use crate::watch::WatchRecorder;

/// Has one cache at most, and forwards requests to a function.
struct Upstream<F> {
    served: Option<ServedResource>,
    recorder: Arc<dyn WatchRecorder>,
    forward: F,
}

impl<F, R> Resources for Upstream<F>
where
    F: Fn(ForwardRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Response<ForwardedBody>> + Send + 'static,
{
    fn availability<'a>(
        &'a self,
        _: &'a CacheKey,
        _: FillWait,
        _: Peer,
    ) -> BoxFuture<'a, Availability> {
        Box::pin(ready(match &self.served {
            Some(served) => Availability::Ready(served.clone()),
            None => Availability::Forwarded(None),
        }))
    }

    fn latest<'a>(&'a self, _: &'a ServedResource) -> BoxFuture<'a, Latest> {
        Box::pin(ready(Latest::Unknown))
    }

    fn forward(&self, request: ForwardRequest) -> BoxFuture<'_, Response<ForwardedBody>> {
        Box::pin(async move { (self.forward)(request).await })
    }

    fn tally(&self, _: &CacheKey) -> Arc<dyn WatchRecorder> {
        Arc::clone(&self.recorder)
    }

    fn answered(&self, _: AnsweredRequest<'_>) {}
}

/// Without a cache; each request gets the response of the function.
fn forwarding(
    forward: impl Fn(ForwardRequest) -> Response<ForwardedBody> + Send + Sync + 'static,
) -> impl Resources {
    Upstream {
        served: None,
        recorder: Arc::new(()),
        forward: move |request| ready(forward(request)),
    }
}

/// With this cache; what is forwarded is answered at once.
fn caching(served: ServedResource) -> impl Resources {
    Upstream {
        served: Some(served),
        recorder: Arc::new(()),
        forward: |_| ready(boxed(Response::new(Full::from("whole")))),
    }
}

/// The response of an upstream.
fn boxed<B>(response: Response<B>) -> Response<ForwardedBody>
where
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    response.map(|body| ForwardedBody::new(body.map_err(|never| match never {})))
}

fn connection() -> ClientConnection {
    connection_to(forwarding(|_| boxed(Response::new(Full::from("whole")))))
}

fn connection_to(upstream: impl Resources) -> ClientConnection {
    let metrics = Metrics::new().unwrap().listener();
    connection_of(Service::new(Arc::new(upstream), unlimited(), metrics))
}

fn connection_of(service: Service) -> ClientConnection {
    ClientConnection {
        peer: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        decision: AcceptDecision::Served,
        delivery: Delivery::start(1, None),
        identity: PeerIdentity::default(),
        tls: None,
        service,
        drain: Drain::new(),
        go_away: GoAway::default(),
        entry: None,
        standing: None,
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A HEADERS frame without END_HEADERS: the head continues.
const HEADERS: &[u8] = b"\0\0\x03\x01\x01\0\0\0\x01\x82\x86\x84";
/// An empty CONTINUATION frame that does not end the head.
const CONTINUATION: &[u8] = b"\0\0\0\x09\0\0\0\0\x01";

/// Sends `bytes`, one per second, and then reads to the end.
async fn dribble(mut client: DuplexStream, bytes: Vec<u8>) {
    for byte in bytes {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if client.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    let _ = client.read_to_end(&mut Vec::new()).await;
}

#[track_caller]
fn assert_within(start: Instant, least: Duration, most: Duration) {
    let elapsed = start.elapsed();
    assert!(least <= elapsed && elapsed <= most, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_preface_that_does_not_come_in_time_ends_the_connection() {
    for sent in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (start, client) = (Instant::now(), dribble(client, sent.to_vec()));
        let (ended, ()) = tokio::join!(connection().http2(server.into()), client);
        assert_eq!(ended, Err(ConnectionFailure::Timeout));
        assert_within(start, HEAD_TIMEOUT, HEAD_TIMEOUT);
    }
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(b"PRI * HTTP/1.1\r\n\r\n").await.unwrap();
    let ended = connection().http2(server.into()).await;
    assert_eq!(ended, Err(ConnectionFailure::Protocol));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_waited_for_as_long_as_for_the_answer_to_a_ping() {
    let (client, server) = tokio::io::duplex(1 << 16);
    let head = [PREFACE, HEADERS, &CONTINUATION.repeat(8)].concat();
    let (start, client) = (Instant::now(), dribble(client, head));
    let (ended, ()) = tokio::join!(connection().http2(server.into()), client);
    assert_eq!(ended, Err(ConnectionFailure::Timeout));
    assert_within(
        start,
        PING_INTERVAL + PING_TIMEOUT,
        HEAD_TIMEOUT + PING_INTERVAL + PING_TIMEOUT,
    );
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_gone_without_a_word_is_noticed_by_a_ping() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(PREFACE).await.unwrap();
    let start = Instant::now();
    let ended = connection().http2(server.into()).await;
    assert_eq!(ended, Err(ConnectionFailure::Timeout));
    let most = PING_INTERVAL + PING_TIMEOUT + Duration::from_secs(1);
    assert_within(start, PING_INTERVAL + PING_TIMEOUT, most);
}

/// Reads up to the next PING; returns its acknowledgement.
async fn acknowledgement(client: &mut DuplexStream) -> Option<Vec<u8>> {
    const HEAD: &[u8] = b"\0\0\x08\x06\0\0\0\0\0";
    let mut read = Vec::new();
    loop {
        read.push(client.read_u8().await.ok()?);
        let Some(at) = read.len().checked_sub(HEAD.len() + 8) else {
            continue;
        };
        if read[at..].starts_with(HEAD) {
            let mut frame = read.split_off(at);
            frame[4] = 1;
            return Some(frame);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_was_away_for_45_seconds_keeps_its_connection() {
    let away = Duration::from_secs(45);
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(PREFACE).await.unwrap();
    let start = Instant::now();
    let client = async {
        let acknowledgement = acknowledgement(&mut client).await.unwrap();
        tokio::time::sleep(away).await;
        client.write_all(&acknowledgement).await.unwrap();
        client
    };
    let (ended, _client) = tokio::join!(connection().http2(server.into()), client);
    // As any other one that is idle.
    assert_eq!(ended, Ok(()));
    assert_within(start, IDLE_TIMEOUT, IDLE_TIMEOUT + Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_without_requests_ends_however_many_pings_it_answers() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    client.write_all(PREFACE).await.unwrap();
    let start = Instant::now();
    let answers = async {
        while let Some(acknowledgement) = acknowledgement(&mut client).await {
            let _ = client.write_all(&acknowledgement).await;
        }
    };
    let (ended, ()) = tokio::join!(connection().http2(server.into()), answers);
    assert_eq!(ended, Ok(()));
    assert_within(start, IDLE_TIMEOUT, IDLE_TIMEOUT + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_its_permit_is_taken_back() {
    let newcomer = Peer::from(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
    for (is_http2, sent) in [
        (false, &b""[..]),
        (false, b"GET / HTTP/1.1\r\n"),
        (false, REQUEST),
        (true, b""),
        (true, &PREFACE[..20]),
        (true, PREFACE),
    ] {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(sent).await.unwrap();
        let permits = Permits::new(2);
        let [mut permit, mut other] = [(); 2].map(|()| permits.acquire(Peer::UNKNOWN).unwrap());
        let (reclaim, _other) = (permit.reclaimable(), other.reclaimable());
        let mut connection = connection();
        connection.standing = Some(permit.standing());
        permit.standing().set(Activity::Unused);
        let transport = Transport::from(server).with_permit(Some(permit), Some(reclaim));
        let run = tokio::spawn(async move {
            match is_http2 {
                true => connection.http2(transport).await,
                false => connection.http1(transport).await,
            }
        });
        let start = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _permit = permits.acquire(newcomer).unwrap();
        // The client gets all that was written, and the end.
        client.read_to_end(&mut Vec::new()).await.unwrap();
        let ended = run.await.unwrap();
        assert!(
            matches!(ended, Ok(()) | Err(ConnectionFailure::Reclaimed)),
            "{ended:?}"
        );
        assert_within(start, Duration::from_secs(1), Duration::from_secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_of_http1_is_waited_for_and_an_idle_connection_ends_without_blame() {
    let (client, server) = tokio::io::duplex(1 << 16);
    let head = format!("GET /{} HTTP/1.1\r\n", "a".repeat(100));
    let (start, client) = (Instant::now(), dribble(client, head.into_bytes()));
    let (ended, ()) = tokio::join!(connection().http1(server.into()), client);
    assert_eq!(ended, Err(ConnectionFailure::Timeout));
    assert_within(start, HEAD_TIMEOUT, HEAD_TIMEOUT + Duration::from_secs(2));

    let (mut client, server) = tokio::io::duplex(1 << 16);
    let idle = async {
        let mut start = Instant::now();
        for _ in 0..3 {
            // Each pause is longer than a head may take.
            tokio::time::sleep(HEAD_TIMEOUT - Duration::from_secs(1)).await;
            client.write_all(REQUEST).await.unwrap();
            read_to(&mut client, "whole").await;
            start = Instant::now();
            tokio::time::sleep(CLIENT_IDLE_TIMEOUT).await;
            client.write_all(REQUEST).await.unwrap();
            read_to(&mut client, "whole").await;
        }
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty());
        start
    };
    let (ended, start) = tokio::join!(connection().http1(server.into()), idle);
    assert_eq!(ended, Ok(()));
    let last = CLIENT_IDLE_TIMEOUT + IDLE_TIMEOUT;
    assert_within(start, last, last);
}

/// client-go closes an idle connection 90 s after it has read a response, which is a little later than the response was written. Until
/// then it may send any request, including one that it must not repeat.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(91);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_head_that_begins_on_an_idle_connection_is_waited_for_as_a_first_one() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let half = async {
        client.write_all(REQUEST).await.unwrap();
        read_to(&mut client, "whole").await;
        tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
        client.write_all(b"GET / HT").await.unwrap();
        let start = Instant::now();
        client.read_to_end(&mut Vec::new()).await.unwrap();
        start
    };
    let (ended, start) = tokio::join!(connection().http1(server.into()), half);
    assert_eq!(ended, Err(ConnectionFailure::Timeout));
    assert_within(start, HEAD_TIMEOUT, HEAD_TIMEOUT);
}

const WATCH: &str = "GET /api/v1/configmaps?watch=1&resourceVersion=10&timeoutSeconds=90 HTTP/1.1\r\nHost: a\r\n\r\n";

fn world() -> (World, ServedResource) {
    let hub = Arc::new(Hub::new(&kind(Layout::Typed)));
    let mut world = World::new(7, 1 << 10, Arc::clone(&hub) as _);
    let change = world.write("a/one", None);
    world.apply(vec![change]);
    let cache = Arc::clone(world.writer.cache());
    (world, ServedResource { cache, hub })
}

/// Reads until the data contains `end`.
async fn read_to(client: &mut (impl AsyncReadExt + Unpin), end: &str) -> String {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(end) {
        let len = client.read_buf(&mut read).await.unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&read));
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Starts a watch, starts the drain, and reads to the end of the connection. The response must end properly.
async fn watch_until_drained(
    client: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin),
    served: &ServedResource,
    drain: &Drain,
) {
    client.write_all(WATCH.as_bytes()).await.unwrap();
    read_to(client, "ADDED").await;
    drain.begin();
    served.hub.close();
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert!(read.ends_with("0\r\n\r\n"), "{read}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_takes_further_requests_before_and_after_a_watch() {
    let (_world, served) = world();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(connection_to(caching(served)).http1(server.into()));
    client
        .write_all(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    read_to(&mut client, "whole").await;
    for _ in 0..2 {
        // The second request is pipelined: it is sent together with the first one.
        let both = format!("{WATCH}GET /version HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(both.as_bytes()).await.unwrap();
        let read = read_to(&mut client, "whole").await;
        let (watch, after) = read
            .split_once("\r\n0\r\n\r\n")
            .expect("the watch ends with the last chunk");
        assert!(watch.starts_with("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"));
        assert_eq!(watch.matches("\"type\":\"ADDED\"").count(), 1, "{watch}");
        assert!(after.starts_with("HTTP/1.1 200 OK\r\n"), "{after}");
    }
    drop(client);
    assert_eq!(run.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_to_be_the_last_says_so() {
    let (_world, served) = world();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(connection_to(caching(served)).http1(server.into()));
    let last = WATCH.replace("Host: a", "Connection: close\r\nHost: a");
    client.write_all(last.as_bytes()).await.unwrap();
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert!(read.contains("connection: close"), "{read}");
    assert!(read.ends_with("\r\n0\r\n\r\n"), "{read}");
    assert_eq!(run.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_watches_end_and_takes_no_request_after_them() {
    let (_world, served) = world();
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let connection = connection_to(caching(served.clone()));
    let drain = connection.drain.clone();
    let run = tokio::spawn(connection.http1(server.into()));
    watch_until_drained(&mut client, &served, &drain).await;
    assert_eq!(run.await.unwrap(), Ok(()));
}

/// Reads HTTP/2 frames up to the first one of this type and returns its payload.
async fn read_frame(client: &mut DuplexStream, kind: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.unwrap();
        let len = u16::from_be_bytes([head[1], head[2]]).into();
        let mut payload = vec![0; len];
        client.read_exact(&mut payload).await.unwrap();
        if head[3] == kind {
            return payload;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_that_was_ended_is_heard_until_its_client_closes_it() {
    const PING: u8 = 6;
    for (stays, time) in [(false, Duration::ZERO), (true, LINGER_TIME)] {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let connection = connection();
        let drain = connection.drain.clone();
        let run = tokio::spawn(connection.http2(server.into()));
        client.write_all(PREFACE).await.unwrap();
        drain.begin();
        let ping = read_frame(&mut client, PING).await;
        let pong = [b"\0\0\x08\x06\x01\0\0\0\0", &*ping].concat();
        client.write_all(&pong).await.unwrap();
        client.read_to_end(&mut Vec::new()).await.unwrap();
        let start = Instant::now();
        let update = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";
        client.write_all(update).await.unwrap();
        let client = Some(client).filter(|_| stays);
        assert_eq!(run.await.unwrap(), Ok(()));
        assert_within(start, time, time + Duration::from_millis(10));
        drop(client);
    }
}

#[tokio::test]
async fn a_panic_ends_one_connection_or_stream_and_is_counted() {
    let metrics = Metrics::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let drain = Drain::new();
    let fragile = forwarding(|request: ForwardRequest| {
        assert_ne!(request.request.http.uri().path(), "/panic", "planted");
        boxed(Response::new(Full::from("whole")))
    });
    let service = Service::new(Arc::new(fragile), unlimited(), metrics.listener());
    let running = tokio::spawn(run(listener, None, service, drain.clone()));

    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer.is_empty());

    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut get = |path: &str| {
        let request = Request::get(format!("http://a{path}"));
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap())
    };
    get("/panic").await.expect_err("the stream is reset");
    assert_eq!(get("/version").await.unwrap().status(), 200);

    drain.begin();
    connection.await.unwrap().unwrap();
    running.await.unwrap();
    let ends = metrics.task_ends();
    assert_eq!(ends.count(TaskKind::Connection), 1);
    assert_eq!(ends.count(TaskKind::Http2Stream), 1);
}

/// An upstream that accepts every protocol upgrade and passes the client's end of the tunnel to the test.
fn tunnelling(sender: tokio::sync::mpsc::Sender<hyper::upgrade::OnUpgrade>) -> impl Resources {
    forwarding(move |forward: ForwardRequest| {
        let mut request = forward.request.http;
        let mut answer = Response::new(Full::<Bytes>::default());
        let headers = request.headers();
        if headers.contains_key(http::header::UPGRADE) {
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *answer.headers_mut() = headers.clone();
            sender.try_send(hyper::upgrade::on(&mut request)).unwrap();
        }
        boxed(answer)
    })
}

#[tokio::test]
async fn a_tunnel_keeps_its_clients_place_and_lets_the_client_pause() {
    const UPGRADE: &[u8] = b"POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, address) = listener.accept().await.unwrap();
    let permits = Permits::new(1);
    let peer = Peer::from(address.ip());
    let (sender, mut tunnels) = tokio::sync::mpsc::channel(1);
    let connection = connection_to(tunnelling(sender));
    let run = tokio::spawn(connection.run(stream, permits.try_acquire(peer)));
    client.write_all(UPGRADE).await.unwrap();
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let tunnel = tunnels.recv().await.unwrap().await.unwrap();
    run.await.unwrap();
    let tunnel = tunnel.downcast::<TokioIo<Transport>>().unwrap();
    let transport = tunnel.io.inner();
    let socket = socket2::SockRef::from(transport.socket().unwrap());
    assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    assert!(
        socket.keepalive().unwrap(),
        "keepalive still detects a dead client"
    );
    assert!(
        permits.try_acquire(peer).is_none(),
        "the open socket holds the permit"
    );
    drop(tunnel);
    assert!(permits.try_acquire(peer).is_some());
}

/// An endless body. Its sender reports when the body is dropped.
struct EndlessBody(
    #[allow(dead_code, reason = "held for its drop")] Option<tokio::sync::oneshot::Sender<()>>,
);

impl Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let chunk = Bytes::from_static(&[b'a'; 4_096]);
        Poll::Ready(Some(Ok(hyper::body::Frame::data(chunk))))
    }
}

/// Answers one request with an [`EndlessBody`].
fn endless(lifetime: ForwardLifetime, dropped: tokio::sync::oneshot::Sender<()>) -> impl Resources {
    let dropped = std::sync::Mutex::new(Some(dropped));
    forwarding(move |_: ForwardRequest| {
        let mut answer = Response::new(EndlessBody(dropped.lock().unwrap().take()));
        answer.extensions_mut().insert(lifetime);
        boxed(answer)
    })
}

/// How long the connection of a client stays open that receives an endless response and reads one frame every `pace`, or nothing.
/// `None` if it is open for longer than an hour.
async fn time_open(
    version: Version,
    lifetime: ForwardLifetime,
    pace: Option<Duration>,
) -> Option<Duration> {
    let (client, server) = tokio::io::duplex(1 << 16);
    let (sender, dropped) = tokio::sync::oneshot::channel();
    let connection = connection_to(endless(lifetime, sender));
    let mut tasks = JoinSet::new();
    let io = TokioIo::new(client);
    let request = Request::get("http://a/version")
        .header("host", "a")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = if version == Version::HTTP_2 {
        tasks.spawn(async move {
            let _ = connection.http2(server.into()).await;
        });
        let (mut sender, client) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 16)
            .handshake(io)
            .await
            .unwrap();
        tasks.spawn(async move { drop(client.await) });
        let answer = sender.send_request(request).await;
        // The client's connection would end with its last sender.
        tasks.spawn(async move {
            let _sender = sender;
            std::future::pending().await
        });
        answer
    } else {
        tasks.spawn(async move {
            let _ = connection.http1(server.into()).await;
        });
        let (mut sender, client) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tasks.spawn(async move { drop(client.await) });
        sender.send_request(request).await
    };
    let (start, mut body) = (Instant::now(), answer.unwrap().into_body());
    tasks.spawn(async move {
        while let Some(pace) = pace {
            tokio::time::sleep(pace).await;
            let _ = body.frame().await;
        }
        std::future::pending::<()>().await;
        drop(body);
    });
    let ended = tokio::time::timeout(Duration::from_secs(3_600), dropped).await;
    ended.is_ok().then(|| start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn forwarded_answers_are_to_be_taken_but_those_of_pods() {
    use crate::transport::stall::{ANSWER_TIME_MAX, STALL_TIMEOUT};
    let slow = Some(Duration::from_secs(1));
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (lifetime, pace, expected) in [
            (ForwardLifetime::Short, None, Some(STALL_TIMEOUT)),
            (ForwardLifetime::Watch, None, Some(STALL_TIMEOUT)),
            (ForwardLifetime::Long, None, None),
            (ForwardLifetime::Short, slow, Some(ANSWER_TIME_MAX)),
            (ForwardLifetime::Watch, slow, None),
            (ForwardLifetime::Long, slow, None),
        ] {
            let elapsed = time_open(version, lifetime, pace).await;
            // Every poll of the connection lets hyper take more frames until its buffer is full, so the timeout may start later.
            let is_expected = match (elapsed, expected) {
                (Some(elapsed), Some(expected)) => {
                    elapsed >= expected
                        && elapsed <= expected + HEAD_TIMEOUT + Duration::from_secs(5)
                }
                (elapsed, expected) => elapsed == expected,
            };
            assert!(
                is_expected,
                "{version:?} {lifetime:?} {pace:?}: {elapsed:?}"
            );
        }
    }
}

/// The task's memory is held as long as a watch lasts, and there are thousands of watches.
#[test]
fn the_task_of_a_connection_is_small() {
    fn len_of<A, B, C, F: Fn(A, B, C) -> T, T>(_: F) -> usize {
        size_of::<T>()
    }
    let len = len_of(ClientConnection::run);
    assert!(len <= 2_176, "{len} bytes");
}
