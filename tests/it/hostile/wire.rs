//! Raw bytes on a socket: requests that no well-behaved client sends, and what comes back.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::PATIENCE;

/// More than the length of any response that is read here.
const RESPONSE_LEN_MAX: usize = 1 << 20;

/// Sends bytes on a connection of its own, ends the sending side, and reads until the gateway closes the connection.
pub(crate) async fn exchange(server: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    send(&mut stream, sent).await;
    // The gateway may have closed the connection already.
    let _ = stream.shutdown().await;
    read_to_end(&mut stream).await
}

/// Sends bytes. Errors are ignored, because a peer that refuses a request may close the connection before it has read everything.
pub(crate) async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let sent = tokio::time::timeout(PATIENCE, stream.write_all(bytes)).await;
    let _ = sent.unwrap();
}

/// Reads until the connection is closed or reset.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let read = read_until(stream, |_| false).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// Reads until `enough` returns true for all bytes read so far, or the connection is closed or reset, or [`RESPONSE_LEN_MAX`] is
/// reached.
pub(crate) async fn read_until(
    stream: &mut (impl AsyncRead + Unpin),
    enough: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut buffer = Vec::new();
    let mut chunk = [0; 4_096];
    while !enough(&buffer) && buffer.len() < RESPONSE_LEN_MAX {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut chunk)).await;
        match read.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(len) => buffer.extend_from_slice(&chunk[..len]),
        }
    }
    buffer
}

/// Sends a GET request with further `headers`, each ended by CRLF; returns the status code once the response's head has arrived.
pub(crate) async fn send_get(stream: &mut TcpStream, target: &str, headers: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    send(stream, request.as_bytes()).await;
    let head = read_until(stream, |read| read.windows(4).any(|end| end == b"\r\n\r\n")).await;
    code(&String::from_utf8_lossy(&head))
}

/// The status code of a response; 0 if the connection was closed without one.
pub(crate) fn code(response: &str) -> u16 {
    let status_line = response
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| response.strip_prefix("HTTP/1.0 "));
    status_line.map_or(0, |rest| rest[..3].parse().unwrap())
}
