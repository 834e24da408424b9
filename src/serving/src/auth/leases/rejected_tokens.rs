//! Tokens that upstream has rejected, until the next scan makes their requirements due. A rejection costs the same however many requirements
//! there are.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::requirement::Requirement;
use crate::auth::caller::BearerToken;

type TokenSet = HashSet<BearerToken, RandomState>;

/// The tokens of requirements, and those of them that were rejected. Tokens without a requirement are not noted, so that a flood of invalid
/// ones takes no memory.
#[derive(Debug, Default)]
pub(super) struct RejectedTokens {
    /// At least the tokens of all requirements.
    known: TokenSet,
    rejected: TokenSet,
}

impl RejectedTokens {
    /// Adds the token of a new requirement.
    pub(super) fn know(&mut self, requirement: &Requirement) {
        if let Some(one) = requirement.token() {
            self.known.insert(one.token.clone());
        }
    }

    /// Whether a requirement may have this token.
    pub(super) fn is_known(&self, token: &BearerToken) -> bool {
        self.known.contains(token)
    }

    /// Notes that upstream has rejected a token.
    pub(super) fn reject(&mut self, token: &BearerToken) {
        if self.is_known(token) {
            self.rejected.insert(token.clone());
        }
    }

    /// The tokens that were rejected since the last call; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<TokenSet> {
        (!self.rejected.is_empty()).then(|| std::mem::take(&mut self.rejected))
    }

    /// Forgets tokens that no requirement has any more, once these may be more than half.
    pub(super) fn prune<'a>(
        &mut self,
        count: usize,
        requirements: impl Iterator<Item = &'a Requirement>,
    ) {
        if self.known.len() > 2 * count + KNOWN_MIN {
            let tokens = requirements.filter_map(Requirement::token);
            self.known = tokens.map(|one| one.token.clone()).collect();
        }
    }
}

/// So few tokens are not worth a look.
const KNOWN_MIN: usize = 1024;
