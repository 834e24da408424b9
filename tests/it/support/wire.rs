//! A TCP proxy that can stop delivering bytes, and break connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A TCP proxy to one peer. Dropping it closes all connections.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    silent: watch::Sender<bool>,
    refusing: Arc<AtomicBool>,
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
        let (silence, open) = (silent.subscribe(), Arc::clone(&connections));
        let refusing = Arc::<AtomicBool>::default();
        let refuses = Arc::clone(&refusing);
        accepting.spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                if refuses.load(Ordering::Relaxed) {
                    continue;
                }
                open.lock()
                    .unwrap()
                    .spawn(proxy(near, peer, silence.clone()));
            }
        });
        Self {
            address,
            silent,
            refusing,
            connections,
            _accepting: accepting,
        }
    }

    /// If `silent`, nothing is delivered in either direction, and connections stay open. Otherwise what was sent meanwhile is
    /// delivered.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// If `refusing`, all connections are closed, and new ones at once.
    pub(crate) fn set_refusing(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Relaxed);
        if refusing {
            self.cut();
        }
    }

    /// Closes all connections. Bytes that were not delivered are lost.
    pub(crate) fn cut(&self) {
        self.connections.lock().unwrap().abort_all();
    }
}

async fn proxy(near: TcpStream, peer: SocketAddr, silent: watch::Receiver<bool>) {
    // If the peer is not there, the client sees its connection closed at once.
    let Ok(far) = TcpStream::connect(peer).await else {
        return;
    };
    let ((near_reads, near_writes), (far_reads, far_writes)) =
        (near.into_split(), far.into_split());
    tokio::join!(
        copy(near_reads, far_writes, silent.clone()),
        copy(far_reads, near_writes, silent)
    );
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut silent: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        let is_open = silent.wait_for(|silent| !silent).await.is_ok();
        if !is_open || to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
