//! CPU of the gateway's half of a TLS handshake: of clients that connect for the first time, and of the same clients when all come again.
//!
//! A plain program: `cargo bench --bench handshakes [-- --quick]`. Both ends are in memory, with the gateway's own configuration, and
//! certificates with an ECDSA and with an RSA key. The median of all handshakes, so that other load on the machine hardly matters.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a driver: it prints and reads the clock"
)]

#[path = "rig/record.rs"]
mod record;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/rounds.rs"]
mod rounds;
#[allow(dead_code, reason = "the benches use different parts of it")]
#[path = "rig/tls.rs"]
mod tls;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube_fanout::tls::{PairFiles, ServerIdentity, TlsFiles};
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

use record::{Claim, Record};
use rounds::Effort;

const ROUNDS: usize = 3;

fn main() -> io::Result<()> {
    let effort = Effort::of_arguments();
    let clients = effort.pick(5_000, 20);
    let about = "CPU of the gateway's half of a TLS handshake, with clients that come for the first time and when all come again.";
    let mut record = Record::new("handshakes", about, effort);
    let rsa = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
    // Beside a key exchange an ECDSA signature is nothing that could be saved.
    for (name, key, at_most) in [
        ("ECDSA P-256", KeyPair::generate(), None),
        ("RSA 2048", rsa(), Some(0.4)),
    ] {
        let server = gateway(&key.map_err(io::Error::other)?)?;
        let mut medians = [Vec::new(), Vec::new()];
        for _ in 0..effort.pick(ROUNDS, 1) {
            let clients = (0..clients).map(|_| client());
            let clients = clients.collect::<io::Result<Vec<_>>>()?;
            for (kind, medians) in [HandshakeKind::Full, HandshakeKind::Resumed]
                .into_iter()
                .zip(&mut medians)
            {
                medians.push(round(&server, &clients, kind)?.as_secs_f64() * 1e6);
            }
        }
        println!(
            "{name}: first {:.1?} µs, again {:.1?} µs",
            medians[0], medians[1]
        );
        let (first, again) = (format!("{name} / first"), format!("{name} / again"));
        record.rounds(&first, "CPU, µs", &medians[0]);
        record.rounds(&again, "CPU, µs", &medians[1]);
        record.claim(Claim {
            what: name,
            figure: "CPU, µs",
            of: &again,
            to: Some(&first),
            at_most,
        });
    }
    record.write()
}

/// The gateway's configuration for a certificate with this key.
fn gateway(key: &KeyPair) -> io::Result<Arc<ServerConfig>> {
    let folder =
        std::env::temp_dir().join(format!("kube-fanout-handshakes-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let params = CertificateParams::new(["localhost".to_owned()]).map_err(io::Error::other)?;
    let certificate = params.self_signed(key).map_err(io::Error::other)?;
    let files = PairFiles {
        cert: folder.join("tls.crt"),
        key: folder.join("tls.key"),
    };
    std::fs::write(&files.cert, certificate.pem())?;
    std::fs::write(&files.key, key.serialize_pem())?;
    let identity = ServerIdentity::read(TlsFiles {
        default: files,
        named: Vec::new(),
        client_authorities: Vec::new(),
    });
    std::fs::remove_dir_all(&folder)?;
    Ok(identity.map_err(io::Error::other)?.config().load_full())
}

/// A client that keeps its own sessions.
fn client() -> io::Result<Arc<ClientConfig>> {
    let mut config = ClientConfig::clone(&*tls::client()?);
    config.resumption = Resumption::in_memory_sessions(1);
    Ok(Arc::new(config))
}

/// The median of the time that the server takes for a handshake with each client.
fn round(
    server: &Arc<ServerConfig>,
    clients: &[Arc<ClientConfig>],
    expected: HandshakeKind,
) -> io::Result<Duration> {
    let mut took = Vec::with_capacity(clients.len());
    for client in clients {
        took.push(handshake(server, client, expected)?);
    }
    took.sort_unstable();
    Ok(took[took.len() / 2])
}

/// The time that the server takes for one handshake, its tickets included.
fn handshake(
    config: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    expected: HandshakeKind,
) -> io::Result<Duration> {
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut client = ClientConnection::new(Arc::clone(client), name).map_err(io::Error::other)?;
    let mut took = Duration::ZERO;
    let begun = Instant::now();
    let mut server = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    took += begun.elapsed();
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    while client.wants_write() || server.wants_write() || client.is_handshaking() {
        client.write_tls(&mut to_server)?;
        let begun = Instant::now();
        let mut read = to_server.as_slice();
        while !read.is_empty() {
            server.read_tls(&mut read)?;
            server.process_new_packets().map_err(io::Error::other)?;
        }
        while server.wants_write() {
            server.write_tls(&mut to_client)?;
        }
        took += begun.elapsed();
        to_server.clear();
        let mut read = to_client.as_slice();
        while !read.is_empty() {
            client.read_tls(&mut read)?;
            client.process_new_packets().map_err(io::Error::other)?;
        }
        to_client.clear();
    }
    let kind = server.handshake_kind();
    if kind != Some(expected) {
        return Err(io::Error::other(format!(
            "{kind:?} in place of {expected:?}"
        )));
    }
    Ok(took)
}
