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
use crate::metrics::{AuthenticationMetrics, ReviewCause, TokenCacheLookup};

/// The wall clock, by which tokens and certificates expire. Tests replace it.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// A cache of the users of bearer tokens.
pub struct TokenCache {
    shared: Arc<TokenCacheState>,
    flights: Flights<FlightKey, DatedVerdict>,
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

/// The user of a token, with the age of the review that said so.
#[derive(Clone, Debug)]
pub struct DatedVerdict {
    /// The verdict of the review.
    pub verdict: TokenVerdict,
    /// When the review was sent.
    pub asked_at: Instant,
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
    dated: DatedVerdict,
    /// From when on a new request needs another review.
    expires_at: Instant,
    /// When the token itself expires, or its verdict is too old for anything.
    ends_at: Instant,
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
                good: bounded_cache(GOOD_LEN_MAX, REMEMBERED_TTL),
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
    pub async fn user(&self, token: &BearerToken, peer: Peer) -> DatedVerdict {
        let digest = self.shared.hasher.token(token);
        if let Some(dated) = self.shared.cached(&digest).await {
            self.shared.metrics.token_cache.inc(TokenCacheLookup::Hit);
            return dated;
        }
        self.shared.metrics.token_cache.inc(TokenCacheLookup::Miss);
        let is_recheck = false;
        self.await_review(FlightKey { digest, is_recheck }, token, Some(peer))
            .await
    }

    /// The user of a valid token, by a review of the last hour: only for a stream that resumes, which is checked by other means.
    pub async fn remembered_user(&self, token: &BearerToken) -> Option<(Arc<User>, Instant)> {
        let digest = self.shared.hasher.token(token);
        let entry = self.shared.good.get(&digest).await?;
        let user = entry.dated.verdict.ok().flatten()?;
        (Instant::now() < entry.ends_at).then_some((user, entry.dated.asked_at))
    }

    /// Whether a review of the last seconds has found this token invalid.
    pub async fn is_rejected(&self, token: &BearerToken) -> bool {
        let digest = self.shared.hasher.token(token);
        let cached = self.shared.cached(&digest).await;
        cached.is_some_and(|dated| matches!(dated.verdict, Ok(None)))
    }

    /// Whether a review is recent enough for a new request.
    #[must_use]
    pub fn is_recent(asked_at: Instant) -> bool {
        asked_at.elapsed() < GOOD_TTL
    }

    /// The user of a token by a new review, or by one for the same purpose that is in flight, without looking into the cache. The verdict is
    /// cached.
    pub async fn recheck(&self, token: &BearerToken) -> DatedVerdict {
        let digest = self.shared.hasher.token(token);
        let is_recheck = true;
        let key = FlightKey { digest, is_recheck };
        self.await_review(key, token, None).await
    }

    /// How long reviews of tokens have been failing.
    pub(super) fn outage_age(&self) -> Duration {
        self.shared.outage.age()
    }

    /// Stores that a token is invalid, because upstream has rejected it.
    pub async fn forget(&self, token: &BearerToken) {
        let digest = self.shared.hasher.token(token);
        self.shared
            .store(
                digest,
                token,
                DatedVerdict {
                    verdict: Ok(None),
                    asked_at: Instant::now(),
                },
            )
            .await;
    }

    /// Waits for the verdict of the review in flight, which is started if there is none.
    async fn await_review(
        &self,
        key: FlightKey,
        token: &BearerToken,
        peer: Option<Peer>,
    ) -> DatedVerdict {
        let waiter = match self.flight(key, token, peer) {
            Ok(waiter) => waiter,
            Err(error) => return DatedVerdict::failed(error),
        };
        let outcome = waiter.outcome().await;
        outcome.unwrap_or_else(|| DatedVerdict::failed(unavailable("the review was aborted")))
    }

    /// Joins the review in flight, or starts it. With a `peer` the review waits for a permit of that peer first.
    fn flight(
        &self,
        key: FlightKey,
        token: &BearerToken,
        peer: Option<Peer>,
    ) -> Result<FlightWaiter<DatedVerdict>, ReviewError> {
        self.flights.join_or_begin(key, || {
            let permit = peer.map(|peer| {
                let permit = self.shared.permits.request(peer);
                permit.ok_or(ReviewError::Busy)
            });
            let permit = permit.transpose()?;
            let (shared, token) = (Arc::clone(&self.shared), token.clone());
            if !key.is_recheck {
                shared.metrics.reviews_by_cause.inc(ReviewCause::New);
            }
            Ok(async move { shared.review_in_time(key, &token, permit).await })
        })
    }
}

impl DatedVerdict {
    fn failed(error: ReviewError) -> Self {
        Self {
            verdict: Err(error),
            asked_at: Instant::now(),
        }
    }
}

impl TokenCacheState {
    async fn review_in_time(
        &self,
        key: FlightKey,
        token: &BearerToken,
        permit: Option<PendingPermit>,
    ) -> DatedVerdict {
        let permit = match permit {
            None => None,
            Some(pending) => match in_turn(pending).await {
                Ok(permit) => Some(permit),
                Err(error) => return DatedVerdict::failed(error),
            },
        };
        let dated = tokio::time::timeout(REVIEW_TIMEOUT, self.review(key, token)).await;
        drop(permit);
        dated.unwrap_or_else(|_elapsed| DatedVerdict::failed(unavailable("the review timed out")))
    }

