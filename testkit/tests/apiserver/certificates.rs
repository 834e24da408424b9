//! Client certificates and front proxies.

use std::sync::Arc;

use hyper_util::rt::TokioExecutor;
use kube_fanout_testkit::apiserver::auth::{AuthOptions, FrontProxy};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::auth::*;
use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn client(name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    for (index, organization) in organizations.iter().enumerate() {
        // rcgen keeps one value per type; a custom type with the OID of organizational units gives a second one.
        let kind = match index {
            0 => DnType::OrganizationName,
            _ => DnType::CustomDnType(vec![2, 5, 4, 11]),
        };
        params.distinguished_name.push(kind, *organization);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

type ClientCertificate = (Vec<CertificateDer<'static>>, Vec<u8>);

fn signed(params: &CertificateParams, issuer: &Authority) -> ClientCertificate {
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    (vec![certificate.der().clone()], key.serialize_der())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Lets every client certificate through the handshake: the server judges it per request, beside other credentials.
#[derive(Debug)]
struct AnyCertificate;

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// An API server over TLS that requests client certificates.
struct TlsFixture {
    bench: Bench,
    roots: RootCertStore,
    clients: Authority,
    proxies: Authority,
}

impl TlsFixture {
    fn new() -> Self {
        let (clients, proxies) = (authority("clients"), authority("proxies"));
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let tls = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyCertificate))
            .with_single_cert(vec![own.cert.der().clone()], key.into());
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let options = Options {
            tls: Some(Arc::new(tls.unwrap())),
            auth: Some(AuthOptions {
                tokens: tokens(),
                client_ca: vec![clients.der().clone()],
                front_proxy: Some(FrontProxy {
                    client_ca: vec![proxies.der().clone()],
                    allowed_names: vec!["aggregator".into()],
                }),
                ..AuthOptions::default()
            }),
            ..Options::default()
        };
        Self {
            bench: Bench::with(options),
            roots,
            clients,
            proxies,
        }
    }

    /// Creates a SelfSubjectReview; returns the response's code, and the user or the error message.
    async fn self_review(
        &self,
        certificate: Option<&ClientCertificate>,
        headers: &str,
    ) -> (u16, Value) {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let config = match certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivatePkcs8KeyDer::from(key.clone()).into();
                config.with_client_auth_cert(chain.clone(), key).unwrap()
            }
        };
        let socket = self.bench.client.connect().await;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, socket).await.unwrap();
        let request = format!(
            "POST {SELF_REVIEWS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n{headers}\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        // The server may close without a TLS close_notify; the response is complete anyway.
        let _ = stream.read_to_end(&mut response).await;
        let text = String::from_utf8(response).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        let code = head[9..12].parse().unwrap();
        let user = &body["status"]["userInfo"];
        (
            code,
            if user.is_null() {
                body["message"].clone()
            } else {
                user.clone()
            },
        )
    }
}

#[tokio::test]
async fn a_certificate_tells_user_groups_and_uid() {
    let fixture = TlsFixture::new();
    let mut params = client("carl", &["dev"]);
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    params.distinguished_name.push(uid, "c-7");
    let (code, user) = fixture
        .self_review(Some(&signed(&params, &fixture.clients)), "")
        .await;
    assert_eq!(code, 201);
    assert_eq!(user["username"], "carl");
    assert_eq!(user["uid"], "c-7");
    assert_eq!(user["groups"], json!(["dev", "system:authenticated"]));
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0]
        .as_str()
        .unwrap();
    assert_eq!(id.strip_prefix("X509SHA256=").unwrap().len(), 64);
}

