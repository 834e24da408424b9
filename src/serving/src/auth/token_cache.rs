//! A cache of token reviews. At most one review of a token is in flight, however many requests bring the token, and it continues when
//! they are cancelled. The cache keys are keyed hashes; tokens themselves are not stored.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::time::Instant;

use super::bearer;
use super::caller::BearerToken;
use super::digest::{CredentialHasher, Digest, RandomnessError};
use super::flights::{FlightWaiter, Flights};
use super::review_outage::ReviewOutage;
use super::review_permits::{PendingPermit, ReviewPermits, in_turn};
use super::token_review::{TokenAuthenticator, TokenVerdict};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::User;
use crate::fairness::Peer;
use crate::metrics::{AuthenticationMetrics, TokenCacheLookup};

/// The wall clock, by which tokens and certificates expire. Tests replace it.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A cache of the users of bearer tokens.
pub struct TokenCache {
    shared: Arc<TokenCacheState>,
    flights: Flights<FlightKey, TokenVerdict>,
}

struct TokenCacheState {
    authenticator: Arc<dyn TokenAuthenticator>,
    hasher: CredentialHasher,
    clock: WallClock,
    metrics: AuthenticationMetrics,
    /// Valid and invalid tokens have separate caches, so that a flood of invalid tokens evicts no valid one.
    good: Cache<Digest, TokenEntry>,
    bad: Cache<Digest, TokenEntry>,
    /// Held while a verdict is stored, so that the verdict of the later review wins.
    storing: tokio::sync::Mutex<()>,
    /// Permits for reviews of new tokens. Rechecks of open streams need none, because `rechecks` bounds their number.
    permits: ReviewPermits,
    outage: ReviewOutage,
}

/// The key of a review in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlightKey {
    digest: Digest,
    /// A recheck needs a current verdict. It joins only the flight of another recheck, because other flights may return a cached
    /// verdict.
    is_recheck: bool,
}

#[derive(Clone, Debug)]
struct TokenEntry {
    verdict: TokenVerdict,
    asked_at: Instant,
    expires_at: Instant,
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TokenCache").finish_non_exhaustive()
    }
}

impl TokenCache {
    /// A cache of this authenticator's verdicts. Each cache hashes tokens with a random key of its own, so that the hashes of one cache
    /// reveal nothing about those of another.
    ///
    /// # Errors
    /// [`RandomnessError`] if the system returns no random bytes.
    pub fn new(
        authenticator: Arc<dyn TokenAuthenticator>,
        clock: WallClock,
        metrics: AuthenticationMetrics,
    ) -> Result<Self, RandomnessError> {
        Ok(Self {
            shared: Arc::new(TokenCacheState {
                authenticator,
                hasher: CredentialHasher::random()?,
                clock,
                metrics,
                good: bounded_cache(GOOD_LEN_MAX, GOOD_TTL),
                bad: bounded_cache(BAD_LEN_MAX, BAD_TTL),
                storing: tokio::sync::Mutex::default(),
                permits: ReviewPermits::new(REVIEWS_MAX, WAITING_MAX),
                outage: ReviewOutage::of("TokenReview"),
            }),
            flights: Flights::default(),
        })
    }

    /// The user of a token, from the cache or from a review, which uses a permit of `peer`. Failures are not cached, except
    /// [`ReviewError::SelfReviewForbidden`], which is cached as long as an invalid token.
    ///
    /// # Errors
    /// [`ReviewError`] if the review fails, or too many others wait.
    pub async fn user(&self, token: &BearerToken, peer: Peer) -> TokenVerdict {
        let digest = self.shared.hasher.token(token);
        if let Some(verdict) = self.shared.cached(&digest).await {
            self.shared.metrics.token_cache.inc(TokenCacheLookup::Hit);
            return verdict;
        }
        self.shared.metrics.token_cache.inc(TokenCacheLookup::Miss);
        let is_recheck = false;
        self.await_review(FlightKey { digest, is_recheck }, token, Some(peer))
            .await
    }

    /// The user of a token by a new review, without looking into the cache. The verdict is cached.
    ///
    /// # Errors
    /// As [`user`](Self::user).
    pub async fn recheck(&self, token: &BearerToken) -> TokenVerdict {
        let digest = self.shared.hasher.token(token);
        let is_recheck = true;
        self.await_review(FlightKey { digest, is_recheck }, token, None)
            .await
    }

    /// How long reviews of tokens have been failing.
    pub(super) fn outage_age(&self) -> Duration {
        self.shared.outage.age()
    }

    /// Stores that a token is invalid, because upstream has rejected it.
    pub async fn forget(&self, token: &BearerToken) {
        let digest = self.shared.hasher.token(token);
        self.shared
            .store(digest, token, Ok(None), Instant::now())
            .await;
    }

    /// Waits for the verdict of the review in flight, which is started if there is none.
    async fn await_review(
        &self,
        key: FlightKey,
        token: &BearerToken,
        peer: Option<Peer>,
    ) -> TokenVerdict {
        self.flight(key, token, peer)?
            .outcome()
            .await
            .unwrap_or_else(|| Err(unavailable("the review was aborted")))
    }

