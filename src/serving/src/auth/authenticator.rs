//! Authenticates a request by its first valid credential, in the API server's order: headers of a trusted front proxy, the connection's
//! client certificate, a bearer token. Impersonation is resolved later, by the guard.

mod verdicts;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use tokio::time::Instant;

use super::bearer::{self, TokenHeader};
use super::caller::{
    BearerToken, Caller, CallerRefusal, CertificateChain, Continuity, Credential, PeerIdentity,
};
use super::certificate::{CertificateError, ClientAuthorities, VerifiedCertificate};
use super::front_proxy;
use super::token_cache::{DatedVerdict, TokenCache, WallClock};
use super::upstream::ReviewError;
use super::user::User;
use crate::config::{AuthSettings, FrontProxySettings};
use crate::fairness::{Peer, Users};
use crate::metrics::{AuthenticationMetrics, AuthenticationOutcome};

use verdicts::CertificateVerifier;

/// The credentials that an [`Authenticator`] accepts besides bearer tokens.
#[derive(Debug)]
pub struct AuthenticatorSettings {
    /// Whether callers without credentials are accepted as `system:anonymous`.
    pub anonymous: bool,
    /// The authorities of client certificates; `None` if client certificates are not accepted.
    pub client_ca: Option<ClientAuthorities>,
    /// The headers and names of trusted front proxies, and the authorities of their certificates.
    pub front_proxy: Option<(FrontProxySettings, ClientAuthorities)>,
}

impl AuthenticatorSettings {
    /// Reads the files that the configuration names. Blocks.
    ///
    /// # Errors
    /// [`AuthoritiesFileError`] names the file that cannot be used.
    pub fn read(settings: &AuthSettings) -> Result<Self, AuthoritiesFileError> {
        let front_proxy = settings.front_proxy.as_ref();
        Ok(Self {
            anonymous: settings.anonymous,
            client_ca: settings.client_ca.as_deref().map(authorities).transpose()?,
            front_proxy: match front_proxy {
                None => None,
                Some(proxy) => Some((proxy.clone(), authorities(&proxy.client_ca)?)),
            },
        })
    }
}

/// A file of certificate authorities that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path}: {reason}")]
pub struct AuthoritiesFileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The reason, in one line.
    pub reason: String,
}

fn authorities(path: &Path) -> Result<ClientAuthorities, AuthoritiesFileError> {
    let unusable = |reason: String| AuthoritiesFileError {
        path: path.to_owned(),
        reason,
    };
    let mut pem = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LEN_MAX).read_to_end(&mut pem))
        .map_err(|error| unusable(error.to_string()))?;
    ClientAuthorities::from_pem(&pem).map_err(|error| unusable(error.to_string()))
}

/// Bytes read of a file of authorities; more than any bundle needs. The rest of a longer file is ignored.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Finds out who sends a request: by client certificate, front proxy or bearer token, else anonymous.
pub struct Authenticator {
    anonymous: bool,
    client_ca: CertificateVerifier,
    front_proxy: Option<FrontProxyAuthenticator>,
    tokens: TokenCache,
    users: Users,
    clock: WallClock,
    metrics: AuthenticationMetrics,
}

struct FrontProxyAuthenticator {
    settings: FrontProxySettings,
    verifier: CertificateVerifier,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Authenticator")
            .finish_non_exhaustive()
    }
}

/// The result of authentication by the connection's certificate, which needs no request upstream.
enum LocalIdentity {
    Known(Caller),
    /// The certificate is not valid here. The request is refused unless it has another valid credential.
    Failed,
    /// The certificate could not be verified. The request is refused likewise.
    Busy,
    /// There is no certificate, or it identifies nobody.
    Nothing,
}

impl Authenticator {
    /// An authenticator without exempt users. `clock` decides whether certificates have expired.
    #[must_use]
    pub fn new(
        settings: AuthenticatorSettings,
        tokens: TokenCache,
        clock: WallClock,
        metrics: AuthenticationMetrics,
    ) -> Self {
        let front_proxy = settings.front_proxy;
        Self {
            anonymous: settings.anonymous,
            client_ca: CertificateVerifier::new(settings.client_ca),
            front_proxy: front_proxy.map(|(settings, authorities)| FrontProxyAuthenticator {
                settings,
                verifier: CertificateVerifier::new(Some(authorities)),
            }),
            tokens,
            users: Users::default(),
            clock,
            metrics,
        }
    }

