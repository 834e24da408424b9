//! An API server and a gateway to check, certificates, and what is expected of a report.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use kube_fanout::check::{CheckLevel, CheckReport, check_once};
use kube_fanout::cli::CheckCategory;
use kube_fanout::config::{CheckSettings, ClientSettings, OutputFormat, ServeSettings};
use kube_fanout::resource::Gvr;
use kube_fanout::shutdown::Drain;
use kube_fanout_testkit::apiserver::{self, Apiserver, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;

use super::front::{Front, Reply};
use crate::support::client::{create_kube_system, send};
use crate::support::gateway::Running;

pub(crate) const ALL: [CheckCategory; 10] = [
    CheckCategory::Upstream,
    CheckCategory::Certificates,
    CheckCategory::Rights,
    CheckCategory::Features,
    CheckCategory::Limits,
    CheckCategory::Clock,
    CheckCategory::Handover,
    CheckCategory::Gateway,
    CheckCategory::Live,
    CheckCategory::Admin,
];

/// Settings that check the API server at this address, and no gateway.
pub(crate) fn settings(upstream: SocketAddr) -> CheckSettings {
    CheckSettings {
        serve: ServeSettings::embedded(format!("http://{upstream}/").parse().unwrap()),
        categories: ALL.to_vec(),
        before_install: false,
        gateway: None,
        admin: None,
        client_names: Vec::new(),
        compared: Gvr::new("", "v1", "namespaces"),
        wait: Duration::ZERO,
        output: OutputFormat::Text,
        color: false,
    }
}

/// A client of the gateway at this address.
pub(crate) fn client(scheme: &str, gateway: SocketAddr) -> ClientSettings {
    ClientSettings {
        url: format!("{scheme}://{gateway}/").parse().unwrap(),
        ca_file: None,
        server_name: None,
        token_file: None,
    }
}

/// An embedded API server without authentication, with two namespaces.
pub(crate) async fn apiserver() -> Apiserver {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = Options {
        objects: vec!["configmaps=7".parse().unwrap()],
        ..Options::default()
    };
    let apiserver = apiserver::start(listener, options).unwrap();
    create_kube_system(apiserver.address()).await;
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team"}}"#;
    let request = http::Request::post("/api/v1/namespaces")
        .header("host", "server")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(namespace.as_bytes())))
        .unwrap();
    assert_eq!(send(apiserver.address(), request).await.status(), 201);
    apiserver
}

/// A gateway in front of an API server.
pub(crate) async fn gateway(upstream: SocketAddr) -> Running {
    let settings = ServeSettings::embedded(format!("http://{upstream}/").parse().unwrap());
    Running::start(settings, Drain::with_timeout(Duration::from_secs(1))).await
}

/// The API server knows the gateway.
pub(crate) fn known() -> Reply {
    let user = r#"{"status":{"userInfo":{"username":"gateway"}}}"#;
    Reply::new("authentication.k8s.io/v1/selfsubjectreviews", 201, user)
}

/// The report on an API server that gives these replies.
pub(crate) async fn report_on(
    mut replies: Vec<Reply>,
    adjust: impl FnOnce(&mut CheckSettings),
) -> CheckReport {
    let apiserver = apiserver().await;
    replies.push(known());
    let front = Front::new(Some(apiserver.address()), replies).await;
    let mut settings = settings(front.address);
    adjust(&mut settings);
    check_once(&settings).await
}

/// Asserts how a check ended, that its message has these words, and that it says what to do; returns its name.
#[track_caller]
pub(crate) fn ended(
    report: &CheckReport,
    name: &'static str,
    level: CheckLevel,
    words: &str,
) -> &'static str {
    let result = report
        .results
        .iter()
        .find(|result| result.spec.name == name);
    let result = result.unwrap_or_else(|| panic!("no {name} in\n{}", report.text(false)));
    let verdict = &result.verdict;
    assert_eq!(verdict.level, level, "{name} in\n{}", report.text(false));
    let text = format!("{} {}", verdict.message, verdict.details.join(" "));
    assert!(text.contains(words), "{name}: {words:?} in {text:?}");
    assert_eq!(
        verdict.hint.is_empty(),
        level < CheckLevel::Warning,
        "{name}: {verdict:?}"
    );
    name
}

/// An authority and the certificates that it signs, as files of one test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate and its key in files.
pub(crate) struct PairFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    chain: Vec<rustls_pki_types::CertificateDer<'static>>,
    secret: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(folder: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, folder);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{folder}"));
        std::fs::create_dir_all(&folder).unwrap();
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.join("ca.crt"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// A certificate for `localhost` and 127.0.0.1, valid between two moments that are so many days from now.
    pub(crate) fn sign(&self, name: &str, days: std::ops::Range<i64>) -> PairFiles {
        self.sign_for(&["localhost", "127.0.0.1"], name, days)
    }

    /// A certificate for these names.
    pub(crate) fn sign_for(
        &self,
        names: &[&str],
        name: &str,
        days: std::ops::Range<i64>,
    ) -> PairFiles {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let now = rcgen::date_time_ymd(1970, 1, 1)
            + Duration::from_secs(jiff::Timestamp::now().as_second().try_into().unwrap());
        let day = |count: i64| {
            let span = Duration::from_secs(count.unsigned_abs() * 86_400);
            if count < 0 { now - span } else { now + span }
        };
        params.not_before = day(days.start);
        params.not_after = day(days.end);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert, key_file) = (
            self.folder.join(format!("{name}.crt")),
            self.folder.join(format!("{name}.key")),
        );
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        PairFiles {
            cert,
            key: key_file,
            chain: vec![certificate.der().clone()],
            secret: key.serialize_der(),
        }
    }
}

impl PairFiles {
    /// TLS with this certificate that offers these protocols.
    pub(crate) fn tls(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let secret = PrivatePkcs8KeyDer::from(self.secret.clone()).into();
        let mut config = config.with_single_cert(self.chain.clone(), secret).unwrap();
        config.alpn_protocols = protocols
            .iter()
            .map(|one| one.as_bytes().to_vec())
            .collect();
        Arc::new(config)
    }
}
