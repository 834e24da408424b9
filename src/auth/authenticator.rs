//! Who is calling, by the first credential of a request that counts: headers of a trusted front proxy, the connection's client
//! certificate, a bearer token. Impersonation is not looked at here.

mod verdicts;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use rustls_pki_types::CertificateDer;

use super::bearer::{self, TokenHeader};
use super::caller::{BearerToken, Caller, CallerRefusal, Credential, PeerIdentity};
use super::certificate::{ClientAuthorities, VerifiedCertificate};
use super::front_proxy;
use super::token_cache::{TokenCache, WallClock};
use super::upstream::ReviewError;
use super::user::User;
use crate::config::{AuthSettings, FrontProxySettings};
use crate::fairness::{Peer, Users};
use crate::metrics::{AuthenticationMetrics, AuthenticationOutcome};

use verdicts::CertificateVerifier;

/// What callers may be authenticated by.
#[derive(Debug)]
pub struct AuthenticatorSettings {
    /// Whether callers without credentials are let in as `system:anonymous`.
    pub anonymous: bool,
    /// Whose client certificates count.
    pub client_ca: Option<ClientAuthorities>,
    /// Which front proxies are trusted, and whose certificates they have.
    pub front_proxy: Option<(FrontProxySettings, ClientAuthorities)>,
}

impl AuthenticatorSettings {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// [`AuthoritiesFileError`] with the file that cannot be used.
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

/// A file of authorities that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {path}: {reason}")]
pub struct AuthoritiesFileError {
    /// The file.
    pub path: PathBuf,
    /// Why, in one line.
    pub reason: String,
}

fn authorities(path: &Path) -> Result<ClientAuthorities, AuthoritiesFileError> {
    let unusable = |reason: String| AuthoritiesFileError {
        path: path.to_owned(),
        reason,
    };
    let mut pem = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_LEN_MAX).read_to_end(&mut pem));
    read.map_err(|error| unusable(error.to_string()))?;
    ClientAuthorities::from_pem(&pem).map_err(|error| unusable(error.to_string()))
}

/// More than any bundle of certificates has.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Authenticates requests.
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

/// What the connection itself says of the caller, before upstream is asked.
enum LocalIdentity {
    Known(Caller),
    /// There is something, and it does not count. Who has no better credential is refused.
    Failed,
    Nothing,
}

impl Authenticator {
    /// Authenticates by these.
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

    /// The same, with users whom shares do not limit.
    #[must_use]
    pub fn shared_among(self, users: Users) -> Self {
        Self { users, ..self }
    }

