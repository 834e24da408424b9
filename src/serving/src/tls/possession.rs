//! The check of client certificates in the TLS handshake: only that the client possesses the key. Whether a certificate identifies a user
//! is decided for each request, so that changed files and expired certificates take effect immediately.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, UnixTime};

/// An ordinary chain from root to leaf has three or four certificates.
pub(super) const CHAIN_LEN_MAX: usize = 10;
/// A certificate with hundreds of groups has 20 KiB. The bound limits memory, because the chain is kept as long as the connection.
pub(super) const CHAIN_BYTES_MAX: usize = 32 << 10;
/// Longer hints are left out, because every handshake carries them. Without hints, clients present the certificate that they have.
const HINTS_LEN_MAX: usize = 16 << 10;

/// Requests a client certificate, and accepts any certificate whose key the client possesses, and clients without a certificate.
pub(super) struct PossessionVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
}

impl PossessionVerifier {
    /// Sends the names of `authorities` as hints, by which clients with several certificates choose one.
    pub(super) fn of(authorities: &RootCertStore, provider: &CryptoProvider) -> Arc<Self> {
        let mut hints = authorities.subjects();
        hints.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
        hints.dedup_by(|one, other| one.as_ref() == other.as_ref());
        let length: usize = hints.iter().map(|name| name.as_ref().len() + 2).sum();
        if length > HINTS_LEN_MAX {
            hints.clear();
        }
        Arc::new(Self {
            algorithms: provider.signature_verification_algorithms,
            hints,
        })
    }
}

impl fmt::Debug for PossessionVerifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Possession")
            .field("hints", &self.hints.len())
            .finish_non_exhaustive()
    }
}

impl ClientCertVerifier for PossessionVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let rest: usize = intermediates.iter().map(|one| one.len()).sum();
        let is_small = intermediates.len() < CHAIN_LEN_MAX
            && end_entity.len().saturating_add(rest) <= CHAIN_BYTES_MAX;
        if !is_small {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
