//! Running watches over HTTP/2, which delivery workers write: to ordinary clients, nothing shows it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;
use crate::transport::MemoryIo;

const TARGET: &str = "http://a/api/v1/configmaps?watch=1&resourceVersion=10";

/// A server with one cache, and a client of it.
struct Stage {
    world: World,
    delivery: Delivery,
    sender: SendRequest<Empty<Bytes>>,
}

impl Stage {
    /// With these windows of the client.
    async fn new(stream: u32, connection: u32) -> Self {
        Self::over(stream, connection, |server| server).await
    }

    /// With what the server writes to.
    async fn over<T>(stream: u32, connection: u32, wrap: impl FnOnce(DuplexStream) -> T) -> Self
    where
        T: MemoryIo + 'static,
    {
        let (world, served) = world();
        let (client, server) = tokio::io::duplex(1 << 16);
        let server = wrap(server);
        let mut server_side = connection_to(caching(served));
        let delivery = Delivery::start(2, None);
        server_side.delivery = delivery.clone();
        tokio::spawn(server_side.http2(server.into()));
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(stream)
            .initial_connection_window_size(connection)
            .handshake(TokioIo::new(client))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            world,
            delivery,
            sender,
        }
    }

    async fn metered() -> (Self, Arc<Mutex<WriteMeter>>) {
        let meter = Arc::default();
        let wrap = |stream| MeteredStream {
            stream,
            meter: Arc::clone(&meter),
        };
        let stage = Self::over(1 << 20, 1 << 30, wrap).await;
        (stage, meter)
    }

    async fn get(&mut self, target: &str) -> Incoming {
        let request = Request::get(target).body(Empty::new()).unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    /// A watch that has its first event.
    async fn watch(&mut self) -> Lines {
        let mut watch = Lines::from(self.get(TARGET).await);
        assert!(watch.next().await.unwrap().contains("ADDED"));
        watch
    }

    /// A watch that is a worker's.
    async fn running(&mut self) -> Lines {
        let watch = self.watch().await;
        while !self.delivery.is_used() {
            tokio::task::yield_now().await;
        }
        watch
    }

    fn write(&mut self, name: &str, len: usize) {
        self.world.data_len = len;
        let change = self.world.write(&format!("a/{name}"), None);
        self.world.apply(vec![change]);
    }
}

/// The lines of a watch.
struct Lines {
    body: Incoming,
    read: Vec<u8>,
    /// How much of it has no line end.
    searched: usize,
}

impl From<Incoming> for Lines {
    fn from(body: Incoming) -> Self {
        Self {
            body,
            read: Vec::new(),
            searched: 0,
        }
    }
}

