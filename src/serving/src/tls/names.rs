//! Chooses the serving certificate by the server name that the client sends (SNI).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::DnsName;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

/// A serving certificate for certain names.
pub(super) struct NamedCertificate {
    pub(super) certified: Arc<CertifiedKey>,
    /// The configured names, in lower case. If there are none, the names in the certificate apply.
    pub(super) names: Vec<String>,
}

/// Chooses as kube-apiserver does: a certificate for the exact name, otherwise one for the wildcard in place of the first label, otherwise
/// the default. Configured names have precedence over the names in certificates; among equal names the first one wins.
pub(super) struct CertificateResolver {
    default: Arc<CertifiedKey>,
    named: HashMap<String, Arc<CertifiedKey>>,
}

impl CertificateResolver {
    pub(super) fn new(default: Arc<CertifiedKey>, pairs: &[NamedCertificate]) -> Self {
        let mut named = HashMap::new();
        let (explicit, implicit): (Vec<_>, Vec<_>) =
            pairs.iter().partition(|pair| !pair.names.is_empty());
        for pair in explicit {
            for name in &pair.names {
                named
                    .entry(name.clone())
                    .or_insert_with(|| Arc::clone(&pair.certified));
            }
        }
        for pair in implicit {
            for name in names_of(&pair.certified) {
                named
                    .entry(name)
                    .or_insert_with(|| Arc::clone(&pair.certified));
            }
        }
        Self { default, named }
    }

    pub(super) fn certified(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let found = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            self.named.get(&name).or_else(|| {
                let parent = name.find('.').map_or("", |dot| &name[dot..]);
                self.named.get(&format!("*{parent}"))
            })
        });
        found.unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.certified(hello.server_name())))
    }
}

impl fmt::Debug for CertificateResolver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.named.keys();
        formatter.debug_set().entries(names).finish()
    }
}

/// Whether `name` is a DNS name that a client can send, or one whose first label is `*`.
pub(super) fn is_server_name(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    DnsName::try_from(rest).is_ok()
}

/// The names in a certificate: the common name, if it is a DNS name, and the DNS names among the alternative names.
fn names_of(certified: &CertifiedKey) -> Vec<String> {
    let Some(certificate) = certified.end_entity_cert().ok().and_then(|der| parsed(der)) else {
        return Vec::new();
    };
    let subject = certificate.subject();
    let common = subject
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.iter().flat_map(|extension| {
        extension.value.general_names.iter().filter_map(|name| {
            if let GeneralName::DNSName(name) = name {
                Some(*name)
            } else {
                None
            }
        })
    });
    let names = common
        .chain(alternatives)
        .filter(|name| is_server_name(name));
    names.map(str::to_ascii_lowercase).collect()
}

/// When a certificate expires, in seconds since 1970.
pub(super) fn expiry_of(certified: &CertifiedKey) -> Option<i64> {
    let certificate = parsed(certified.end_entity_cert().ok()?)?;
    Some(certificate.validity().not_after.timestamp())
}

fn parsed(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(certificate)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use rustls_pki_types::PrivatePkcs8KeyDer;

    use super::*;

    fn certified(common: &str, alternatives: &[&str]) -> Arc<CertifiedKey> {
        let names: Vec<_> = alternatives.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let secret = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let chain = vec![certificate.der().clone()];
        Arc::new(CertifiedKey::from_der(chain, secret, &provider).unwrap())
    }

    fn named(certified: &Arc<CertifiedKey>, names: &[&str]) -> NamedCertificate {
        NamedCertificate {
            certified: Arc::clone(certified),
            names: names.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn names_are_matched_exactly_then_by_wildcard_then_not_at_all() {
        let default = certified("default", &[]);
        let (first, second, third) = (
            certified("one.example.com", &["*.apps.example.com", "10.0.0.1"]),
            certified("two.example.com", &["two.example.com", "one.example.com"]),
            certified("ignored.example.com", &["ignored.example.com"]),
        );
        let pairs = [
            named(&first, &[]),
            named(&second, &[]),
            named(&third, &["a.apps.example.com", "*.example.org"]),
        ];
        let chosen = CertificateResolver::new(Arc::clone(&default), &pairs);
        for (name, expected) in [
            (Some("one.example.com"), &first),
            (Some("ONE.example.COM"), &first),
            (Some("two.example.com"), &second),
            (Some("b.apps.example.com"), &first),
            (Some("c.b.apps.example.com"), &default),
            (Some("apps.example.com"), &default),
            // Exact names win over wildcards, and configured names replace those in the certificate.
            (Some("a.apps.example.com"), &third),
            (Some("any.example.org"), &third),
            (Some("ignored.example.com"), &default),
            (Some("10.0.0.1"), &default),
            (Some(""), &default),
            (None, &default),
        ] {
            assert!(Arc::ptr_eq(chosen.certified(name), expected), "{name:?}");
        }
    }

    #[test]
    fn configured_names_come_first_wherever_they_stand() {
        let (one, other) = (certified("a.test", &["a.test"]), certified("other", &[]));
        let pairs = [
            named(&one, &[]),
            named(&other, &["a.test"]),
            named(&one, &["a.test"]),
        ];
        let chosen = CertificateResolver::new(Arc::clone(&one), &pairs);
        assert!(Arc::ptr_eq(chosen.certified(Some("a.test")), &other));
    }

    #[test]
    fn only_dns_names_can_be_asked_for() {
        for good in ["a", "a.b", "*.a.b", "xn--a.b"] {
            assert!(is_server_name(good), "{good}");
        }
        for bad in ["", "*", "*a.b", "a.*.b", "a b", "10.0.0.1", "::1", "a..b"] {
            assert!(!is_server_name(bad), "{bad}");
        }
    }
}
