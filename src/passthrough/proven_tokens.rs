//! Tokens that upstream has taken lately. API servers close a connection of HTTP/2 after a request whose credentials they do not
//! take, with whatever else is on its way there. So callers share connections only once upstream has taken their token.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use moka::future::Cache;
use moka::policy::EvictionPolicy;

use crate::auth::bearer::{self, TokenHeader};

/// Nothing is permitted by this, so a hash that could be forged with great effort is enough.
#[derive(Debug)]
pub(super) struct ProvenTokens {
    hasher: RandomState,
    tokens: Cache<u64, ()>,
}

/// A token as it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenHash(u64);

impl ProvenTokens {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            tokens: Cache::builder()
                .max_capacity(TOKENS_MAX)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(PROVEN_FOR)
                .build(),
        }
    }

    /// The token of these headers, if there is one.
    pub(super) fn hash(&self, headers: &HeaderMap) -> Option<TokenHash> {
        match bearer::authorization(headers) {
            TokenHeader::Token(token) => Some(TokenHash(self.hasher.hash_one(token.secret()))),
            TokenHeader::Absent | TokenHeader::Invalid => None,
        }
    }

    /// Whether upstream has taken the token lately.
    pub(super) fn has(&self, token: TokenHash) -> bool {
        self.tokens.contains_key(&token.0)
    }

    /// Upstream has answered a request with this token.
    pub(super) async fn learn(&self, token: TokenHash, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => self.tokens.invalidate(&token.0).await,
            // What is told before it is asked who is calling, such as that a parameter is bad, proves nothing.
            StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::UNPROCESSABLE_ENTITY => self.tokens.insert(token.0, ()).await,
            status if status.is_success() => self.tokens.insert(token.0, ()).await,
            _ => {}
        }
    }
}

/// Of all users of a large cluster. The oldest go first, and are proven again by their next request.
const TOKENS_MAX: u64 = 65_536;
/// Longer than watches of client-go last, which are begun again without a list. A token that is revoked meanwhile can close one
/// connection.
const PROVEN_FOR: Duration = Duration::from_secs(900);

#[cfg(test)]
mod tests {
    use super::*;

    /// Else whoever makes up many tokens that are taken would keep new callers apart for as long as it likes.
    #[tokio::test]
    async fn a_full_memory_still_takes_new_tokens() {
        let tokens = ProvenTokens::new();
        for token in 0..TOKENS_MAX {
            let token = TokenHash(token);
            tokens.learn(token, StatusCode::OK).await;
            // Known ones come again and again.
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
