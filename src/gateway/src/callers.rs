//! Builds authentication and authorization of callers from the settings.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::task::JoinSet;
use tracing::{info, warn};

use super::authorizer_probe::AuthorizerProbe;
use super::bound_objects::{BoundObjectFeed, CacheLookup, DeletionReports};
use super::node_impersonation::NodeFormProbe;
use super::reloads::Reloads;
use super::roles::RoleFeed;
use crate::auth::authenticator::{Authenticator, AuthenticatorSettings, AuthoritiesFileError};
use crate::auth::authorizer::Authorizer;
use crate::auth::authorizer::UpstreamAuthorizer;
use crate::auth::digest::{CredentialHasher, RandomnessError};
use crate::auth::guard::{AuthorizerMode, Deciders, Guard, GuardSettings};
use crate::auth::impersonation::Impersonator;
use crate::auth::policy::PolicyStore;
use crate::auth::role_authorizer::RoleAuthorizer;
use crate::auth::token_cache::{TokenCache, WallClock};
use crate::auth::token_review::{TokenReviewMethod, UpstreamTokens};
use crate::auth::upstream::Reviewer;
use crate::cli::choice_name;
use crate::config::{AuthMode, AuthSettings};
use crate::fairness::Users;
use crate::metrics::{Metrics, TaskKind};
use crate::passthrough::ProxyHeaders;
use crate::task::restart_on_end;
use crate::upstream::client::{Client, ForwardIdentity};

/// Authentication cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum CallersError {
    /// A file of certificate authorities cannot be used.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesFileError),
    /// The system returns no random bytes.
    #[error(transparent)]
    NoRandomness(#[from] RandomnessError),
}

/// The guard, and what its tasks need.
pub(super) struct Callers {
    pub(super) guard: Guard,
    roles: RoleFeed,
    authorizers: AuthorizerProbe,
    nodes: NodeFormProbe,
    impersonator: Impersonator,
    bound_objects: BoundObjectFeed,
    settings: AuthSettings,
}

impl Callers {
    /// Starts the tasks that keep authorities, roles and permissions up to date.
    /// `caches` finds the caches that tell of deleted pods and service accounts.
    pub(super) fn follow(
        self,
        tasks: &mut JoinSet<()>,
        reloads: &Reloads,
        metrics: &Metrics,
        caches: CacheLookup,
    ) {
        let Self {
            guard,
            roles,
            authorizers,
            nodes,
            impersonator: _,
            bound_objects,
            settings,
        } = self;
        reloads.follow_authorities(tasks, guard.authenticator(), &settings);
        let ends = metrics.task_ends();
        tasks.spawn(async move {
            restart_on_end(TaskKind::Guard, &ends, || guard.run()).await;
        });
        let ends = metrics.task_ends();
        tasks.spawn(async move {
            restart_on_end(TaskKind::Roles, &ends, || roles.run()).await;
        });
        let ends = metrics.task_ends();
        tasks.spawn(async move {
            restart_on_end(TaskKind::Authorizers, &ends, || async {
                tokio::join!(Box::pin(authorizers.run()), Box::pin(nodes.run())).0
            })
            .await;
        });
        let ends = metrics.task_ends();
        tasks.spawn(async move {
            restart_on_end(TaskKind::BoundObjects, &ends, || bound_objects.run(&caches)).await;
        });
    }
}

/// Builds the guard; `None` if callers are not authenticated.
///
/// # Errors
/// See [`CallersError`].
pub(super) fn callers(
    settings: &AuthSettings,
    client: &Client,
    metrics: &Metrics,
    users: Users,
) -> Result<Option<Callers>, CallersError> {
    let token_review = TokenReviewMethod::TokenReview {
        audiences: settings.token_audiences.clone(),
    };
    let (mode, method) = match settings.mode {
        AuthMode::SelfCheck => (
            AuthorizerMode::SelfCheck,
            TokenReviewMethod::SelfSubjectReview,
        ),
        AuthMode::Review => (AuthorizerMode::Review, token_review),
        AuthMode::Rbac => (AuthorizerMode::Rbac, token_review),
        AuthMode::None => return Ok(None),
    };
    let impersonator = Impersonator::default();
    let clock: WallClock = Arc::new(SystemTime::now);
    let reviewer = Reviewer::new(client.clone()).impersonating(impersonator.clone());
    let reviewer = Arc::new(reviewer);
    let tokens = UpstreamTokens::new(Arc::clone(&reviewer), method, metrics.authentication());
    let tokens = TokenCache::new(
        Arc::new(tokens),
        Arc::clone(&clock),
        metrics.authentication(),
    )?;
    let authenticator = Authenticator::new(
        AuthenticatorSettings::read(settings)?,
        tokens,
        clock,
        metrics.authentication(),
    );
    let authenticator = Arc::new(authenticator.shared_among(users));
    let policy = Arc::new(PolicyStore::default());
    let upstream: Arc<dyn Authorizer> = Arc::new(UpstreamAuthorizer::new(reviewer));
    let authorizer: Arc<dyn Authorizer> = match mode {
        AuthorizerMode::Rbac => Arc::new(RoleAuthorizer::new(Arc::clone(&policy), upstream)),
        AuthorizerMode::SelfCheck | AuthorizerMode::Review => upstream,
    };
    let guard = Guard::new(
        guard_settings(mode, settings),
        authenticator,
        Deciders {
            authorizer,
            policy: Arc::clone(&policy),
        },
        CredentialHasher::random()?,
        metrics.authorization(),
    );
    let roles = RoleFeed::new(client.clone(), guard.clone(), policy);
    let followed = guard.followed();
    let authorizers = AuthorizerProbe::new(
        client.clone(),
        Arc::clone(followed),
        settings.upstream_authorizers,
    );
    let nodes = NodeFormProbe::new(client, settings, &impersonator);
    let bound_objects = bound_objects(client, &guard);
    let settings = settings.clone();
    Ok(Some(Callers {
        guard,
        roles,
        authorizers,
        nodes,
        impersonator,
        bound_objects,
        settings,
    }))
}

