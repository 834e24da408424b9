//! A relay that passes everything on until the gateway is asked to end, and then breaks the end. The load test must find the clients that
//! were not served to the end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::relay::{accepting, pass_on};
use crate::wire::response::{Progress, Response};

/// The lost event of each watch over HTTP/1.1, counted from 1.
const LOST: usize = 3;
/// Possible last bytes are held for this time. HTTP/2 continues if it was not the end.
const KEPT_FOR: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoils {
    /// Drops this many bytes at the end of each connection, and closes it.
    Shortens(usize),
    /// Passes nothing on and closes nothing. New connections wait for ever.
    FallsSilent,
    /// From the start on drops one event of each watch over HTTP/1.1.
    Loses,
    /// Connects new clients to another server.
    Serves(SocketAddr),
}

/// A running relay; its connections end with it.
pub(crate) struct Spoiler {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Spoiler {
    /// Starts the relay. `ends` becomes true when the gateway is asked to end.
    pub(crate) async fn before(
        gateway: SocketAddr,
        spoils: Spoils,
        ends: watch::Receiver<bool>,
    ) -> Self {
        let (address, _tasks) = accepting(move |client| {
            let mut ends = ends.clone();
            let to = match spoils {
                Spoils::Serves(other) if *ends.borrow() => other,
                _ => gateway,
            };
            let of_answers = ends.clone();
            let answer = move |from, to, first| spoil(from, to, first, spoils, of_answers);
            async move {
                let mut passing = std::pin::pin!(pass_on(client, to, answer));
                if spoils != Spoils::FallsSilent {
                    let _ = passing.await;
                    return;
                }
                tokio::select! {
                    biased;
                    _ = ends.wait_for(|ends| *ends) => {}
                    _ = &mut passing => return,
                }
                // The sockets stay open.
                std::future::pending().await
            }
        })
        .await;
        Self { address, _tasks }
    }
}

async fn spoil(
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    first: String,
    spoils: Spoils,
    ends: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let is_watch = first.starts_with("GET ") && first.contains("watch=1");
    match spoils {
        Spoils::Shortens(len) => shorten(from, to, len, ends).await,
        Spoils::Loses if is_watch && !first.contains("Upgrade") => lose(from, to).await,
        Spoils::Loses | Spoils::FallsSilent | Spoils::Serves(_) => shorten(from, to, 0, ends).await,
    }
}

/// Passes on all but the last bytes.
async fn shorten(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    len: usize,
    ends: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut buffer, mut kept) = (vec![0; 64 << 10], Vec::new());
    loop {
        let Ok(read) = tokio::time::timeout(KEPT_FOR, from.read(&mut buffer)).await else {
            // It was not the end.
            to.write_all(&std::mem::take(&mut kept)).await?;
            continue;
        };
        let read = read?;
        if read == 0 {
            return Ok(());
        }
        kept.extend_from_slice(&buffer[..read]);
        let keeps = if *ends.borrow() { len } else { 0 };
        let goes = kept.len().saturating_sub(keeps);
        to.write_all(&kept[..goes]).await?;
        kept.drain(..goes);
    }
}

/// Passes on a chunked body with one line per chunk, without one of the lines.
async fn lose(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    let (mut buffer, mut head, mut body) = (vec![0; 64 << 10], Vec::new(), Vec::new());
    let (mut response, mut lines, mut has_head) = (Response::default(), 0, false);
    loop {
        let len = from.read(&mut buffer).await?;
        if len == 0 {
            return Ok(());
        }
        let fed = response.feed(&buffer[..len], |_, data| body.extend_from_slice(data));
        if !has_head {
            head.extend_from_slice(&buffer[..len]);
            if let Some(end) = memchr::memmem::find(&head, b"\r\n\r\n") {
                has_head = true;
                to.write_all(&head[..end + 4]).await?;
            }
        }
        while let Some(end) = memchr::memchr(b'\n', &body) {
            lines += 1;
            let line: Vec<u8> = body.drain(..=end).collect();
            if lines != LOST {
                let chunk = [format!("{:x}\r\n", line.len()).as_bytes(), &line, b"\r\n"].concat();
                to.write_all(&chunk).await?;
            }
        }
        if matches!(fed, Ok(Progress::Complete(_))) {
            to.write_all(b"0\r\n\r\n").await?;
        }
    }
}
