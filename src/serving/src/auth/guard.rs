//! The entry point of `auth`. The guard authenticates callers, authorizes their requests, and revokes the leases of open streams that are
//! no longer permitted.

mod impersonators;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::access::Access;
use super::access_review::AccessVerdict;
use super::authenticator::Authenticator;
use super::authorizer::Authorizer;
use super::bearer::{self, TokenHeader};
use super::caller::{Caller, CallerDenial, CallerRefusal, Continuity, Credential, PeerIdentity};
use super::changes::RoleScope;
use super::decisions::{CachedDecision, DecisionRules, Decisions};
use super::digest::CredentialHasher;
use super::followed::{AuthorizerState, Followed};
use super::lease::Lease;
use super::leases::{Confirmation, LeaseKey, LivenessCheck, RecheckTimes, Requirement};
use super::policy::PolicyStore;
use super::question::{AccessQuestion, QuestionIdentity, QuestionKey, QuestionMethod};
use super::rechecks::Rechecks;
use super::token_cache::{DatedVerdict, TokenCache};
use super::upstream::ReviewError;
use super::user::User;
use crate::config::ReviewBudget;
use crate::metrics::AuthorizationMetrics;

/// How the gateway authorizes callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerMode {
    /// Upstream decides, by reviews with the caller's own credentials (SelfSubjectReview, SelfSubjectAccessReview). The gateway needs no
    /// rights of its own.
    #[default]
    SelfCheck,
    /// Upstream decides, by reviews with the gateway's credentials (TokenReview, SubjectAccessReview).
    Review,
    /// The gateway decides from the roles and bindings that it watches.
    Rbac,
}

/// The settings of a [`Guard`].
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// How callers are authorized.
    pub mode: AuthorizerMode,
    /// How long an allowed access is cached.
    pub allow_ttl: Duration,
    /// How long a denied access is cached.
    pub deny_ttl: Duration,
    /// Permissions of open streams that no event covers are checked again at most once in this interval.
    pub reauthorize_interval: Duration,
    /// How many reviews these checks may send.
    pub review_budget: ReviewBudget,
    /// How long an open stream continues after its permission was last confirmed, if it cannot be checked again.
    pub reauthorize_grace: Duration,
}

/// In whose name a request is forwarded upstream.
#[derive(Clone, Debug)]
pub enum Forwarding {
    /// With the caller's own `Authorization` and `Impersonate-*` headers, unchanged, and without any credential of the gateway.
    AsCaller,
    /// With the gateway's credentials, impersonating this caller. Headers in which the client states its identity are not forwarded.
    Impersonating {
        /// The caller of the request.
        caller: Caller,
        /// Revoked when the caller's certificate is no longer valid. Upstream cannot notice that, because it never sees the certificate.
        lease: Lease,
    },
}

/// A granted authorization.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// Revoked when the caller is no longer permitted.
    pub lease: Lease,
    /// The authorizer's verdict.
    pub verdict: Arc<AccessVerdict>,
}

/// Who decides accesses.
#[derive(Debug)]
pub struct Deciders {
    /// Decides each question that is not remembered.
    pub authorizer: Arc<dyn Authorizer>,
    /// The roles that explain decisions.
    pub policy: Arc<PolicyStore>,
}

/// Authenticates callers and authorizes their requests. Cheap to clone; all clones share caches and leases.
#[derive(Clone, Debug)]
pub struct Guard(Arc<GuardState>);

#[derive(Debug)]
struct GuardState {
    settings: GuardSettings,
    authenticator: Arc<Authenticator>,
    hasher: CredentialHasher,
    decisions: Arc<Decisions>,
    rechecks: Arc<Rechecks>,
    followed: Arc<Followed>,
}

/// Why an access is not allowed.
enum Denial {
    /// The authorizer denies it, for this reason.
    Denied(String),
    /// Upstream does not allow the caller to ask about itself.
    Unasked,
    Refused(CallerRefusal),
}

impl Guard {
    /// A guard that authenticates callers with `authenticator` and decides accesses with `deciders`.
    #[must_use]
    pub fn new(
        settings: GuardSettings,
        authenticator: Arc<Authenticator>,
        deciders: Deciders,
        hasher: CredentialHasher,
        metrics: AuthorizationMetrics,
    ) -> Self {
        let decides_by_roles = settings.mode == AuthorizerMode::Rbac;
        let rules = DecisionRules {
            decides_by_roles,
            allow: settings.allow_ttl,
            deny: settings.deny_ttl,
        };
        let times = RecheckTimes {
            interval: settings.reauthorize_interval,
            grace: settings.reauthorize_grace,
            decides_by_roles,
        };
        let followed = Arc::new(Followed::default());
        let decisions = Arc::new(Decisions::new(
            deciders.authorizer,
            deciders.policy,
            Arc::clone(&followed),
            rules,
            metrics.clone(),
        ));
        let rechecks = Rechecks::new(
            times,
            settings.review_budget,
            Arc::clone(&decisions),
            Arc::clone(&authenticator) as _,
            metrics,
        );
        Self(Arc::new(GuardState {
            settings,
            authenticator,
            hasher,
            decisions,
            rechecks: Arc::new(rechecks),
            followed,
        }))
    }

