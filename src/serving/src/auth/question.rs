//! Access questions: whether a user may perform an access, in whose name that is asked, and the key that makes two questions equal.

use std::sync::Arc;

use http::HeaderMap;

use super::access::Access;
use super::caller::{BearerToken, Caller, Credential};
use super::digest::{CredentialHasher, Digest};
use super::followed::AuthorizerState;
use super::user::User;
use crate::fairness::Peer;

/// A question for an authorizer: may this user perform this access?
#[derive(Clone, Debug)]
pub struct AccessQuestion {
    /// The identity in whose name the review is sent.
    pub identity: QuestionIdentity,
    /// The user about whom upstream is asked, with all attributes.
    pub subject: Arc<User>,
    /// The client whose share of permits pays for the review: the authenticated caller, also if it impersonates another user.
    pub payer: Peer,
    /// The user and the access, and what else the answer depends on.
    pub key: QuestionKey,
}

/// In whose name the review of a question is sent.
#[derive(Clone, Debug)]
pub enum QuestionIdentity {
    /// The gateway asks about the user, by a SubjectAccessReview.
    Gateway,
    /// The gateway impersonates the user and sends a SelfSubjectAccessReview.
    Impersonated,
    /// The gateway sends a SelfSubjectAccessReview with the caller's credentials.
    Caller {
        /// The caller's token.
        token: BearerToken,
        /// The token's user, who may impersonate the one who performs the access.
        owner: Arc<User>,
        /// The caller's impersonation headers.
        impersonation: Arc<HeaderMap>,
        /// The digest of both.
        digest: Digest,
    },
}

impl AccessQuestion {
    /// The same question, with an answer that counts for no other token of the user.
    #[must_use]
    pub fn of_one_token(&self) -> Self {
        let access = Arc::clone(&self.key.access);
        Self {
            key: own_key(&self.identity, &self.subject, access),
            ..self.clone()
        }
    }
}

/// The key of a question whose answer counts for no other token of the user.
fn own_key(identity: &QuestionIdentity, subject: &Arc<User>, access: Arc<Access>) -> QuestionKey {
    QuestionKey {
        credentials: match identity {
            QuestionIdentity::Gateway | QuestionIdentity::Impersonated => None,
            QuestionIdentity::Caller { digest, .. } => Some(*digest),
        },
        user: Arc::clone(subject),
        access,
        authorizers: AuthorizerState::Opaque,
    }
}

/// The cache key of a question. Questions with equal keys have the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey {
    /// Digest of the token and the impersonation headers, if the review is sent with the caller's credentials.
    pub credentials: Option<Digest>,
    /// The user who performs the access; without what tells its tokens apart, if upstream's authorizers do not read that.
    pub user: Arc<User>,
    /// The access; shared, because many tables have the key.
    pub access: Arc<Access>,
    /// What upstream's authorizers are taken for. If they become opaque, the answers of before count for nobody who asks then.
    pub authorizers: AuthorizerState,
}

impl QuestionKey {
    /// Whether the answer holds for all tokens of the user. An answer to a caller's own review holds for its token alone.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.credentials.is_none()
    }

    /// Length of all strings in bytes.
    #[must_use]
    pub fn text_len(&self) -> usize {
        let User {
            name,
            uid,
            groups,
            extra,
        } = &*self.user;
        let extra_len: usize = extra
            .iter()
            .map(|(key, values)| key.len() + total_len(values))
            .sum();
        let user_len = name.len() + uid.len() + total_len(groups) + extra_len;
        user_len + access_len(&self.access)
    }
}

fn total_len(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + 1).sum()
}

fn access_len(access: &Access) -> usize {
    match access {
        Access::Path { verb, path } => verb.len() + path.len(),
        Access::Resource(access) => [
            &access.verb,
            &access.group,
            &access.version,
            &access.resource,
            &access.subresource,
            &access.namespace,
            &access.name,
            &access.field_selector,
            &access.label_selector,
        ]
        .iter()
        .map(|text| text.len())
        .sum(),
    }
}

/// How questions about callers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionMethod {
    /// In the caller's own name.
    SelfCheck,
    /// In the gateway's name.
    Review,
}

impl QuestionMethod {
    /// The question whether the caller, as the user as whom it acts, may perform an access. `None` for anonymous callers with
    /// `SelfCheck`: by default they may not send self-reviews, so upstream has to decide. If upstream's authorizers are transparent, all
    /// tokens of a user have equal questions, unless they impersonate others.
    #[must_use]
    pub fn question(
        self,
        caller: &Caller,
        access: Access,
        authorizers: AuthorizerState,
        hasher: &CredentialHasher,
    ) -> Option<AccessQuestion> {
        let is_shared =
            authorizers == AuthorizerState::Transparent && caller.impersonator.is_none();
        let identity = match (self, &caller.credential) {
            (Self::Review, _) => QuestionIdentity::Gateway,
            (Self::SelfCheck, Credential::Anonymous) => return None,
            (Self::SelfCheck, Credential::Certificate(_) | Credential::FrontProxy(_)) => {
                QuestionIdentity::Impersonated
            }
            (Self::SelfCheck, Credential::Token(token)) => QuestionIdentity::Caller {
                token: token.clone(),
                owner: Arc::clone(caller.authenticated()),
                impersonation: Arc::clone(&caller.impersonation),
                digest: hasher.digest(token, &caller.impersonation),
            },
        };
        let (subject, access) = (Arc::clone(&caller.user), Arc::new(access));
        let key = match is_shared {
            true => QuestionKey {
                credentials: None,
                user: subject.principal(),
                access,
                authorizers: AuthorizerState::Transparent,
            },
            false => own_key(&identity, &subject, access),
        };
        Some(AccessQuestion {
            identity,
            subject,
            payer: caller.peer,
            key,
        })
    }
}
