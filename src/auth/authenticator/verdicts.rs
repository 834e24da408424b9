//! Client certificates, verified once and remembered.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{Context, SHA256};
use moka::future::Cache;
use rustls_pki_types::CertificateDer;

use crate::auth::certificate::{CertificateError, ClientAuthorities, VerifiedCertificate};

/// Verifies certificates by authorities that may change, and remembers what came of it: a connection shows the same chain with each of
/// its requests.
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

    /// What was verified by others is forgotten.
    pub(super) fn set(&self, authorities: ClientAuthorities) {
        self.state.store(Some(Arc::new(VerifierState {
            authorities,
            verdicts: Cache::new(VERDICTS_MAX),
        })));
    }

    /// `None` if no authority counts here at all, or there is no certificate.
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
        if let Some(known) = state.verdicts.get(&digest).await
            && known.holds(now)
        {
            return Some(known.verdict);
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
    /// A certificate that counts does so until it expires; one that does not may become valid.
    fn holds(&self, now: SystemTime) -> bool {
        let since = now.duration_since(self.verified_at);
        match &self.verdict {
            Ok(certificate) => since.is_ok() && now < certificate.expires_at,
            Err(_) => since.is_ok_and(|since| since < FAILURE_TTL),
        }
    }
}

fn digest(chain: &[CertificateDer<'static>]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for certificate in chain {
        // The length first, so that no two chains are alike.
        context.update(&(certificate.len() as u64).to_be_bytes());
        context.update(certificate);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// Chains whose verification is remembered, some kilobytes each.
const VERDICTS_MAX: u64 = 4096;

/// How long a chain that does not count is not verified again.
const FAILURE_TTL: Duration = Duration::from_secs(1);
