//! Bytes on a socket, as no well-behaved client sends them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::PATIENCE;

/// More than any refusal is long.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// What came back until the gateway closed the connection, or was done with the request.
pub(crate) async fn exchange(server: SocketAddr, sent: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).await.unwrap();
    send(&mut stream, sent).await;
    // The end of what is sent says that no more is coming.
    let _ = stream.shutdown().await;
    read_to_end(&mut stream).await
}

/// Sends what the peer takes: one that refuses may close before it has read everything.
pub(crate) async fn send(stream: &mut TcpStream, bytes: &[u8]) {
    let sent = tokio::time::timeout(PATIENCE, stream.write_all(bytes)).await;
    let _ = sent.unwrap();
}

/// Reads until the connection is closed or reset.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let read = read_until(stream, |_| false).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// Reads until `enough`, or until the connection is closed or reset.
pub(crate) async fn read_until(stream: &mut TcpStream, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut gathered = Vec::new();
    let mut chunk = [0; 4_096];
    while !enough(&gathered) && gathered.len() < ANSWER_LEN_MAX {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut chunk)).await;
        match read.unwrap() {
            Ok(0) | Err(_) => break,
            Ok(len) => gathered.extend_from_slice(&chunk[..len]),
        }
    }
    gathered
}

/// Asks with these further headers, each with the end of its line; the code of the answer's head, which is all that is waited for.
pub(crate) async fn ask(stream: &mut TcpStream, target: &str, headers: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    send(stream, request.as_bytes()).await;
    let head = read_until(stream, |read| read.windows(4).any(|end| end == b"\r\n\r\n")).await;
    code(&String::from_utf8_lossy(&head))
}

/// The code in the first line of an answer; 0 when the connection was closed without one.
pub(crate) fn code(answer: &str) -> u16 {
    let word = answer
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| answer.strip_prefix("HTTP/1.0 "));
    word.map_or(0, |rest| rest[..3].parse().unwrap())
}