    /// The same authenticator, which marks exempt users by `users`: shares do not limit their permits.
    #[must_use]
    pub fn shared_among(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Authenticates the caller of a request. The token of a request that resumes may have been reviewed up to an hour ago.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] if no credential is valid, [`CallerRefusal::Unverified`] if one of them could not be reviewed,
    /// [`CallerRefusal::Busy`] if too many others wait.
    /// [`CallerRefusal::Forward`] if upstream does not allow the owner of the token to review itself, so that only upstream can identify it.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
        continuity: Continuity,
    ) -> Result<Caller, CallerRefusal> {
        let mut has_failed = false;
        let mut is_unverified = false;
        let mut is_busy = false;
        match self.local(headers, peer).await {
            LocalIdentity::Known(caller) => return Ok(caller),
            LocalIdentity::Failed => has_failed = true,
            LocalIdentity::Busy => is_busy = true,
            LocalIdentity::Nothing => {}
        }
        for header in [bearer::authorization(headers), bearer::websocket(headers)] {
            match header {
                TokenHeader::Absent => continue,
                TokenHeader::Invalid => self.metrics.token.inc(AuthenticationOutcome::Failure),
                TokenHeader::Token(token) => {
                    match self.by_token(token, peer.peer, continuity).await {
                        Ok(Some(caller)) => return Ok(caller),
                        Ok(None) => {}
                        // Another credential may be valid.
                        Err(CallerRefusal::Unverified) => is_unverified = true,
                        Err(CallerRefusal::Busy) => is_busy = true,
                        Err(refusal) => return Err(refusal),
                    }
                }
            }
            has_failed = true;
        }
        if is_busy {
            return Err(CallerRefusal::Busy);
        }
        if is_unverified {
            return Err(CallerRefusal::Unverified);
        }
        self.without_credentials(has_failed, peer.peer)
    }

    /// Authenticates the caller of a request that is to be forwarded. Returns a caller only if the connection's certificate identifies it,
    /// because upstream does not see that certificate. `None` if the caller's own headers authenticate it upstream.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] if the certificate is not valid and the request has no token: upstream, which does not see the
    /// certificate, would treat the caller as anonymous. [`CallerRefusal::Busy`] if too many chains wait to be verified.
    pub async fn authenticate_locally(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Option<Caller>, CallerRefusal> {
        match self.local(headers, peer).await {
            LocalIdentity::Known(caller) => Ok(Some(caller)),
            LocalIdentity::Nothing => Ok(None),
            LocalIdentity::Busy => Err(CallerRefusal::Busy),
            LocalIdentity::Failed => {
                let header = [bearer::authorization(headers), bearer::websocket(headers)];
                let has_token = header
                    .iter()
                    .any(|header| matches!(header, TokenHeader::Token(_)));
                match has_token {
                    true => Ok(None),
                    false => Err(CallerRefusal::Unauthorized),
                }
            }
        }
    }

    /// Whether the certificate of a credential is valid now, by the current authorities; `None` if it could not be verified. `false` for
    /// credentials without a certificate.
    pub async fn is_certificate_trusted(
        &self,
        credential: &Credential,
        payer: Peer,
    ) -> Option<bool> {
        let now = (self.clock)();
        let is_trusted = match credential {
            Credential::Anonymous | Credential::Token(_) => return Some(false),
            Credential::Certificate(chain) => {
                match self.client_ca.verify(chain, payer, now).await {
                    Some(Err(CertificateError::Busy)) => return None,
                    verdict => matches!(verdict, Some(Ok(_))),
                }
            }
            Credential::FrontProxy(chain) => match &self.front_proxy {
                None => false,
                Some(proxy) => match proxy.certificate(chain, payer, now).await {
                    Some(Err(Distrust::Busy)) => return None,
                    verdict => matches!(verdict, Some(Ok(_))),
                },
            },
        };
        Some(is_trusted)
    }

    /// Identifies the users for whom permits of reviews are counted.
    #[must_use]
    pub const fn users(&self) -> &Users {
        &self.users
    }

    /// The cache of token reviews, for the rechecks of open streams.
    #[must_use]
    pub const fn tokens(&self) -> &TokenCache {
        &self.tokens
    }

    /// Whether a header is one in which a front proxy names the user. `false` if no front proxy is configured.
    #[must_use]
    pub fn is_front_proxy_header(&self, name: &http::HeaderName) -> bool {
        let front_proxy = self.front_proxy.as_ref();
        front_proxy.is_some_and(|proxy| front_proxy::is_header(&proxy.settings, name))
    }

    /// Replaces the authorities of client certificates with those of this file. Blocks.
    ///
    /// # Errors
    /// [`AuthoritiesFileError`] if the file cannot be used; the previous authorities stay in force.
    pub fn reload_client_ca(&self, path: &Path) -> Result<(), AuthoritiesFileError> {
        self.client_ca.set(authorities(path)?);
        Ok(())
    }

    /// Replaces the authorities of front proxies with those of this file. Blocks.
    ///
    /// # Errors
    /// As [`reload_client_ca`](Self::reload_client_ca).
    pub fn reload_front_proxy_ca(&self, path: &Path) -> Result<(), AuthoritiesFileError> {
        let authorities = authorities(path)?;
        if let Some(front_proxy) = &self.front_proxy {
            front_proxy.verifier.set(authorities);
        }
        Ok(())
    }

    async fn local(&self, headers: &HeaderMap, peer: &PeerIdentity) -> LocalIdentity {
        if peer.certificates.is_empty() {
            return LocalIdentity::Nothing;
        }
        let now = (self.clock)();
        let mut has_failed = false;
        if let Some(front_proxy) = &self.front_proxy {
            match front_proxy.user(headers, peer, now).await {
                Ok(Some((user, certificate))) => {
                    self.metrics.front_proxy.inc(AuthenticationOutcome::Success);
                    let credential = Credential::FrontProxy(Arc::clone(&peer.certificates));
                    let user = Arc::new(user);
                    return LocalIdentity::Known(self.certified(
                        user,
                        credential,
                        peer,
                        &certificate,
                    ));
                }
                // The front proxy is trusted, but its headers name no user.
                Ok(None) => {}
                // The certificate might be a front proxy's: it must not act as the user that its subject names.
                Err(Distrust::Busy) => return LocalIdentity::Busy,
                Err(distrust) => {
                    has_failed = true;
                    // Certificates of ordinary clients come here too; an unverified one is not a failed front proxy.
                    if distrust == Distrust::Refused {
                        self.metrics.front_proxy.inc(AuthenticationOutcome::Failure);
                    }
                }
            }
        }
        let verdict = self.client_ca.verify(&peer.certificates, peer.peer, now);
        match verdict.await {
            Some(Err(CertificateError::Busy)) => return LocalIdentity::Busy,
            Some(Ok(certificate)) => {
                // A certificate without a common name is no credential, as in the API server.
                if let Some(user) = certificate.user.clone() {
                    self.metrics.certificate.inc(AuthenticationOutcome::Success);
                    let credential = Credential::Certificate(Arc::clone(&peer.certificates));
                    return LocalIdentity::Known(self.certified(
                        user,
                        credential,
                        peer,
                        &certificate,
                    ));
                }
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "client certificate rejected");
                has_failed = true;
            }
            None => {}
        }
        if !has_failed {
            return LocalIdentity::Nothing;
        }
        self.metrics.certificate.inc(AuthenticationOutcome::Failure);
        LocalIdentity::Failed
    }

    async fn by_token(
        &self,
        token: BearerToken,
        peer: Peer,
        continuity: Continuity,
    ) -> Result<Option<Caller>, CallerRefusal> {
        let remembered = match continuity {
            Continuity::New => None,
            Continuity::Resumed => self.tokens.remembered_user(&token).await,
        };
        let DatedVerdict { verdict, asked_at } = match remembered {
            None => self.tokens.user(&token, peer).await,
            Some((user, asked_at)) => DatedVerdict {
                verdict: Ok(Some(user)),
                asked_at,
            },
        };
        self.metrics.token.inc(match &verdict {
            Ok(Some(_)) => AuthenticationOutcome::Success,
            Ok(None) => AuthenticationOutcome::Failure,
            Err(_) => AuthenticationOutcome::Error,
        });
        let user = match verdict {
            Ok(Some(user)) => user,
            // A 403 means that upstream accepted the token; for an invalid one it responds with 401.
            Err(ReviewError::SelfReviewForbidden) => return Err(CallerRefusal::Forward),
            Ok(None) => return Ok(None),
            // Another attempt would fail as well, until somebody mends it: the client must see an error.
            Err(ReviewError::Forbidden { .. }) => return Ok(None),
            Err(ReviewError::Busy) => return Err(CallerRefusal::Busy),
            Err(_) => return Err(CallerRefusal::Unverified),
        };
        Ok(Some(Caller {
            peer: self.users.known(peer, &user.name, &user.groups),
            user,
            impersonator: None,
            impersonation: Arc::default(),
            authenticated_at: asked_at.into_std(),
            expires_at: bearer::expiry(&token),
            credential: Credential::Token(token),
        }))
    }

    fn without_credentials(&self, has_failed: bool, peer: Peer) -> Result<Caller, CallerRefusal> {
        if has_failed {
            return Err(CallerRefusal::Unauthorized);
        }
        if !self.anonymous {
            self.metrics.anonymous.inc(AuthenticationOutcome::Failure);
            return Err(CallerRefusal::Unauthorized);
        }
        self.metrics.anonymous.inc(AuthenticationOutcome::Success);
        Ok(Caller {
            user: Arc::new(User::anonymous()),
            impersonator: None,
            impersonation: Arc::default(),
            credential: Credential::Anonymous,
            // Permits of anonymous callers count for their address alone.
            peer,
            authenticated_at: Instant::now().into_std(),
            expires_at: None,
        })
    }

    fn certified(
        &self,
        user: Arc<User>,
        credential: Credential,
        peer: &PeerIdentity,
        certificate: &VerifiedCertificate,
    ) -> Caller {
        Caller {
            peer: self.users.known(peer.peer, &user.name, &user.groups),
            user,
            impersonator: None,
            impersonation: Arc::default(),
            credential,
            authenticated_at: Instant::now().into_std(),
            expires_at: Some(certificate.expires_at),
        }
    }
}

