//! Single requests over connections of their own.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Requests a path; the answer may be a stream.
pub(crate) async fn get(server: SocketAddr, target: &str) -> http::Response<Incoming> {
    let io = TokioIo::new(TcpStream::connect(server).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(target)
        .header("host", "gateway")
        .body(Full::<Bytes>::default())
        .unwrap();
    sender.send_request(request).await.unwrap()
}

/// The whole body of an answer.
pub(crate) async fn text(answer: http::Response<Incoming>) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
