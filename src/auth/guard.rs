//! The one door of this module: who is calling, what they may do, and whether streams that are open still may.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::access::Access;
use super::access_review::AccessVerdict;
use super::authenticator::Authenticator;
use super::caller::{Caller, CallerRefusal, Credential, PeerIdentity};
use super::changes::RoleScope;
use super::decisions::{Authorizer, CachedDecision, DecisionTtls, Decisions};
use super::digest::CredentialHasher;
use super::impersonation::{self, ImpersonationError, ImpersonationRequest};
use super::lease::Lease;
use super::leases::{Confirmation, LeaseKey, RecheckTimes, Requirement};
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey, QuestionMethod};
use super::rechecks::Rechecks;
use super::upstream::ReviewError;
use crate::metrics::AuthorizationMetrics;

/// Who decides what a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerMode {
    /// Upstream, asked with the caller's own credentials (SelfSubjectReview, SelfSubjectAccessReview). Needs no right beyond the
    /// caller's own.
    #[default]
    SelfCheck,
    /// Upstream, asked with the gateway's credentials (TokenReview, SubjectAccessReview).
    Review,
    /// The gateway, from the roles and bindings that it watches.
    Rbac,
}

/// How the guard works.
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// Who decides.
    pub mode: AuthorizerMode,
    /// How long an allowed access is remembered.
    pub allow_ttl: Duration,
    /// How long a denied access is remembered.
    pub deny_ttl: Duration,
    /// How often the permission of open streams is asked again.
    pub reauthorize_interval: Duration,
    /// How long open streams outlive the last time that upstream confirmed their permission, if it cannot be asked.
    pub reauthorize_grace: Duration,
}

/// How a request travels upstream.
#[derive(Clone, Debug)]
pub enum Forwarding {
    /// With the caller's own `Authorization` and `Impersonate-*` headers, untouched, and without any credential of the gateway.
    AsCaller,
    /// With the gateway's credentials, impersonating this caller. Headers by which the client says who it is do not travel.
    Impersonating {
        /// Who sends the request.
        caller: Caller,
        /// Revoked when the caller's certificate no longer counts: upstream, which never sees it, cannot tell.
        lease: Lease,
    },
}

/// A caller may do what it asks for.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// Revoked when it no longer may.
    pub lease: Lease,
    /// What the authorizer said.
    pub verdict: Arc<AccessVerdict>,
}

/// Authenticates callers and authorizes what they ask for. Cheap to clone; all clones share caches and leases.
#[derive(Clone, Debug)]
pub struct Guard(Arc<GuardState>);

#[derive(Debug)]
struct GuardState {
    settings: GuardSettings,
    authenticator: Arc<Authenticator>,
    hasher: CredentialHasher,
    decisions: Arc<Decisions>,
    rechecks: Arc<Rechecks>,
}

/// Why there is no decision to allow.
enum Denial {
    /// With the authorizer's reason.
    Denied(String),
    /// The caller may not ask.
    Unasked,
    Refused(CallerRefusal),
}

impl Guard {
    /// A guard that learns who is calling from `authenticator`, and what they may do from `authorizer`.
    #[must_use]
    pub fn new(
        settings: GuardSettings,
        authenticator: Arc<Authenticator>,
        authorizer: Arc<dyn Authorizer>,
        hasher: CredentialHasher,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let ttls = DecisionTtls {
            allow: settings.allow_ttl,
            deny: settings.deny_ttl,
        };
        let times = RecheckTimes {
            interval: settings.reauthorize_interval,
            grace: settings.reauthorize_grace,
        };
        let decisions = match settings.mode {
            // Looking them up takes as long as deciding.
            AuthorizerMode::Rbac => Decisions::unremembered(authorizer, metrics.clone()),
            AuthorizerMode::SelfCheck | AuthorizerMode::Review => {
                Decisions::new(authorizer, ttls, metrics.clone())
            }
        };
        let decisions = Arc::new(decisions);
        let credentials = Arc::clone(&authenticator) as _;
        let rechecks = Rechecks::new(times, Arc::clone(&decisions), credentials, metrics);
        Self(Arc::new(GuardState {
            settings,
            authenticator,
            hasher,
            decisions,
            rechecks: Arc::new(rechecks),
        }))
    }

