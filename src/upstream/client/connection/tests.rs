//! Requests whose connection ends. That hyper can forget one is not provoked: here the connection seems to end, and hyper is not told.

use http::Uri;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

/// The end of a connection that has carried a request before, or not; and what keeps it away.
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
    let outcome = tokio::spawn(async move { answer(&client, request).await });
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\n") {
        assert_ne!(peer.read_buf(&mut heard).await.unwrap(), 0);
    }
    drop(alive);
    let outcome = outcome.await.unwrap();
    assert!(matches!(outcome, Err(SendError::Lost)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn where_hyper_connects_again_it_has_the_time() {
    for (is_used, expected) in [
        (false, LAST_WORD_TIMEOUT),
        (true, CONNECT_TIMEOUT + LAST_WORD_TIMEOUT),
    ] {
        let (alive, mut end) = end(is_used);
        let begun = Instant::now();
        drop(alive);
        end.passed().await;
        assert_eq!(begun.elapsed(), expected);
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
