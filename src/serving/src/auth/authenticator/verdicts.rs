//! A cache of verified client certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{Context, SHA256};
use moka::future::Cache;
use rustls_pki_types::CertificateDer;

use crate::auth::caller::CertificateChain;
use crate::auth::certificate::{CertificateError, ClientAuthorities, VerifiedCertificate};
use crate::auth::review_permits::ReviewPermits;
use crate::blocking::spawn_blocking;
use crate::fairness::Peer;

/// Verifies certificates with authorities that may be replaced, and caches the verdicts: every request of a connection has the same
/// chain. Chains are verified on threads for blocking work, few at a time, and equal ones once.
pub(super) struct CertificateVerifier {
    state: ArcSwapOption<VerifierState>,
    permits: ReviewPermits,
}

struct VerifierState {
    authorities: ClientAuthorities,
    verdicts: Cache<[u8; 32], CertificateVerdict>,
}

#[derive(Clone)]
struct CertificateVerdict {
    verdict: Result<Arc<VerifiedCertificate>, CertificateError>,
    /// No verdict is used if the clock was set back before the verification.
    verified_at: SystemTime,
    /// The first time at which it may be another one.
    valid_until: SystemTime,
}

impl CertificateVerifier {
    pub(super) fn new(authorities: Option<ClientAuthorities>) -> Self {
        let verifier = Self {
            state: ArcSwapOption::empty(),
            permits: ReviewPermits::new(RUNNING_MAX, WAITING_MAX),
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

    /// Verifies a chain at time `now`. `None` if there are no authorities, or the chain is empty. `payer` is the client whose share of
    /// permits pays.
    pub(super) async fn verify(
        &self,
        chain: &CertificateChain,
        payer: Peer,
        now: SystemTime,
    ) -> Option<Result<Arc<VerifiedCertificate>, CertificateError>> {
        let state = self.state.load_full()?;
        if chain.is_empty() {
            return None;
        }
        let verification = self.verification(Arc::clone(&state), chain, payer, now);
        let entry = state
            .verdicts
            .entry(digest(chain))
            .or_insert_with_if(verification, |known| !known.is_usable_at(now))
            .await;
        Some(entry.into_value().verdict)
    }

    async fn verification(
        &self,
        state: Arc<VerifierState>,
        chain: &CertificateChain,
        payer: Peer,
        now: SystemTime,
    ) -> CertificateVerdict {
        let permit = match self.permits.request(payer) {
            Some(permit) => permit.granted().await,
            None => None,
        };
        let Some(permit) = permit else {
            return CertificateVerdict::busy(now);
        };
        let chain = Arc::clone(chain);
        let verdict = spawn_blocking(move || {
            // Held until the work has ended, even if nobody waits for it any more.
            let _permit = permit;
            CertificateVerdict::of(&state.authorities, &chain, now)
        });
        // A check that panicked has no result.
        verdict
            .await
            .unwrap_or_else(|_| CertificateVerdict::busy(now))
    }
}

impl CertificateVerdict {
    fn of(authorities: &ClientAuthorities, chain: &CertificateChain, now: SystemTime) -> Self {
        let verdict = authorities.verify(chain, now).map(Arc::new);
        let valid_until = match &verdict {
            Ok(certificate) => certificate.expires_at,
            Err(_) => {
                let next = authorities.next_attempt(chain, now);
                let limit = now + REFUSAL_TTL_MAX;
                next.map_or(limit, |next| next.min(limit))
            }
        };
        Self {
            verdict,
            verified_at: now,
            valid_until,
        }
    }

    /// The verdict of a check that was not made. It is never used again.
    const fn busy(now: SystemTime) -> Self {
        Self {
            verdict: Err(CertificateError::Busy),
            verified_at: now,
            valid_until: now,
        }
    }

    fn is_usable_at(&self, now: SystemTime) -> bool {
        self.verified_at <= now && now < self.valid_until
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

/// How long the verdict of an invalid chain is used at most. Only the time when one of its certificates becomes valid, or other
/// authorities, can change it.
const REFUSAL_TTL_MAX: Duration = Duration::from_mins(10);

/// Chains that are verified at a time. Each takes a few milliseconds at most.
const RUNNING_MAX: usize = 2;

/// Chains that wait to be verified; all nodes of a large cluster may connect at once.
const WAITING_MAX: usize = 8192;

#[cfg(test)]
mod tests;
