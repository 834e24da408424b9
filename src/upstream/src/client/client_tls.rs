//! TLS towards the API server: which authorities are trusted, and the gateway's own certificate.

use std::sync::Arc;

use http::{Uri, uri};
use hyper_rustls::ConfigBuilderExt as _;
use kube_client::Config;
use kube_client::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{ConnectError, secrets};

/// The configuration for connections to a server at this address. Blocks: it reads files.
pub(super) fn client_config(config: &Config, base: &Uri) -> Result<ClientConfig, ConnectError> {
    // A minimal image has no authorities, and without verification none is needed.
    let is_unverified = config.accept_invalid_certs || base.scheme() == Some(&uri::Scheme::HTTP);
    let builder = ClientConfig::builder();
    let builder = match &config.root_cert {
        Some(authorities) => builder.with_root_certificates(root_store(authorities)?),
        None if is_unverified => builder.with_root_certificates(RootCertStore::empty()),
        None => builder
            .with_native_roots()
            .map_err(|error| ConnectError::BadAuthority {
                reason: error.to_string(),
            })?,
    };
    let mut tls = match identity(&config.auth_info)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| bad_certificate(error.to_string()))?,
        None => builder.with_no_client_auth(),
    };
    if config.accept_invalid_certs {
        let verifier = Arc::new(Unverified(Arc::clone(tls.crypto_provider())));
        tls.dangerous().set_certificate_verifier(verifier);
    }
    Ok(tls)
}

fn root_store(authorities: &[Vec<u8>]) -> Result<RootCertStore, ConnectError> {
    let mut store = RootCertStore::empty();
    for der in authorities {
        store
            .add(CertificateDer::from_slice(der))
            .map_err(|error| ConnectError::BadAuthority {
                reason: error.to_string(),
            })?;
    }
    Ok(store)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The client certificate with its chain, and its key.
fn identity(auth: &AuthInfo) -> Result<Option<Identity>, ConnectError> {
    let (certificate, key) = match (secrets::certificate(auth)?, secrets::key(auth)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err(bad_certificate("the key is missing".to_owned())),
        (None, Some(_)) => return Err(bad_certificate("the certificate is missing".to_owned())),
    };
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad_certificate("no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| bad_certificate(format!("no usable key: {error}")))?;
    Ok(Some((chain, key)))
}

fn bad_certificate(reason: String) -> ConnectError {
    ConnectError::BadClientCertificate { reason }
}

/// Accepts any certificate: the kubeconfig says `insecure-skip-tls-verify`.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