    /// How long upstream has been giving no results of reviews.
    #[must_use]
    pub fn review_outage(&self) -> Duration {
        self.0
            .authenticator
            .tokens()
            .outage_age()
            .max(self.0.decisions.outage_age())
    }

    /// The settings that the guard was created with.
    #[must_use]
    pub fn settings(&self) -> &GuardSettings {
        &self.0.settings
    }

    /// Authenticates the caller of a request and resolves impersonation. With [`AuthorizerMode::SelfCheck`], upstream checks the
    /// impersonation together with each access: the impersonated user is unverified until [`authorize`](Self::authorize) succeeds.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] for invalid credentials, [`CallerRefusal::Forbidden`] for denied impersonation,
    /// [`CallerRefusal::BadRequest`] for impersonation headers without a user, [`CallerRefusal::Forward`] if upstream has to decide,
    /// [`CallerRefusal::Unverified`] or [`CallerRefusal::Undecided`] if a review failed, [`CallerRefusal::Failed`] if other impersonation
    /// headers are invalid.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
        continuity: Continuity,
    ) -> Result<Caller, CallerDenial> {
        let authenticator = &self.0.authenticator;
        let caller = authenticator.authenticate(headers, peer, continuity).await;
        if matches!(caller, Err(CallerRefusal::Unauthorized)) {
            self.expect_rejected(headers).await;
        }
        self.resolve_impersonation(caller?, headers).await
    }

    /// Has the streams of the request's tokens checked, as far as reviews have found these invalid.
    async fn expect_rejected(&self, headers: &HeaderMap) {
        let rechecks = &self.0.rechecks;
        let tokens = self.0.authenticator.tokens();
        for header in [bearer::authorization(headers), bearer::websocket(headers)] {
            if let TokenHeader::Token(token) = header
                && rechecks.may_depend_on(&token)
                && tokens.is_rejected(&token).await
            {
                rechecks.token_rejected(&token);
            }
        }
    }

    /// Authorizes an access of a caller. All streams with the same access, caller and credential share the lease, which is revoked when
    /// the access is no longer permitted. A request that resumes a stream which held a lease within the last 30 s gets that lease, and
    /// nothing is asked until an hour after the last confirmation.
    ///
    /// # Errors
    /// [`CallerRefusal::Forbidden`] if the access is denied, [`CallerRefusal::Forward`] if upstream has to decide,
    /// [`CallerRefusal::Unauthorized`] if upstream rejects the caller's token, [`CallerRefusal::Unverified`] if its token cannot be reviewed,
    /// [`CallerRefusal::Undecided`] if the authorizer failed, and [`CallerRefusal::Failed`] if the gateway cannot, or may not, ask it about
    /// this caller.
    pub async fn authorize(
        &self,
        caller: &Caller,
        access: &Access,
        continuity: Continuity,
    ) -> Result<Authorization, CallerRefusal> {
        let question = self
            .question(caller, access.clone())
            .ok_or(CallerRefusal::Forward)?;
        let credential = match self.proves_token(caller, &question.key) {
            // The question is sent with the token and the impersonation headers, so its answer covers both.
            true => None,
            false => self.credential_requirement(caller),
        };
        let key = LeaseKey {
            credential: credential.as_ref().and_then(Requirement::credential),
            impersonator: caller.impersonator.clone(),
            question: question.key.clone(),
        };
        if continuity == Continuity::Resumed {
            let credential = credential.as_ref().map(Requirement::key);
            if let Some((lease, verdict)) = self.0.rechecks.resumed(&key, credential) {
                return Ok(Authorization { lease, verdict });
            }
        }
        let authenticated_at = self.confirm_token(caller).await?;
        let decision = match self.decide(&question).await {
            Ok(decision) => decision,
            Err(Denial::Refused(refusal)) => return Err(refusal),
            Err(Denial::Unasked) => return Err(CallerRefusal::Forward),
            // Roles only allow; another authorizer of upstream may allow what no role allows.
            Err(Denial::Denied(_)) if self.0.settings.mode == AuthorizerMode::Rbac => {
                return Err(CallerRefusal::Forward);
            }
            Err(Denial::Denied(reason)) => return Err(forbidden(caller, access, reason)),
        };
        let mut requirements = Vec::new();
        if !self.proves_token(caller, &question.key) {
            self.add_rights_of_impersonator(caller, &mut requirements)
                .await?;
        }
        if let Some(credential) = credential {
            requirements.push((credential, Confirmation::credential(authenticated_at)));
        }
        requirements.push(self.requirement(question, &decision));
        Ok(Authorization {
            lease: self.0.rechecks.lease(key, &decision.verdict, requirements),
            verdict: decision.verdict,
        })
    }

    /// Whether the answer to a question also proves that the caller's token is valid.
    fn proves_token(&self, caller: &Caller, key: &QuestionKey) -> bool {
        self.0.settings.mode == AuthorizerMode::SelfCheck
            && is_forwardable(&caller.credential)
            && !key.is_shared()
    }

    /// The time as of which the caller's credential is valid. A token whose review is too old for a new request is reviewed again.
    async fn confirm_token(&self, caller: &Caller) -> Result<Instant, CallerRefusal> {
        let known_at = Instant::from_std(caller.authenticated_at);
        let Credential::Token(token) = &caller.credential else {
            return Ok(known_at);
        };
        if TokenCache::is_recent(known_at) {
            return Ok(known_at);
        }
        let DatedVerdict { verdict, asked_at } =
            self.0.authenticator.tokens().user(token, caller.peer).await;
        match verdict {
            Ok(Some(user)) if user == *caller.authenticated() => Ok(asked_at),
            Ok(None) => {
                self.0.rechecks.token_rejected(token);
                Err(CallerRefusal::Unauthorized)
            }
            Err(ReviewError::Busy) => Err(CallerRefusal::Busy),
            // A user who has changed is another caller: the client tries again, and is authenticated anew.
            Ok(Some(_)) | Err(_) => Err(CallerRefusal::Unverified),
        }
    }

    /// In whose name a request that memory cannot answer is forwarded. Only impersonation by callers with a certificate or a front proxy
    /// is reviewed here; upstream decides everything else when it receives the request.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate), but never [`CallerRefusal::Forward`].
    pub async fn forwarding(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Forwarding, CallerDenial> {
        let authenticator = &self.0.authenticator;
        match authenticator.authenticate_locally(headers, peer).await? {
            None => Ok(Forwarding::AsCaller),
            Some(caller) => {
                let caller = self.resolve_impersonation(caller, headers).await?;
                let lease = self.credential_lease(&caller);
                Ok(Forwarding::Impersonating { caller, lease })
            }
        }
    }

    /// The user of a request's bearer token, if it was reviewed in the last hour. Asks nobody, and says nothing about this request.
    pub async fn remembered_user(&self, headers: &HeaderMap) -> Option<Arc<User>> {
        let TokenHeader::Token(token) = bearer::authorization(headers) else {
            return None;
        };
        let remembered = self.0.authenticator.tokens().remembered_user(&token).await;
        remembered.map(|(user, _)| user)
    }

    /// Checks the permission of open streams again, at the interval and after changes of roles. Never returns.
    pub async fn run(&self) {
        self.0.rechecks.run().await;
    }

    /// Notifies the guard of a change of roles or bindings: the decisions that it may affect are invalidated, and the permission of
    /// affected streams is checked again a second later.
    pub fn roles_changed(&self, scope: RoleScope) {
        self.0.rechecks.roles_changed(scope);
    }

    /// Notifies the guard that pods or service accounts with these uids are gone: the tokens that were bound to them are reviewed again.
    pub fn bound_objects_deleted(&self, uids: Vec<Box<str>>) {
        self.0.rechecks.bound_objects_deleted(uids);
    }

    /// Notifies the guard that pods or service accounts were listed. Tokens that were reviewed before are reviewed again if they are bound to
    /// what `is_live` says upstream does not have.
    pub fn bound_objects_listed(&self, is_live: LivenessCheck) {
        self.0.rechecks.bound_objects_listed(is_live);
    }

    /// What the gateway notices by itself. The tasks that follow upstream write it.
    #[must_use]
    pub fn followed(&self) -> &Arc<Followed> {
        &self.0.followed
    }

    /// The authenticator, whose certificate authorities are reloaded when their files change.
    #[must_use]
    pub fn authenticator(&self) -> &Arc<Authenticator> {
        &self.0.authenticator
    }

    /// A lease that depends only on the caller's credential. All forwarded requests with the same credential share it.
    fn credential_lease(&self, caller: &Caller) -> Lease {
        let Some(requirement) = self.credential_requirement(caller) else {
            return Lease::new();
        };
        let no_access = Access::Path {
            verb: String::new(),
            path: String::new(),
        };
        let key = LeaseKey {
            credential: requirement.credential(),
            impersonator: None,
            question: QuestionKey {
                credentials: None,
                user: Arc::default(),
                access: Arc::new(no_access),
                authorizers: AuthorizerState::Opaque,
            },
        };
        let requirements = vec![(requirement, Confirmation::credential(Instant::now()))];
        let verdict = AccessVerdict {
            is_allowed: true,
            reason: String::new(),
        };
        let rechecks = &self.0.rechecks;
        rechecks.lease(key, &Arc::new(verdict), requirements)
    }

    /// The requirement that the caller's credential stays valid; `None` for anonymous callers.
    fn credential_requirement(&self, caller: &Caller) -> Option<Requirement> {
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
        // All users of a front proxy share its certificate. The certificate pays for its own checks, so that they do not wait behind
        // the other checks of one of these users.
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
            explanation: decision.explanation,
        };
        (Requirement::Access(question), confirmation)
    }

    /// `None` if only upstream can decide, when it receives the request.
    fn question(&self, caller: &Caller, access: Access) -> Option<AccessQuestion> {
        let is_scoped = caller.user.is_scoped() || caller.authenticated().is_scoped();
        let method = match self.0.settings.mode {
            // Self-reviews ignore some scopes, and roles do not have any.
            AuthorizerMode::SelfCheck | AuthorizerMode::Rbac if is_scoped => return None,
            AuthorizerMode::SelfCheck => QuestionMethod::SelfCheck,
            AuthorizerMode::Review | AuthorizerMode::Rbac => QuestionMethod::Review,
        };
        let authorizers = self.0.followed.authorizers();
        method.question(caller, access, authorizers, &self.0.hasher)
    }

    async fn decide(&self, question: &AccessQuestion) -> Result<CachedDecision, Denial> {
        let began_at = Instant::now();
        let mut outcome = self.0.decisions.decide(question).await;
        // A shared question may have been sent with another token, which is not valid any more. Of those that wait for it, one asks again
        // for all; if that is another such token, each asks for itself.
        if is_shared_refusal(question, &outcome) {
            outcome = self.0.decisions.decide(question).await;
        }
        if is_shared_refusal(question, &outcome) {
            outcome = self.0.decisions.recheck(question).await;
        }
        let error = match outcome {
            Ok(decision) if decision.verdict.is_allowed => return Ok(decision),
            Ok(decision) => {
                if decision.asked_at >= began_at {
                    self.0.rechecks.request_denied(&question.key);
                }
                return Err(Denial::Denied(decision.verdict.reason.clone()));
            }
            Err(error) => error,
        };
        match (&question.identity, &error) {
            (QuestionIdentity::Caller { token, .. }, ReviewError::Unauthorized) => {
                self.0.authenticator.tokens().forget(token).await;
                self.0.rechecks.token_rejected(token);
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
        tracing::debug!(%error, "access review failed");
        let message = client_message(&error).to_owned();
        Err(Denial::Refused(match error {
            // Another attempt would fail as well, until somebody mends it: the client must see an error.
            ReviewError::Unsendable(_) | ReviewError::Forbidden { .. } => {
                CallerRefusal::Failed { message }
            }
            ReviewError::Busy => CallerRefusal::Busy,
            ReviewError::Unavailable { .. }
            | ReviewError::Malformed { .. }
            | ReviewError::Unauthorized
            | ReviewError::SelfReviewForbidden => CallerRefusal::Undecided { message },
        }))
    }
}

/// Whether upstream rejected the token in whose name a shared question was sent.
fn is_shared_refusal(
    question: &AccessQuestion,
    outcome: &Result<CachedDecision, ReviewError>,
) -> bool {
    question.key.is_shared() && matches!(outcome, Err(ReviewError::Unauthorized))
}

/// Whether the gateway can forward the credential, so that upstream authenticates the caller itself. This includes having none.
const fn is_forwardable(credential: &Credential) -> bool {
    match credential {
        Credential::Anonymous | Credential::Token(_) => true,
        Credential::Certificate(_) | Credential::FrontProxy(_) => false,
    }
}

fn forbidden(caller: &Caller, access: &Access, reason: String) -> CallerRefusal {
    CallerRefusal::Forbidden {
        user: Arc::clone(&caller.user),
        access: Box::new(access.clone()),
        reason,
    }
}

/// The error for the client, without details that only operators may see, such as addresses.
const fn client_message(error: &ReviewError) -> &'static str {
    match error {
        ReviewError::Unavailable { .. } | ReviewError::Busy => {
            "the access could not be reviewed, try again later"
        }
        ReviewError::Malformed { .. } => {
            "the API server's response to the access review is invalid"
        }
        ReviewError::Unauthorized
        | ReviewError::Forbidden { .. }
        | ReviewError::SelfReviewForbidden => {
            "the API server does not allow the gateway to create access reviews"
        }
        ReviewError::Unsendable(_) => "the user cannot be impersonated",
    }
}

#[cfg(test)]
mod tests;