    /// Who is calling.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] if no credential counts; [`CallerRefusal::Forward`] if only upstream can tell whose a token is.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Caller, CallerRefusal> {
        let mut has_failed = match self.local(headers, peer).await {
            LocalIdentity::Known(caller) => return Ok(caller),
            LocalIdentity::Failed => true,
            LocalIdentity::Nothing => false,
        };
        for header in [bearer::authorization(headers), bearer::websocket(headers)] {
            match header {
                TokenHeader::Absent => continue,
                TokenHeader::Invalid => self.metrics.token.inc(AuthenticationOutcome::Failure),
                TokenHeader::Token(token) => {
                    if let Some(caller) = self.by_token(token, peer.peer).await? {
                        return Ok(caller);
                    }
                }
            }
            has_failed = true;
        }
        self.without_credentials(has_failed, peer.peer)
    }

    /// The caller, if the connection's certificate says who it is: such callers cannot show it upstream themselves. `None` if the
    /// caller's own headers say it upstream as well as here.
    ///
    /// # Errors
    /// [`CallerRefusal::Unauthorized`] if the certificate does not count, and nothing else in the request might: upstream would not see the
    /// certificate, and take the caller for an anonymous one.
    pub async fn authenticate_locally(
        &self,
        headers: &HeaderMap,
        peer: &PeerIdentity,
    ) -> Result<Option<Caller>, CallerRefusal> {
        match self.local(headers, peer).await {
            LocalIdentity::Known(caller) => Ok(Some(caller)),
            LocalIdentity::Nothing => Ok(None),
            LocalIdentity::Failed => {
                let header = [bearer::authorization(headers), bearer::websocket(headers)];
                let is_token = |header: &TokenHeader| matches!(header, TokenHeader::Token(_));
                match header.iter().any(is_token) {
                    true => Ok(None),
                    false => Err(CallerRefusal::Unauthorized),
                }
            }
        }
    }

    /// Whether a certificate counts by the authorities as they are now; other credentials have none.
    pub async fn is_certificate_trusted(&self, credential: &Credential) -> bool {
        let now = (self.clock)();
        match credential {
            Credential::Anonymous | Credential::Token(_) => false,
            Credential::Certificate(chain) => {
                matches!(self.client_ca.verify(chain, now).await, Some(Ok(_)))
            }
            Credential::FrontProxy(chain) => match &self.front_proxy {
                None => false,
                Some(proxy) => matches!(proxy.certificate(chain, now).await, Some(Ok(_))),
            },
        }
    }

    /// Tells apart those whose places questions take.
    #[must_use]
    pub const fn users(&self) -> &Users {
        &self.users
    }

    /// The memory of tokens, for those who ask about open streams again.
    #[must_use]
    pub const fn tokens(&self) -> &TokenCache {
        &self.tokens
    }

    /// Whether a header is one in which front proxies name the user.
    #[must_use]
    pub fn is_front_proxy_header(&self, name: &http::HeaderName) -> bool {
        let front_proxy = self.front_proxy.as_ref();
        front_proxy.is_some_and(|proxy| front_proxy::is_header(&proxy.settings, name))
    }

    /// From now on the authorities in this file count for client certificates. Blocks.
    ///
    /// # Errors
    /// The file cannot be used; what counted goes on counting.
    pub fn reload_client_ca(&self, path: &Path) -> Result<(), AuthoritiesFileError> {
        self.client_ca.set(authorities(path)?);
        Ok(())
    }

    /// The same for front proxies.
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
                // A proxy of ours that names nobody.
                Ok(None) => {}
                Err(distrust) => {
                    has_failed = true;
                    // Other client certificates pass here, too, and are no proxy's.
                    if distrust == Distrust::Refused {
                        self.metrics.front_proxy.inc(AuthenticationOutcome::Failure);
                    }
                }
            }
        }
        match self.client_ca.verify(&peer.certificates, now).await {
            Some(Ok(certificate)) => {
                // Without a name it is no credential, to the API server either.
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
                tracing::debug!(%error, "a client certificate does not count");
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
    ) -> Result<Option<Caller>, CallerRefusal> {
        let verdict = self.tokens.user(&token, peer).await;
        self.metrics.token.inc(match &verdict {
            Ok(Some(_)) => AuthenticationOutcome::Success,
            Ok(None) => AuthenticationOutcome::Failure,
            Err(_) => AuthenticationOutcome::Error,
        });
        let user = match verdict {
            Ok(Some(user)) => user,
            // Upstream knows the token: who is nobody is told 401.
            Err(ReviewError::SelfReviewForbidden) => return Err(CallerRefusal::Forward),
            Ok(None) | Err(_) => return Ok(None),
        };
        Ok(Some(Caller {
            peer: self.users.known(peer, &user.name, &user.groups),
            user,
            impersonator: None,
            impersonation: Arc::default(),
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
            // Those who are nobody have nothing in common but their address.
            peer,
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
            expires_at: Some(certificate.expires_at),
        }
    }
}

impl FrontProxyAuthenticator {
    /// A front proxy's certificate; `None` if there is none at all.
    async fn certificate(
        &self,
        chain: &[CertificateDer<'static>],
        now: SystemTime,
    ) -> Option<Result<Arc<VerifiedCertificate>, Distrust>> {
        let Ok(certificate) = self.verifier.verify(chain, now).await? else {
            return Some(Err(Distrust::Unverified));
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
        let Some(certificate) = self.certificate(&peer.certificates, now).await else {
            return Ok(None);
        };
        let certificate = certificate?;
        let user = front_proxy::user(&self.settings, headers);
        let user = user.map_err(|_not_text| Distrust::Refused)?;
        Ok(user.map(|user| (user, certificate)))
    }
}

/// Why nothing is believed of what a front proxy may have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distrust {
    /// The certificate is no front proxy's.
    Unverified,
    /// The certificate's name is not among the allowed ones, or the headers make no sense.
    Refused,
}

#[cfg(test)]
mod tests;
