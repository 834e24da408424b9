//! Whose tokens are, remembered for a while. A token is asked about once at a time, however many requests bring it, and goes on being
//! asked about when they have left. No token is kept, only a keyed hash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use moka::future::Cache;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::bearer;
use super::caller::BearerToken;
use super::digest::{CredentialHasher, Digest, RandomnessError};
use super::review_permits::{PendingPermit, ReviewPermits};
use super::token_review::{TokenAuthenticator, TokenVerdict};
use super::upstream::{ReviewError, ReviewPurpose};
use super::user::User;
use crate::fairness::Peer;
use crate::metrics::{AuthenticationMetrics, TokenCacheLookup};

/// Tells the time by which tokens and certificates expire.
pub type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The memory of tokens.
pub struct TokenCache {
    shared: Arc<TokenCacheState>,
    /// Reviews in flight. They end with the cache.
    tasks: Mutex<JoinSet<()>>,
}

struct TokenCacheState {
    authenticator: Arc<dyn TokenAuthenticator>,
    hasher: CredentialHasher,
    clock: WallClock,
    metrics: AuthenticationMetrics,
    /// Apart, so that a flood of bad tokens pushes out no good one.
    good: Cache<Digest, TokenEntry>,
    bad: Cache<Digest, TokenEntry>,
    /// Held while an answer is stored, so that the later question wins.
    storing: tokio::sync::Mutex<()>,
    flights: Mutex<HashMap<FlightKey, watch::Receiver<Option<TokenVerdict>>>>,
    /// Those of reviews of new tokens. Open streams are checked so many at a time that they need none.
    places: ReviewPermits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlightKey {
    digest: Digest,
    /// Answers that were asked for before may be old; those who want a new one wait only for such a flight.
    afresh: bool,
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
    /// Remembers what this authenticator says. Its key is new with each cache, so that hashes tell nothing to anybody who has seen
    /// others.
    ///
    /// # Errors
    /// If the system gives no random bytes.
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
                good: memory(GOOD_LEN_MAX, GOOD_TTL),
                bad: memory(BAD_LEN_MAX, BAD_TTL),
                storing: tokio::sync::Mutex::default(),
                flights: Mutex::default(),
                places: ReviewPermits::new(REVIEWS_MAX, WAITING_MAX),
            }),
            tasks: Mutex::default(),
        })
    }

    /// Whose a token is, remembered or asked for in a place of the peer that sent it. Of failures only that the caller may not ask is
    /// remembered, as long as a bad token.
    ///
    /// # Errors
    /// [`ReviewError`] if that cannot be found out.
    pub async fn user(&self, token: &BearerToken, peer: Peer) -> TokenVerdict {
        let digest = self.shared.hasher.token(token);
        if let Some(verdict) = self.shared.remembered(&digest).await {
            self.shared.metrics.token_cache.inc(TokenCacheLookup::Hit);
            return verdict;
        }
        self.shared.metrics.token_cache.inc(TokenCacheLookup::Miss);
        let afresh = false;
        self.asked(FlightKey { digest, afresh }, token, Some(peer))
            .await
    }

    /// Whose a token is now, whatever is remembered. The answer is remembered.
    ///
    /// # Errors
    /// As [`user`](Self::user).
    pub async fn user_afresh(&self, token: &BearerToken) -> TokenVerdict {
        let digest = self.shared.hasher.token(token);
        let afresh = true;
        self.asked(FlightKey { digest, afresh }, token, None).await
    }

    /// Upstream has refused a token: it counts no longer.
    pub async fn forget(&self, token: &BearerToken) {
        let digest = self.shared.hasher.token(token);
        self.shared
            .store(digest, token, Ok(None), Instant::now())
            .await;
    }

    async fn asked(&self, key: FlightKey, token: &BearerToken, peer: Option<Peer>) -> TokenVerdict {
        let mut verdict = self.flight(key, token, peer)?;
        let verdict = verdict.wait_for(Option::is_some).await;
        let verdict = verdict.ok().and_then(|verdict| verdict.clone());
        verdict.unwrap_or_else(|| Err(unavailable("the review was interrupted")))
    }

    /// Joins the review in flight, or begins it, in a place of the peer if it needs one.
    fn flight(
        &self,
        key: FlightKey,
        token: &BearerToken,
        peer: Option<Peer>,
    ) -> Result<watch::Receiver<Option<TokenVerdict>>, ReviewError> {
        let mut flights = self.shared.flights();
        if let Some(verdict) = flights.get(&key) {
            return Ok(verdict.clone());
        }
        let turn = peer.map(|peer| {
            let turn = self.shared.places.turn(peer);
            turn.ok_or_else(|| unavailable("too many tokens wait for a review"))
        });
        let turn = turn.transpose()?;
        let (sender, receiver) = watch::channel(None);
        flights.insert(key, receiver.clone());
        drop(flights);
        let ticket = FlightGuard {
            shared: Arc::clone(&self.shared),
            key,
        };
        let token = token.clone();
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let verdict = ticket.shared.fly(key, &token, turn).await;
            // Whoever comes later finds the answer in the memory.
            drop(ticket);
            sender.send_replace(Some(verdict));
        });
        Ok(receiver)
    }
}

