//! Verifies client certificates: whether a chain is valid at a given time, which user it identifies, and until when it is valid. The TLS
//! handshake has only verified that the client holds the private key.

mod certificate_error;
mod subject;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use super::user::User;

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
    anchors: Vec<Anchor>,
    /// The verifier made last, for the anchors that were valid then; replaced when another time needs other anchors.
    current: ArcSwapOption<Verifier>,
}

struct Anchor {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

/// A range of time in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug)]
struct Validity {
    from: i64,
    to: i64,
}

/// Verifies chains with the anchors that are valid at every time in `validity`.
struct Verifier {
    validity: Validity,
    chains: Arc<dyn ClientCertVerifier>,
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
    /// Reads authorities from the text of a PEM file.
    ///
    /// # Errors
    /// [`AuthoritiesError`] if one of the certificates cannot be used; then none is.
    pub fn from_pem(pem: &[u8]) -> Result<Self, AuthoritiesError> {
        let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|_| AuthoritiesError::NotPem)?;
        if certificates.is_empty() {
            return Err(AuthoritiesError::Empty);
        }
        let mut roots = RootCertStore::empty();
        let mut anchors = Vec::with_capacity(certificates.len());
        for (index, certificate) in certificates.into_iter().enumerate() {
            let unusable = |reason: String| AuthoritiesError::Unusable {
                number: index + 1,
                reason,
            };
            let validity = validity(&certificate).map_err(|error| unusable(error.to_string()))?;
            let added = roots.add(certificate.clone());
            added.map_err(|error| unusable(error.to_string()))?;
            anchors.push(Anchor {
                certificate,
                validity,
            });
        }
        Ok(Self {
            anchors,
            current: ArcSwapOption::empty(),
        })
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
        let now = seconds(now);
        self.check(chain, now)?;
        let leaf = chain.first().ok_or(CertificateError::Malformed)?;
        let (user, common_name) = match user(leaf) {
            Ok((user, name)) => (Some(Arc::new(user)), name),
            // The certificate is valid but identifies no user.
            Err(CertificateError::Nameless) => (None, String::new()),
            Err(error) => return Err(error),
        };
        Ok(VerifiedCertificate {
            user,
            common_name,
            expires_at: system_time(self.end(chain, now)?),
        })
    }

    /// Verifies a chain at a time in seconds since 1970.
    fn check(&self, chain: &[CertificateDer<'static>], now: i64) -> Result<(), CertificateError> {
        let (leaf, others) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let untrusted = |reason: String| CertificateError::Untrusted { reason };
        let verifier = self.verifier(now).map_err(untrusted)?;
        let time = UnixTime::since_unix_epoch(
            system_time(now)
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        );
        let verified = verifier.chains.verify_client_cert(leaf, others, time);
        verified.map_err(|error| untrusted(error.to_string()))?;
        Ok(())
    }

    /// The first second at which the chain is no longer valid. Only the second after one of its certificates or an authority expires
    /// can be it, so only these times are tried.
    fn end(&self, chain: &[CertificateDer<'static>], now: i64) -> Result<i64, CertificateError> {
        let (leaf, others) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let last = validity(leaf)?.to;
        let others = others.iter().filter_map(|other| validity(other).ok());
        let anchors = self.anchors.iter().map(|anchor| anchor.validity);
        let mut ends: Vec<i64> = others.chain(anchors).map(|validity| validity.to).collect();
        ends.retain(|end| (now..last).contains(end));
        ends.sort_unstable();
        ends.dedup();
        let mut ends = ends.into_iter().map(|end| end.saturating_add(1));
        let early = ends.find(|&end| self.check(chain, end).is_err());
        Ok(early.unwrap_or_else(|| last.saturating_add(1)))
    }

    /// A verifier with the anchors that are valid at this time. They are selected here because webpki does not check the validity of
    /// anchors.
    fn verifier(&self, now: i64) -> Result<Arc<Verifier>, String> {
        let current = self.current.load_full();
        if let Some(current) = current.filter(|current| current.validity.contains(now)) {
            return Ok(current);
        }
        let mut roots = RootCertStore::empty();
        let mut validity = Validity {
            from: i64::MIN,
            to: i64::MAX,
        };
        for anchor in &self.anchors {
            validity = validity.around(now, anchor.validity);
            if anchor.validity.contains(now) {
                let added = roots.add(anchor.certificate.clone());
                added.map_err(|error| error.to_string())?;
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let chains = chains.build().map_err(|error| error.to_string())?;
        let verifier = Arc::new(Verifier { validity, chains });
        self.current.store(Some(Arc::clone(&verifier)));
        Ok(verifier)
    }
}

impl Validity {
    const fn contains(self, now: i64) -> bool {
        self.from <= now && now <= self.to
    }

    /// The part of this range that contains `now` and in which the anchor's validity does not change.
    fn around(self, now: i64, anchor: Self) -> Self {
        let (mut from, mut to) = (self.from, self.to);
        for edge in [anchor.from, anchor.to.saturating_add(1)] {
            if edge <= now {
                from = from.max(edge);
            } else {
                to = to.min(edge - 1);
            }
        }
        Self { from, to }
    }
}

fn validity(certificate: &CertificateDer<'_>) -> Result<Validity, CertificateError> {
    let parsed = X509Certificate::from_der(certificate);
    let (_, parsed) = parsed.map_err(|_| CertificateError::Malformed)?;
    Ok(Validity {
        from: parsed.validity().not_before.timestamp(),
        to: parsed.validity().not_after.timestamp(),
    })
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
const CHAIN_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
