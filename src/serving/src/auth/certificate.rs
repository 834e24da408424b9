//! Verifies client certificates: whether a chain is valid at a given time, which user it identifies, and until when it is valid. The TLS
//! handshake has only verified that the client holds the private key.

mod certificate_error;
mod chain_certificate;
mod path_search;
mod subject;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::user::User;
use chain_certificate::ChainCertificate;
use path_search::PathSearch;

pub use certificate_error::CertificateError;
pub use subject::user;

/// Why a file of authorities cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    /// The file is not valid PEM.
    #[error("not a PEM file of certificates")]
    NotPem,
    /// The file contains no certificate.
    #[error("the file contains no certificate")]
    Empty,
    /// One of the certificates cannot be used as an authority.
    #[error("certificate {number} cannot be used: {reason}")]
    Unusable {
        /// The position in the file, from 1.
        number: usize,
        /// The reason, in one line.
        reason: String,
    },
}

/// A valid client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCertificate {
    /// The user that it identifies; `None` if it has no common name.
    pub user: Option<Arc<User>>,
    /// Its common name; empty if it has none.
    pub common_name: String,
    /// The first second at which it is no longer valid, because it or another certificate that its chain needs has expired.
    pub expires_at: SystemTime,
}

/// The authorities of client certificates.
pub struct ClientAuthorities {
    anchors: Vec<ChainCertificate>,
}

impl std::fmt::Debug for ClientAuthorities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Authorities")
            .field("anchors", &self.anchors.len())
            .finish_non_exhaustive()
    }
}

impl ClientAuthorities {
    /// Reads authorities from the text of a PEM file. A certificate that may not sign others is no mistake: it authenticates its owner.
    ///
    /// # Errors
    /// [`AuthoritiesError`] if one of the certificates cannot be used; then none is.
    pub fn from_pem(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| AuthoritiesError::NotPem)?;
        if certificates.is_empty() {
            return Err(AuthoritiesError::Empty);
        }
        let mut anchors = Vec::with_capacity(certificates.len());
        for (index, certificate) in certificates.iter().enumerate() {
            let anchor = ChainCertificate::parse(certificate);
            anchors.push(anchor.map_err(|error| AuthoritiesError::Unusable {
                number: index + 1,
                reason: error.to_string(),
            })?);
        }
        Ok(Self { anchors })
    }

    /// Verifies a chain, end entity first, at time `now`, and reads the user from its subject.
    ///
    /// # Errors
    /// [`CertificateError`] if the chain is not valid, or its subject is ambiguous.
    pub fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        now: SystemTime,
    ) -> Result<VerifiedCertificate, CertificateError> {
        let bytes: usize = chain.iter().map(|certificate| certificate.len()).sum();
        if chain.len() > CHAIN_COUNT_MAX || bytes > CHAIN_LEN_MAX {
            return Err(CertificateError::TooLong);
        }
        let (leaf, others) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let parsed = ChainCertificate::parse(leaf)?;
        // What cannot be read cannot be part of a path.
        let others = others
            .iter()
            .filter_map(|one| ChainCertificate::parse(one).ok());
        let last = PathSearch::new(&parsed, others.collect(), &self.anchors, seconds(now))?
            .last_second(&parsed);
        let last = last.ok_or(CertificateError::Untrusted)?;
        let (user, common_name) = match user(leaf) {
            Ok((user, name)) => (Some(Arc::new(user)), name),
            // The certificate is valid but identifies no user.
            Err(CertificateError::Nameless) => (None, String::new()),
            Err(error) => return Err(error),
        };
        Ok(VerifiedCertificate {
            user,
            common_name,
            expires_at: system_time(last.saturating_add(1)),
        })
    }

    /// The first time after `now` at which a chain that is not valid now may be: when one of the certificates becomes valid. `None` if
    /// it never will be by these authorities.
    #[must_use]
    pub fn next_attempt(
        &self,
        chain: &[CertificateDer<'static>],
        now: SystemTime,
    ) -> Option<SystemTime> {
        let now = seconds(now);
        let chain: Vec<_> = chain
            .iter()
            .filter_map(|one| ChainCertificate::parse(one).ok())
            .collect();
        let starts = self
            .anchors
            .iter()
            .chain(&chain)
            .map(|one| one.validity.from);
        starts.filter(|&from| from > now).min().map(system_time)
    }
}

/// Whole seconds since 1970, the resolution of times in certificates.
fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn system_time(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// Maximum number of certificates in a chain: an end entity and a few intermediate authorities.
const CHAIN_COUNT_MAX: usize = 10;

/// Maximum length of a chain in bytes. A certificate has one or two thousand; one with many groups has more.
const CHAIN_LEN_MAX: usize = 32 << 10;

#[cfg(test)]
mod tests;
