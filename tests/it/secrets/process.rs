//! A gateway in a process of its own that logs everything it can, before an API server that checks callers.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube_fanout::tls::{PairFiles, ServerIdentity, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// So long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// A folder of files of this test, gone with it.
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
        // What stays behind lies in the build's own temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A certificate and its key.
pub(crate) struct Pair {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

impl Pair {
    /// What nobody may read of the key: of the PKCS#8 of a P-256 key the secret number, without the public one.
    pub(crate) fn secret(&self) -> Vec<u8> {
        self.key.serialize_der()[36..68].to_vec()
    }
}

/// Who signs certificates of clients.
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

/// A server's certificate, for this machine.
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

    /// Settings of a server in this process.
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

    /// A client that trusts this server alone.
    pub(crate) fn client(&self, shown: Option<&Pair>) -> TlsConnector {
        TlsConnector::from(Arc::new(self.client_config(shown)))
    }

    /// The same for HTTP/2.
    pub(crate) fn http2_client(&self) -> TlsConnector {
        let mut config = self.client_config(None);
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsConnector::from(Arc::new(config))
    }

    fn client_config(&self, shown: Option<&Pair>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.pair.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        match shown {
            None => config.with_no_client_auth(),
            Some(pair) => {
                let key = PrivatePkcs8KeyDer::from(pair.key.serialize_der()).into();
                let chain = vec![pair.der.clone()];
                config.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }
}

/// A kubeconfig for an API server, with the token of the gateway.
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
    /// Starts it in `folder`, where it may leave as large a core as it likes.
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
        let (kept, stderr) = (Arc::clone(&log), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).unwrap() > 0 {
                kept.lock().unwrap().append(&mut line);
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
            if let Some(fields) = process.serving() {
                break fields;
            }
            let said = || String::from_utf8_lossy(&process.log.lock().unwrap()).into_owned();
            assert!(Instant::now() < give_up_at, "it does not serve: {}", said());
            tokio::time::sleep(LOOK_PERIOD).await;
        };
        let address = |name: &str| fields[name].as_str().unwrap().parse().unwrap();
        (process.address, process.admin) = (address("address"), address("admin"));
        process
    }

    fn serving(&self) -> Option<Value> {
        let log = self.log.lock().unwrap();
        let lines = log.split(|byte| *byte == b'\n');
        let mut fields = lines.filter_map(|line| {
            let line: Value = serde_json::from_slice(line).ok()?;
            Some(line["fields"].clone())
        });
        fields.find(|fields| fields["message"] == "serving")
    }

    /// Kills it so that it would leave a core, and gives back all that it logged. A request must be under way, so that its drain
    /// lasts until then.
    pub(crate) async fn aborted(&mut self) -> Vec<u8> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        // Lines are written in their order: all before this one are there.
        let give_up_at = Instant::now() + PATIENCE;
        while memchr::memmem::find(&self.log.lock().unwrap(), b"\"draining\"").is_none() {
            assert!(Instant::now() < give_up_at, "it does not drain");
            tokio::time::sleep(LOOK_PERIOD).await;
        }
        rustix::process::kill_process(id, rustix::process::Signal::ABORT).unwrap();
        self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection over TLS.
pub(crate) async fn connect(connector: &TlsConnector, server: SocketAddr) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect(server).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, socket).await.unwrap()
}

/// Sends bytes and reads what comes until the other side closes, or until `enough`.
pub(crate) async fn exchange(
    connector: &TlsConnector,
    server: SocketAddr,
    sent: &[u8],
    enough: &[u8],
) -> Vec<u8> {
    let mut stream = connect(connector, server).await;
    // A server that refuses early need not read to the end.
    let _ = stream.write_all(sent).await;
    let mut answer = Vec::new();
    let mut piece = vec![0; 16 << 10];
    let read = timeout(PATIENCE, async {
        while enough.is_empty() || memchr::memmem::find(&answer, enough).is_none() {
            match stream.read(&mut piece).await {
                Ok(0) | Err(_) => break,
                Ok(len) => answer.extend_from_slice(&piece[..len]),
            }
        }
    });
    let said = String::from_utf8_lossy(sent).into_owned();
    read.await
        .unwrap_or_else(|_| panic!("no end of the answer to {said}"));
    answer
}
