//! One certificate of a chain, and the rules by which it counts: those of Go's `x509.Certificate.Verify`, which kube-apiserver uses.
//! Certificates of the file of authorities obey them too; none is a bare key.

use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::{Any, BitString};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{BasicConstraints, GeneralName, NameConstraints, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Extension, X509Version};

use super::certificate_error::CertificateError;

/// What is read of a certificate.
pub(super) struct ChainCertificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) validity: Validity,
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    pub(super) has_name_constraints: bool,
    key: AlgorithmBits,
    signed: Vec<u8>,
    signature: AlgorithmBits,
    version: X509Version,
    extensions: Extensions,
}

/// A public key or a signature, with the DER of its algorithm's identifier.
#[derive(PartialEq, Eq)]
struct AlgorithmBits {
    algorithm: Vec<u8>,
    bits: Vec<u8>,
}

#[derive(Default)]
struct Extensions {
    basic_constraints: Option<BasicConstraints>,
    is_kept_from_signing: bool,
    is_kept_from_clients: bool,
    has_unknown_critical: bool,
    key_id: Option<Vec<u8>>,
    issuer_key_id: Option<Vec<u8>>,
}

/// A range of time in seconds since 1970, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl ChainCertificate {
    pub(super) fn parse(der: &CertificateDer<'static>) -> Result<Self, CertificateError> {
        let malformed = CertificateError::Malformed;
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| malformed.clone())?;
        let tbs = &parsed.tbs_certificate;
        let versions = [X509Version::V1, X509Version::V2, X509Version::V3];
        let is_known = versions.contains(&tbs.version());
        if !rest.is_empty() || !is_known || tbs.signature != parsed.signature_algorithm {
            return Err(malformed);
        }
        let content = content(der).and_then(|whole| whole.get(tbs.as_ref().len()..));
        let algorithm = content.and_then(self::content);
        let key = &tbs.subject_pki;
        Ok(Self {
            validity: Validity {
                from: parsed.validity().not_before.timestamp(),
                to: parsed.validity().not_after.timestamp(),
            },
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            key: self::content(key.raw)
                .and_then(self::content)
                .and_then(|algorithm| AlgorithmBits::of(algorithm, &key.subject_public_key))
                .ok_or_else(|| malformed.clone())?,
            signed: tbs.as_ref().to_vec(),
            signature: algorithm
                .and_then(|algorithm| AlgorithmBits::of(algorithm, &parsed.signature_value))
                .ok_or(malformed)?,
            version: tbs.version(),
            has_name_constraints: tbs
                .extensions()
                .iter()
                .any(|one| matches!(one.parsed_extension(), ParsedExtension::NameConstraints(_))),
            extensions: Extensions::of(tbs.extensions())?,
            der: der.clone(),
        })
    }

    /// Whether it counts at this time in a client's chain, at any place.
    pub(super) fn counts_at(&self, now: i64) -> bool {
        self.validity.contains(now)
            && !self.extensions.has_unknown_critical
            && !self.extensions.is_kept_from_clients
    }

    /// Whether it may sign certificates. Certificates of version 1 have no extensions that could forbid it.
    pub(super) fn may_sign(&self) -> bool {
        let is_authority = match &self.extensions.basic_constraints {
            Some(constraints) => constraints.ca,
            None => self.version != X509Version::V3,
        };
        is_authority && !self.extensions.is_kept_from_signing
    }

    /// Whether it says that it is an authority, as one that comes from the client must.
    pub(super) fn is_authority(&self) -> bool {
        let constraints = self.extensions.basic_constraints.as_ref();
        constraints.is_some_and(|constraints| constraints.ca)
    }

    /// Whether so many other authorities may stand between it and the end entity.
    pub(super) fn allows_below(&self, count: usize) -> bool {
        let constraints = self.extensions.basic_constraints.as_ref();
        let max = constraints.and_then(|constraints| constraints.path_len_constraint);
        max.is_none_or(|max| count <= usize::try_from(max).unwrap_or(usize::MAX))
    }

    /// Whether it limits which paths it ends.
    pub(super) fn is_constrained(&self) -> bool {
        let has_length = self
            .extensions
            .basic_constraints
            .as_ref()
            .is_some_and(|one| one.path_len_constraint.is_some());
        has_length || self.has_name_constraints
    }

    /// Whether it is the same authority, if perhaps by another certificate.
    pub(super) fn is_same_authority(&self, other: &Self) -> bool {
        self.subject == other.subject && self.key == other.key
    }

    /// Whether the key that `child` names as its signer's is another one. Such keys are tried last.
    pub(super) fn has_other_key_than(&self, child: &Self) -> bool {
        match (&child.extensions.issuer_key_id, &self.extensions.key_id) {
            (Some(named), Some(own)) => named != own,
            _ => true,
        }
    }

    /// Whether it has signed `child`. Costs a public-key operation, at most with an RSA key of 8,192 bits.
    pub(super) fn has_signed(&self, child: &Self) -> bool {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .all
            .iter()
            .filter(|algorithm| {
                *algorithm.signature_alg_id() == child.signature.algorithm
                    && *algorithm.public_key_alg_id() == self.key.algorithm
            })
            .any(|algorithm| {
                let signature = &child.signature.bits;
                algorithm
                    .verify_signature(&self.key.bits, &child.signed, signature)
                    .is_ok()
            })
    }
}

