//! A socket over an in-memory stream. A channel plays the watch.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::SocketIo;
use crate::protocol::BufList;
use crate::protocol::websocket::Framing;

const CLOSE_NORMAL: &[u8] = b"\x88\x02\x03\xe8";
const MASKED_CLOSE: &[u8] = b"\x88\x80\0\0\0\0";

struct Played(mpsc::Receiver<Bytes>);

impl Body for Played {
    type Data = BufList;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BufList>, Infallible>>> {
        let event = self.0.poll_recv(context);
        event.map(|event| event.map(|bytes| Ok(Frame::data(bytes.into()))))
    }
}

struct Open {
    watch: mpsc::Sender<Bytes>,
    client: DuplexStream,
    talk: JoinHandle<std::io::Result<()>>,
}

impl Open {
    /// A socket whose connection holds up to `capacity` bytes in flight.
    fn new(capacity: usize) -> Self {
        let (watch, receiver) = mpsc::channel(8);
        let (client, server) = tokio::io::duplex(capacity);
        let body = Played(receiver).map_err(|never| match never {});
        Self {
            watch,
            client,
            talk: tokio::spawn(SocketIo::new(server, body.boxed_unsync(), Framing::Lines)),
        }
    }

    async fn send(&self, event: &'static str) {
        let event = Bytes::from_static(event.as_bytes());
        self.watch.send(event).await.unwrap();
    }

    async fn expect(&mut self, expected: &[u8]) {
        let mut read = vec![0; expected.len()];
        self.client.read_exact(&mut read).await.unwrap();
        assert_eq!(read, expected);
    }

    /// Expects that nothing more is sent and that the socket's task ends without an error.
    async fn expect_end(mut self) {
        let mut rest = Vec::new();
        self.client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
        self.talk.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn events_leave_one_by_one_and_the_watchs_end_is_told() {
    let mut open = Open::new(1024);
    open.send("{\"a\":1}\n{\"b\":2}\n").await;
    open.expect(b"\x81\x08{\"a\":1}\n\x81\x08{\"b\":2}\n").await;
    open.watch = mpsc::channel(1).0;
    open.expect(CLOSE_NORMAL).await;
    open.expect_end().await;
}

#[tokio::test]
async fn a_ping_is_answered_between_events() {
    let mut open = Open::new(1024);
    open.client
        .write_all(b"\x89\x83\x01\x01\x01\x01`cb")
        .await
        .unwrap();
    open.expect(b"\x8a\x03abc").await;
    open.send("{}\n").await;
    open.expect(b"\x81\x03{}\n").await;
}

#[tokio::test]
async fn a_clients_close_is_answered_and_ends_the_watch() {
    let mut open = Open::new(1024);
    open.client.write_all(MASKED_CLOSE).await.unwrap();
    open.expect(CLOSE_NORMAL).await;
    open.watch.closed().await;
    open.expect_end().await;
}

#[tokio::test]
async fn an_unmasked_frame_is_told_to_be_an_error() {
    let mut open = Open::new(1024);
    open.client.write_all(b"\x81\x01a").await.unwrap();
    open.expect(b"\x88\x02\x03\xea").await;
    open.watch.closed().await;
    open.expect_end().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_watch() {
    let open = Open::new(1024);
    drop(open.client);
    open.watch.closed().await;
    assert!(
        open.talk.await.unwrap().is_err(),
        "the close frame cannot be sent"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_is_heard_and_pulls_nothing() {
    let mut open = Open::new(8);
    open.send("{\"long\":\"enough to fill the connection\"}\n")
        .await;
    // The channel takes as many events as it holds: the socket pulls none.
    for _ in 0..open.watch.max_capacity() {
        open.send("{}\n").await;
    }
    assert!(open.watch.try_send(Bytes::new()).is_err());
    open.client.write_all(MASKED_CLOSE).await.unwrap();
    open.watch.closed().await;
    open.expect(b"\x81\x29{\"long\":\"enough to fill the connection\"}\n")
        .await;
    open.expect(CLOSE_NORMAL).await;
    open.expect_end().await;
}