    async fn review(&self, key: FlightKey, token: &BearerToken) -> DatedVerdict {
        // Another flight may have stored a verdict since the cache was read.
        if !key.is_recheck
            && let Some(dated) = self.cached(&key.digest).await
        {
            return dated;
        }
        let purpose = match key.is_recheck {
            true => ReviewPurpose::Recheck,
            false => ReviewPurpose::Authentication,
        };
        let asked_at = Instant::now();
        let verdict = self.authenticator.authenticate(token, purpose).await;
        let dated = DatedVerdict { verdict, asked_at };
        match &dated.verdict {
            Ok(_) | Err(ReviewError::SelfReviewForbidden) => {
                self.outage.succeeded();
                self.store(key.digest, token, dated.clone()).await;
            }
            Err(error) => self.outage.failed(error),
        }
        dated
    }

    async fn cached(&self, digest: &Digest) -> Option<DatedVerdict> {
        for cache in [&self.good, &self.bad] {
            let entry = cache.get(digest).await;
            if let Some(entry) = entry.filter(|entry| Instant::now() < entry.expires_at) {
                return Some(entry.dated);
            }
        }
        None
    }

    /// Caches a verdict, unless that of a later review is cached already.
    async fn store(&self, digest: Digest, token: &BearerToken, dated: DatedVerdict) {
        let is_good = matches!(dated.verdict, Ok(Some(_)));
        let left = bearer::expiry(token).map_or(REMEMBERED_TTL, |expires_at| {
            let left = expires_at.duration_since((self.clock)());
            left.unwrap_or_default().min(REMEMBERED_TTL)
        });
        let asked_at = dated.asked_at;
        let (memory, other, ends_at, ttl) = match is_good {
            false => (&self.bad, &self.good, asked_at + BAD_TTL, BAD_TTL),
            true => (&self.good, &self.bad, asked_at + left, left.min(GOOD_TTL)),
        };
        let entry = TokenEntry {
            dated,
            expires_at: asked_at + ttl,
            ends_at,
        };
        let _storing = self.storing.lock().await;
        for known in [memory, other] {
            let known = known.get(&digest).await;
            if known.is_some_and(|known| known.dated.asked_at > asked_at) {
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
                .dated
                .verdict
                .as_ref()
                .ok()
                .and_then(Option::as_deref)
                .map_or(0, User::text_len);
            u32::try_from(user_len + ENTRY_LEN).unwrap_or(u32::MAX)
        })
        .max_capacity(len_max)
        .time_to_live(ttl)
        .time_to_idle(IDLE_MAX)
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

/// How long the user of a valid token is remembered for streams that resume.
const REMEMBERED_TTL: Duration = Duration::from_secs(60 * 60);
/// Most clients resume their watches within ten minutes; what is not used for longer need not be remembered.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);

/// How long an invalid token is cached: long enough to protect upstream from a client that retries, short enough for a token that has
/// just become valid.
const BAD_TTL: Duration = Duration::from_secs(10);

/// Bounds a review once it has its permit; a single request has a shorter timeout of its own. The API server uses the same bound.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of concurrent reviews of new tokens. A single address gets at most 64, so that others always find a permit. By default
/// the API server executes 200 writes at once.
const REVIEWS_MAX: usize = 80;
/// Maximum number of tokens that wait for a review. A single address gets at most 52,429. Each is a
/// request that is held in memory anyway.
const WAITING_MAX: usize = 65_536;

/// Maximum size of the cache of valid tokens in bytes: a hundred thousand users.
const GOOD_LEN_MAX: u64 = 128 << 20;
/// Maximum size of the cache of invalid tokens in bytes.
const BAD_LEN_MAX: u64 = 4 << 20;
/// Approximate memory of an entry without its user, in bytes.
const ENTRY_LEN: usize = 512;

#[cfg(test)]
mod tests;
