//! A serving certificate for a gateway, and a bridge from plain TCP to TLS for clients without TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kube_fanout::config::ListenTransport;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const NAME: &str = "localhost";

/// A serving certificate, and a client configuration that trusts it.
pub(crate) struct Serving {
    cert: PathBuf,
    key: PathBuf,
    client: Arc<ClientConfig>,
}

impl Serving {
    /// The files are named after `test`, which must be unique among the tests.
    pub(crate) fn new(test: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (cert, key) = (
            folder.join(format!("{test}.crt")),
            folder.join(format!("{test}.key")),
        );
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            cert,
            key,
            client: Arc::new(client),
        }
    }

    pub(crate) fn transport(&self) -> ListenTransport {
        ListenTransport::Tls {
            cert: self.cert.clone(),
            key: self.key.clone(),
            sni: Vec::new(),
        }
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.client))
    }

    /// The first message of a client's handshake.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let name = NAME.try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    }
}

/// Forwards each plain TCP connection to a server over a TLS connection of its own. Dropping it closes all connections.
pub(crate) struct Bridge {
    pub(crate) address: SocketAddr,
    _forwarding: JoinSet<()>,
}

impl Bridge {
    pub(crate) async fn to(server: SocketAddr, connector: TlsConnector) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut forwarding = JoinSet::new();
        forwarding.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let connector = connector.clone();
                connections.spawn(async move {
                    let far = TcpStream::connect(server).await.unwrap();
                    let mut far = connector
                        .connect(NAME.try_into().unwrap(), far)
                        .await
                        .unwrap();
                    // An error here is for the client and the server to notice.
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Self {
            address,
            _forwarding: forwarding,
        }
    }
}
