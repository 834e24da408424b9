//! A gateway in a process of its own that logs at `trace`, with its certificates, and TLS clients for it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_fanout::tls::{PairFiles, ServerIdentity, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::hostile::certificates::client_config;
use crate::support::PATIENCE;

const POLL_PERIOD: Duration = Duration::from_millis(10);

/// A folder for the files of a test, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("secrets-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the folder remains in the build's temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Pair {
    /// The secret part of the key: the private number in the PKCS#8 encoding of a P-256 key, without the public key.
    pub(crate) fn secret(&self) -> Vec<u8> {
        self.key.serialize_der()[36..68].to_vec()
    }
}

/// A certificate authority for client certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self, name: &str) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let der = certificate.der().clone();
        Pair { der, key }
    }
}

/// A server's certificate for `localhost`, and its files.
pub(crate) struct Serving {
    pub(crate) pair: Pair,
    cert: PathBuf,
    key: PathBuf,
}

impl Serving {
    pub(crate) fn new(folder: &Folder, name: &str) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (pem, secret) = (made.cert.pem(), made.signing_key.serialize_pem());
        Self {
            cert: folder.write(&format!("{name}.crt"), &pem),
            key: folder.write(&format!("{name}.key"), &secret),
            pair: Pair {
                der: made.cert.der().clone(),
                key: made.signing_key,
            },
        }
    }

    /// The TLS configuration of a server in this process.
    pub(crate) fn settings(&self) -> Arc<rustls::ServerConfig> {
        let files = TlsFiles {
            default: PairFiles {
                cert: self.cert.clone(),
                key: self.key.clone(),
            },
            named: Vec::new(),
            client_authorities: Vec::new(),
        };
        ServerIdentity::read(files).unwrap().config().load_full()
    }

    pub(crate) fn cert(&self) -> &Path {
        &self.cert
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            "--tls-cert".into(),
            path(&self.cert),
            "--tls-key".into(),
            path(&self.key),
        ]
    }

    /// A client that trusts only this server, and presents a certificate if there is one.
    pub(crate) fn client(&self, identity: Option<&Pair>) -> TlsConnector {
        TlsConnector::from(Arc::new(self.client_config(identity)))
    }

    /// A client over HTTP/2 that trusts only this server.
    pub(crate) fn http2_client(&self) -> TlsConnector {
        let mut config = self.client_config(None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    fn client_config(&self, identity: Option<&Pair>) -> ClientConfig {
        let identity = identity.map(|pair| (vec![pair.der.clone()], &pair.key));
        client_config(&self.pair.der, identity)
    }
}

/// Writes a kubeconfig with the gateway's token for an API server.
pub(crate) fn kubeconfig(folder: &Folder, server: SocketAddr, cert: &Path, token: &str) -> PathBuf {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": {"token": token}}],
        "clusters": [{"name": "own", "cluster": {
            "server": format!("https://{server}"), "certificate-authority": cert,
        }}],
    });
    folder.write("kubeconfig", &text.to_string())
}

/// The gateway's process.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    /// Starts the gateway in `folder`, with no limit for the size of a core file.
    pub(crate) async fn start(folder: &Folder, flags: &[String]) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -c unlimited && exec \"$0\" \"$@\""])
            .args([env!("CARGO_BIN_EXE_kube-fanout"), "serve"])
            .args(flags)
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--log-level", "trace", "--log-format", "json"])
            .current_dir(&folder.0)
            .env("RUST_BACKTRACE", "full")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<u8>>>::default();
        let (lines_read, stderr) = (Arc::clone(&log), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).unwrap() > 0 {
                lines_read.lock().unwrap().append(&mut line);
            }
        });
        let mut process = Self {
            child,
            address: SocketAddr::from(([0; 4], 0)),
            admin: SocketAddr::from(([0; 4], 0)),
            log,
            reader: Some(reader),
        };
        let give_up_at = Instant::now() + PATIENCE;
        let fields = loop {
            if let Some(fields) = process.serving_fields() {
                break fields;
            }
            let log = || String::from_utf8_lossy(&process.log.lock().unwrap()).into_owned();
            assert!(
                Instant::now() < give_up_at,
                "the gateway does not serve: {}",
                log()
            );
            tokio::time::sleep(POLL_PERIOD).await;
        };
        let address = |name: &str| fields[name].as_str().unwrap().parse().unwrap();
        (process.address, process.admin) = (address("address"), address("admin"));
        process
    }

    /// The fields of the log line that reports that the gateway serves.
    fn serving_fields(&self) -> Option<Value> {
        let log = self.log.lock().unwrap();
        let lines = log.split(|byte| *byte == b'\n');
        let mut fields = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        fields.find(|fields| fields["message"] == "serving")
    }

    /// Starts the drain, then kills the gateway with the signal that would leave a core file; returns its log. A request must be open,
    /// so that the drain does not end before.
    pub(crate) async fn abort(&mut self) -> Vec<u8> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        // Lines are written in order, so all earlier lines have arrived with this one.
        let give_up_at = Instant::now() + PATIENCE;
        while memchr::memmem::find(&self.log.lock().unwrap(), b"\"draining\"").is_none() {
            assert!(Instant::now() < give_up_at, "the gateway does not drain");
            tokio::time::sleep(POLL_PERIOD).await;
        }
        rustix::process::kill_process(id, rustix::process::Signal::ABORT).unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a TLS connection.
pub(crate) async fn connect(connector: &TlsConnector, server: SocketAddr) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(server).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, socket).await.unwrap()
}

/// Sends bytes on a connection of its own; reads until the server closes it, or until `end` has been received if it is not empty.
pub(crate) async fn exchange(
    connector: &TlsConnector,
    server: SocketAddr,
    sent: &[u8],
    end: &[u8],
) -> Vec<u8> {
    let mut stream = connect(connector, server).await;
    // A server that refuses a request may close the connection before it has read everything.
    let _ = stream.write_all(sent).await;
    let mut response = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    let read = timeout(PATIENCE, async {
        while end.is_empty() || memchr::memmem::find(&response, end).is_none() {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(len) => response.extend_from_slice(&chunk[..len]),
            }
        }
    });
    let request = String::from_utf8_lossy(sent).into_owned();
    read.await
        .unwrap_or_else(|_| panic!("the response does not end: {request}"));
    response
}