impl FrontProxyAuthenticator {
    /// Verifies the chain as that of a front proxy; `None` if the chain is empty.
    async fn certificate(
        &self,
        chain: &CertificateChain,
        payer: Peer,
        now: SystemTime,
    ) -> Option<Result<Arc<VerifiedCertificate>, Distrust>> {
        let certificate = match self.verifier.verify(chain, payer, now).await? {
            Ok(certificate) => certificate,
            Err(CertificateError::Busy) => return Some(Err(Distrust::Busy)),
            Err(_) => return Some(Err(Distrust::Unverified)),
        };
        let allowed = &self.settings.allowed_names;
        if !allowed.is_empty() && !allowed.contains(&certificate.common_name) {
            return Some(Err(Distrust::Refused));
        }
        Some(Ok(certificate))
    }

    async fn user(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
        now: SystemTime,
    ) -> Result<Option<(User, Arc<VerifiedCertificate>)>, Distrust> {
        let verdict = self.certificate(&peer.certificates, peer.peer, now);
        let Some(certificate) = verdict.await.transpose()? else {
            return Ok(None);
        };
        let user =
            front_proxy::user(&self.settings, headers).map_err(|_not_text| Distrust::Refused)?;
        Ok(user.map(|user| (user, certificate)))
    }
}

/// Why the headers of a front proxy are not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distrust {
    /// The certificate could not be verified.
    Busy,
    /// The certificate is not one of a front proxy.
    Unverified,
    /// The certificate's common name is not allowed, or a header is invalid.
    Refused,
}

#[cfg(test)]
mod tests;
