//! TLS handshakes that never finish, and the orderly end of TLS connections.

use rustls::version::{TLS12, TLS13};

use super::*;
use crate::tls::ServerIdentity;
use crate::tls::tests::samples::{Folder, client, connector, named, server_files};

fn tls() -> ServerTls {
    let folder = Folder::create();
    let files = server_files(&folder, Vec::new());
    ServerIdentity::read(files).unwrap().config()
}

/// The ClientHello.
fn hello() -> Vec<u8> {
    let config = Arc::new(client(&TLS13, None));
    let mut hello = Vec::new();
    let mut client = rustls::ClientConnection::new(config, named("localhost")).unwrap();
    client.write_tls(&mut hello).unwrap();
    hello
}

fn connection_over_tls(metrics: &Metrics) -> ClientConnection {
    let upstream = forwarding(|_: ForwardRequest| boxed(Response::new(Full::default())));
    let service = Service::new(Arc::new(upstream), unlimited(), metrics.listener());
    ClientConnection {
        tls: Some(tls().load_full().into()),
        ..connection_of(service)
    }
}

async fn accepted() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (client, server) = tokio::join!(client, listener.accept());
    (client.unwrap(), server.unwrap().0)
}

/// Sends the first `at_once` bytes together and the rest at one byte per second, then reads to the end.
async fn send_slowly(mut client: TcpStream, bytes: &[u8], at_once: usize) {
    client.write_all(&bytes[..at_once]).await.unwrap();
    for byte in &bytes[at_once..] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
    }
    let _ = client.read_to_end(&mut Vec::new()).await;
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_end_is_given_up() {
    let hello = hello();
    let half = hello.len() / 2;
    // Nothing; half a ClientHello; one that arrives byte by byte; a complete one whose client does not continue.
    for (bytes, at_once) in [
        (&[][..], 0),
        (&hello[..half], half),
        (&hello, half),
        (&hello, hello.len()),
    ] {
        let metrics = Metrics::new().unwrap();
        let (client, server) = accepted().await;
        let permits = Permits::new(1);
        let peer = Peer::from(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
        let permit = permits.try_acquire(peer);
        let start = Instant::now();
        let served = async {
            connection_over_tls(&metrics).run(server, permit).await;
            start.elapsed()
        };
        let (elapsed, ()) = tokio::join!(served, send_slowly(client, bytes, at_once));
        assert!(
            elapsed >= HANDSHAKE_TIMEOUT && elapsed < HANDSHAKE_TIMEOUT + Duration::from_secs(1),
            "{} bytes, {at_once} at once: {elapsed:?}",
            bytes.len()
        );
        let failed = metrics.listener().connections_failed;
        assert_eq!(failed.count(ConnectionFailure::Handshake), 1);
        assert!(
            permits.try_acquire(peer).is_some(),
            "the permit is released"
        );
    }
}

#[tokio::test]
async fn a_drain_ends_tls_in_order_after_a_watch() {
    for version in [&TLS12, &TLS13] {
        let (_world, served) = world();
        let (socket, server) = accepted().await;
        let connection = ClientConnection {
            tls: Some(tls().load_full().into()),
            ..connection_to(caching(served.clone()))
        };
        let drain = connection.drain.clone();
        let run = tokio::spawn(connection.run(server, None));
        let connecting = connector(client(version, None)).connect(named("localhost"), socket);
        let mut client = connecting.await.unwrap();
        // Closing the connection without a TLS close_notify would be an error here.
        watch_until_drained(&mut client, &served, &drain).await;
        drop(client);
        run.await.unwrap();
    }
}
