//! Questions to authorizers, and what makes two of them the same.

use std::sync::Arc;

use http::HeaderMap;

use super::access::Access;
use super::caller::{BearerToken, Caller, Credential};
use super::digest::{CredentialHasher, Digest};
use super::user::User;
use crate::fairness::Peer;

/// A question to an authorizer.
#[derive(Clone, Debug)]
pub struct AccessQuestion {
    /// In whose name it is asked.
    pub asker: QuestionIdentity,
    /// Whose places it takes: those of the authenticated caller, whoever it acts as.
    pub payer: Peer,
    /// What makes it the same as another one.
    pub key: QuestionKey,
}

/// In whose name a question is asked.
#[derive(Clone, Debug)]
pub enum QuestionIdentity {
    /// The gateway asks about the user.
    Gateway,
    /// The gateway impersonates the user, who asks about itself.
    Impersonated,
    /// The caller asks about itself.
    Caller {
        /// Its token.
        token: BearerToken,
        /// Its headers that impersonate the user.
        impersonation: Arc<HeaderMap>,
    },
}

/// Two questions with equal keys have the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuestionKey {
    /// Of the credentials with which it is asked, if those are the caller's.
    pub credentials: Option<Digest>,
    /// Who wants to do it.
    pub user: Arc<User>,
    /// What.
    pub access: Access,
}

impl QuestionKey {
    /// Bytes of all its strings.
    #[must_use]
    pub fn text_len(&self) -> usize {
        let User {
            name,
            uid,
            groups,
            extra,
        } = &*self.user;
        let of_all = |texts: &[String]| texts.iter().map(|text| text.len() + 1).sum::<usize>();
        let extra_len: usize = extra
            .iter()
            .map(|(key, values)| key.len() + of_all(values))
            .sum();
        let user_len = name.len() + uid.len() + of_all(groups) + extra_len;
        user_len + access_len(&self.access)
    }
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

/// How questions about callers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionMethod {
    /// In the callers' own names.
    SelfCheck,
    /// In the gateway's name.
    Review,
}

impl QuestionMethod {
    /// Whether the caller may do something, as the user that it acts as; `None` if upstream is to answer for anonymous callers, who
    /// may not ask by default.
    #[must_use]
    pub fn question(
        self,
        caller: &Caller,
        access: Access,
        hasher: &CredentialHasher,
    ) -> Option<AccessQuestion> {
        let user = Arc::clone(&caller.user);
        let payer = caller.peer;
        let (asker, credentials) = match (self, &caller.credential) {
            (Self::Review, _) => (QuestionIdentity::Gateway, None),
            (Self::SelfCheck, Credential::Anonymous) => return None,
            (Self::SelfCheck, Credential::Certificate(_) | Credential::FrontProxy(_)) => {
                (QuestionIdentity::Impersonated, None)
            }
            (Self::SelfCheck, Credential::Token(token)) => {
                let impersonation = Arc::clone(&caller.impersonation);
                let digest = hasher.digest(token, &impersonation);
                let token = token.clone();
                let asker = QuestionIdentity::Caller {
                    token,
                    impersonation,
                };
                (asker, Some(digest))
            }
        };
        let key = QuestionKey {
            credentials,
            user,
            access,
        };
        Some(AccessQuestion { asker, payer, key })
    }
}
