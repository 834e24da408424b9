//! Rotation of the gateway's serving certificate and of its own credentials while streams are open.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube_fanout::config::{AuthMode, ListenTransport, UpstreamSource};
use kube_fanout_testkit::apiserver::auth::TokenUser;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::auth::{AuthStage, next_piece, until};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A folder laid out like a mounted Secret: the files are links through `..data`, which is replaced atomically.
struct Mounted(PathBuf);

impl Mounted {
    fn new(name: &str) -> Self {
        let name = format!("mounted-{name}-{}", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        for file in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{file}"), path.join(file)).unwrap();
        }
        Self(path)
    }

    fn put(&self, version: &str, cert: &str, key: &str) {
        let folder = self.0.join(version);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("tls.crt"), cert).unwrap();
        fs::write(folder.join("tls.key"), key).unwrap();
        symlink(version, self.0.join("..data_tmp")).unwrap();
        fs::rename(self.0.join("..data_tmp"), self.0.join("..data")).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A self-signed certificate, valid from 2020 to `year`, and its key.
pub(crate) fn made(year: i32) -> (CertificateDer<'static>, String, String) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&key).unwrap();
    (cert.der().clone(), cert.pem(), key.serialize_pem())
}

/// Connects as a client that trusts only the certificate `trusted`.
pub(crate) async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// Starts a watch of pods; `tasks` gets the task that runs its connection.
async fn watch(stream: TlsStream<TcpStream>, tasks: &mut JoinSet<()>) -> Incoming {
    let request = Request::get(format!("https://localhost{PODS}?watch=1&resourceVersion=0"));
    let request = request.header("host", "localhost");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let io = TokioIo::new(stream);
    let response = if is_http2 {
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(io).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        let response = sender.send_request(request).await.unwrap();
        // The connection ends when its last sender is dropped, so the task keeps one.
        tasks.spawn(async move {
            let _sender = sender;
            std::future::pending().await
        });
        response
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tasks.spawn(async move { drop(connection.await) });
        sender.send_request(request).await.unwrap()
    };
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

async fn read_to(body: &mut Incoming, name: &str) {
    let mut read = String::new();
    while !read.contains(&format!("\"name\":\"{name}\"")) {
        read.push_str(&next_piece(body).await.unwrap());
    }
}

pub(crate) async fn create_pod(stage: &AuthStage, name: &str) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "one", "image": "one"}]},
    });
    stage.create(PODS, &pod).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_certificate_is_for_new_connections_and_breaks_no_stream() {
    let mounted = Mounted::new("serving");
    // The certificate has expired, as if rotation had failed for a while: clients that verify it cannot connect.
    let (old, cert, key) = made(2021);
    mounted.put("..expired", &cert, &key);
    let transport = ListenTransport::Tls {
        cert: mounted.file("tls.crt"),
        key: mounted.file("tls.key"),
        sni: Vec::new(),
    };
    let stage = AuthStage::with(AuthMode::None, |settings| settings.transport = transport).await;
    let (tls13, tls12) = (&rustls::version::TLS13, &rustls::version::TLS12);
    let address = stage.address;
    connect(address, &old, tls13, b"h2").await.unwrap_err();

    let (first, cert, key) = made(2100);
    mounted.put("..first", &cert, &key);
    let serves = async |certificate, version| {
        let connected = connect(address, certificate, version, b"http/1.1").await;
        connected.is_ok()
    };
    until("the server uses the first certificate", async || {
        serves(&first, tls13).await
    })
    .await;
    let mut tasks = JoinSet::new();
    let mut watches = Vec::new();
    for version in [tls12, tls13] {
        for protocol in [&b"http/1.1"[..], b"h2"] {
            let stream = connect(address, &first, version, protocol).await.unwrap();
            watches.push(watch(stream, &mut tasks).await);
        }
    }
    create_pod(&stage, "before").await;
    for body in &mut watches {
        read_to(body, "before").await;
    }

    let (second, cert, key) = made(2101);
    let started_at = std::time::Instant::now();
    mounted.put("..second", &cert, &key);
    until("the server uses the second certificate", async || {
        serves(&second, tls13).await
    })
    .await;
    eprintln!(
        "a new connection saw the new certificate after {:?}",
        started_at.elapsed()
    );
    assert!(serves(&second, tls12).await);
    assert!(!serves(&first, tls13).await);

    // Unusable files change nothing; they are only counted in a metric.
    mounted.put("..broken", &cert, "no key");
    let labels = ["file=\"serving_certificate\"", "outcome=\"failed\""];
    let failures = async || {
        stage
            .metric("kube_fanout_file_reloads_total", &labels)
            .await
    };
    until("the failure is counted", async || failures().await >= 1.0).await;
    assert!(serves(&second, tls13).await);
    let expiry = "kube_fanout_serving_certificate_expiry_timestamp_seconds";
    assert!((stage.metric(expiry, &[]).await - 4_133_980_800.0).abs() < 1.0);

    create_pod(&stage, "after").await;
    for body in &mut watches {
        read_to(body, "after").await;
    }
    drop(tasks);
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_token_of_the_gateway_is_used_and_breaks_no_stream() {
    let folder = Mounted::new("token");
    let (config, token) = (folder.file("config"), folder.file("token"));
    let stage = AuthStage::with(AuthMode::None, |settings| {
        let UpstreamSource::Kubeconfig { path, .. } = &settings.upstream else {
            panic!("the gateway of a stage uses a kubeconfig");
        };
        let text = fs::read_to_string(path).unwrap();
        let mut kubeconfig: serde_json::Value = serde_json::from_str(&text).unwrap();
        let user = &mut kubeconfig["users"][0]["user"];
        fs::write(&token, user["token"].as_str().unwrap()).unwrap();
        *user = json!({"tokenFile": "token"});
        fs::write(&config, kubeconfig.to_string()).unwrap();
        settings.upstream = UpstreamSource::Kubeconfig {
            path: config.clone(),
            context: None,
        };
    })
    .await;
    let target = format!("{PODS}?watch=1&resourceVersion=0");
    let mut body = stage.watch("", &target, false).await.into_body();
    create_pod(&stage, "before").await;
    read_to(&mut body, "before").await;

    let labels = ["file=\"upstream_credential\"", "outcome=\"applied\""];
    let applied = async || {
        stage
            .metric("kube_fanout_file_reloads_total", &labels)
            .await
    };
    until("the files are read for the first time", async || {
        applied().await >= 1.0
    })
    .await;
    let before = applied().await;
    let tokens = stage.apiserver.tokens();
    tokens.put("rotated", TokenUser::new("gateway", &[]));
    let old = fs::read_to_string(&token).unwrap();
    fs::write(folder.file("next"), "rotated\n").unwrap();
    fs::rename(folder.file("next"), &token).unwrap();
    until("the token is read again", async || applied().await > before).await;
    assert!(tokens.remove(&old));

    let one = stage.get("", &format!("{PODS}/before")).await;
    assert_eq!(one.status(), StatusCode::OK, "{:?}", one.body());
    create_pod(&stage, "after").await;
    read_to(&mut body, "after").await;
    stage.ended().await;
}
