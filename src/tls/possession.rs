//! What the handshake asks of client certificates: possession of the key, nothing else. Whether a certificate says who its
//! holder is gets decided for each request, so that files that change and certificates that expire count at once.

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

/// A chain from root to leaf has three or four.
pub(super) const CHAIN_LEN_MAX: usize = 10;
/// A certificate with hundreds of groups has 20 KiB. The chain is kept as long as its connection.
pub(super) const CHAIN_BYTES_MAX: usize = 32 << 10;
/// Every handshake carries the hints. Without any, clients offer the certificate they have.
const HINTS_LEN_MAX: usize = 16 << 10;

/// Asks clients for a certificate and accepts each whose key they hold, none included.
pub(super) struct PossessionVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    hints: Vec<DistinguishedName>,
}

impl PossessionVerifier {
    /// Hints at `authorities`: clients that have several certificates choose by them.
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
