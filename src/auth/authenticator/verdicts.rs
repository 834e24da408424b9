//! A cache of verified client certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{Context, SHA256};
use moka::future::Cache;
use rustls_pki_types::CertificateDer;

use crate::auth::certificate::{CertificateError, ClientAuthorities, VerifiedCertificate};

/// Verifies certificates with authorities that may be replaced, and caches the verdicts: every request of a connection has the same
/// chain.
pub(super) struct CertificateVerifier {
    state: ArcSwapOption<VerifierState>,
}

struct VerifierState {
    authorities: ClientAuthorities,
    verdicts: Cache<[u8; 32], CertificateVerdict>,
}

#[derive(Clone)]
struct CertificateVerdict {
    verdict: Result<Arc<VerifiedCertificate>, CertificateError>,
    verified_at: SystemTime,
}

impl CertificateVerifier {
    pub(super) fn new(authorities: Option<ClientAuthorities>) -> Self {
        let verifier = Self {
            state: ArcSwapOption::empty(),
        };
        if let Some(authorities) = authorities {
            verifier.set(authorities);
        }
        verifier
    }

    /// Replaces the authorities, and drops the verdicts of the previous ones.
    pub(super) fn set(&self, authorities: ClientAuthorities) {
        self.state.store(Some(Arc::new(VerifierState {
            authorities,
            verdicts: Cache::new(VERDICTS_MAX),
        })));
    }

    /// Verifies a chain at time `now`. `None` if there are no authorities, or the chain is empty.
    pub(super) async fn verify(
        &self,
        chain: &[CertificateDer<'static>],
        now: SystemTime,
    ) -> Option<Result<Arc<VerifiedCertificate>, CertificateError>> {
        let state = self.state.load_full()?;
        if chain.is_empty() {
            return None;
        }
        let digest = digest(chain);
        if let Some(cached) = state.verdicts.get(&digest).await
            && cached.is_valid_at(now)
        {
            return Some(cached.verdict);
        }
        let verdict = state.authorities.verify(chain, now);
        let verdict = CertificateVerdict {
            verdict: verdict.map(Arc::new),
            verified_at: now,
        };
        state.verdicts.insert(digest, verdict.clone()).await;
        Some(verdict.verdict)
    }
}

impl CertificateVerdict {
    /// Whether the verdict may be used at `now`. A valid certificate stays valid until it expires; an invalid one may become valid, so
    /// its verdict is used only briefly. No verdict is used if the clock was set back before the verification.
    fn is_valid_at(&self, now: SystemTime) -> bool {
        let age = now.duration_since(self.verified_at);
        match &self.verdict {
            Ok(certificate) => age.is_ok() && now < certificate.expires_at,
            Err(_) => age.is_ok_and(|age| age < FAILURE_TTL),
        }
    }
}

fn digest(chain: &[CertificateDer<'static>]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for certificate in chain {
        // The length comes first, so that different chains never hash the same bytes.
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Maximum number of cached verdicts, a few kilobytes each.
const VERDICTS_MAX: u64 = 4096;

/// How long the verdict of an invalid chain is used.
const FAILURE_TTL: Duration = Duration::from_secs(1);