    /// Joins the review in flight, or starts it. With a `peer` the review waits for a permit of that peer first.
    fn flight(
        &self,
        key: FlightKey,
        token: &BearerToken,
        peer: Option<Peer>,
    ) -> Result<FlightWaiter<TokenVerdict>, ReviewError> {
        self.flights.join_or_begin(key, || {
            let permit = peer.map(|peer| {
                let permit = self.shared.permits.request(peer);
                permit.ok_or(ReviewError::Busy)
            });
            let permit = permit.transpose()?;
            let (shared, token) = (Arc::clone(&self.shared), token.clone());
            Ok(async move { shared.review_in_time(key, &token, permit).await })
        })
    }
}

impl TokenCacheState {
    async fn review_in_time(
        &self,
        key: FlightKey,
        token: &BearerToken,
        permit: Option<PendingPermit>,
    ) -> TokenVerdict {
        let permit = match permit {
            None => None,
            Some(pending) => Some(in_turn(pending).await?),
        };
        let verdict = tokio::time::timeout(REVIEW_TIMEOUT, self.review(key, token)).await;
        drop(permit);
        verdict.unwrap_or_else(|_elapsed| Err(unavailable("the review timed out")))
    }

    async fn review(&self, key: FlightKey, token: &BearerToken) -> TokenVerdict {
        // Another flight may have stored a verdict since the cache was read.
        if !key.is_recheck
            && let Some(verdict) = self.cached(&key.digest).await
        {
            return verdict;
        }
        let purpose = match key.is_recheck {
            true => ReviewPurpose::Recheck,
            false => ReviewPurpose::Authentication,
        };
        let asked_at = Instant::now();
        let verdict = self.authenticator.authenticate(token, purpose).await;
        match &verdict {
            Ok(_) | Err(ReviewError::SelfReviewForbidden) => {
                self.outage.succeeded();
                self.store(key.digest, token, verdict.clone(), asked_at)
                    .await;
            }
            Err(error) => self.outage.failed(error),
        }
        verdict
    }

    async fn cached(&self, digest: &Digest) -> Option<TokenVerdict> {
        for cache in [&self.good, &self.bad] {
            let entry = cache.get(digest).await;
            if let Some(entry) = entry.filter(|entry| Instant::now() < entry.expires_at) {
                return Some(entry.verdict);
            }
        }
        None
    }

    /// Caches a verdict, unless that of a later review is cached already. `asked_at` is when the review was sent.
    async fn store(
        &self,
        digest: Digest,
        token: &BearerToken,
        verdict: TokenVerdict,
        asked_at: Instant,
    ) {
        let is_good = matches!(verdict, Ok(Some(_)));
        let ttl = match is_good {
            false => BAD_TTL,
            true => bearer::expiry(token).map_or(GOOD_TTL, |expires_at| {
                expires_at
                    .duration_since((self.clock)())
                    .unwrap_or_default()
                    .min(GOOD_TTL)
            }),
        };
        let (memory, other) = match is_good {
            false => (&self.bad, &self.good),
            true => (&self.good, &self.bad),
        };
        let entry = TokenEntry {
            verdict,
            asked_at,
            expires_at: asked_at + ttl,
        };
        let _storing = self.storing.lock().await;
        for known in [memory, other] {
            let known = known.get(&digest).await;
            if known.is_some_and(|known| known.asked_at > asked_at) {
                return;
            }
        }
        other.invalidate(&digest).await;
        memory.insert(digest, entry).await;
    }
}

/// An empty cache of at most `len_max` bytes. Readers check ages by tokio's clock, which tests control; `ttl` only frees the memory of
/// entries that have expired.
fn bounded_cache(len_max: u64, ttl: Duration) -> Cache<Digest, TokenEntry> {
    Cache::builder()
        .weigher(|_: &Digest, entry: &TokenEntry| {
            let user_len = entry
                .verdict
                .as_ref()
                .ok()
                .and_then(Option::as_deref)
                .map_or(0, User::text_len);
            u32::try_from(user_len + ENTRY_LEN).unwrap_or(u32::MAX)
        })
        .max_capacity(len_max)
        .time_to_live(ttl)
        .build()
}

fn unavailable(reason: &str) -> ReviewError {
    ReviewError::Unavailable {
        reason: reason.to_owned(),
    }
}

/// How long a valid token is cached: as long as the API server caches what a token webhook answers by default. It caches all other tokens
/// for 10 s. New requests notice a revocation within this time; open streams notice it earlier.
const GOOD_TTL: Duration = Duration::from_secs(120);

/// How long an invalid token is cached: long enough to protect upstream from a client that retries, short enough for a token that has
/// just become valid.
const BAD_TTL: Duration = Duration::from_secs(10);

/// Bounds a review once it has its permit; a single request has a shorter timeout of its own. The API server uses the same bound.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of concurrent reviews of new tokens. A single address gets at most 64, so that others always find a permit. By default
/// the API server executes 200 writes at once.
const REVIEWS_MAX: usize = 80;
/// Maximum number of tokens that wait for a review. A single address gets at most 4,096.
const WAITING_MAX: usize = 5120;

/// Maximum size of the cache of valid tokens in bytes: tens of thousands of users.
const GOOD_LEN_MAX: u64 = 64 << 20;
/// Maximum size of the cache of invalid tokens in bytes.
const BAD_LEN_MAX: u64 = 4 << 20;
/// Approximate memory of an entry without its user, in bytes.
const ENTRY_LEN: usize = 512;

#[cfg(test)]
mod tests;
