//! What a lease depends on.

use std::sync::Arc;

use crate::auth::caller::{BearerToken, Credential};
use crate::auth::digest::Digest;
use crate::auth::question::{AccessQuestion, QuestionIdentity, QuestionKey};
use crate::auth::user::User;
use crate::fairness::Peer;

/// A condition that must stay true, or the leases that depend on it are revoked.
#[derive(Clone, Debug)]
pub enum Requirement {
    /// An access is allowed.
    Access(AccessQuestion),
    /// A token is valid and belongs to a user.
    Token {
        /// The token.
        token: BearerToken,
        /// The keyed hash of the token.
        digest: Digest,
        /// The user.
        user: Arc<User>,
        /// The client whose share of permits pays for the checks.
        payer: Peer,
    },
    /// The certificate of a client or a front proxy is valid.
    Certificate {
        /// The credential with the certificate chain.
        credential: Credential,
        /// The keyed hash of the chain.
        digest: Digest,
        /// The client whose share of permits pays for the checks.
        payer: Peer,
    },
}

/// A token, and its user: the one who is authenticated, also if it impersonates another one.
#[derive(Clone, Copy, Debug)]
pub struct OwnedToken<'a> {
    /// The token.
    pub token: &'a BearerToken,
    /// Its user.
    pub owner: &'a Arc<User>,
}

/// Requirements with equal keys are the same requirement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequirementKey {
    /// An access of a user.
    Access(QuestionKey),
    /// A token and its user. The user is part of the key because it may change.
    Token(Digest, Arc<User>),
    /// A certificate. Its user cannot change.
    Certificate(Digest),
}

impl Requirement {
    /// The keyed hash of the credential, if the requirement concerns one.
    #[must_use]
    pub const fn credential(&self) -> Option<Digest> {
        match self {
            Self::Access(_) => None,
            Self::Token { digest, .. } | Self::Certificate { digest, .. } => Some(*digest),
        }
    }

    /// The token that has to be valid: the requirement's own, or that of a caller's own review.
    #[must_use]
    pub fn token(&self) -> Option<OwnedToken<'_>> {
        match self {
            Self::Token { token, user, .. } => Some(OwnedToken { token, owner: user }),
            Self::Access(question) => match &question.identity {
                QuestionIdentity::Caller { token, owner, .. } if !question.key.is_shared() => {
                    Some(OwnedToken { token, owner })
                }
                QuestionIdentity::Caller { .. }
                | QuestionIdentity::Gateway
                | QuestionIdentity::Impersonated => None,
            },
            Self::Certificate { .. } => None,
        }
    }

    /// The client whose share of permits pays for the checks.
    #[must_use]
    pub const fn payer(&self) -> Peer {
        match self {
            Self::Access(question) => question.payer,
            Self::Token { payer, .. } | Self::Certificate { payer, .. } => *payer,
        }
    }

    /// The key of the requirement.
    #[must_use]
    pub fn key(&self) -> RequirementKey {
        match self {
            Self::Access(question) => RequirementKey::Access(question.key.clone()),
            Self::Token { digest, user, .. } => RequirementKey::Token(*digest, Arc::clone(user)),
            Self::Certificate { digest, .. } => RequirementKey::Certificate(*digest),
        }
    }
}
