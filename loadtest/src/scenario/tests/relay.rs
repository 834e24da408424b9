//! A relay that holds back the end of a watch's data, like a server that sends pending data only with the next event. The load test must
//! find the clients that are behind.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
            // Either side may close at any time.
            async move { drop(pass_on(client, server, held, &has_cut).await) }
        })
        .await;
        Self { address, _tasks }
    }

    /// A relay that changes a byte of the second long line of each connection, and holds back nothing.
    pub(crate) async fn that_garbles(server: SocketAddr) -> Self {
        let garbled = move |client| async move { drop(garble(client, server).await) };
        let (address, _tasks) = accepting(garbled).await;
        Self { address, _tasks }
    }
}

async fn garble(mut client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let events = async {
        let (mut buffer, mut at, mut long) = (vec![0; 64 << 10], 0, 0);
        loop {
            let len = from_server.read(&mut buffer).await?;
            for byte in &mut buffer[..len] {
                at = if *byte == b'\n' { 0 } else { at + 1 };
                if at == GARBLED_AT && *byte == b'x' {
                    long += 1;
                    *byte = if long == 2 { b'y' } else { b'x' };
                }
            }
            to_client.write_all(&buffer[..len]).await?;
            if len == 0 {
                return Ok(());
            }
        }
    };
    tokio::select! {
        _ = requests => Ok(()),
        ended = events => ended,
    }
}

async fn pass_on(
    mut client: TcpStream,
    server: SocketAddr,
    held: HoldBack,
    has_cut: &AtomicBool,
) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let mut buffer = vec![0; 256 << 10];
    let len = client.read(&mut buffer).await?;
    let first = String::from_utf8_lossy(&buffer[..len]).into_owned();
    server.write_all(&buffer[..len]).await?;
    let is_http2 = first.starts_with("PRI ");
    if !is_http2 && !first.contains("watch=1") {
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        return Ok(());
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let events = async {
        let (mut kept, mut has_head) = (Vec::new(), false);
        loop {
            let wait = match held {
                HoldBack::For(time) | HoldBack::ThenCut(time) if !kept.is_empty() => time,
                _ => Duration::MAX,
            };
            // A cancelled read has read nothing.
            match tokio::time::timeout(wait, from_server.read(&mut buffer)).await {
                Ok(len) => {
                    let len = len?;
                    to_client.write_all(&kept).await?;
                    kept = buffer[..len].to_vec();
                    let is_event = if is_http2 {
                        len > EVENT_LEN_MIN
                    } else {
                        has_head
                    };
                    has_head = true;
                    if len > 0 && is_event {
                        continue;
                    }
                    to_client.write_all(&std::mem::take(&mut kept)).await?;
                    if len == 0 {
                        return Ok(());
                    }
                }
                Err(_) if held == HoldBack::UntilNext => {}
                Err(_) if matches!(held, HoldBack::ThenCut(_)) => {
                    if !has_cut.swap(true, Ordering::Relaxed) {
                        return Ok(());
                    }
                    to_client.write_all(&std::mem::take(&mut kept)).await?;
                }
                Err(_) => to_client.write_all(&std::mem::take(&mut kept)).await?,
            }
        }
    };
    tokio::select! {
        _ = requests => Ok(()),
        ended = events => ended,
    }
}
