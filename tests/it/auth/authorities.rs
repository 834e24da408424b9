//! Client certificates on open connections, when the gateway's file of client authorities changes or becomes unusable.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use kube_fanout::config::{AuthMode, ListenTransport};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::auth::rotation::made;
use crate::support::auth::{AuthStage, read_to_end, until};

const PODS: &str = "/api/v1/namespaces/default/pods";
const WATCH: &str = "/api/v1/namespaces/default/pods?watch=1";
const SECRETS_WATCH: &str = "/api/v1/namespaces/default/secrets?watch=1";

/// An authority that signs client certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate that identifies the user, and its key.
    fn sign(&self, user: &str) -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().der().clone(), key)
    }
}

/// A connection that was opened with a client certificate, and serves several requests.
struct Caller {
    sender: SendRequest<Empty<Bytes>>,
    _connection: JoinSet<()>,
}

impl Caller {
    async fn connect(
        address: SocketAddr,
        server: &CertificateDer<'static>,
        (cert, key): (CertificateDer<'static>, KeyPair),
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(server.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![cert], key.into())
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let io = TokioIo::new(connector.connect(name, stream).await.unwrap());
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(connection.await) });
        Self {
            sender,
            _connection: tasks,
        }
    }

    /// Sends a request and returns the response once its head has arrived.
    async fn begin(&mut self, target: &str) -> Response<Incoming> {
        self.sender.ready().await.unwrap();
        let request = Request::get(target).header("host", "localhost");
        let request = request.body(Empty::new()).unwrap();
        self.sender.send_request(request).await.unwrap()
    }

    async fn get(&mut self, target: &str) -> Response<Bytes> {
        let (head, body) = self.begin(target).await.into_parts();
        Response::from_parts(head, body.collect().await.unwrap().to_bytes())
    }
}

/// Waits until reloads of the file of authorities have had this outcome `count` times.
async fn reloads_reach(stage: &AuthStage, outcome: &str, count: f64) {
    let label = format!("outcome=\"{outcome}\"");
    let labels = ["file=\"client_authority\"", label.as_str()];
    let metric = "kube_fanout_file_reloads_total";
    let what = format!("{count} reloads of the authorities are {outcome}");
    until(&what, async || stage.metric(metric, &labels).await >= count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_authorities_apply_to_open_connections() {
    let name = format!("authorities-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let (server, cert, key) = made(2100);
    let paths = ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name));
    fs::write(&paths[0], cert).unwrap();
    fs::write(&paths[1], key).unwrap();
    // Both have the same name, so that only their keys tell them apart.
    let (first, second) = (Authority::new("clients"), Authority::new("clients"));
    fs::write(&paths[2], first.0.pem()).unwrap();
    let stage = AuthStage::with(AuthMode::SelfCheck, |settings| {
        settings.transport = ListenTransport::Tls {
            cert: paths[0].clone(),
            key: paths[1].clone(),
            sni: Vec::new(),
        };
        settings.auth.client_ca = Some(paths[2].clone());
    })
    .await;
    let rule =
        json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["pods", "secrets"]});
    stage.allow("alice-pods", "alice", rule, "default").await;

    let mut old = Caller::connect(stage.address, &server, first.sign("alice")).await;
    let seen = old.get(PODS).await;
    assert_eq!(seen.status(), StatusCode::OK, "{:?}", seen.body());
    // A request for a single object is forwarded, impersonating alice.
    let one = old.get(&format!("{PODS}/any")).await;
    let text = String::from_utf8(one.body().to_vec()).unwrap();
    assert_eq!(one.status(), StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("User \\\"alice\\\" cannot get"), "{text}");
    let mut new = Caller::connect(stage.address, &server, second.sign("alice")).await;
    assert_eq!(new.get(PODS).await.status(), StatusCode::UNAUTHORIZED);

    let mut watcher = Caller::connect(stage.address, &server, first.sign("alice")).await;
    let watch = watcher.begin(WATCH).await;
    assert_eq!(watch.status(), StatusCode::OK);
    // Alice's watch of Secrets is forwarded with the gateway's credentials and impersonation, so only the gateway can end it when her
    // certificate is no longer trusted.
    let mut forwarded = Caller::connect(stage.address, &server, first.sign("alice")).await;
    let forwarded = forwarded.begin(SECRETS_WATCH).await;
    assert_eq!(forwarded.status(), StatusCode::OK);

    // The gateway reloads the file once at the start. A change before that would not be counted as a second reload.
    reloads_reach(&stage, "applied", 1.0).await;
    fs::write(folder.join("next"), second.0.pem()).unwrap();
    fs::rename(folder.join("next"), &paths[2]).unwrap();
    reloads_reach(&stage, "applied", 2.0).await;
    let mut statuses = Vec::new();
    for caller in [&mut old, &mut new] {
        statuses.push(caller.get(PODS).await.status());
    }
    assert_eq!(statuses, [StatusCode::UNAUTHORIZED, StatusCode::OK]);
    // Alice is still authorized to watch, but her old certificate is no longer trusted: the watch ends without an ERROR event.
    let events = read_to_end(watch.into_body()).await;
    assert!(!events.contains("ERROR"), "{events}");
    assert_eq!(read_to_end(forwarded.into_body()).await, "");

    fs::write(&paths[2], "nothing").unwrap();
    // A file that cannot be used leaves the previous authorities in force.
    reloads_reach(&stage, "failed", 1.0).await;
    assert_eq!(new.get(PODS).await.status(), StatusCode::OK);
    stage.ended().await;
    fs::remove_dir_all(folder).unwrap();
}