impl Lines {
    /// The next line; `None` at the end of the response.
    async fn next(&mut self) -> Option<String> {
        loop {
            let unknown = &self.read[self.searched..];
            if let Some(end) = unknown.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=self.searched + end).collect();
                self.searched = 0;
                return Some(String::from_utf8(line).unwrap());
            }
            self.searched = self.read.len();
            let frame = self.body.frame().await?.unwrap();
            self.read.extend_from_slice(frame.data_ref().unwrap());
        }
    }

    async fn expect(&mut self, name: &str) {
        let line = self.next().await.unwrap();
        assert!(
            line.contains(&format!("\"name\":\"{name}\"")),
            "{name}: {}",
            &line[..200]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_every_length_arrive_whatever_the_windows() {
    for (stream, connection) in [
        (1 << 22, 1 << 30),
        (1 << 16, 5 << 20),
        (1 << 10, 2 << 20),
        (700, 1 << 21),
        (1 << 20, 1 << 16),
    ] {
        let mut stage = Stage::new(stream, connection).await;
        let (mut one, mut two) = (stage.watch().await, stage.watch().await);
        let lens = [100, 1 << 10, 40 << 10, 1, 300 << 10, 700 << 10, 5_000];
        let name = |round, number| format!("o-{round}-{number}");
        for round in 0..3 {
            for (number, len) in lens.into_iter().enumerate() {
                stage.write(&name(round, number), len);
                if round > 0 {
                    let name = name(round, number);
                    tokio::join!(one.expect(&name), two.expect(&name));
                }
            }
            // The first round is a burst.
            let all = async |watch: &mut Lines| {
                for number in 0..lens.len() {
                    watch.expect(&name(0, number)).await;
                }
            };
            if round == 0 {
                tokio::join!(all(&mut one), all(&mut two));
            }
        }
        let is_large = connection > 1 << 20;
        assert_eq!(stage.delivery.is_used(), is_large, "{stream} {connection}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_ends_as_others_do_and_its_connection_goes_on() {
    let mut stage = Stage::new(1 << 20, 5 << 20).await;
    for number in 0..200 {
        let mut watch = Lines::from(stage.get(&format!("{TARGET}&timeoutSeconds=1")).await);
        for _ in 0..=number {
            watch.next().await.unwrap();
        }
        stage.write(&format!("o-{number}"), 10);
        watch.expect(&format!("o-{number}")).await;
        assert_eq!(watch.next().await, None);
    }
    assert!(stage.delivery.is_used());
}

#[tokio::test(start_paused = true)]
async fn a_client_may_leave_watches_at_any_time() {
    let mut stage = Stage::new(1 << 20, 1 << 20).await;
    for number in 0..100 {
        let watch = stage.running().await;
        stage.write("one", 10 + number % 2);
        drop(watch);
    }
    let mut watch = stage.running().await;
    stage.write("long", 1 << 20);
    while !watch.next().await.unwrap().contains("\"name\":\"long\"") {}
}

/// A stream whose writes are counted, and take a while.
#[derive(Debug)]
struct MeteredStream {
    stream: DuplexStream,
    meter: Arc<Mutex<WriteMeter>>,
}

#[derive(Debug, Default)]
struct WriteMeter {
    count: usize,
    slowness: Duration,
}

impl MemoryIo for MeteredStream {}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        {
            let mut meter = self.meter.lock();
            meter.count += 1;
            #[expect(clippy::disallowed_methods, reason = "makes a write long")]
            std::thread::sleep(meter.slowness);
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[tokio::test]
async fn the_writes_of_connections_count_as_time_of_a_pass() {
    let (mut stage, meter) = Stage::metered().await;
    let mut watch = stage.running().await;
    let (begin, pass) = (Instant::now(), Duration::from_millis(5));
    // Only the first write takes this long; a pause as long follows.
    for (name, long) in [("one", pass), ("two", Duration::ZERO)] {
        meter.lock().slowness = long;
        stage.write(name, 10);
        watch.expect(name).await;
    }
    // A timer is never early.
    assert!(begin.elapsed() >= 2 * pass);
}

#[tokio::test(start_paused = true)]
async fn an_event_for_all_streams_of_a_connection_is_one_write() {
    let (mut stage, meter) = Stage::metered().await;
    let mut watches = Vec::new();
    // More than a worker visits in a turn.
    for _ in 0..150 {
        watches.push(stage.running().await);
    }
    for number in 0..5 {
        // Time is paused, so it passes only when there is nothing else to do.
        tokio::time::sleep(Duration::from_millis(20)).await;
        meter.lock().count = 0;
        let name = format!("o-{number}");
        stage.write(&name, 10);
        for watch in &mut watches {
            watch.expect(&name).await;
        }
        assert_eq!(meter.lock().count, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_ends_with_a_drain() {
    let (_world, served) = world();
    let (client, server) = tokio::io::duplex(1 << 16);
    let mut server_side = connection_to(caching(served.clone()));
    let (drain, delivery) = (server_side.drain.clone(), Delivery::start(2, None));
    server_side.delivery = delivery.clone();
    let run = tokio::spawn(server_side.http2(server.into()));
    let (mut sender, connection) = Builder::new(TokioExecutor::new())
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get(TARGET).body(Empty::<Bytes>::new()).unwrap();
    let mut watch = Lines::from(sender.send_request(request).await.unwrap().into_body());
    watch.next().await.unwrap();
    while !delivery.is_used() {
        tokio::task::yield_now().await;
    }
    drain.begin();
    served.hub.close();
    assert_eq!(watch.next().await, None);
    assert_eq!(run.await.unwrap(), Ok(()));
    connection.await.unwrap().unwrap();
}
