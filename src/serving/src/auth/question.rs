//! Access questions: whether a user may perform an access, in whose name that is asked, and the key that makes two questions equal.

use std::sync::Arc;

use http::HeaderMap;

use super::access::Access;
use super::caller::{BearerToken, Caller, Credential};
use super::digest::{CredentialHasher, Digest};
use super::user::User;
use crate::fairness::Peer;

/// A question for an authorizer: may this user perform this access?
#[derive(Clone, Debug)]
pub struct AccessQuestion {
    /// The identity in whose name the review is sent.
    pub identity: QuestionIdentity,
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
        /// The caller's impersonation headers.
        impersonation: Arc<HeaderMap>,
    },
}

/// The cache key of a question. Questions with equal keys have the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey {
    /// Digest of the token and the impersonation headers, if the review is sent with the caller's credentials.
    pub credentials: Option<Digest>,
    /// The user who performs the access.
    pub user: Arc<User>,
    /// The access.
    pub access: Access,
}

impl QuestionKey {
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
    /// `SelfCheck`: by default they may not send self-reviews, so upstream has to decide.
    #[must_use]
    pub fn question(
        self,
        caller: &Caller,
        access: Access,
        hasher: &CredentialHasher,
    ) -> Option<AccessQuestion> {
        let user = Arc::clone(&caller.user);
        let payer = caller.peer;
        let (identity, credentials) = match (self, &caller.credential) {
            (Self::Review, _) => (QuestionIdentity::Gateway, None),
            (Self::SelfCheck, Credential::Anonymous) => return None,
            (Self::SelfCheck, Credential::Certificate(_) | Credential::FrontProxy(_)) => {
                (QuestionIdentity::Impersonated, None)
            }
            (Self::SelfCheck, Credential::Token(token)) => {
                let impersonation = Arc::clone(&caller.impersonation);
                let digest = hasher.digest(token, &impersonation);
                let token = token.clone();
                let identity = QuestionIdentity::Caller {
                    token,
                    impersonation,
                };
                (identity, Some(digest))
            }
        };
        let key = QuestionKey {
            credentials,
            user,
            access,
        };
        Some(AccessQuestion {
            identity,
            payer,
            key,
        })
    }
}
