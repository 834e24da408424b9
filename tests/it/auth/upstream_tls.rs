//! Certificates, authorities and credentials of the TLS connection to the API server, which expire or are rotated while watches are open.
//! The API server resumes no TLS session, so that each connection uses the present ones.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::{SignedDuration, Timestamp};
use kube_fanout::config::{ServeSettings, UpstreamSource};
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::PATIENCE;
use crate::support::auth::{next_piece, until};
use crate::support::gateway::Running;
use crate::support::wire::Wire;

const PODS: &str = "/api/v1/namespaces/default/pods";
/// A single object, so that the request is forwarded.
const ABSENT_POD: &str = "/api/v1/namespaces/default/pods/nobody";

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
struct Pair {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for `localhost`, valid from 2020 to `year`.
    fn sign(&self, year: i32) -> Pair {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate, key }
    }

    fn trusted(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

impl Pair {
    fn certified(&self) -> Arc<CertifiedKey> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let secret = PrivatePkcs8KeyDer::from(self.key.serialize_der()).into();
        let key = provider.key_provider.load_private_key(secret).unwrap();
        Arc::new(CertifiedKey::new(vec![self.certificate.der().clone()], key))
    }
}

/// The API server's certificate, which a test can replace.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Verifies client certificates, and rejects those in `revoked`.
#[derive(Debug)]
struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
    revoked: Mutex<HashSet<Vec<u8>>>,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.revoked.lock().unwrap().contains(shown.as_ref()) {
            return Err(CertificateError::Revoked.into());
        }
        self.inner.verify_client_cert(shown, chain, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, shown, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// An API server with TLS, and a gateway that reaches it over a network whose connections the test can cut.
struct Stage {
    _apiserver: Apiserver,
    shown: Arc<Shown>,
    clients: Arc<Verifier>,
    wire: Wire,
    folder: PathBuf,
    gateway: Running,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Stage {
    /// The API server uses the certificate `shown` and trusts client certificates of `clients`; the gateway trusts `authority` and uses
    /// the credentials `user`.
    async fn new(
        folder: PathBuf,
        (authority, shown): (&Authority, &Pair),
        (clients, user): (&Authority, &Value),
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let inner = WebPkiClientVerifier::builder_with_provider(
            Arc::new(clients.trusted()),
            Arc::clone(&provider),
        );
        let clients = Arc::new(Verifier {
            inner: inner.build().unwrap(),
            revoked: Mutex::default(),
        });
        let shown = Arc::new(Shown(ArcSwap::new(shown.certified())));
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::clone(&clients) as _)
            .with_cert_resolver(Arc::clone(&shown) as _);
        tls.session_storage = Arc::new(NoServerSessionStorage {});
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options {
            objects: vec!["pods=3".parse().unwrap()],
            tls: Some(Arc::new(tls)),
            ..Options::default()
        };
        let apiserver = apiserver::start(listener, options).unwrap();
        let wire = Wire::to(apiserver.address()).await;
        let (config, server) = (folder.join("config"), wire.address.port());
        replace(&config, &kubeconfig(server, user));
        replace(&folder.join("ca.crt"), &authority.0.pem());
        let any = "http://localhost/".parse().unwrap();
        let settings = ServeSettings {
            upstream: UpstreamSource::Kubeconfig {
                path: config,
                context: None,
            },
            ..ServeSettings::embedded(any)
        };
        let drain = Drain::with_timeout(Duration::from_millis(100));
        Self {
            _apiserver: apiserver,
            shown,
            clients,
            wire,
            folder,
            gateway: Running::start(settings, drain).await,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Changes the API server's certificate, and cuts all connections so that every client gets the new one.
    fn replace_certificate(&self, pair: &Pair) {
        self.shown.0.store(pair.certified());
        self.wire.cut();
    }

    async fn ask(&self, method: Method, target: &str, body: Value) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.gateway.address))
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))
            .unwrap();
        let response = tokio::time::timeout(PATIENCE, self.client.request(request));
        response.await.unwrap().unwrap()
    }

    /// Sends a GET; returns the response's code and its Status message.
    async fn get(&self, target: &str) -> (StatusCode, String) {
        let response = self.ask(Method::GET, target, Value::Null).await;
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let message = body["message"].as_str().unwrap_or_default().to_owned();
        (head.status, message)
    }

    async fn is_ready(&self) -> bool {
        let uri = format!("http://{}/readyz", self.gateway.admin);
        let response = self.client.get(uri.parse().unwrap()).await.unwrap();
        response.status() == StatusCode::OK
    }

    /// Waits until requests are forwarded.
    async fn until_forwarding(&self) {
        until("requests are forwarded", async || {
            self.get(ABSENT_POD).await.0 == StatusCode::NOT_FOUND
        })
        .await;
    }

    /// Waits until forwarded requests fail for this reason, and checks that memory still serves.
    async fn until_refused(&self, reason: &str) {
        until(reason, async || {
            let (code, message) = self.get(ABSENT_POD).await;
            code == StatusCode::SERVICE_UNAVAILABLE && message.contains(reason)
        })
        .await;
        let from_memory = self.get(&format!("{PODS}?resourceVersion=0")).await;
        assert_eq!(from_memory.0, StatusCode::OK, "{}", from_memory.1);
    }

    /// A watch that is served from memory.
    async fn watch(&self) -> Incoming {
        assert_eq!(self.get(PODS).await.0, StatusCode::OK);
        let target = format!("{PODS}?watch=1&resourceVersion=0");
        let response = self.ask(Method::GET, &target, Value::Null).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    }

    /// Creates a pod through the gateway, and reads the watch until its event arrives.
    async fn create_and_expect_event(&self, watch: &mut Incoming, name: &str) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "one", "image": "one"}]},
        });
        let created = self.ask(Method::POST, PODS, pod).await;
        assert_eq!(created.status(), StatusCode::CREATED);
        let mut read = String::new();
        while !read.contains(&format!("\"name\":\"{name}\"")) {
            read.push_str(&next_piece(watch).await.unwrap());
        }
    }

    async fn ended(self) {
        self.gateway.ended().await;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn folder(name: &str) -> PathBuf {
    let name = format!("upstream-{name}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A kubeconfig user with this client certificate.
fn user(own: &Pair) -> Value {
    let data = |pem: String| BASE64_STANDARD.encode(pem);
    json!({
        "client-certificate-data": data(own.certificate.pem()),
        "client-key-data": data(own.key.serialize_pem()),
    })
}

/// An ExecCredential, as an exec plugin prints it, with this certificate and expiration.
fn issued(own: &Pair, expires_in: SignedDuration) -> String {
    let status = json!({
        "clientCertificateData": own.certificate.pem(),
        "clientKeyData": own.key.serialize_pem(),
        "expirationTimestamp": (Timestamp::now() + expires_in).to_string(),
    });
    let version = "client.authentication.k8s.io/v1";
    json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string()
}

fn kubeconfig(port: u16, user: &Value) -> String {
    let server = format!("https://localhost:{port}");
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "own",
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        "users": [{"name": "own", "user": user}],
        "clusters": [{"name": "own", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
    })
    .to_string()
}

/// Replaces a file atomically.
fn replace(path: &PathBuf, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_certificate_that_has_expired_is_named_and_its_successor_is_taken() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let own = clients.sign(2100);
    let expired = authority.sign(2021);
    let stage = Stage::new(
        folder("expired"),
        (&authority, &expired),
        (&clients, &user(&own)),
    )
    .await;
    for target in [PODS, ABSENT_POD, "/api/v1/namespaces/default/pods?watch=1"] {
        let (code, message) = stage.get(target).await;
        assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{message}");
        assert!(message.contains("expired"), "{target}: {message}");
    }
    assert!(!stage.is_ready().await);
    stage.replace_certificate(&authority.sign(2100));
    stage.until_forwarding().await;
    until("the gateway is ready", async || stage.is_ready().await).await;

    let mut watch = stage.watch().await;
    stage.create_and_expect_event(&mut watch, "before").await;
    stage.replace_certificate(&expired);
    stage.until_refused("expired").await;
    assert!(
        stage.is_ready().await,
        "the gateway still serves from its caches"
    );
    stage.replace_certificate(&authority.sign(2101));
    stage.until_forwarding().await;
    stage.create_and_expect_event(&mut watch, "after").await;
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_authority_is_rotated_under_open_watches() {
    let (old, new, clients) = (Authority::new(), Authority::new(), Authority::new());
    let own = clients.sign(2100);
    let stage = Stage::new(
        folder("authority"),
        (&old, &old.sign(2100)),
        (&clients, &user(&own)),
    )
    .await;
    let mut watch = stage.watch().await;
    stage.create_and_expect_event(&mut watch, "before").await;
    stage.replace_certificate(&new.sign(2100));
    stage.until_refused("not trusted").await;
    replace(&stage.folder.join("ca.crt"), &new.0.pem());
    stage.until_forwarding().await;
    stage.create_and_expect_event(&mut watch, "after").await;
    stage.replace_certificate(&old.sign(2101));
    stage.until_refused("not trusted").await;
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_is_replaced_under_open_watches() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (old, new) = (clients.sign(2100), clients.sign(2101));
    let shown = authority.sign(2100);
    let stage = Stage::new(
        folder("kubeconfig"),
        (&authority, &shown),
        (&clients, &user(&old)),
    )
    .await;
    let mut watch = stage.watch().await;
    stage.create_and_expect_event(&mut watch, "before").await;
    let revoked = old.certificate.der().to_vec();
    stage.clients.revoked.lock().unwrap().insert(revoked);
    stage.wire.cut();
    stage.until_refused("").await;
    let config = kubeconfig(stage.wire.address.port(), &user(&new));
    replace(&stage.folder.join("config"), &config);
    stage.until_forwarding().await;
    stage.create_and_expect_event(&mut watch, "after").await;
    stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exec_plugin_issues_another_certificate_under_open_watches() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (old, new) = (clients.sign(2100), clients.sign(2101));
    let folder = folder("plugin");
    replace(
        &folder.join("issued"),
        &issued(&old, SignedDuration::from_secs(10)),
    );
    replace(
        &folder.join("later"),
        &issued(&new, SignedDuration::from_hours(1)),
    );
    // From the second run on the plugin issues the new certificate.
    let script = r#"cat "$0/issued"; cp "$0/later" "$0/issued""#;
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": "sh",
        "args": ["-c", script, folder],
    }});
    let shown = authority.sign(2100);
    let stage = Stage::new(folder, (&authority, &shown), (&clients, &plugin)).await;
    let mut watch = stage.watch().await;
    stage.create_and_expect_event(&mut watch, "before").await;
    let revoked = old.certificate.der().to_vec();
    stage.clients.revoked.lock().unwrap().insert(revoked);
    stage.wire.cut();
    // The gateway runs the plugin again before the issued certificate expires.
    stage.until_forwarding().await;
    stage.create_and_expect_event(&mut watch, "after").await;
    stage.ended().await;
}
