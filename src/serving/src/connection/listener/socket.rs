//! Options of listening sockets and of client sockets.

#![cfg_attr(
    feature = "sim",
    allow(dead_code, reason = "the sockets of a simulation have no options")
)]

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

#[cfg(not(feature = "sim"))]
use tokio::net::TcpSocket;

use crate::net::{TcpListener, TcpStream};

/// Connections that are established but not accepted yet. The kernel drops SYNs beyond it, and the client retries after 1 s, then 2 s:
/// with a short queue, a burst of clients may wait for seconds. The kernel's own bound (`net.core.somaxconn`) applies, too.
const BACKLOG: u32 = 4_096;
/// The kernel closes a connection whose peer acknowledges nothing, or whose receive window stays closed, for this long.
const USER_TIMEOUT: Duration = Duration::from_secs(120);
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Unsent bytes that the kernel holds for a slow client.
const UNSENT_LEN: u32 = 128 << 10;

/// Opens a listening socket for many clients. Must be called inside a tokio runtime.
///
/// # Errors
/// If the address is in use or does not belong to this host.
#[cfg(not(feature = "sim"))]
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As the standard library does: a restarted gateway needs its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Sets the options of a client's socket: small writes are sent at once, a dead peer is noticed, and the kernel buffers little for a
/// slow client.
///
/// # Errors
/// If the system refuses an option; the connection works without it.
#[cfg(not(feature = "sim"))]
pub fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_keepalive(
        &socket2::TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE),
    )?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_tcp_notsent_lowat(UNSENT_LEN)
}

/// Opens a listening socket of the simulated host.
///
/// # Errors
/// If the address is in use or does not belong to this host.
#[cfg(feature = "sim")]
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind_now(address)
}

/// Nothing: simulated sockets have no options.
///
/// # Errors
/// Never.
#[cfg(feature = "sim")]
pub fn set_options(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst of clients as after a restart, while the process is busy.
    const CLIENTS: usize = 500;

    #[tokio::test]
    async fn many_simultaneous_connections_fit_into_the_accept_queue() {
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        // No connection is accepted. A client that does not fit into the queue is not refused: it would wait.
        for _ in 0..CLIENTS {
            let client = TcpStream::connect(address);
            let client = tokio::time::timeout(Duration::from_secs(30), client).await;
            clients.push(
                client
                    .expect("the connection does not fit into the queue")
                    .unwrap(),
            );
        }
        assert_eq!(clients.len(), CLIENTS);
    }
}
