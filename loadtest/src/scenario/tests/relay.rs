//! A relay that holds back the end of a watch's data, like a server that sends pending data only with the next event. The load test must
//! find the clients that are behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Shorter pieces are HTTP/2's own frames.
const EVENT_LEN_MIN: usize = 400;

/// When the newest piece is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldBack {
    /// With the next one.
    UntilNext,
    For(Duration),
    /// Never: the first connection with such a piece is closed after this time.
    ThenCut(Duration),
}

/// The byte of a line that a garbling relay changes, if it is in an object's padding.
const GARBLED_AT: usize = 5_000;

/// A running relay; its connections end with it.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Accepts connections and passes each on, until the tasks are dropped.
pub(super) async fn accepting<F: Future<Output = ()> + Send + 'static>(
    pass_on: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            connections.spawn(pass_on(client));
        }
    });
    (address, tasks)
}

impl Relay {
    pub(crate) async fn before(server: SocketAddr, held: HoldBack) -> Self {
        let has_cut = Arc::<AtomicBool>::default();
        let (address, _tasks) = accepting(move |client| {
            let has_cut = Arc::clone(&has_cut);
            async move {
                let answer = |from, to, first| hold_back(from, to, first, held, &has_cut);
                drop(pass_on(client, server, answer).await);
            }
        })
        .await;
        Self { address, _tasks }
    }

    /// A relay that changes a byte of the second long line of each connection, and holds back nothing.
    pub(crate) async fn that_garbles(server: SocketAddr) -> Self {
        let garbled = move |client| async move {
            drop(pass_on(client, server, |from, to, _| garble(from, to)).await);
        };
        let (address, _tasks) = accepting(garbled).await;
        Self { address, _tasks }
    }
}

/// Passes a connection on: requests as they are, responses by `answer`, which gets the beginning of the first request. Either side may
/// close at any time.
pub(super) async fn pass_on<F: Future<Output = std::io::Result<()>>>(
    client: TcpStream,
    server: SocketAddr,
    answer: impl FnOnce(OwnedReadHalf, OwnedWriteHalf, String) -> F,
) -> std::io::Result<()> {
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = TcpStream::connect(server).await?.into_split();
    let mut buffer = vec![0; 16 << 10];
    let len = from_client.read(&mut buffer).await?;
    to_server.write_all(&buffer[..len]).await?;
    let first = String::from_utf8_lossy(&buffer[..len]).into_owned();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => Ok(()),
        ended = answer(from_server, to_client, first) => ended,
    }
}

async fn garble(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    let (mut buffer, mut at, mut long) = (vec![0; 64 << 10], 0, 0);
    loop {
        let len = from.read(&mut buffer).await?;
        for byte in &mut buffer[..len] {
            at = if *byte == b'\n' { 0 } else { at + 1 };
            if at == GARBLED_AT && *byte == b'x' {
                long += 1;
                *byte = if long == 2 { b'y' } else { b'x' };
            }
        }
        to.write_all(&buffer[..len]).await?;
        if len == 0 {
            return Ok(());
        }
    }
}

/// Passes a watch on, or a connection of many; other responses as they are.
async fn hold_back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    first: String,
    held: HoldBack,
    has_cut: &AtomicBool,
) -> std::io::Result<()> {
    let is_http2 = first.starts_with("PRI ");
    if !is_http2 && !first.contains("watch=1") {
        return tokio::io::copy(&mut from, &mut to).await.map(drop);
    }
    let mut buffer = vec![0; 256 << 10];
    let (mut kept, mut has_head) = (Vec::new(), false);
    loop {
        let wait = match held {
            HoldBack::For(time) | HoldBack::ThenCut(time) if !kept.is_empty() => time,
            _ => Duration::MAX,
        };
        // A cancelled read has read nothing.
        let Ok(len) = tokio::time::timeout(wait, from.read(&mut buffer)).await else {
            if matches!(held, HoldBack::ThenCut(_)) && !has_cut.swap(true, Ordering::Relaxed) {
                return Ok(());
            }
            to.write_all(&std::mem::take(&mut kept)).await?;
            continue;
        };
        let len = len?;
        to.write_all(&kept).await?;
        kept = buffer[..len].to_vec();
        let is_event = if is_http2 {
            len > EVENT_LEN_MIN
        } else {
            has_head
        };
        has_head = true;
        if len == 0 || !is_event {
            to.write_all(&std::mem::take(&mut kept)).await?;
        }
        if len == 0 {
            return Ok(());
        }
    }
}