    /// How it works.
    #[must_use]
    pub fn settings(&self) -> &GuardSettings {
        &self.0.settings
    }

    /// Who is calling, with impersonation resolved. Where upstream is asked with the caller's own credentials it resolves impersonation
    /// itself, with each question: until [`authorize`](Self::authorize) has answered, the user is what the caller says.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] for credentials that do not count; [`CallerRefusal::Forbidden`] for impersonation that is denied;
    /// [`CallerRefusal::Forward`] if upstream is to answer; [`CallerRefusal::Failed`] if that cannot be found out, or headers make no sense.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Caller, CallerRefusal> {
        let caller = self.0.authenticator.authenticate(headers, peer).await?;
        self.impersonated(caller, headers).await
    }

    /// Whether a caller may do something. All streams that ask the same for the same caller share the lease, which is revoked when
    /// they no longer may.
    ///
    /// # Errors
    /// [`CallerRefusal::Forbidden`] for what is denied; [`CallerRefusal::Forward`] if upstream is to answer; [`CallerRefusal::Failed`] if that cannot be
    /// found out.
    pub async fn authorize(
        &self,
        caller: &Caller,
        access: &Access,
    ) -> Result<Authorization, CallerRefusal> {
        let question = self.question(caller, access.clone());
        let question = question.ok_or(CallerRefusal::Forward)?;
        let decision = match self.decide(&question).await {
            Ok(decision) => decision,
            Err(Denial::Refused(refusal)) => return Err(refusal),
            Err(Denial::Unasked) => return Err(CallerRefusal::Forward),
            // Roles only ever allow: another authorizer of upstream may allow what they do not.
            Err(Denial::Denied(_)) if self.0.settings.mode == AuthorizerMode::Rbac => {
                return Err(CallerRefusal::Forward);
            }
            Err(Denial::Denied(reason)) => return Err(forbidden(caller, access, reason)),
        };
        let mut requirements = self.requirements(caller).await?;
        let key = LeaseKey {
            credential: requirements.iter().find_map(|(one, _)| one.credential()),
            impersonator: caller.impersonator.clone(),
            question: question.key.clone(),
        };
        requirements.push(self.requirement(question, &decision));
        Ok(Authorization {
            lease: self.0.rechecks.lease(key, || requirements),
            verdict: decision.verdict,
        })
    }

    /// How a request that memory cannot answer travels upstream. Upstream is asked only about impersonation by callers known by
    /// certificate or front proxy; about everything else upstream decides when it gets the request.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate), but never [`CallerRefusal::Forward`].
    pub async fn forwarding(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Forwarding, CallerRefusal> {
        let authenticator = &self.0.authenticator;
        match authenticator.authenticate_locally(headers, peer).await? {
            None => Ok(Forwarding::AsCaller),
            Some(caller) => {
                let caller = self.impersonated(caller, headers).await?;
                let lease = self.credential_lease(&caller);
                Ok(Forwarding::Impersonating { caller, lease })
            }
        }
    }

    /// Asks about the permission of open streams again, at the interval and after changes of roles. Has no end.
    pub async fn run(&self) {
        self.0.rechecks.run().await;
    }

    /// Roles or bindings have changed: decisions are forgotten, and the permission of open streams is asked again at once.
    pub fn roles_changed(&self, scope: RoleScope) {
        self.0.rechecks.roles_changed(scope);
    }

    /// Who authenticates, for those who renew its certificates.
    #[must_use]
    pub fn authenticator(&self) -> &Arc<Authenticator> {
        &self.0.authenticator
    }

    /// The caller as whom it acts.
    async fn impersonated(
        &self,
        caller: Caller,
        headers: &HeaderMap,
    ) -> Result<Caller, CallerRefusal> {
        let travels = travels_itself(&caller.credential);
        let request = match ImpersonationRequest::from_headers(headers) {
            Ok(None) => return Ok(caller),
            Ok(Some(request)) => request,
            // Upstream sees the same headers, and knows what to say to them.
            Err(_) if travels => return Err(CallerRefusal::Forward),
            Err(ImpersonationError::WithoutUser { message }) => {
                return Err(CallerRefusal::BadRequest { message });
            }
            Err(error @ (ImpersonationError::NotText | ImpersonationError::TooManyParts)) => {
                return Err(CallerRefusal::Failed {
                    message: error.to_string(),
                });
            }
        };
        if self.0.settings.mode == AuthorizerMode::SelfCheck && travels {
            return Ok(acting_as(caller, request, headers));
        }
        for part in &request.parts {
            let denial = match self.question(&caller, part.clone()) {
                Some(question) => self.decide(&question).await.err(),
                None => Some(Denial::Unasked),
            };
            match denial {
                None => {}
                Some(Denial::Refused(refusal)) => return Err(refusal),
                // Upstream may allow it by the verbs of constrained impersonation, and words its denials by them.
                Some(Denial::Denied(_)) if travels => return Err(CallerRefusal::Forward),
                Some(Denial::Denied(reason)) => return Err(forbidden(&caller, part, reason)),
                // Upstream would not see who impersonates.
                Some(Denial::Unasked) => return Err(forbidden(&caller, part, String::new())),
            }
        }
        Ok(acting_as(caller, request, headers))
    }

    /// What beside the access itself must stay true while streams are open.
    async fn requirements(
        &self,
        caller: &Caller,
    ) -> Result<Vec<(Requirement, Confirmation)>, CallerRefusal> {
        let mut requirements = Vec::new();
        if self.0.settings.mode == AuthorizerMode::SelfCheck && travels_itself(&caller.credential) {
            // The question itself is asked with the token, and with the headers that impersonate.
            return Ok(requirements);
        }
        let authenticated = caller.authenticated();
        let now = Confirmation {
            at: Instant::now(),
            is_doubtful: false,
        };
        requirements.extend(self.of_credential(caller).map(|one| (one, now)));
        if caller.impersonator.is_none() {
            return Ok(requirements);
        }
        let request = ImpersonationRequest::from_headers(&caller.impersonation);
        let parts = request
            .ok()
            .flatten()
            .map_or_else(Vec::new, |one| one.parts);
        let impersonator = Caller {
            user: Arc::clone(authenticated),
            impersonator: None,
            ..caller.clone()
        };
        for part in parts {
            let question = self.question(&impersonator, part.clone());
            let question = question.ok_or(CallerRefusal::Forward)?;
            match self.decide(&question).await {
                Ok(decision) => requirements.push(self.requirement(question, &decision)),
                Err(Denial::Refused(refusal)) => return Err(refusal),
                Err(Denial::Unasked) => return Err(forbidden(&impersonator, &part, String::new())),
                Err(Denial::Denied(reason)) => {
                    return Err(forbidden(&impersonator, &part, reason));
                }
            }
        }
        Ok(requirements)
    }

    /// A lease that lasts as long as the caller's certificate counts, whatever it is used for.
    fn credential_lease(&self, caller: &Caller) -> Lease {
        let Some(requirement) = self.of_credential(caller) else {
            return Lease::new();
        };
        let nothing = Access::Path {
            verb: String::new(),
            path: String::new(),
        };
        let key = LeaseKey {
            credential: requirement.credential(),
            impersonator: None,
            question: QuestionKey {
                credentials: None,
                user: Arc::default(),
                access: nothing,
            },
        };
        let now = Confirmation {
            at: Instant::now(),
            is_doubtful: false,
        };
        let rechecks = &self.0.rechecks;
        rechecks.lease(key, || vec![(requirement, now)])
    }

    fn of_credential(&self, caller: &Caller) -> Option<Requirement> {
        let hasher = &self.0.hasher;
        let digest = match &caller.credential {
            Credential::Anonymous => return None,
            Credential::Token(token) => {
                return Some(Requirement::Token {
                    token: token.clone(),
                    digest: hasher.token(token),
                    user: Arc::clone(caller.authenticated()),
                    payer: caller.peer,
                });
            }
            Credential::Certificate(chain) => hasher.certificates("client", chain),
            Credential::FrontProxy(chain) => hasher.certificates("front proxy", chain),
        };
        // Users of one front proxy have this in common: none of them is to be waited for.
        let users = self.0.authenticator.users();
        Some(Requirement::Certificate {
            credential: caller.credential.clone(),
            payer: users.bearing(caller.peer, digest.as_bytes()),
            digest,
        })
    }

    fn requirement(
        &self,
        question: AccessQuestion,
        decision: &CachedDecision,
    ) -> (Requirement, Confirmation) {
        let confirmation = Confirmation {
            at: decision.asked_at,
            is_doubtful: !self.0.decisions.is_current(decision, &question.key),
        };
        (Requirement::Access(question), confirmation)
    }

    fn question(&self, caller: &Caller, access: Access) -> Option<AccessQuestion> {
        let manner = match self.0.settings.mode {
            AuthorizerMode::SelfCheck => QuestionMethod::SelfCheck,
            AuthorizerMode::Review | AuthorizerMode::Rbac => QuestionMethod::Review,
        };
        manner.question(caller, access, &self.0.hasher)
    }

    async fn decide(&self, question: &AccessQuestion) -> Result<CachedDecision, Denial> {
        let error = match self.0.decisions.decide(question).await {
            Ok(decision) if decision.verdict.is_allowed => return Ok(decision),
            Ok(decision) => return Err(Denial::Denied(decision.verdict.reason.clone())),
            Err(error) => error,
        };
        match (&question.asker, &error) {
            (QuestionIdentity::Caller { token, .. }, ReviewError::Unauthorized) => {
                self.0.authenticator.tokens().forget(token).await;
                return Err(Denial::Refused(CallerRefusal::Unauthorized));
            }
            (_, ReviewError::SelfReviewForbidden) => return Err(Denial::Unasked),
            (
                QuestionIdentity::Gateway
                | QuestionIdentity::Impersonated
                | QuestionIdentity::Caller { .. },
                _,
            ) => {}
        }
        tracing::debug!(%error, "an access review failed");
        Err(Denial::Refused(CallerRefusal::Failed {
            message: client_message(&error).to_owned(),
        }))
    }
}

