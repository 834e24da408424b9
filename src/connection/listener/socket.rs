//! Sockets towards clients.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that are made but not yet accepted. With fewer, clients that come at once while the process is busy may wait for seconds:
/// the kernel drops what does not fit, and clients ask again after 1 s, then 2 s. The kernel's own bound (`net.core.somaxconn`) counts too.
const BACKLOG: u32 = 4_096;
/// A peer that neither acknowledges nor takes anything for so long is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(120);
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Unsent bytes that the kernel holds for a slow client.
const UNSENT_LEN: u32 = 128 << 10;

/// Opens a port for many clients. Must be called inside a tokio runtime.
///
/// # Errors
/// If the address is in use or not ours.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As the standard library does: a gateway that starts again needs its port at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Options of a client's socket: nothing waits for an acknowledgement, a dead peer is noticed, and the kernel holds
/// little for a slow one.
///
/// # Errors
/// What the system refuses; the connection works all the same.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As many clients as a relist storm brings at once, while the process is busy otherwise.
    const CLIENTS: usize = 500;

    #[tokio::test]
    async fn clients_that_come_at_once_need_not_ask_twice() {
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        // Nobody accepts. A connection that finds no room in the queue is not refused: it would wait for ever.
        for _ in 0..CLIENTS {
            let client = TcpStream::connect(address);
            let client = tokio::time::timeout(Duration::from_secs(30), client).await;
            clients.push(client.expect("no room in the queue").unwrap());
        }
        assert_eq!(clients.len(), CLIENTS);
    }
}
