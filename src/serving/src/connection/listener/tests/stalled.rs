//! Clients that stop reading: over each protocol, and whatever they read, the response is counted, and a watch ends as stalled.

use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::metrics::WatchEnd;
use crate::transport::MemoryIo;
use crate::transport::stall::STALL_TIMEOUT;
use crate::watch::WatchTotals;

/// Longer than what a connection, a window or hyper buffers.
const OBJECT_LEN: usize = 1 << 20;
const TARGET: &str = "/api/v1/configmaps?watch=1&resourceVersion=10&timeoutSeconds=3000";
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://a\r\n";

#[derive(Debug)]
struct EndRecorder(mpsc::Sender<WatchEnd>);

impl WatchRecorder for EndRecorder {
    fn ended(&self, totals: WatchTotals) {
        self.0.try_send(totals.end).unwrap();
    }
}

/// A server with a long object, the metrics of its connections, and the ends of its watches.
struct Stage {
    world: World,
    service: Service,
    ends: mpsc::Receiver<WatchEnd>,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self::without_long();
        stage.write_long();
        stage
    }

    /// The long object does not exist yet.
    fn without_long() -> Self {
        let (world, served) = world();
        let (sender, ends) = mpsc::channel(8);
        let server = Upstream {
            served: Some(served),
            recorder: Arc::new(EndRecorder(sender)),
            forward: |_| {
                let mut answer = Response::new(EndlessBody(None));
                answer.extensions_mut().insert(ForwardLifetime::Short);
                ready(boxed(answer))
            },
        };
        let metrics = Metrics::new().unwrap().listener();
        Self {
            world,
            service: Service::new(Arc::new(server), unlimited(), metrics),
            ends,
        }
    }

    fn write_long(&mut self) {
        self.world.data_len = OBJECT_LEN;
        let change = self.world.write("a/long", None);
        self.world.apply(vec![change]);
    }

    fn connection(&self) -> ClientConnection {
        connection_of(self.service.clone())
    }

    /// Waits for the end of a watch, which must be that of a client that has stopped reading, and was counted.
    async fn check_watch(mut self) {
        assert_eq!(self.ends.recv().await, Some(WatchEnd::Stalled));
        self.counted().await;
    }

    /// Waits until a response was counted, and checks that it was counted once.
    async fn counted(&self) {
        while self.count() == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(self.count(), 1);
    }

    fn count(&self) -> u64 {
        self.service.metrics().streams_stalled.total()
    }
}

/// A connection that the kernel gives up when told so: whatever uses it fails from then on.
#[derive(Debug)]
struct MortalStream {
    stream: DuplexStream,
    given_up: Option<oneshot::Receiver<()>>,
}

impl MortalStream {
    fn check(&mut self, context: &mut Context<'_>) -> std::io::Result<()> {
        if let Some(given_up) = &mut self.given_up
            && Pin::new(given_up).poll(context).is_ready()
        {
            self.given_up = None;
        }
        match self.given_up {
            None => Err(std::io::ErrorKind::TimedOut.into()),
            Some(_) => Ok(()),
        }
    }
}

impl MemoryIo for MortalStream {}