#[tokio::test]
async fn a_certificate_that_says_nothing_is_no_credential_and_a_bad_one_is_refused() {
    let fixture = TlsFixture::new();
    let stranger = authority("strangers");
    let mut expired = client("carl", &[]);
    expired.not_before = date_time_ymd(2020, 1, 1);
    expired.not_after = date_time_ymd(2021, 1, 1);
    let mut early = client("carl", &[]);
    early.not_before = date_time_ymd(2090, 1, 1);
    early.not_after = date_time_ymd(2091, 1, 1);
    let mut server = client("carl", &[]);
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut empty_uid = client("carl", &[]);
    let uid = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
    empty_uid.distinguished_name.push(uid, "");
    let ann = format!("Authorization: Bearer {ANN}\r\n");
    for (why, params, issuer) in [
        ("stranger", client("carl", &[]), &stranger),
        ("expired", expired, &fixture.clients),
        ("early", early, &fixture.clients),
        ("for servers", server, &fixture.clients),
        ("empty uid", empty_uid, &fixture.clients),
        ("a proxy's", client("aggregator", &[]), &fixture.proxies),
    ] {
        let certificate = signed(&params, issuer);
        let (code, message) = fixture.self_review(Some(&certificate), "").await;
        assert_eq!((code, message), (401, "Unauthorized".into()), "{why}");
        // A valid token is accepted although the certificate is not.
        let (code, user) = fixture.self_review(Some(&certificate), &ann).await;
        assert_eq!((code, &user["username"]), (201, &"ann".into()), "{why}");
    }
    let denied_anonymous = r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope"#;
    let nameless = signed(&client("", &["system:masters"]), &fixture.clients);
    assert_eq!(
        fixture.self_review(Some(&nameless), "").await,
        (401, "Unauthorized".into())
    );
    assert_eq!(
        fixture.self_review(None, "").await,
        (403, denied_anonymous.into())
    );
}

#[tokio::test]
async fn a_trusted_proxy_names_the_user_and_nobody_else_does() {
    let fixture = TlsFixture::new();
    let proxy = signed(&client("aggregator", &[]), &fixture.proxies);
    let headers = "X-Remote-User: eve\r\nX-Remote-Uid: e-1\r\nX-Remote-Group: a\r\nX-Remote-Group: b\r\nX-Remote-Extra-A%2fB: x\r\n";
    let (code, user) = fixture.self_review(Some(&proxy), headers).await;
    let expected = json!({"username": "eve", "uid": "e-1", "groups": ["a", "b", "system:authenticated"], "extra": {"a/b": ["x"]}});
    assert_eq!((code, user), (201, expected));
    // The proxy's headers take precedence over a token.
    let both = format!("{headers}Authorization: Bearer {ANN}\r\n");
    let (_, user) = fixture.self_review(Some(&proxy), &both).await;
    assert_eq!(user["username"], "eve");
    let other_name = signed(&client("other", &[]), &fixture.proxies);
    let (code, _) = fixture.self_review(Some(&other_name), headers).await;
    assert_eq!(code, 401);
    let of_clients = signed(&client("aggregator", &[]), &fixture.clients);
    let (_, user) = fixture.self_review(Some(&of_clients), headers).await;
    assert_eq!(user["username"], "aggregator");
    let (code, _) = fixture.self_review(None, headers).await;
    assert_eq!(code, 403);
    let (_, user) = fixture.self_review(None, &both).await;
    assert_eq!(user["username"], "ann");
}

/// Over HTTP/2 the server closes the connection of a client without valid credentials, as kube-apiserver does.
#[tokio::test]
async fn unknown_senders_keep_no_http2_connection() {
    let bench = bench().await;
    for (token, code, is_closed) in [(ANN, 403, false), ("nope", 401, true), ("", 403, true)] {
        let socket = bench.client.connect().await;
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let mut request = Request::builder().uri(format!("http://localhost{PODS}"));
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = requests.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), code);
        response.into_body().collect().await.unwrap();
        if is_closed {
            // The server closes the connection; the client sends no other request on it.
            connection.await.unwrap().unwrap();
        } else {
            requests.ready().await.unwrap();
            assert!(!connection.is_finished());
        }
    }
}
