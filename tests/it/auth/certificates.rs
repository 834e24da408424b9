//! Clients with certificates: each request is authorized, requests are forwarded with impersonation, and streams end when the certificate
//! expires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube_fanout::config::{AuthMode, ListenTransport};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::auth::ASKING;
use crate::support::PATIENCE;
use crate::support::auth::AuthStage;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1";
const END: &[u8] = b"0\r\n\r\n";

/// A certificate authority for the certificates of servers and clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn sign(&self, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// Opens a connection with a client certificate that expires after `lifetime`.
    async fn connect(&self, stage: &AuthStage, name: &str, lifetime: Duration) -> Connection {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = (SystemTime::now() + lifetime).into();
        let (certificate, key) = self.sign(&params);
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let config = rustls::ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key.into())
            .unwrap();
        let stream = TcpStream::connect(stage.address).await.unwrap();
        let server = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        Connection(connector.connect(server, stream).await.unwrap())
    }
}

struct Connection(TlsStream<TcpStream>);

impl Connection {
    async fn send(&mut self, method: &str, target: &str, headers: &str) {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        self.0.write_all(head.as_bytes()).await.unwrap();
    }

    /// Reads until `enough` returns true for the bytes read so far.
    async fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) -> String {
        let mut received = Vec::new();
        while !enough(&received) {
            let read = tokio::time::timeout(PATIENCE, self.0.read_buf(&mut received)).await;
            let text = String::from_utf8_lossy(&received);
            assert!(
                read.unwrap().unwrap() > 0,
                "the connection was closed after: {text}"
            );
        }
        String::from_utf8(received).unwrap()
    }

    /// Sends a request, and reads a complete response with a Content-Length.
    async fn get(&mut self, target: &str) -> String {
        self.send("GET", target, "").await;
        self.read_until(is_whole).await
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.parse::<usize>().unwrap())
    });
    len.is_some_and(|len| body.len() >= len)
}

/// A gateway over TLS that trusts client certificates of the authority that signed its own certificate.
async fn stage_with(mode: AuthMode, authority: &Authority) -> AuthStage {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let (certificate, key) = authority.sign(&params);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let secret = key.serialize_der();
    let unique = secret.iter().rev().take(8);
    let unique: String = unique.map(|byte| format!("{byte:02x}")).collect();
    let write = |name: &str, text: String| {
        let path = folder.join(format!("{unique}-{name}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    let transport = ListenTransport::Tls {
        cert: write("tls.crt", certificate.pem()),
        key: write("tls.key", key.serialize_pem()),
        sni: Vec::new(),
    };
    let client_ca = write("ca.crt", authority.0.pem());
    AuthStage::with(mode, |settings| {
        settings.transport = transport;
        settings.auth.client_ca = Some(client_ca);
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_when_the_certificate_expires_and_the_connection_is_nobodys_then() {
    let authority = Authority::new();
    for mode in ASKING {
        let stage = stage_with(mode, &authority).await;
        let rule =
            json!({"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["configmaps"]});
        stage.allow("carol-maps", "carol", rule, "default").await;
        // Certificates have a resolution of one second.
        let lifetime = Duration::from_secs(8);
        let started_at = tokio::time::Instant::now();
        let mut connection = authority.connect(&stage, "carol", lifetime).await;
        connection.send("GET", WATCH, "").await;
        let map = json!({"metadata": {"name": "before"}});
        stage
            .create("/api/v1/namespaces/default/configmaps", &map)
            .await;
        let text = connection
            .read_until(|received| received.ends_with(END))
            .await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(
            text.contains("\"before\"") && !text.contains("ERROR"),
            "{text}"
        );
        let elapsed = started_at.elapsed();
        assert!(elapsed >= lifetime - Duration::from_secs(1), "{elapsed:?}");
        for target in ["/api/v1/namespaces/default/configmaps", WATCH] {
            let text = connection.get(target).await;
            assert!(text.starts_with("HTTP/1.1 401 "), "{mode:?} {text}");
        }
        stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_by_certificate_are_themselves_upstream() {
    let authority = Authority::new();
    let hour = Duration::from_secs(3_600);
    for mode in ASKING {
        let stage = stage_with(mode, &authority).await;
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]});
        stage.allow("carol-secrets", "carol", rule, "default").await;
        let dave = json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["dave"]});
        stage.allow("carol-as-dave", "carol", dave, "").await;
        let secrets = "/api/v1/namespaces/default/secrets";
        stage
            .create(secrets, &json!({"metadata": {"name": "one"}}))
            .await;
        let mut connection = authority.connect(&stage, "carol", hour).await;
        let text = connection.get(&format!("{secrets}/one")).await;
        assert!(text.starts_with("HTTP/1.1 200 "), "{mode:?} {text}");
        let pod = "/api/v1/namespaces/default/pods/any";
        let tricks = "Impersonate-User: root\r\nImpersonate-Group: system:masters\r\n";
        let listed = "Connection: Impersonate-User, Impersonate-Group\r\n";
        let exec = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
        let dave = "Impersonate-User: dave\r\nImpersonate-Later: root\r\n";
        let created = "/api/v1/namespaces/default/pods/any/exec?command=a";
        for (method, target, headers, user, verb) in [
            ("GET", pod, "", "carol", "get"),
            ("DELETE", pod, "", "carol", "delete"),
            ("GET", pod, tricks, "carol", "impersonate"),
            (
                "GET",
                pod,
                &format!("{tricks}{listed}"),
                "carol",
                "impersonate",
            ),
            ("GET", pod, dave, "dave", "get"),
            ("GET", pod, &format!("{dave}{listed}"), "dave", "get"),
            ("GET", pod, "X-Remote-User: root\r\n", "carol", "get"),
            ("POST", created, exec, "carol", "create"),
        ] {
            connection.send(method, target, headers).await;
            let text = connection.read_until(is_whole).await;
            let text = text.replace('\\', "");
            assert!(text.starts_with("HTTP/1.1 403 "), "{mode:?} {text}");
            let words = format!("User \"{user}\" cannot {verb} resource");
            assert!(text.contains(&words), "{mode:?} {headers} {text}");
        }
        stage.ended().await;
    }
}
