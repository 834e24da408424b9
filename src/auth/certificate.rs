//! Client certificates: whether one counts at a time, whose it is, and until when. The handshake has shown only that the client holds
//! the key.

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

pub use subject::user;

/// Why a certificate does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// More or longer certificates than anybody needs.
    #[error("the certificate chain is too long")]
    TooLong,
    /// It, or one of its chain, is no certificate.
    #[error("not an X.509 certificate")]
    Malformed,
    /// It does not chain to an authority, is expired, not yet valid, or not meant for clients.
    #[error("the certificate does not verify: {reason}")]
    Untrusted {
        /// The verifier's words.
        reason: String,
    },
    /// Its subject cannot be read, or in two ways.
    #[error("the certificate's subject has no usable {part}")]
    Subject {
        /// `CN`, `O` or `UID`.
        part: &'static str,
    },
    /// Its subject names nobody.
    #[error("the certificate's subject has no common name")]
    Nameless,
}

/// Why a file of authorities cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    /// It is not in PEM.
    #[error("not a PEM file of certificates")]
    NotPem,
    /// There is none in it.
    #[error("no certificate in it")]
    Empty,
    /// One of them cannot be an authority.
    #[error("certificate {number} in it cannot be used: {reason}")]
    Unusable {
        /// From 1.
        number: usize,
        /// Why.
        reason: String,
    },
}

/// A certificate that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedCertificate {
    /// Whose it is; `None` if it names nobody.
    pub user: Option<Arc<User>>,
    /// Its common name alone.
    pub common_name: String,
    /// The first moment at which it no longer counts: when it expires, or what its chain needs.
    pub expires_at: SystemTime,
}

/// Those whose certificates count.
pub struct ClientAuthorities {
    anchors: Vec<Anchor>,
    /// Of the anchors that are valid now. Other times have their own.
    current: ArcSwapOption<Verifier>,
}

struct Anchor {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

/// In seconds since 1970, both included.
#[derive(Clone, Copy, Debug)]
struct Validity {
    from: i64,
    to: i64,
}

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
    /// Reads them from the text of a PEM file.
    ///
    /// # Errors
    /// [`AuthoritiesError`]; it is all or none of them.
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

    /// Whether a chain, end entity first, counts at this time, and whose it is.
    ///
    /// # Errors
    /// [`CertificateError`] if it does not.
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
            // Says nothing of who is calling, as if there were none.
            Err(CertificateError::Nameless) => (None, String::new()),
            Err(error) => return Err(error),
        };
        Ok(VerifiedCertificate {
            user,
            common_name,
            expires_at: moment(self.end(chain, now)?),
        })
    }

    /// Whether a chain verifies at this time.
    fn check(&self, chain: &[CertificateDer<'static>], now: i64) -> Result<(), CertificateError> {
        let (leaf, others) = chain.split_first().ok_or(CertificateError::Malformed)?;
        let untrusted = |reason: String| CertificateError::Untrusted { reason };
        let verifier = self.verifier(now).map_err(untrusted)?;
        let time =
            UnixTime::since_unix_epoch(moment(now).duration_since(UNIX_EPOCH).unwrap_or_default());
        let verified = verifier.chains.verify_client_cert(leaf, others, time);
        verified.map_err(|error| untrusted(error.to_string()))?;
        Ok(())
    }

    /// The first second at which the chain no longer verifies. It can only be after one of its certificates, or an authority, expires.
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

    /// Of all anchors that are valid at this time; webpki itself does not look at that.
    fn verifier(&self, now: i64) -> Result<Arc<Verifier>, String> {
        let known = self.current.load_full();
        if let Some(known) = known.filter(|known| known.validity.contains(now)) {
            return Ok(known);
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

    /// The part of this range around `now` in which an anchor is as valid as it is now.
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

/// Whole seconds, as certificates have them.
fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn moment(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// An end entity and a few intermediate authorities.
const CHAIN_COUNT_MAX: usize = 10;

/// Bytes of a chain; a certificate has one or two thousand, some of many groups.
const CHAIN_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
