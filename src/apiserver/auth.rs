//! Authentication and authorization of the embedded API server, with kube-apiserver's rules. Without options every request is
//! allowed.
//!
//! ```text
//! request ─▶ authentication (front proxy, certificate, token) ─▶ impersonation
//!         ─▶ authorization (roles, from the server's own store) ─▶ answer
//! ```

mod attributes;
mod authentication;
mod bootstrap;
mod certificates;
mod extra_key;
mod impersonation;
mod impersonation_mode;
mod request;
mod roles;
mod token_file;
mod tokens;

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::kinds::Catalogue;
use super::store::Store;
use crate::auth::access::Access;
use crate::auth::rbac::{RbacDecision, RbacPolicy};
use crate::auth::user::{MASTERS, User};
use certificates::{CertificateAuthorities, FrontProxies};
use impersonation_mode::LastModes;
use parking_lot::RwLock;
use roles::Roles;

pub use certificates::{AuthError, FrontProxy};
pub use token_file::TokenFileError;
pub use tokens::{TokenUser, Tokens};

/// kube-apiserver's default audience, for tokens that name none.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How callers are authenticated and authorized.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// Users by bearer token; may be changed while the server runs.
    pub tokens: Tokens,
    /// Whether a request without credentials acts as `system:anonymous`; otherwise it is refused with 401.
    pub anonymous: bool,
    /// What decides whether a user's request is allowed.
    pub authorization: AuthorizerKind,
    /// The server's own audiences; a token that names no audiences is valid for these.
    pub audiences: Vec<String>,
    /// Authorities of client certificates; if empty, client certificates are ignored. The TLS configuration must request client
    /// certificates, too.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// The trusted front proxies, if any.
    pub front_proxy: Option<FrontProxy>,
}

/// What decides whether a request is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerKind {
    /// Roles and bindings in the server's own store (RBAC).
    #[default]
    Rbac,
    /// Every user may do everything.
    AlwaysAllow,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self {
            tokens: Tokens::default(),
            anonymous: true,
            authorization: AuthorizerKind::default(),
            audiences: vec![AUDIENCE.to_owned()],
            client_ca: Vec::new(),
            front_proxy: None,
        }
    }
}

/// The authenticator and authorizer of one server.
#[derive(Debug)]
pub(super) struct Auth {
    options: AuthOptions,
    /// Kept up to date with the store; unused with [`AuthorizerKind::AlwaysAllow`].
    policy: Arc<RwLock<RbacPolicy>>,
    checks: RequestChecks,
    client_authorities: Option<CertificateAuthorities>,
    front_proxies: Option<FrontProxies>,
    last_modes: LastModes,
    /// The user of every request if checks are disabled.
    anonymous: Arc<User>,
}

/// Whether requests are authenticated and authorized at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestChecks {
    Disabled,
    Enabled,
}

impl Auth {
    /// Sets up authentication and authorization. With RBAC, the default roles are written to the store, and the policy follows
    /// the store's roles and bindings.
    ///
    /// # Errors
    /// [`AuthError`] if an authority cannot be used.
    pub(super) fn new(
        options: Option<AuthOptions>,
        catalogue: &Catalogue,
        store: &Store,
    ) -> Result<Self, AuthError> {
        let checks = match options {
            Some(_) => RequestChecks::Enabled,
            None => RequestChecks::Disabled,
        };
        let options = options.unwrap_or_else(|| AuthOptions {
            authorization: AuthorizerKind::AlwaysAllow,
            ..AuthOptions::default()
        });
        let policy = Arc::default();
        if options.authorization == AuthorizerKind::Rbac {
            store.add_publisher(Box::new(Roles::new(catalogue, Arc::clone(&policy))));
            bootstrap::write(catalogue, store);
        }
        let client_authorities = match options.client_ca.as_slice() {
            [] => None,
            authorities => Some(CertificateAuthorities::new(authorities)?),
        };
        let front_proxies = options.front_proxy.as_ref().map(FrontProxies::new);
        Ok(Self {
            front_proxies: front_proxies.transpose()?,
            client_authorities,
            last_modes: LastModes::default(),
            anonymous: Arc::new(User::anonymous()),
            options,
            policy,
            checks,
        })
    }

    /// The users by bearer token.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.options.tokens
    }

    /// The user of a token, and those of the requested audiences that the token is valid for. An empty request means the
    /// server's own audiences. `None` if the token is invalid.
    pub(super) fn review_token(
        &self,
        token: &str,
        requested: &[String],
    ) -> Option<(User, Vec<String>)> {
        let own = &self.options.audiences;
        let requested = if requested.is_empty() { own } else { requested };
        let (user, audiences) = self.tokens().user(token, own, requested)?;
        Some((user.authenticated(), audiences))
    }

    /// Decides whether a user is allowed this access.
    pub(super) fn authorize(&self, user: &User, access: &Access) -> RbacDecision {
        if self.options.authorization == AuthorizerKind::AlwaysAllow || user.is_in(MASTERS) {
            return RbacDecision::Allowed(String::new());
        }
        let policy = self.policy.read();
        policy.decide(user, access)
    }
}
