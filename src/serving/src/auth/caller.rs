//! The caller of a request: its connection, its credential, its user. Also the reasons why a request is refused.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::{HeaderMap, HeaderValue};
use rustls_pki_types::CertificateDer;

use super::access::Access;
use super::user::User;
use crate::fairness::Peer;

/// A certificate chain, end entity first.
pub type CertificateChain = Arc<[CertificateDer<'static>]>;

/// The client's identity as the connection shows it. Each request has it.
#[derive(Clone, Debug, Default)]
pub struct PeerIdentity {
    /// The client's certificate chain as sent, end entity first; empty if the client sent none. The TLS handshake has verified only
    /// that the client holds the private key.
    pub certificates: CertificateChain,
    /// The client whose share of permits pays for reviews of its tokens.
    pub peer: Peer,
}

/// Whether a request goes on where another one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// A watch that resumes from a version: if a stream with the same permission has just ended, it is the same stream.
    Resumed,
    /// Any other request.
    New,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user as whom the request acts: the impersonated user, if there is one.
    pub user: Arc<User>,
    /// The authenticated user, if the request impersonates another one.
    pub impersonator: Option<Arc<User>>,
    /// The `Impersonate-*` headers of the request; empty without impersonation. They are sent with the caller's token when the gateway
    /// sends a review as the caller.
    pub impersonation: Arc<HeaderMap>,
    /// How the caller was authenticated.
    pub credential: Credential,
    /// The client whose share of permits pays for reviews about this caller: the connection's peer together with the authenticated user.
    pub peer: Peer,
    /// As of when the credential is known to be valid. Of a stream that resumes, it may be up to an hour ago until the caller is authorized.
    pub authenticated_at: Instant,
    /// When the credential expires, if known. Streams of the caller end then.
    pub expires_at: Option<SystemTime>,
}

impl Caller {
    /// The user who was authenticated, also if the request impersonates another one.
    #[must_use]
    pub fn authenticated(&self) -> &Arc<User> {
        self.impersonator.as_ref().unwrap_or(&self.user)
    }
}

/// How a caller was authenticated. This determines how its requests are forwarded.
#[derive(Clone)]
pub enum Credential {
    /// No credential. Requests are forwarded without one, and upstream decides what anonymous callers may do.
    Anonymous,
    /// A bearer token. Requests are forwarded with the caller's own headers, unchanged.
    Token(BearerToken),
    /// A client certificate. The gateway does not have its private key, so it impersonates the user upstream.
    Certificate(CertificateChain),
    /// Headers of a trusted front proxy, with the proxy's certificate. The gateway impersonates the user upstream.
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

/// A bearer token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// A token from the value of an `Authorization` header, including the scheme `Bearer`.
    #[must_use]
    pub fn from_authorization(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self(value)
    }

    /// A token from its text. `None` if an `Authorization` header could not carry it unchanged: it is empty, contains a space, or begins
    /// or ends with white space.
    #[must_use]
    pub fn new(secret: &str) -> Option<Self> {
        if secret.is_empty() || secret.contains(' ') || secret.trim() != secret {
            return None;
        }
        HeaderValue::from_bytes(format!("{SCHEME}{secret}").as_bytes())
            .ok()
            .map(Self::from_authorization)
    }

    /// The value of an `Authorization` header with this token, marked sensitive.
    #[must_use]
    pub const fn authorization(&self) -> &HeaderValue {
        &self.0
    }

    /// The token itself. Only for reviews, hashing and its expiry; never log or store it.
    #[must_use]
    pub fn secret(&self) -> &str {
        std::str::from_utf8(self.0.as_bytes())
            .unwrap_or_default()
            .strip_prefix(SCHEME)
            .unwrap_or_default()
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token(..)")
    }
}

const SCHEME: &str = "Bearer ";

/// A request that is refused before it may act as a user, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerDenial {
    /// Decides the status code and the text of the response.
    pub refusal: CallerRefusal,
    /// Who asked; `None` if that is not known.
    pub user: Option<Arc<User>>,
    /// As whom the request was to act.
    pub impersonated: Option<Arc<User>>,
}

impl From<CallerRefusal> for CallerDenial {
    fn from(refusal: CallerRefusal) -> Self {
        Self {
            refusal,
            user: None,
            impersonated: None,
        }
    }
}

/// Why a request is not answered from memory. `serve` writes the responses in the API server's form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerRefusal {
    /// The request is forwarded under the caller's own identity, so that upstream decides. Reasons: upstream does not allow the caller
    /// to review its own permissions (by default anonymous callers may not); no role allows the access; or the impersonation is denied
    /// or invalid, and the error text should be upstream's.
    Forward,
    /// 401: no valid credential (docs/PROTOCOL.md §6.6).
    Unauthorized,
    /// 401, or 429 to a watch that resumes: a credential could not be reviewed, and no other one is valid (docs/PROTOCOL.md §6.8).
    Unverified,
    /// 429: too many other callers, or too many of this client's requests, wait to be reviewed (docs/PROTOCOL.md §6.8).
    Busy,
    /// 403 (docs/PROTOCOL.md §6.7).
    Forbidden {
        /// The user to whom the access is denied.
        user: Arc<User>,
        /// The denied access.
        access: Box<Access>,
        /// The authorizer's reason; may be empty.
        reason: String,
    },
    /// 400: impersonation headers without a user.
    BadRequest {
        /// The API server's message for this error.
        message: String,
    },
    /// 500, plain text, or 429 to a watch that resumes: the access could not be reviewed (docs/PROTOCOL.md §6.8).
    Undecided {
        /// As in [`Failed`](Self::Failed).
        message: String,
    },
    /// 500, plain text: what the client asks for cannot be reviewed until somebody mends it, because impersonation headers are invalid or
    /// the gateway may not create reviews.
    Failed {
        /// The error without the URI, which the response puts before it.
        message: String,
    },
}
