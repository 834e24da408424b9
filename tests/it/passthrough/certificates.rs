//! Client certificates towards upstream: the gateway's own requests use its certificate, requests that it forwards for callers use none.

use std::path::PathBuf;
use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube_fanout::upstream::client::{Client, ConnectSource, ForwardIdentity, RequestBody};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

use crate::passthrough::front::{Http, Fixture};
use crate::passthrough::peer;

struct Files(PathBuf);

impl Files {
    fn write(&self, name: &str, text: String) {
        std::fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that requests client certificates, and a kubeconfig with one.
async fn stage(name: &str) -> (peer::Peer, Files, ConnectSource) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |names: &[String]| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        (params.signed_by(&key, &authority).unwrap(), key)
    };
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
    let (cert, key) = signed(&["localhost".to_owned()]);
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let peer = peer::start(Some(TlsAcceptor::from(Arc::new(config)))).await;

    let name = format!("certificates-{name}-{}", std::process::id());
    let files = Files(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name));
    std::fs::create_dir_all(&files.0).unwrap();
    let (cert, key) = signed(&[]);
    files.write("ca.crt", authority.pem());
    files.write("tls.crt", cert.pem());
    files.write("tls.key", key.serialize_pem());
    let port = peer.address.port();
    files.write(
        "config",
        format!(
            "apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: 'https://localhost:{port}', certificate-authority: ca.crt}}}}]
contexts: [{{name: here, context: {{cluster: here, user: gateway}}}}]
users: [{{name: gateway, user: {{client-certificate: tls.crt, client-key: tls.key}}}}]
"
        ),
    );
    let source = ConnectSource::kubeconfig(files.0.join("config"));
    (peer, files, source)
}

fn own_request() -> Request<RequestBody> {
    Request::get("/any").body(RequestBody::from(())).unwrap()
}

const SHOWN: &str = "client certificates: 1";

#[tokio::test]
async fn callers_never_travel_under_the_gateways_certificate() {
    let (_peer, _files, source) = stage("callers").await;
    let client = Client::connect(source).await.unwrap();
    // The second round could resume TLS sessions of the first, or reuse its connections; the third runs after the client was rebuilt.
    for round in 0..3 {
        for identity in [ForwardIdentity::Gateway, ForwardIdentity::Caller] {
            let request = own_request;
            for (method, answer) in [
                ("forward", client.forward(identity, request()).await),
                ("watch", client.forward_watch(identity, request()).await),
                ("upgrade", client.send_upgrade(identity, request()).await),
            ] {
                let body = answer.unwrap().into_body().collect().await.unwrap();
                let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
                assert!(text.starts_with(Method::GET.as_str()), "{text}");
                let is_shown = text.contains(SHOWN);
                assert_eq!(
                    is_shown,
                    identity == ForwardIdentity::Gateway,
                    "{round} {method}: {text}"
                );
            }
        }
        // Only callers' requests use separate connections.
        for answer in [
            client.forward_apart(own_request()).await,
            client.forward_watch_apart(own_request()).await,
        ] {
            let body = answer.unwrap().into_body().collect().await.unwrap();
            let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
            assert!(text.contains("HTTP/1.1") && !text.contains(SHOWN), "{text}");
        }
        if round == 1 {
            client.rebuild().await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_passes_through_for_callers_shows_no_certificate() {
    for (down, identity) in [
        (Http::One, ForwardIdentity::Caller),
        (Http::Two, ForwardIdentity::Caller),
        (Http::One, ForwardIdentity::Gateway),
    ] {
        let (peer, _files, source) = stage(&format!("{down:?}-{identity:?}")).await;
        let fixture = Fixture::before(peer, source, identity, down).await;
        for target in ["/any", "/any?long", "/any?watch"] {
            let (_, text) = fixture.get(target, &[]).await;
            let is_shown = text.contains(SHOWN);
            assert_eq!(
                is_shown,
                identity == ForwardIdentity::Gateway,
                "{target}: {text}"
            );
        }
    }
}