/// Tells the guard what is deleted that tokens are bound to.
fn bound_objects(client: &Client, guard: &Guard) -> BoundObjectFeed {
    let (deleted, listed) = (guard.clone(), guard.clone());
    let reports = DeletionReports {
        on_deleted: Arc::new(move |uids| deleted.bound_objects_deleted(uids)),
        on_listed: Arc::new(move |is_live| listed.bound_objects_listed(is_live)),
    };
    BoundObjectFeed::new(client.clone(), Arc::clone(guard.followed()), reports)
}

/// What writes the headers by which the gateway acts as these callers.
pub(super) fn impersonator(callers: Option<&Callers>) -> Impersonator {
    let impersonator = callers.map(|callers| callers.impersonator.clone());
    impersonator.unwrap_or_default()
}

const fn guard_settings(mode: AuthorizerMode, settings: &AuthSettings) -> GuardSettings {
    GuardSettings {
        mode,
        allow_ttl: settings.allow_ttl,
        deny_ttl: settings.deny_ttl,
        reauthorize_interval: settings.reauthorize_interval,
        review_budget: settings.review_budget,
        reauthorize_grace: settings.reauthorize_grace,
    }
}

/// The identity of forwarded requests that carry no credential of their own.
pub(super) const fn forwarding_identity(mode: AuthMode) -> ForwardIdentity {
    match mode {
        AuthMode::SelfCheck | AuthMode::Review | AuthMode::Rbac => ForwardIdentity::Caller,
        AuthMode::None => ForwardIdentity::Gateway,
    }
}

/// The headers in which front proxies send users.
pub(super) fn proxy_headers(settings: &AuthSettings) -> ProxyHeaders {
    let Some(proxy) = &settings.front_proxy else {
        return ProxyHeaders::default();
    };
    let names = [
        &proxy.username_headers,
        &proxy.uid_headers,
        &proxy.group_headers,
    ];
    ProxyHeaders {
        names: names.into_iter().flatten().cloned().collect(),
        prefixes: proxy.extra_header_prefixes.clone(),
    }
}

/// Logs at start how callers are authenticated and authorized.
pub(super) fn report(settings: &AuthSettings) {
    if settings.mode == AuthMode::None {
        warn!(
            "callers are not authenticated (--auth none): every request has the gateway's own rights at the API server"
        );
        return;
    }
    info!(
        auth = choice_name(settings.mode),
        anonymous = settings.anonymous,
        client_certificates = settings.client_ca.is_some(),
        front_proxies = settings.front_proxy.is_some(),
        reauthorize_interval = ?settings.reauthorize_interval,
        "callers are authenticated and authorized; for forwarded requests the API server decides"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::client::ConnectSource;

    #[tokio::test]
    async fn only_without_authentication_requests_use_the_gateways_identity() {
        let metrics = Metrics::new().unwrap();
        let source = ConnectSource::url("http://127.0.0.1:1").unwrap();
        let client = Client::connect(source).await.unwrap();
        let guarded = |mode| {
            let callers = callers(
                &AuthSettings::of_mode(mode),
                &client,
                &metrics,
                Users::default(),
            );
            callers.unwrap().is_some()
        };
        for mode in [AuthMode::SelfCheck, AuthMode::Review, AuthMode::Rbac] {
            assert_eq!(forwarding_identity(mode), ForwardIdentity::Caller);
            assert!(guarded(mode));
        }
        assert_eq!(
            forwarding_identity(AuthMode::None),
            ForwardIdentity::Gateway
        );
        assert!(!guarded(AuthMode::None));
    }
}
