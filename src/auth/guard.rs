//! The one door of this module: who is calling, what they may do, and whether streams that are open still may.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::access::Access;
use super::caller::{Caller, PeerIdentity, Refusal};
use super::lease::Lease;

/// Who decides what a caller may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
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
    pub mode: Mode,
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
    Impersonating(Caller),
}

/// Authenticates callers and authorizes what they ask for. Cheap to clone; all clones share caches and leases.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: GuardSettings,
}

impl Guard {
    /// A guard that refuses everything.
    #[must_use]
    pub fn new(settings: GuardSettings) -> Self {
        Self(Arc::new(Inner { settings }))
    }

    /// How it works.
    #[must_use]
    pub fn settings(&self) -> &GuardSettings {
        &self.0.settings
    }

    /// Who is calling, with impersonation resolved.
    ///
    /// # Errors
    /// [`Refusal::Unauthorized`] for credentials that do not count; [`Refusal::Forbidden`] for impersonation that is denied;
    /// [`Refusal::Forward`] if upstream is to answer; [`Refusal::Failed`] if that cannot be found out, or headers make no sense.
    #[expect(clippy::unused_async, reason = "upstream is asked here")]
    pub async fn authenticate(
        &self,
        _headers: &HeaderMap,
        _peer: &PeerIdentity,
    ) -> Result<Caller, Refusal> {
        Err(Refusal::Unauthorized)
    }

    /// Whether a caller may do something. All streams that ask the same for the same caller share the lease, which is revoked when
    /// they no longer may.
    ///
    /// # Errors
    /// [`Refusal::Forbidden`] for what is denied; [`Refusal::Forward`] if upstream is to answer; [`Refusal::Failed`] if that cannot be
    /// found out.
    #[expect(clippy::unused_async, reason = "upstream is asked here")]
    pub async fn authorize(&self, caller: &Caller, access: &Access) -> Result<Lease, Refusal> {
        Err(Refusal::Forbidden {
            user: Arc::clone(&caller.user),
            access: Box::new(access.clone()),
            reason: String::new(),
        })
    }

    /// How a request that memory cannot answer travels upstream. Upstream is asked only about impersonation by callers known by
    /// certificate or front proxy; about everything else upstream decides when it gets the request.
    ///
    /// # Errors
    /// As [`authenticate`](Self::authenticate).
    #[expect(clippy::unused_async, reason = "upstream is asked here")]
    pub async fn forwarding(
        &self,
        _headers: &HeaderMap,
        _peer: &PeerIdentity,
    ) -> Result<Forwarding, Refusal> {
        Err(Refusal::Unauthorized)
    }

    /// Asks about the permission of open streams again, at the interval and after changes of roles. Has no end.
    pub async fn run(&self) {
        std::future::pending().await
    }

    /// Roles or bindings have changed: the permission of open streams is asked again at once.
    pub const fn roles_changed(&self) {}
}