/// Whether upstream learns from the request itself who is calling.
const fn travels_itself(credential: &Credential) -> bool {
    match credential {
        Credential::Anonymous | Credential::Token(_) => true,
        Credential::Certificate(_) | Credential::FrontProxy(_) => false,
    }
}

fn acting_as(caller: Caller, request: ImpersonationRequest, headers: &HeaderMap) -> Caller {
    Caller {
        user: Arc::new(request.user),
        impersonator: Some(caller.user),
        impersonation: Arc::new(impersonation::only(headers)),
        ..caller
    }
}

fn forbidden(caller: &Caller, access: &Access, reason: String) -> CallerRefusal {
    CallerRefusal::Forbidden {
        user: Arc::clone(&caller.user),
        access: Box::new(access.clone()),
        reason,
    }
}

/// Without what only operators are to know, such as addresses.
const fn client_message(error: &ReviewError) -> &'static str {
    match error {
        ReviewError::Unavailable { .. } => "the API server does not answer access reviews",
        ReviewError::Malformed { .. } => {
            "the API server's answer to an access review makes no sense"
        }
        ReviewError::Unauthorized
        | ReviewError::Forbidden { .. }
        | ReviewError::SelfReviewForbidden => {
            "the gateway may not ask the API server for access reviews"
        }
        ReviewError::Unsendable(_) => "the user cannot be impersonated",
    }
}

#[cfg(test)]
mod tests;
