//! Connections that end after a response.

use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// A connection that ends with its first response.
fn of_one_answer() -> ClientConnection {
    let go_away = GoAway::default();
    let ends = go_away.clone();
    let upstream = forwarding(move |_: ForwardRequest| {
        ends.begin();
        boxed(Response::new(Full::from("last")))
    });
    ClientConnection {
        go_away,
        ..connection_to(upstream)
    }
}

#[tokio::test]
async fn a_connection_of_http1_closes_after_the_response_and_says_so() {
    let (mut client, server) = tokio::io::duplex(4_096);
    let run = tokio::spawn(of_one_answer().http1(server.into()));
    client.write_all(&REQUEST.repeat(2)).await.unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).await.unwrap();
    run.await.unwrap().unwrap();
    assert_eq!(received.matches("HTTP/1.1 200 OK").count(), 1, "{received}");
    assert!(received.contains("connection: close\r\n"), "{received}");
    assert!(received.ends_with("last"), "{received}");
}

#[tokio::test]
async fn a_connection_of_http2_gets_goaway_and_its_response() {
    let (client, server) = tokio::io::duplex(4_096);
    let run = tokio::spawn(of_one_answer().http2(server.into()));
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
    let ended = tokio::spawn(connection);
    let request = || {
        Request::get("http://a/")
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    let response = sender.send_request(request()).await.unwrap();
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    assert_eq!(body.unwrap().to_bytes(), "last");
    ended.await.unwrap().unwrap();
    assert!(sender.send_request(request()).await.is_err());
    run.await.unwrap().unwrap();
}