impl AlgorithmBits {
    fn of(algorithm: &[u8], bits: &BitString<'_>) -> Option<Self> {
        (bits.unused_bits == 0).then(|| Self {
            algorithm: algorithm.to_vec(),
            bits: bits.data.to_vec(),
        })
    }
}

impl Extensions {
    /// An extension that repeats, and one that cannot be read and matters, make the certificate malformed.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what Go does not read is unknown"
    )]
    fn of(extensions: &[X509Extension<'_>]) -> Result<Self, CertificateError> {
        let mut oids: Vec<_> = extensions.iter().map(|one| one.oid.as_bytes()).collect();
        oids.sort_unstable();
        if oids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(CertificateError::Malformed);
        }
        let mut read = Self::default();
        for extension in extensions {
            let is_known = match extension.parsed_extension() {
                ParsedExtension::BasicConstraints(constraints) => {
                    read.basic_constraints = Some(constraints.clone());
                    true
                }
                ParsedExtension::KeyUsage(usage) => {
                    read.is_kept_from_signing = usage.flags != 0 && !usage.key_cert_sign();
                    true
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    // In an empty sequence there is no usage that restricts.
                    let is_empty = content(extension.value).is_none_or(<[u8]>::is_empty);
                    read.is_kept_from_clients = !(usage.client_auth || usage.any || is_empty);
                    true
                }
                ParsedExtension::SubjectKeyIdentifier(id) => {
                    read.key_id = Some(id.0.to_vec());
                    true
                }
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    read.issuer_key_id = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                    true
                }
                ParsedExtension::SubjectAlternativeName(names) => {
                    names.general_names.iter().any(is_known_name)
                }
                ParsedExtension::NameConstraints(constraints) => {
                    bases(constraints).all(is_known_name)
                }
                ParsedExtension::CertificatePolicies(_)
                | ParsedExtension::CRLDistributionPoints(_)
                | ParsedExtension::AuthorityInfoAccess(_) => true,
                ParsedExtension::ParseError { .. } if extension.critical || matters(extension) => {
                    return Err(CertificateError::Malformed);
                }
                _ => false,
            };
            read.has_unknown_critical |= extension.critical && !is_known;
        }
        Ok(read)
    }
}

impl Validity {
    pub(super) const fn contains(self, now: i64) -> bool {
        self.from <= now && now <= self.to
    }
}

/// The content of the DER element at the beginning of these bytes.
fn content(bytes: &[u8]) -> Option<&[u8]> {
    Some(Any::from_der(bytes).ok()?.1.data)
}

fn bases<'a>(constraints: &'a NameConstraints<'a>) -> impl Iterator<Item = &'a GeneralName<'a>> {
    let NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: excluded,
    } = constraints;
    let subtrees = permitted.iter().chain(excluded).flatten();
    subtrees.map(|subtree| &subtree.base)
}

/// Whether Go reads names of this type.
const fn is_known_name(name: &GeneralName<'_>) -> bool {
    matches!(
        name,
        GeneralName::DNSName(_)
            | GeneralName::RFC822Name(_)
            | GeneralName::URI(_)
            | GeneralName::IPAddress(_)
    )
}

/// Whether a certificate could count for more than it should if this extension were overlooked: key usage, alternative names, basic
/// constraints, name constraints, extended key usage.
fn matters(extension: &X509Extension<'_>) -> bool {
    const OIDS: [&[u8]; 5] = [
        &[0x55, 0x1d, 15],
        &[0x55, 0x1d, 17],
        &[0x55, 0x1d, 19],
        &[0x55, 0x1d, 30],
        &[0x55, 0x1d, 37],
    ];
    OIDS.contains(&extension.oid.as_bytes())
}
