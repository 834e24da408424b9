//! Who may call the embedded API server and what they may do, decided as kube-apiserver does. Without options everybody may
//! do everything.
//!
//! ```text
//! request ─▶ authentication (front proxy, certificate, token) ─▶ impersonation
//!         ─▶ authorization (roles, from the server's own store) ─▶ answer
//! ```

mod attributes;
mod authentication;
mod bootstrap;
mod certificates;
mod impersonation;
mod roles;
mod token_file;
mod tokens;

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderValue, Request, Response};
use rustls_pki_types::CertificateDer;

use super::kinds::Catalogue;
use super::store::Store;
use crate::auth::access::Access;
use crate::auth::rbac::{RbacDecision, RbacPolicy};
use crate::auth::user::{ANONYMOUS, MASTERS, UNAUTHENTICATED, User};
use crate::protocol::status::{PlainText, Status};
use attributes::{access, denied};
use authentication::Unauthenticated;
use certificates::{CertificateAuthorities, FrontProxies};
use impersonation::LastModes;
use roles::Roles;

pub use certificates::FrontProxy;
pub use token_file::TokenFileError;
pub use tokens::{TokenUser, Tokens};

/// The audience of tokens that name none, as kube-apiserver has it by default.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How callers are told apart, and what decides about them.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// Users by their tokens; may be changed while the server runs.
    pub tokens: Tokens,
    /// Whether requests without credentials are those of `system:anonymous`, instead of being refused.
    pub anonymous: bool,
    /// What decides.
    pub authorization: AuthorizerKind,
    /// The server's own audiences: tokens that name none are good for these.
    pub audiences: Vec<String>,
    /// Authorities of client certificates; without any, certificates say nothing. TLS must ask for certificates, too.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// Front proxies, if any is trusted.
    pub front_proxy: Option<FrontProxy>,
}

/// Authentication that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A certificate that is no authority's.
    #[error("an authority of client certificates cannot be used")]
    Authority(#[from] rustls::Error),
    /// No authorities at all.
    #[error("authorities of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// What decides whether a request is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizerKind {
    /// Roles and bindings in the server's own store.
    #[default]
    Rbac,
    /// Nothing: every user may do everything.
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

/// Authentication and authorization of one server.
#[derive(Debug)]
pub(super) struct Auth {
    options: AuthOptions,
    /// Follows the store; unused where nothing is refused.
    policy: Arc<RwLock<RbacPolicy>>,
    access: RequestChecks,
    client_authorities: Option<CertificateAuthorities>,
    front_proxies: Option<FrontProxies>,
    last_modes: LastModes,
    /// Whom everybody is, if nobody is checked.
    anonymous: Arc<User>,
}

/// Whether requests are looked at at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestChecks {
    Everybody,
    Checked,
}

/// Whom an admitted request acts as.
#[derive(Debug)]
pub(super) struct AdmittedUser {
    pub(super) user: Arc<User>,
    /// Whether the sender has shown no credentials.
    pub(super) is_anonymous: bool,
}

/// Why a request is not answered.
#[derive(Debug)]
pub(super) enum Rejection {
    /// 401.
    Unauthorized,
    /// 403, or 400 for headers that make no sense.
    Status { status: Status, is_anonymous: bool },
    /// 500 for a path that makes no sense.
    Text(PlainText),
}

impl Auth {
    /// Prepares what decides. With options, the default roles are written to the store, and its roles are followed.
    ///
    /// # Errors
    /// Authorities that cannot be used.
    pub(super) fn new(
        options: Option<AuthOptions>,
        catalogue: &Catalogue,
        store: &Store,
    ) -> Result<Self, AuthError> {
        let access = match options {
            Some(_) => RequestChecks::Checked,
            None => RequestChecks::Everybody,
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
            access,
        })
    }

    /// Users by token.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.options.tokens
    }

    /// Authenticates and authorizes a request on a connection with these certificates; gives back whom it acts as.
    ///
    /// # Errors
    /// The rejection, in the order in which kube-apiserver checks (docs/PROTOCOL.md §0).
    pub(super) fn admit<B>(
        &self,
        request: &Request<B>,
        chain: &[CertificateDer<'static>],
    ) -> Result<AdmittedUser, Rejection> {
        if self.access == RequestChecks::Everybody {
            return Ok(AdmittedUser {
                user: Arc::clone(&self.anonymous),
                is_anonymous: false,
            });
        }
        let asked = access(request.method(), request.uri()).map_err(Rejection::Text)?;
        let sender = self
            .authenticate(request.headers(), chain)
            .map_err(|Unauthenticated| Rejection::Unauthorized)?;
        let is_anonymous = sender.name == ANONYMOUS || sender.is_in(UNAUTHENTICATED);
        let user = self
            .impersonated(&sender, request.headers(), &asked)
            .map_err(|status| Rejection::Status {
                status,
                is_anonymous,
            })?
            .unwrap_or(sender);
        match self.authorize(&user, &asked) {
            RbacDecision::Allowed(_) => Ok(AdmittedUser {
                user: Arc::new(user),
                is_anonymous,
            }),
            RbacDecision::NotAllowed(reason) => Err(Rejection::Status {
                status: denied(&user, &asked, &reason),
                is_anonymous,
            }),
        }
    }

    /// Whom a token stands for, and which of the wanted audiences it is good for; the server's own if none is wanted.
    pub(super) fn review_token(
        &self,
        token: &str,
        wanted: &[String],
    ) -> Option<(User, Vec<String>)> {
        let own = &self.options.audiences;
        let wanted = if wanted.is_empty() { own } else { wanted };
        let (user, audiences) = self.tokens().user(token, own, wanted)?;
        Some((user.authenticated(), audiences))
    }

    /// Whether a user may do something.
    pub(super) fn authorize(&self, user: &User, access: &Access) -> RbacDecision {
        if self.options.authorization == AuthorizerKind::AlwaysAllow || user.is_in(MASTERS) {
            return RbacDecision::Allowed(String::new());
        }
        // Nothing under the lock panics half way.
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.decide(user, access)
    }
}

impl Rejection {
    /// Whether the sender has shown no credentials that count.
    pub(super) const fn is_unauthenticated(&self) -> bool {
        match self {
            Self::Unauthorized => true,
            Self::Status { is_anonymous, .. } => *is_anonymous,
            Self::Text(_) => false,
        }
    }

    /// The HTTP answer, but for what every answer carries.
    pub(super) fn to_response(&self) -> Response<Bytes> {
        match self {
            Self::Unauthorized => Status::unauthorized().to_response(),
            Self::Status { status, .. } => {
                let mut response = status.to_response();
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
            Self::Text(text) => text.to_response(),
        }
    }
}
