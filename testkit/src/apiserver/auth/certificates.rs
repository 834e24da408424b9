//! Client certificates: of users, and of front proxies that name the user in headers.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use super::credentials::Check;
use super::user::User;

/// The attribute of a subject that is the user's uid.
const UID: &str = "1.3.6.1.4.1.57683.2";
/// The extra field with the hash of the certificate, or the id of the token.
pub(super) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Why authentication cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// A certificate cannot be a trust anchor.
    #[error("a CA certificate for client certificates cannot be used")]
    Authority(#[from] rustls::Error),
    /// There are no authorities.
    #[error("cannot build the verifier of client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The front proxies that may name the user in `X-Remote-User`, `X-Remote-Uid`, `X-Remote-Group` and `X-Remote-Extra-*`.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// Authorities of their certificates.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// The common names that their certificates may have; any if empty.
    pub allowed_names: Vec<String>,
}

/// Verifies certificates. Each request is verified, because a certificate can expire while its connection is open.
pub(super) struct CertificateAuthorities(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for CertificateAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateAuthorities")
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

    fn trusts(&self, chain: &[CertificateDer<'static>]) -> bool {
        chain.split_first().is_some_and(|(leaf, rest)| {
            self.0
                .verify_client_cert(leaf, rest, UnixTime::now())
                .is_ok()
        })
    }

    /// The user of a certificate: the common name, with the organizations as groups.
    pub(super) fn user(&self, chain: &[CertificateDer<'static>]) -> Check {
        let Some(leaf) = chain.first() else {
            return Check::Absent;
        };
        if !self.trusts(chain) {
            return Check::Invalid;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(leaf) else {
            return Check::Invalid;
        };
        let subject = certificate.subject();
        let uids = subject
            .iter_attributes()
            .filter(|part| part.attr_type().to_id_string() == UID);
        let uids: Vec<String> = uids.map(text).collect();
        let uid = match uids.as_slice() {
            [] => "",
            [uid] if !uid.is_empty() => uid,
            _ => return Check::Invalid,
        };
        let name = subject
            .iter_common_name()
            .last()
            .map(text)
            .unwrap_or_default();
        if name.is_empty() {
            return Check::Absent;
        }
        let hash = digest(&SHA256, leaf);
        let hash: String = hash
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let id = vec![format!("X509SHA256={hash}")];
        Check::Valid(User {
            name,
            uid: uid.to_owned(),
            groups: subject.iter_organization().map(text).collect(),
            extra: [(CREDENTIAL_ID.to_owned(), id)].into(),
        })
    }
}

fn text(part: &AttributeTypeAndValue<'_>) -> String {
    part.as_str().map(str::to_owned).unwrap_or_default()
}

/// Authenticates users that front proxies name.
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

    /// The user that the headers name, if the certificate is a proxy's.
    pub(super) fn user(&self, chain: &[CertificateDer<'static>], headers: &HeaderMap) -> Check {
        let Some(leaf) = chain.first() else {
            return Check::Absent;
        };
        let certificate = X509Certificate::from_der(leaf)
            .ok()
            .map(|(_, certificate)| certificate);
        let name = certificate.and_then(|it| it.subject().iter_common_name().last().map(text));
        let is_allowed = self.allowed_names.is_empty()
            || name.is_some_and(|name| self.allowed_names.contains(&name));
        if !is_allowed || !self.authorities.trusts(chain) {
            return Check::Invalid;
        }
        let user = user_in_headers(headers, "x-remote-");
        if user.name.is_empty() {
            return Check::Absent;
        }
        Check::Valid(user)
    }
}

/// The user in headers with a prefix, as front proxies and impersonation write it.
pub(super) fn user_in_headers(headers: &HeaderMap, prefix: &str) -> User {
    let all = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        texts.collect()
    };
    let first = |field: &str| {
        all(&format!("{prefix}{field}"))
            .into_iter()
            .next()
            .unwrap_or_default()
    };
    let mut user = User {
        name: first("user"),
        uid: first("uid"),
        groups: all(&format!("{prefix}group")),
        ..User::default()
    };
    let extra = format!("{prefix}extra-");
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(&extra) {
            let values = all(name.as_str());
            user.extra.entry(unescaped(key)).or_default().extend(values);
        }
    }
    user
}

/// Decodes the escapes of a key; returns it unchanged if one is invalid.
fn unescaped(key: &str) -> String {
    let is_valid = key.split('%').skip(1).all(|after| {
        after.len() >= 2 && after.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
    });
    if is_valid {
        percent_decode_str(key).decode_utf8_lossy().into_owned()
    } else {
        key.to_owned()
    }
}