impl AsyncRead for MortalStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for MortalStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A client, the server's side of its connection, and what makes the kernel give it up.
fn mortal() -> (DuplexStream, Transport, oneshot::Sender<()>) {
    let (client, stream) = tokio::io::duplex(1 << 12);
    let (give_up, given_up) = oneshot::channel();
    let stream = MortalStream {
        stream,
        given_up: Some(given_up),
    };
    (client, stream.into(), give_up)
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_connection_the_kernel_gives_up_is_stalled_in_every_form() {
    // Delivered by a worker, polled by hyper, and over WebSocket.
    for headers in ["", "Connection: close\r\n", UPGRADE] {
        let stage = Stage::new();
        let (mut client, transport, give_up) = mortal();
        let run = tokio::spawn(stage.connection().http1(transport));
        let request = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        // The first event has arrived; the long one does not fit.
        read_to(&mut client, "ADDED").await;
        give_up.send(()).unwrap();
        stage.check_watch().await;
        let _ = run.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_that_nobody_reads_are_stalled() {
    let stage = Stage::new();
    let (mut client, transport, give_up) = mortal();
    let run = tokio::spawn(stage.connection().http1(transport));
    let initial = TARGET.replace("resourceVersion=10", "resourceVersion=0");
    let request = format!("GET {initial} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    read_to(&mut client, "200 OK").await;
    give_up.send(()).unwrap();
    stage.check_watch().await;
    let _ = run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_response_whose_connection_the_kernel_gives_up_is_stalled_and_an_idle_connection_is_not()
{
    let stage = Stage::new();
    let (mut client, transport, give_up) = mortal();
    let run = tokio::spawn(stage.connection().http1(transport));
    let request = b"GET /api/v1/namespaces/a/pods/b HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request).await.unwrap();
    read_to(&mut client, "200 OK").await;
    give_up.send(()).unwrap();
    stage.counted().await;
    let _ = run.await.unwrap();

    let stage = Stage::new();
    let (mut client, transport, give_up) = mortal();
    let run = tokio::spawn(stage.connection().http1(transport));
    client.write_all(b"GET /watch-no").await.unwrap();
    tokio::task::yield_now().await;
    give_up.send(()).unwrap();
    let _ = run.await.unwrap();
    assert_eq!(stage.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_hyper_writes_and_nobody_reads_is_cut_as_stalled() {
    let stage = Stage::new();
    let (mut client, server) = tokio::io::duplex(1 << 12);
    let run = tokio::spawn(stage.connection().http1(server.into()));
    let request = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let start = Instant::now();
    stage.check_watch().await;
    assert!(start.elapsed() >= STALL_TIMEOUT);
    let _ = run.await.unwrap();
}

/// A client over HTTP/2 that has the first event of a watch: its connection, which makes no progress unless it is polled, and the watch.
async fn http2_watch(
    client: DuplexStream,
) -> (
    Pin<Box<dyn Future<Output = ()> + Send>>,
    hyper::body::Incoming,
) {
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 16)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let mut connection: Pin<Box<dyn Future<Output = ()> + Send>> =
        Box::pin(async move { drop(connection.await) });
    let request = Request::get(format!("http://a{TARGET}")).body(Empty::<Bytes>::new());
    let watch = async {
        let mut watch = sender
            .send_request(request.unwrap())
            .await
            .unwrap()
            .into_body();
        watch.frame().await.unwrap().unwrap();
        watch
    };
    let watch = tokio::select! {
        watch = watch => watch,
        () = &mut connection => panic!("the connection ended"),
    };
    (connection, watch)
}

#[tokio::test(start_paused = true)]
async fn an_http2_stream_that_nobody_reads_is_cut_as_stalled() {
    let stage = Stage::new();
    let (client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(stage.connection().http2(server.into()));
    let (connection, watch) = http2_watch(client).await;
    // The client goes on answering PINGs.
    let connection = tokio::spawn(connection);
    stage.check_watch().await;
    drop(watch);
    connection.await.unwrap();
    let _ = run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_over_http2_that_nobody_reads_any_more_is_cut_as_stalled() {
    let mut stage = Stage::without_long();
    let (client, server) = tokio::io::duplex(1 << 16);
    let (mut server_side, delivery) = (stage.connection(), Delivery::start(2, None));
    server_side.delivery = delivery.clone();
    let run = tokio::spawn(server_side.http2(server.into()));
    let (connection, mut watch) = http2_watch(client).await;
    let connection = tokio::spawn(connection);
    while !delivery.is_used() {
        tokio::task::yield_now().await;
    }
    // One that arrives, so that nothing but the long one wakes the stream.
    let change = stage.world.write("a/short", None);
    stage.world.apply(vec![change]);
    watch.frame().await.unwrap().unwrap();
    let start = Instant::now();
    stage.write_long();
    stage.check_watch().await;
    assert_within(start, STALL_TIMEOUT, 2 * STALL_TIMEOUT);
    drop(watch);
    connection.await.unwrap();
    let _ = run.await.unwrap();
}

/// The preface and one request, without an answer to anything that the server sends.
fn http2_request() -> Vec<u8> {
    // GET, http, the authority `a`, and the path: literals with the names of the static table.
    let len = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let target = TARGET.as_bytes();
    let head = [&[0x82, 0x86, 0x41, 1, b'a', 0x44, len(target)], target].concat();
    let frame = [0, 0, len(&head), 1, 5, 0, 0, 0, 1];
    [PREFACE, &frame, &head].concat()
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_an_http2_client_that_answers_nothing_is_stalled() {
    let stage = Stage::new();
    let (mut client, server) = tokio::io::duplex(1 << 22);
    let run = tokio::spawn(stage.connection().http2(server.into()));
    client.write_all(&http2_request()).await.unwrap();
    stage.check_watch().await;
    let _ = run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_is_not_stalled() {
    for headers in ["", "Connection: close\r\n", UPGRADE] {
        let mut stage = Stage::new();
        let (mut client, server) = tokio::io::duplex(1 << 12);
        let run = tokio::spawn(stage.connection().http1(server.into()));
        let request = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        read_to(&mut client, "ADDED").await;
        drop(client);
        assert_eq!(stage.ends.recv().await, Some(WatchEnd::ClientGone));
        let _ = run.await.unwrap();
        assert_eq!(stage.count(), 0);
    }
    let mut stage = Stage::new();
    let (client, server) = tokio::io::duplex(1 << 16);
    let run = tokio::spawn(stage.connection().http2(server.into()));
    drop(http2_watch(client).await);
    assert_eq!(stage.ends.recv().await, Some(WatchEnd::ClientGone));
    let _ = run.await.unwrap();
    assert_eq!(stage.count(), 0);
}

/// The kernel's timeout itself, which a client causes that keeps its receive window closed. Waits in real time, for as long as it takes.
#[tokio::test]
async fn the_kernel_gives_up_a_client_that_reads_nothing() {
    let stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = tokio::net::TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(1 << 12).unwrap();
    let mut client = client
        .connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let socket = socket2::SockRef::from(&stream);
    socket.set_send_buffer_size(1 << 12).unwrap();
    socket
        .set_tcp_user_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let run = tokio::spawn(stage.connection().http1(stream.into()));
    let request = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    stage.check_watch().await;
    let _ = run.await.unwrap();
}