impl TokenCacheState {
    async fn fly(
        &self,
        key: FlightKey,
        token: &BearerToken,
        turn: Option<PendingPermit>,
    ) -> TokenVerdict {
        let verdict = tokio::time::timeout(FLIGHT_TIMEOUT, self.review(key, token, turn)).await;
        verdict.unwrap_or_else(|_elapsed| Err(unavailable("no review in time")))
    }

    async fn review(
        &self,
        key: FlightKey,
        token: &BearerToken,
        turn: Option<PendingPermit>,
    ) -> TokenVerdict {
        let _place = match turn {
            None => None,
            Some(turn) => {
                let place = turn.come().await;
                Some(place.ok_or_else(|| unavailable("no place for a review"))?)
            }
        };
        // Another flight may have landed since the memory was looked at.
        if !key.afresh
            && let Some(verdict) = self.remembered(&key.digest).await
        {
            return verdict;
        }
        let purpose = match key.afresh {
            true => ReviewPurpose::Recheck,
            false => ReviewPurpose::Authentication,
        };
        let asked_at = Instant::now();
        let verdict = self.authenticator.authenticate(token, purpose).await;
        if matches!(verdict, Ok(_) | Err(ReviewError::SelfReviewForbidden)) {
            self.store(key.digest, token, verdict.clone(), asked_at)
                .await;
        }
        verdict
    }

    async fn remembered(&self, digest: &Digest) -> Option<TokenVerdict> {
        for memory in [&self.good, &self.bad] {
            let entry = memory.get(digest).await;
            if let Some(entry) = entry.filter(|entry| Instant::now() < entry.expires_at) {
                return Some(entry.verdict);
            }
        }
        None
    }

    /// Remembers an answer, unless one that was asked for later is there already.
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
                let left = expires_at.duration_since((self.clock)());
                left.unwrap_or_default().min(GOOD_TTL)
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

    fn flights(&self) -> MutexGuard<'_, HashMap<FlightKey, watch::Receiver<Option<TokenVerdict>>>> {
        // Nothing under the lock panics half way.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the flights, given back also if a review panics.
struct FlightGuard {
    shared: Arc<TokenCacheState>,
    key: FlightKey,
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.shared.flights().remove(&self.key);
    }
}

/// Ages are looked at by tokio's clock; `ttl` lets go of the memory.
fn memory(len_max: u64, ttl: Duration) -> Cache<Digest, TokenEntry> {
    let weight = |_: &Digest, entry: &TokenEntry| {
        let user = entry.verdict.as_ref().ok().and_then(Option::as_deref);
        let user_len = user.map_or(0, User::text_len);
        u32::try_from(user_len + ENTRY_LEN).unwrap_or(u32::MAX)
    };
    Cache::builder()
        .weigher(weight)
        .max_capacity(len_max)
        .time_to_live(ttl)
        .build()
}

fn unavailable(reason: &str) -> ReviewError {
    ReviewError::Unavailable {
        reason: reason.to_owned(),
    }
}

/// As the API server remembers answers of its own token webhook: revocation is noticed in this time by new requests, and by open
/// streams earlier.
const GOOD_TTL: Duration = Duration::from_secs(120);

/// Long enough to spare upstream a client that tries again and again, short enough for a token that has just become valid.
const BAD_TTL: Duration = Duration::from_secs(10);

/// A review has a time-out of its own; this ends whatever else takes long. As the API server has it.
const FLIGHT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reviews of new tokens at once: 64 for an address that is alone, and some for others at any time. The API server runs 200 writes
/// at once by default.
const REVIEWS_MAX: usize = 80;
/// Tokens that wait for a review: 4,096 of an address that is alone.
const WAITING_MAX: usize = 5120;

/// Bytes of users, and what the memory needs for each: tens of thousands of them.
const GOOD_LEN_MAX: u64 = 64 << 20;
const BAD_LEN_MAX: u64 = 4 << 20;
const ENTRY_LEN: usize = 512;

#[cfg(test)]
mod tests;
