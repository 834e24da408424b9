//! Decides whether a request is admitted, and as which user.

use std::sync::Arc;

use bytes::Bytes;
use http::header::X_CONTENT_TYPE_OPTIONS;
use http::{HeaderValue, Request, Response};
use rustls_pki_types::CertificateDer;

use super::attributes::{access, denied};
use super::authentication::Unauthenticated;
use super::{Auth, RequestChecks};
use crate::auth::rbac::RbacDecision;
use crate::auth::user::{ANONYMOUS, UNAUTHENTICATED, User};
use crate::protocol::status::Status;

/// The user that an admitted request acts as, after impersonation.
#[derive(Debug)]
pub(in crate::apiserver) struct AdmittedUser {
    pub(in crate::apiserver) user: Arc<User>,
    /// Whether the sender presented no credentials.
    pub(in crate::apiserver) is_anonymous: bool,
}

/// Why a request is not admitted.
#[derive(Debug)]
pub(in crate::apiserver) enum Rejection {
    /// 401.
    Unauthorized,
    /// 403, or 400 for inconsistent impersonation headers.
    Status { status: Status, is_anonymous: bool },
}

impl Auth {
    /// Authenticates and authorizes a request. `chain` is the connection's client certificate chain.
    ///
    /// # Errors
    /// The first [`Rejection`], in the order of kube-apiserver's checks (docs/PROTOCOL.md §0).
    pub(in crate::apiserver) fn admit<B>(
        &self,
        request: &Request<B>,
        chain: &[CertificateDer<'static>],
    ) -> Result<AdmittedUser, Rejection> {
        if self.checks == RequestChecks::Disabled {
            return Ok(AdmittedUser {
                user: Arc::clone(&self.anonymous),
                is_anonymous: false,
            });
        }
        let access = access(request.method(), request.uri());
        let sender = self
            .authenticate(request.headers(), chain)
            .map_err(|Unauthenticated| Rejection::Unauthorized)?;
        let is_anonymous = sender.name == ANONYMOUS || sender.is_in(UNAUTHENTICATED);
        let user = self
            .impersonated(&sender, request.headers(), &access)
            .map_err(|status| Rejection::Status {
                status,
                is_anonymous,
            })?
            .unwrap_or(sender);
        match self.authorize(&user, &access) {
            RbacDecision::Allowed(_) => Ok(AdmittedUser {
                user: Arc::new(user),
                is_anonymous,
            }),
            RbacDecision::NotAllowed(reason) => Err(Rejection::Status {
                status: denied(&user, &access, &reason),
                is_anonymous,
            }),
        }
    }
}

impl Rejection {
    /// Whether the sender presented no valid credentials.
    pub(in crate::apiserver) const fn is_unauthenticated(&self) -> bool {
        match self {
            Self::Unauthorized => true,
            Self::Status { is_anonymous, .. } => *is_anonymous,
        }
    }

    /// The HTTP response, without the headers that every response carries.
    pub(in crate::apiserver) fn to_response(&self) -> Response<Bytes> {
        match self {
            Self::Unauthorized => Status::unauthorized().to_response(),
            Self::Status { status, .. } => {
                let mut response = status.to_response();
                let headers = response.headers_mut();
                headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                response
            }
        }
    }
}
