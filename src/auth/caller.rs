//! The caller of a request, and why a request is refused.

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};
use rustls_pki_types::CertificateDer;

use super::access::Access;
use super::user::User;
use crate::fairness::Peer;

/// Certificates, end entity first.
pub type CertificateChain = Arc<[CertificateDer<'static>]>;

/// What a connection says about its peer. The listener adds it to each request as an extension.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity {
    /// The client's certificate chain as it was sent, end entity first. The peer has proven that it holds the key; nothing else
    /// is verified. Empty without one.
    pub certificates: CertificateChain,
    /// Whose places reviews of its tokens take.
    pub peer: Peer,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The identity that the request acts as: the impersonated user, if it impersonates one.
    pub user: Arc<User>,
    /// The authenticated user, if the request impersonates another one.
    pub impersonator: Option<Arc<User>>,
    /// The `Impersonate-*` headers of the request, which travel with its token when upstream is asked as the caller; empty without
    /// impersonation.
    pub impersonation: Arc<HeaderMap>,
    /// How the caller was authenticated.
    pub credential: Credential,
    /// Whose places the questions take that are asked because of it: its connection's peer, known as the authenticated user.
    pub peer: Peer,
    /// When the credential expires, if that is known. Streams end then.
    pub expires_at: Option<SystemTime>,
}

impl Caller {
    /// The authenticated user, whoever the request acts as.
    #[must_use]
    pub fn authenticated(&self) -> &Arc<User> {
        self.impersonator.as_ref().unwrap_or(&self.user)
    }
}

/// How a caller was authenticated, and so how its requests travel upstream.
#[derive(Clone)]
pub enum Credential {
    /// No credential. Forwarded without one: upstream decides what anonymous callers may do.
    Anonymous,
    /// A bearer token. Forwarded with the caller's own headers untouched.
    Token(BearerToken),
    /// A client certificate. Its key is the caller's, so the gateway impersonates the user upstream.
    Certificate(CertificateChain),
    /// Headers of a trusted front proxy, and its certificate. The gateway impersonates the user upstream.
    FrontProxy(CertificateChain),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Token(_) => "Token",
            Self::Certificate(_) => "Certificate",
            Self::FrontProxy(_) => "FrontProxy",
        })
    }
}

/// A bearer token. Never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// A token from the value of an `Authorization` header: `Bearer` and the token.
    #[must_use]
    pub fn from_authorization(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self(value)
    }

    /// A token that reads the same after its way through an `Authorization` header; others there are not.
    #[must_use]
    pub fn new(secret: &str) -> Option<Self> {
        if secret.is_empty() || secret.contains(' ') || secret.trim() != secret {
            return None;
        }
        let value = HeaderValue::from_bytes(format!("{SCHEME}{secret}").as_bytes());
        value.ok().map(Self::from_authorization)
    }

    /// The value for an `Authorization` header, marked sensitive.
    #[must_use]
    pub const fn authorization(&self) -> &HeaderValue {
        &self.0
    }

    /// The token itself, for reviews and for nothing else.
    #[must_use]
    pub fn secret(&self) -> &str {
        let value = std::str::from_utf8(self.0.as_bytes()).unwrap_or_default();
        value.strip_prefix(SCHEME).unwrap_or_default()
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(..)")
    }
}

const SCHEME: &str = "Bearer ";

/// Why memory does not answer a request. `downstream` writes refusals as the API server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerRefusal {
    /// Upstream is to answer: it does not let the caller ask what it may do (anonymous callers have no such right by default), or
    /// denies its impersonation and says so best itself. The request is forwarded under the caller's own identity.
    Forward,
    /// 401: no credential that counts (docs/PROTOCOL.md §6.6).
    Unauthorized,
    /// 403 (docs/PROTOCOL.md §6.7).
    Forbidden {
        /// The user who may not.
        user: Arc<User>,
        /// What was asked.
        access: Box<Access>,
        /// The authorizer's reason; may be empty.
        reason: String,
    },
    /// 400: headers that impersonate nobody.
    BadRequest {
        /// In the API server's words.
        message: String,
    },
    /// 500, plain text: the authorizer cannot decide, or headers make no sense (docs/PROTOCOL.md §6.8).
    Failed {
        /// Without the URI, which the answer names before it.
        message: String,
    },
}
