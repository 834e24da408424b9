//! Who may call the embedded API server and what they may do, decided as kube-apiserver does. Without options everybody may
//! do everything.
//!
//! ```text
//! request ─▶ authentication (tokens) ─▶ authorization (roles, from the server's own store) ─▶ answer
//! ```

mod attributes;
mod authentication;
mod bootstrap;
mod roles;
mod tokens;

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::{Request, Response};

use super::kinds::Catalogue;
use super::store::Store;
use crate::auth::access::Access;
use crate::auth::rbac::{Decision, Policy};
use crate::auth::user::{MASTERS, User};
use crate::downstream::status::{PlainText, Status};
use attributes::{access, denied};
use authentication::Unauthenticated;
use roles::Roles;

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
    pub authorization: Authorization,
    /// The server's own audiences: tokens that name none are good for these.
    pub audiences: Vec<String>,
}

/// What decides whether a request is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
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
            authorization: Authorization::default(),
            audiences: vec![AUDIENCE.to_owned()],
        }
    }
}

/// Authentication and authorization of one server.
#[derive(Debug)]
pub(super) struct Auth {
    options: AuthOptions,
    /// Follows the store; unused where nothing is refused.
    policy: Arc<RwLock<Policy>>,
    access: Admission,
}

/// Whether requests are looked at at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    Everybody,
    Checked,
}

/// Why a request is not answered.
#[derive(Debug)]
pub(super) enum Rejection {
    /// 401.
    Unauthorized,
    /// 403, or what else has a `Status`.
    Status(Status),
    /// 500 for a path that makes no sense.
    Text(PlainText),
}

impl Auth {
    /// Prepares what decides. With options, the default roles are written to the store, and its roles are followed.
    pub(super) fn new(options: Option<AuthOptions>, catalogue: &Catalogue, store: &Store) -> Self {
        let access = match options {
            Some(_) => Admission::Checked,
            None => Admission::Everybody,
        };
        let options = options.unwrap_or_else(|| AuthOptions {
            authorization: Authorization::AlwaysAllow,
            ..AuthOptions::default()
        });
        let policy = Arc::default();
        if options.authorization == Authorization::Rbac {
            store.add_publisher(Box::new(Roles::new(catalogue, Arc::clone(&policy))));
            bootstrap::write(catalogue, store);
        }
        Self {
            options,
            policy,
            access,
        }
    }

    /// Users by token.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.options.tokens
    }

    /// Authenticates and authorizes a request.
    ///
    /// # Errors
    /// The rejection, in the order in which kube-apiserver checks (protocol.md §0).
    pub(super) fn admit<B>(&self, request: &Request<B>) -> Result<User, Rejection> {
        if self.access == Admission::Everybody {
            return Ok(User::anonymous());
        }
        let asked = access(request.method(), request.uri()).map_err(Rejection::Text)?;
        let user = self
            .authenticate(request.headers())
            .map_err(|Unauthenticated| Rejection::Unauthorized)?;
        match self.authorize(&user, &asked) {
            Decision::Allowed(_) => Ok(user),
            Decision::NotAllowed(reason) => Err(Rejection::Status(denied(&user, &asked, &reason))),
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
        self.tokens().user(token, own, wanted)
    }

    /// Whether a user may do something.
    pub(super) fn authorize(&self, user: &User, access: &Access) -> Decision {
        if self.options.authorization == Authorization::AlwaysAllow || user.is_in(MASTERS) {
            return Decision::Allowed(String::new());
        }
        // Nothing under the lock panics half way.
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.decide(user, access)
    }
}

impl Rejection {
    /// The HTTP answer, but for what every answer carries.
    pub(super) fn to_response(&self) -> Response<Bytes> {
        match self {
            Self::Unauthorized => Status::unauthorized().to_response(),
            Self::Status(status) => status.to_response(),
            Self::Text(text) => text.to_response(),
        }
    }
}
