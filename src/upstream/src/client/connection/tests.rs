//! Requests whose connection ends. The race in hyper is not provoked: the connection only appears to end, and hyper is not
//! notified.

use http::Uri;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

/// The end of a connection, and the sender that keeps it alive. If `is_used`, the connection has carried a request before.
fn end(is_used: bool) -> (watch::Sender<()>, ConnectionEnd) {
    let alive = watch::Sender::new(());
    let end = ConnectionEnd {
        alive: alive.subscribe(),
        used: Arc::new(if is_used {
            OnceLock::from(())
        } else {
            OnceLock::new()
        }),
    };
    (alive, end)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_connection_forgot_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (alive, end) = end(false);
    let connector = tower::service_fn(move |_: Uri| {
        let end = end.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            Ok::<_, io::Error>(UpstreamConnection {
                bytes: TokioIo::new(stream),
                end,
                _alive: watch::Sender::new(()),
            })
        })
    });
    let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let request = Request::get(format!("http://{address}/"))
        .body(RequestBody::Empty)
        .unwrap();
    let outcome = tokio::spawn(async move { send(&client, request).await });
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut received = Vec::new();
    while !received.ends_with(b"\r\n\r\n") {
        assert_ne!(peer.read_buf(&mut received).await.unwrap(), 0);
    }
    drop(alive);
    let outcome = outcome.await.unwrap();
    assert!(matches!(outcome, Err(SendError::Lost)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn where_hyper_connects_again_it_has_the_time() {
    for (is_used, expected) in [
        (false, RESPONSE_GRACE),
        (true, CONNECT_TIMEOUT + RESPONSE_GRACE),
    ] {
        let (alive, mut end) = end(is_used);
        let start = Instant::now();
        drop(alive);
        end.exhausted().await;
        assert_eq!(start.elapsed(), expected);
    }
}

#[tokio::test]
async fn a_connection_has_ended_when_it_is_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let connection = UpstreamConnection::new(TokioIo::new(stream));
    let mut end = ConnectionEnd::of(Some(&connection.connected())).unwrap();
    assert!(end.alive.has_changed().is_ok());
    drop(connection);
    assert!(end.alive.changed().await.is_err());
}
