//! Certificate authorities, certificates and TLS clients for tests.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

/// A temporary folder that is deleted at the end of its test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn create() -> Self {
        let unique = format!("kube-fanout-tls-{:016x}", crate::resource::random());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A certificate authority.
pub struct Authority(pub CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Signs a certificate with `name` as its common name and as a DNS name.
    pub fn sign(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign_with(&params)
    }

    pub fn sign_with(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair { certificate, key }
    }
}

/// A certificate and its key.
pub struct Pair {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Pair {
    pub fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub fn cert_pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The key with this chain, for rustls. The chain need not belong to the key.
    pub fn presenting(&self, chain: Vec<CertificateDer<'static>>) -> Arc<CertifiedKey> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let secret = PrivatePkcs8KeyDer::from(self.key.serialize_der()).into();
        let key = provider.key_provider.load_private_key(secret).unwrap();
        Arc::new(CertifiedKey::new(chain, key))
    }
}

/// A client that accepts every server certificate, and presents `presented` whatever authorities the server hints at.
pub fn client(
    version: &'static SupportedProtocolVersion,
    presented: Option<Arc<CertifiedKey>>,
) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believing))
        .with_client_cert_resolver(Arc::new(Presenting(presented)))
}

pub fn connector(config: ClientConfig) -> TlsConnector {
    TlsConnector::from(Arc::new(config))
}

pub fn named(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).unwrap()
}

#[derive(Debug)]
struct Presenting(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Presenting {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Debug)]
struct Believing;

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
