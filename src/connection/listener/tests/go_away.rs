//! A service that ends its connections: in order after the response, or by aborting them instead of answering.

use super::*;
use crate::serve::{AnswerBody, ClientRequest};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Answers one request on each connection.
#[derive(Clone)]
struct OneAnswer;

impl HttpService for OneAnswer {
    type Forwarded = Full<Bytes>;
    type Error = Infallible;

    async fn call(
        &self,
        _: Box<ClientRequest>,
        go_away: &GoAway,
    ) -> Result<Response<AnswerBody<Full<Bytes>>>, Infallible> {
        go_away.begin();
        Ok(Response::new(AnswerBody::whole("last".into())))
    }
}

/// Answers no request.
#[derive(Clone)]
struct NoAnswer;

impl HttpService for NoAnswer {
    type Forwarded = Full<Bytes>;
    type Error = std::fmt::Error;

    async fn call(
        &self,
        _: Box<ClientRequest>,
        _: &GoAway,
    ) -> Result<Response<AnswerBody<Full<Bytes>>>, std::fmt::Error> {
        Err(std::fmt::Error)
    }
}

/// What a connection of HTTP/1.1 sends for two requests.
async fn received(service: impl HttpService) -> String {
    let (mut client, server) = tokio::io::duplex(4_096);
    let run = tokio::spawn(connection_of(service).http1(server.into()));
    client.write_all(&REQUEST.repeat(2)).await.unwrap();
    let mut received = String::new();
    client.read_to_string(&mut received).await.unwrap();
    run.await.unwrap().unwrap();
    received
}

#[tokio::test]
async fn a_connection_of_http1_closes_after_the_response_and_says_so() {
    let received = received(OneAnswer).await;
    assert_eq!(received.matches("HTTP/1.1 200 OK").count(), 1, "{received}");
    assert!(received.contains("connection: close\r\n"), "{received}");
    assert!(received.ends_with("last"), "{received}");
}

#[tokio::test]
async fn a_connection_of_http1_is_aborted_without_a_response() {
    assert_eq!(received(NoAnswer).await, "");
}

#[tokio::test]
async fn a_connection_of_http2_gets_goaway_and_its_response() {
    let (client, server) = tokio::io::duplex(4_096);
    let run = tokio::spawn(connection_of(OneAnswer).http2(server.into()));
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
