//! A Service in front of several gateways: each connection goes to one of those that are ready, in turns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use parking_lot::RwLock;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards connections, until it is dropped.
#[derive(Debug)]
pub struct Balancer {
    pub url: String,
    backends: Arc<RwLock<Vec<SocketAddr>>>,
    accepting: JoinHandle<()>,
}

impl Balancer {
    /// Starts without backends; connections are refused until there is one.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let backends = Arc::new(RwLock::new(Vec::new()));
        let known = Arc::clone(&backends);
        let accepting = tokio::spawn(async move {
            let next = AtomicUsize::new(0);
            while let Ok((client, _)) = listener.accept().await {
                let backend = choose(&known.read(), next.fetch_add(1, Ordering::Relaxed));
                if let Some(backend) = backend {
                    tokio::spawn(forward(client, backend));
                }
            }
        });
        Ok(Self {
            url,
            backends,
            accepting,
        })
    }

    /// Connections may go to this backend from now on.
    pub fn add(&self, backend: SocketAddr) {
        self.backends.write().push(backend);
    }

    /// No new connection goes to this backend.
    pub fn remove(&self, backend: SocketAddr) {
        self.backends.write().retain(|known| *known != backend);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn choose(backends: &[SocketAddr], turn: usize) -> Option<SocketAddr> {
    backends.get(turn % backends.len().max(1)).copied()
}

/// Errors end the connection, which the client notices.
async fn forward(mut client: TcpStream, backend: SocketAddr) {
    let Ok(mut server) = TcpStream::connect(backend).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
