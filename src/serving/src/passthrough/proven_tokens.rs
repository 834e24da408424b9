//! Tokens that upstream has accepted recently. API servers close an HTTP/2 connection after a request whose credentials they reject, which
//! breaks every other request on it. So callers share connections only once upstream has accepted their token.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use moka::future::Cache;
use moka::policy::EvictionPolicy;

use crate::auth::bearer::{self, TokenHeader};

/// A set of token hashes. It grants no permission, so a hash that could be forged with great effort is good enough.
#[derive(Debug)]
pub(super) struct ProvenTokens {
    hasher: RandomState,
    tokens: Cache<u64, ()>,
}

/// The hash of a token, keyed at random in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenHash(u64);

impl ProvenTokens {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            tokens: Cache::builder()
                .max_capacity(TOKENS_MAX)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(PROVEN_TTL)
                .build(),
        }
    }

    /// The hash of the bearer token in these headers, if there is one.
    pub(super) fn hash(&self, headers: &HeaderMap) -> Option<TokenHash> {
        match bearer::authorization(headers) {
            TokenHeader::Token(token) => Some(TokenHash(self.hasher.hash_one(token.secret()))),
            TokenHeader::Absent | TokenHeader::Invalid => None,
        }
    }

    /// Whether upstream has accepted the token recently.
    pub(super) fn has(&self, token: TokenHash) -> bool {
        self.tokens.contains_key(&token.0)
    }

    /// Records the status of upstream's response to a request with this token.
    pub(super) async fn learn(&self, token: TokenHash, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => self.tokens.invalidate(&token.0).await,
            // Statuses that upstream returns before it authenticates, such as 400 for a bad parameter, prove nothing.
            StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::UNPROCESSABLE_ENTITY => self.tokens.insert(token.0, ()).await,
            status if status.is_success() => self.tokens.insert(token.0, ()).await,
            _ => {}
        }
    }
}

/// Enough for the users of a large cluster. The least recently used ones are evicted, and proven again by their next request.
const TOKENS_MAX: u64 = 65_536;
/// Longer than a watch of client-go lasts, which then starts again without a list. A token that was revoked in the meantime can close one
/// connection.
const PROVEN_TTL: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a caller with many valid tokens could keep new callers from sharing connections.
    #[tokio::test]
    async fn a_full_memory_still_takes_new_tokens() {
        let tokens = ProvenTokens::new();
        for token in 0..TOKENS_MAX {
            let token = TokenHash(token);
            tokens.learn(token, StatusCode::OK).await;
            // Known tokens are used again and again.
            assert!(tokens.has(token) && tokens.has(token));
        }
        tokens.tokens.run_pending_tasks().await;
        assert_eq!(tokens.tokens.entry_count(), TOKENS_MAX);
        let new = TokenHash(TOKENS_MAX);
        tokens.learn(new, StatusCode::OK).await;
        tokens.tokens.run_pending_tasks().await;
        assert!(tokens.has(new));
        assert!(tokens.tokens.entry_count() <= TOKENS_MAX);
    }
}
