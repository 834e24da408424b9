//! Authentication by client certificate: of users, and of trusted front proxies that name the user in headers.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::extra_key::unescaped;
use crate::auth::user::User;

/// Object identifier of the subject attribute that kube-apiserver reads a user's uid from.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// Key of the extra field with the hash of the certificate that authenticated the user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const REMOTE_EXTRA: &str = "x-remote-extra-";

/// Why authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A certificate cannot serve as a trust anchor.
    #[error("a CA certificate for client certificates cannot be used")]
    Authority(#[from] rustls::Error),
    /// The list of authorities is empty, or the verifier refuses it.
    #[error("cannot build the verifier of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Which front proxies are trusted. They name the user in `X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group` and
/// `X-Remote-Extra-*`.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// Authorities of the proxies' client certificates.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// Allowed common names of these certificates; if empty, any.
    pub allowed_names: Vec<String>,
}

/// The outcome of checking one kind of credential.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CredentialCheck {
    /// The request has no such credential.
    Absent,
    /// The credential is invalid.
    Failed,
    /// The credential is valid and belongs to this user.
    Succeeded(User),
}

/// Verifies client certificate chains. A chain is verified for every request, because a certificate can expire while its
/// connection is open.
pub(super) struct CertificateAuthorities(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for CertificateAuthorities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("CertificateAuthorities(..)")
    }
}

impl CertificateAuthorities {
    pub(super) fn new(certificates: &[CertificateDer<'static>]) -> Result<Self, AuthError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate.clone())?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self(verifier.build()?))
    }

    /// Whether the chain is valid now, leads to one of the authorities, and may be used by clients.
    fn verify(&self, chain: &[CertificateDer<'static>]) -> bool {
        chain.split_first().is_some_and(|(leaf, rest)| {
            let now = UnixTime::now();
            self.0.verify_client_cert(leaf, rest, now).is_ok()
        })
    }

    /// The user of a certificate, by kube-apiserver's rules: the common name is the user's name, organizations are the groups.
    pub(super) fn user(&self, chain: &[CertificateDer<'static>]) -> CredentialCheck {
        let Some(leaf) = chain.first() else {
            return CredentialCheck::Absent;
        };
        if !self.verify(chain) {
            return CredentialCheck::Failed;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
            return CredentialCheck::Failed;
        };
        let subject = certificate.subject();
        let uids = subject.iter_attributes();
        let uids = uids.filter(|part| part.attr_type().to_id_string() == UID);
        let uids: Vec<Option<&str>> = uids.map(|part| part.as_str().ok()).collect();
        let uid = match uids.as_slice() {
            [] => "",
            [Some(uid)] if !uid.is_empty() => uid,
            [..] => return CredentialCheck::Failed,
        };
        let texts = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            part.as_str().map(str::to_owned).unwrap_or_default()
        };
        let Some(name) = subject.iter_common_name().last().map(texts) else {
            return CredentialCheck::Absent;
        };
        if name.is_empty() {
            return CredentialCheck::Absent;
        }
        let hash = digest(&SHA256, leaf);
        let hash: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let id = vec![format!("X509SHA256={hash}")];
        CredentialCheck::Succeeded(User {
            name,
            uid: uid.to_owned(),
            groups: subject.iter_organization().map(texts).collect(),
            extra: [(CREDENTIAL_ID.to_owned(), id)].into(),
        })
    }
}

/// Authenticates users through trusted front proxies.
#[derive(Debug)]
pub(super) struct FrontProxies {
    authorities: CertificateAuthorities,
    allowed_names: Vec<String>,
}

impl FrontProxies {
    pub(super) fn new(options: &FrontProxy) -> Result<Self, AuthError> {
        Ok(Self {
            authorities: CertificateAuthorities::new(&options.client_ca)?,
            allowed_names: options.allowed_names.clone(),
        })
    }

    /// The user that the headers name, if `chain` authenticates a trusted proxy.
    pub(super) fn user(
        &self,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> CredentialCheck {
        let Some(leaf) = chain.first() else {
            return CredentialCheck::Absent;
        };
        let name = X509Certificate::from_der(leaf)
            .ok()
            .and_then(|(_, certificate)| {
                let name = certificate.subject().iter_common_name().last()?;
                name.as_str().ok().map(str::to_owned)
            });
        let is_allowed = self.allowed_names.is_empty()
            || name.is_some_and(|name| self.allowed_names.contains(&name));
        if !is_allowed || !self.authorities.verify(chain) {
            return CredentialCheck::Failed;
        }
        user_from_headers(headers)
    }
}

fn user_from_headers(headers: &HeaderMap) -> CredentialCheck {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let first = |name| all(name).into_iter().next().unwrap_or_default();
    let mut user = User {
        name: first("x-remote-user"),
        uid: first("x-remote-uid"),
        groups: all("x-remote-group"),
        ..User::default()
    };
    user.groups.retain(|group| !group.is_empty());
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(REMOTE_EXTRA) {
            let key = unescaped(key);
            user.extra
                .entry(key)
                .or_default()
                .extend(all(name.as_str()));
        }
    }
    if user.name.is_empty() {
        return CredentialCheck::Absent;
    }
    CredentialCheck::Succeeded(user)
}
