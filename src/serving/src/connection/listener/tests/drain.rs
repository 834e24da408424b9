//! Clients that say nothing while the gateway drains: it waits for them as long as Go's servers do.

use super::drive::{GO_AWAY_MAX, SILENCE_MAX};
use super::*;

/// Sends `bytes` to a connection, lets some time pass, and drains. Returns how the connection ended, and how long after the drain began.
async fn drained<F>(
    bytes: &[u8],
    run: impl FnOnce(ClientConnection, Transport) -> F,
) -> (Result<(), ConnectionFailure>, Duration)
where
    F: Future<Output = Result<(), ConnectionFailure>> + Send + 'static,
{
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let connection = connection();
    let drain = connection.drain.clone();
    let run = tokio::spawn(run(connection, server.into()));
    client.write_all(bytes).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    drain.begin();
    let start = Instant::now();
    // Whatever comes is read, and not answered.
    client.read_to_end(&mut Vec::new()).await.unwrap();
    drop(client);
    (run.await.unwrap(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn half_a_preface_is_waited_for_until_the_connection_is_no_longer_new() {
    for bytes in [&b""[..], b"PRI * HTTP"] {
        let (ended, elapsed) = drained(bytes, ClientConnection::http2).await;
        assert_eq!(ended, Err(ConnectionFailure::Timeout));
        assert_eq!(elapsed, SILENCE_MAX - Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_head_is_waited_for_as_long_as_go_does() {
    for bytes in [&b"GET / HT"[..], &[REQUEST, b"GET / HT"].concat()] {
        let (ended, elapsed) = drained(bytes, ClientConnection::http1).await;
        assert_eq!(ended, Ok(()), "{}", String::from_utf8_lossy(bytes));
        assert!(elapsed <= SILENCE_MAX, "{elapsed:?}");
    }
    let (ended, elapsed) = drained(REQUEST, ClientConnection::http1).await;
    assert_eq!((ended, elapsed), (Ok(()), Duration::ZERO), "an idle one");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_after_goaway_is_not_waited_for() {
    let get = b"\0\0\x03\x01\x05\0\0\0\x01\x82\x86\x84";
    for bytes in [PREFACE, &[PREFACE, get].concat()] {
        let (ended, elapsed) = drained(bytes, ClientConnection::http2).await;
        assert_eq!(ended, Ok(()));
        assert!(elapsed <= GO_AWAY_MAX + LINGER_TIME, "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_ignores_goaway_is_cut_though_it_goes_on() {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let connection = connection();
    let drain = connection.drain.clone();
    let run = tokio::spawn(connection.http2(server.into()));
    client.write_all(PREFACE).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drain.begin();
    let start = Instant::now();
    for stream in (1_u8..).step_by(2) {
        let get = [b"\0\0\x03\x01\x05\0\0\0", &[stream][..], b"\x82\x86\x84"].concat();
        if client.write_all(&get).await.is_err() || run.is_finished() {
            break;
        }
        tokio::time::sleep(GO_AWAY_MAX / 2).await;
    }
    drop(client);
    assert_eq!(run.await.unwrap(), Ok(()));
    assert!(
        start.elapsed() <= SILENCE_MAX + 2 * LINGER_TIME,
        "{:?}",
        start.elapsed()
    );
}

/// Answers 20 s later, with a response that takes as long.
fn slow() -> impl Resources {
    Upstream {
        served: None,
        recorder: Arc::new(()),
        forward: |_| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            let parts = futures::stream::unfold(0, |count| async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                let frame = http_body::Frame::data(Bytes::from_static(b"part"));
                (count < 2).then_some((Ok::<_, Infallible>(frame), count + 1))
            });
            boxed(Response::new(http_body_util::StreamBody::new(parts)))
        },
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_waited_for_however_long_it_takes() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let connection = connection_to(slow());
    let drain = connection.drain.clone();
    let run = tokio::spawn(connection.http1(server.into()));
    client.write_all(REQUEST).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    drain.begin();
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    assert!(
        read.matches("part").count() == 2 && read.ends_with("0\r\n\r\n"),
        "{read}"
    );
    assert_eq!(run.await.unwrap(), Ok(()));

    let (client, server) = tokio::io::duplex(1 << 16);
    let connection = connection_to(slow());
    let drain = connection.drain.clone();
    let run = tokio::spawn(connection.http2(server.into()));
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
            .await
            .unwrap();
    let driver = tokio::spawn(driver);
    let request = Request::get("http://a/")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = tokio::spawn(sender.send_request(request));
    tokio::time::sleep(Duration::from_secs(1)).await;
    drain.begin();
    let body = response.await.unwrap().unwrap().into_body();
    let body = http_body_util::BodyExt::collect(body).await.unwrap();
    assert_eq!(&body.to_bytes()[..], b"partpart");
    drop(sender);
    driver.await.unwrap().unwrap();
    assert_eq!(run.await.unwrap(), Ok(()));
}
