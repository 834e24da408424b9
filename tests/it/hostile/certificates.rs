//! Callers authenticated by a client certificate or by a front proxy: the gateway impersonates exactly them upstream.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderName;
use kube_fanout::config::{
    AuditOutput, AuditSettings, AuthMode, FrontProxySettings, ListenTransport, ServeSettings,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::hostile::identity::record;
use crate::hostile::recorder::Recorder;
use crate::hostile::wire::code;
use crate::support::PATIENCE;
use crate::support::auth::{AuthStage, until};

const MODES: [AuthMode; 3] = [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac];
const PODS: &str = "/api/v1/namespaces/default/pods";
const POD: &str = "/api/v1/namespaces/default/pods/treasure";
const ALICE: &str = "Impersonate-User: alice";
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
const MASTERS: &str = "Impersonate-Group: system:masters";

pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key.
pub(crate) struct Identity(CertificateDer<'static>, KeyPair);

/// A gateway that serves TLS, authenticates clients by certificate and trusts a front proxy. Bob and Alice may read pods; Eve may only
/// impersonate Alice.
struct CertificateStage {
    stage: AuthStage,
    recorder: Recorder,
    clients: Issuer,
    proxies: Issuer,
    server: CertificateDer<'static>,
    folder: PathBuf,
}

impl CertificateStage {
    async fn new(mode: AuthMode) -> Self {
        let (clients, proxies) = (issuer("clients"), issuer("proxies"));
        let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = folder();
        let mut recorder = None;
        let stage = AuthStage::with(mode, |settings: &mut ServeSettings| {
            recorder = Some(record(settings));
            // The embedded API server allows anonymous requests, too.
            settings.auth.anonymous = true;
            settings.transport = ListenTransport::Tls {
                cert: write(&folder, "server.crt", &server.cert.pem()),
                key: write(&folder, "server.key", &server.signing_key.serialize_pem()),
                sni: Vec::new(),
            };
            settings.audit = Some(AuditSettings {
                policy: write(&folder, "policy.yaml", AUDIT_POLICY),
                log: AuditOutput::File(folder.join("audit.log")),
            });
            settings.auth.client_ca = Some(write(&folder, "clients.crt", &clients.pem()));
            settings.auth.front_proxy = Some(FrontProxySettings {
                client_ca: write(&folder, "proxies.crt", &proxies.pem()),
                allowed_names: vec!["proxy".to_owned()],
                username_headers: vec![HeaderName::from_static("x-custom-user")],
                uid_headers: Vec::new(),
                group_headers: vec![HeaderName::from_static("x-custom-group")],
                extra_header_prefixes: vec!["x-custom-extra-".to_owned()],
            });
        })
        .await;
        stage.allow_bob_alice_and_eve().await;
        stage
            .create(PODS, &json!({"metadata": {"name": "treasure"}}))
            .await;
        Self {
            stage,
            recorder: recorder.unwrap(),
            clients,
            proxies,
            server: server.cert.der().clone(),
            folder,
        }
    }

    async fn connect(&self, identity: Option<&Identity>) -> TlsStream<TcpStream> {
        let config = client_config(&self.server, identity.map(|one| one.with(&[])));
        let socket = TcpStream::connect(self.stage.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
            .unwrap()
    }

    /// Sends one request on a connection of its own; returns the whole response.
    async fn get(&self, identity: Option<&Identity>, target: &str, headers: &[&str]) -> String {
        let mut stream = self.connect(identity).await;
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
        for header in headers {
            request.push_str(&format!("{header}\r\n"));
        }
        stream
            .write_all((request + "\r\n").as_bytes())
            .await
            .unwrap();
        let mut response = Vec::new();
        let reading = async { while let Ok(1..) = stream.read_buf(&mut response).await {} };
        tokio::time::timeout(PATIENCE, reading).await.unwrap();
        String::from_utf8_lossy(&response).into_owned()
    }

    /// The status code of a list from memory, which must be that of a forwarded request, too.
    async fn code(&self, identity: Option<&Identity>, headers: &[&str]) -> u16 {
        let [cached, forwarded] = [
            self.get(identity, PODS, headers).await,
            self.get(identity, POD, headers).await,
        ];
        assert_eq!(
            code(&cached),
            code(&forwarded),
            "{headers:?}: {cached}{forwarded}"
        );
        code(&cached)
    }

    /// The head of the last forwarded request as it reached upstream, in lower case.
    fn forwarded(&self) -> String {
        self.recorder.heads(POD).pop().unwrap().to_lowercase()
    }
}

impl Identity {
    /// What a client presents: its certificate, the others after it, and its key.
    pub(crate) fn with(
        &self,
        others: &[CertificateDer<'static>],
    ) -> (Vec<CertificateDer<'static>>, &KeyPair) {
        let Self(certificate, key) = self;
        ([std::slice::from_ref(certificate), others].concat(), key)
    }
}

/// TLS of a client that trusts this server, and presents this chain if it has one.
pub(crate) fn client_config(
    server: &CertificateDer<'static>,
    identity: Option<(Vec<CertificateDer<'static>>, &KeyPair)>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(server.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            config.with_client_auth_cert(chain, key).unwrap()
        }
    }
}

pub(crate) fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn identity(
    issuer: &Issuer,
    name: &str,
    group: &str,
    adjust: impl FnOnce(&mut CertificateParams),
) -> Identity {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, group);
    adjust(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    Identity(certificate.der().clone(), key)
}

pub(crate) fn folder() -> PathBuf {
    let unique = KeyPair::generate().unwrap().public_key_pem();
    let unique: String = unique
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .skip(60)
        .take(16)
        .collect();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("certificates-{unique}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_added_to_whom_the_gateway_impersonates() {
    for mode in MODES {
        let stage = CertificateStage::new(mode).await;
        let bob = identity(&stage.clients, "bob", "devs", |_| {});
        let eve = identity(&stage.clients, "eve", "devs", |_| {});
        let carol = "Authorization: Bearer carol-token";
        assert_eq!(
            stage
                .code(Some(&bob), &["X-Remote-User: root", carol])
                .await,
            200,
            "{mode:?}"
        );
        let head = stage.forwarded();
        assert!(head.contains("\r\nimpersonate-user: bob\r\n"), "{head}");
        assert!(head.contains("\r\nimpersonate-group: devs\r\n"), "{head}");
        assert!(
            head.contains("\r\nauthorization: bearer gateway-token\r\n"),
            "{head}"
        );
        assert!(
            !head.contains("carol-token") && !head.contains("x-remote-"),
            "{head}"
        );
        stage.recorder.clear();
        let rows: [(&[&str], u16); 6] = [
            (&[MASTERS], 400),
            (&["Impersonate-Extra-%61: b"], 400),
            (&[ALICE], 403),
            (&[ALICE, MASTERS], 403),
            (&["Impersonate-User: bob", MASTERS], 403),
            (&["Connection: close, Impersonate-User", ALICE], 403),
        ];
        for (headers, expected) in rows {
            assert_eq!(
                stage.code(Some(&bob), headers).await,
                expected,
                "{mode:?} {headers:?}"
            );
        }
        let message = r#"requested \u0026user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"system:masters\"}, Extra:map[string][]string(nil)} without impersonating a user name"#;
        let response = stage.get(Some(&bob), PODS, &[MASTERS]).await;
        assert!(response.contains(message), "{response}");
        let header = "\r\nx-content-type-options: nosniff\r\n";
        assert!(response.to_lowercase().contains(header), "{response}");
        assert!(stage.recorder.heads(POD).is_empty());
        assert_eq!(stage.code(Some(&eve), &[ALICE]).await, 200);
        let head = stage.forwarded();
        assert_eq!(head.matches("\r\nimpersonate-").count(), 1, "{head}");
        assert!(head.contains("\r\nimpersonate-user: alice\r\n"), "{head}");
        // A header that a later API server might know.
        let unknown = "Impersonate-Later: root";
        let rows: [(&Identity, &[&str]); 2] = [(&bob, &[unknown]), (&eve, &[ALICE, unknown])];
        for (identity, headers) in rows {
            assert_eq!(stage.code(Some(identity), headers).await, 200, "{mode:?}");
            let head = stage.forwarded();
            assert!(!head.contains("impersonate-later"), "{head}");
        }
        assert_eq!(stage.code(Some(&eve), &[]).await, 403);
        assert_eq!(stage.code(None, &[]).await, 403);
        stage.stage.ended().await;
    }
}

/// Upstream sees the user whom the gateway impersonates, so only the gateway knows who sent the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_travels_as_impersonation_is_recorded_with_its_sender_under_upstreams_id() {
    for mode in MODES {
        let stage = CertificateStage::new(mode).await;
        let eve = identity(&stage.clients, "eve", "devs", |_| {});
        let proxy = identity(&stage.proxies, "proxy", "devs", |_| {});
        let no_headers: &[&str] = &[];
        let rows = [
            (&eve, no_headers, "eve", None, 403),
            (&eve, &[ALICE], "eve", Some("alice"), 200),
            (&eve, &[ALICE, "Audit-ID: mine"], "eve", Some("alice"), 200),
            (&proxy, &["X-Custom-User: alice"], "alice", None, 200),
        ];
        let mut expected = Vec::new();
        for (identity, headers, sender, acting_as, status) in rows {
            let response = stage.get(Some(identity), POD, headers).await;
            assert_eq!(code(&response), status, "{mode:?} {headers:?}: {response}");
            let head = stage.forwarded();
            let id = head
                .lines()
                .find_map(|line| line.strip_prefix("audit-id: "));
            let id = id.unwrap().to_owned();
            assert!(
                response
                    .to_lowercase()
                    .contains(&format!("audit-id: {id}\r\n")),
                "{response}"
            );
            assert_eq!(id == "mine", headers.len() == 2);
            expected.push(json!([id, sender, Value::Null, "get", Value::Null]));
            expected.push(json!([id, sender, acting_as, "get", status]));
        }
        stage.stage.ended().await;
        let log = std::fs::read_to_string(stage.folder.join("audit.log")).unwrap();
        let events = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let recorded: Vec<_> = events
            .map(|event| {
                json!([
                    event["auditID"],
                    event["user"]["username"],
                    event["impersonatedUser"]["username"],
                    event["verb"],
                    event["responseStatus"]["code"]
                ])
            })
            .collect();
        assert_eq!(recorded, expected, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renamed_headers_of_front_proxies_need_the_proxys_certificate() {
    for mode in MODES {
        let stage = CertificateStage::new(mode).await;
        let custom = [
            "X-Custom-User: alice",
            "X-Custom-Group: system:masters",
            "X-Custom-Extra-A: b",
        ];
        let named = ["X-Custom-User: alice"];
        let stranger = issuer("proxies");
        for (identity, expected) in [
            (None, 403),
            (Some(identity(&stage.clients, "proxy", "devs", |_| {})), 403),
            (Some(identity(&stage.clients, "bob", "devs", |_| {})), 200),
            (Some(identity(&stage.proxies, "other", "devs", |_| {})), 401),
            (Some(identity(&stranger, "proxy", "devs", |_| {})), 401),
        ] {
            assert_eq!(
                stage.code(identity.as_ref(), &custom).await,
                expected,
                "{mode:?}"
            );
        }
        for head in stage.recorder.heads("/") {
            let head = head.to_lowercase();
            assert!(
                !head.contains("x-custom-") && !head.contains("system:masters"),
                "{head}"
            );
            assert!(!head.contains("impersonate-user: alice"), "{head}");
        }
        let proxy = identity(&stage.proxies, "proxy", "", |_| {});
        assert_eq!(stage.code(Some(&proxy), &named).await, 200);
        let head = stage.forwarded();
        assert!(head.contains("\r\nimpersonate-user: alice\r\n"), "{head}");
        assert!(!head.contains("x-custom-"), "{head}");
        // The default header names are not configured for this proxy.
        assert_eq!(
            stage.code(Some(&proxy), &["X-Remote-User: alice"]).await,
            401
        );
        stage.stage.ended().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_its_certificate() {
    let stage = CertificateStage::new(AuthMode::SelfCheck).await;
    let short = identity(&stage.clients, "bob", "devs", |params| {
        params.not_after = (SystemTime::now() + Duration::from_secs(8)).into();
    });
    let watch = format!("{PODS}?watch=1&timeoutSeconds=300");
    let stream = stage.get(Some(&short), &watch, &[]).await;
    assert_eq!(code(&stream), 200, "{stream}");
    assert!(stream.contains("treasure"), "{stream}");
    assert!(
        stream.ends_with("0\r\n\r\n"),
        "the stream does not end cleanly"
    );
    assert_eq!(stage.code(Some(&short), &[]).await, 401);
    stage.stage.ended().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_authorities_count_without_a_restart() {
    const RELOADS: &str = "kube_fanout_file_reloads_total";
    let stage = CertificateStage::new(AuthMode::SelfCheck).await;
    let old = identity(&stage.clients, "bob", "devs", |_| {});
    let clients = issuer("clients");
    let new = identity(&clients, "bob", "devs", |_| {});
    assert_eq!(stage.code(Some(&old), &[]).await, 200);
    assert_eq!(stage.code(Some(&new), &[]).await, 401);
    // A file that cannot be used changes nothing.
    write(&stage.folder, "clients.crt", "no certificate");
    let failures = &["file=\"client_authority\"", "outcome=\"failed\""];
    until("the file is refused", async || {
        stage.stage.metric(RELOADS, failures).await > 0.0
    })
    .await;
    assert_eq!(stage.code(Some(&old), &[]).await, 200);
    write(&stage.folder, "clients.crt", &clients.pem());
    until("the new authority is used", async || {
        code(&stage.get(Some(&new), PODS, &[]).await) == 200
    })
    .await;
    assert_eq!(stage.code(Some(&old), &[]).await, 401);
    stage.stage.ended().await;
}
