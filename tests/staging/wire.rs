//! A network that goes silent and breaks.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// An address that leads to another one. Dropping it cuts all connections.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    silent: watch::Sender<bool>,
    connections: Arc<Mutex<JoinSet<()>>>,
    _accepting: JoinSet<()>,
}

impl Wire {
    pub(crate) async fn to(peer: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let silent = watch::Sender::new(false);
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let mut accepting = JoinSet::new();
        let (heard, open) = (silent.subscribe(), Arc::clone(&connections));
        accepting.spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                open.lock()
                    .unwrap()
                    .spawn(joined(near, peer, heard.clone()));
            }
        });
        Self {
            address,
            silent,
            connections,
            _accepting: accepting,
        }
    }

    /// Nothing arrives any more, at either end, and nobody is told; or what was sent meanwhile arrives.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// Closes all connections. What was not delivered is lost.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }
}

async fn joined(near: TcpStream, peer: SocketAddr, silent: watch::Receiver<bool>) {
    // A peer that is not there looks like one that closes at once.
    let Ok(far) = TcpStream::connect(peer).await else {
        return;
    };
    let ((near_reads, near_writes), (far_reads, far_writes)) =
        (near.into_split(), far.into_split());
    tokio::join!(
        carry(near_reads, far_writes, silent.clone()),
        carry(far_reads, near_writes, silent)
    );
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut silent: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        let heard = silent.wait_for(|silent| !silent).await.is_ok();
        if !heard || to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
