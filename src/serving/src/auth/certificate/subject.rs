//! Reads a user from the subject of a certificate, as the API server does: `CN` is the name, each `O` is a group, and an attribute that
//! Kubernetes has registered is the uid.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use x509_parser::asn1_rs::Tag;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::oid;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

use super::certificate_error::CertificateError;
use crate::auth::user::User;

/// The user of a certificate, and its common name. Does not verify the certificate.
///
/// # Errors
/// [`CertificateError`] if the certificate cannot be parsed, or its subject has no common name, an attribute that cannot be read as
/// text, or an empty or repeated uid.
pub fn user(certificate: &CertificateDer<'_>) -> Result<(User, String), CertificateError> {
    let (rest, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| CertificateError::Malformed)?;
    if !rest.is_empty() {
        return Err(CertificateError::Malformed);
    }
    let mut name = String::new();
    let mut groups = Vec::new();
    let mut uid = None;
    let [name_type, group_type, uid_type] = [
        oid!(2.5.4.3),
        oid!(2.5.4.10),
        // The uid attribute, registered by Kubernetes.
        oid!(1.3.6.1.4.1.57683.2),
    ];
    for attribute in parsed.subject().iter_attributes() {
        let oid = attribute.attr_type();
        if *oid == name_type {
            // The last common name is used.
            name = text(attribute, "CN")?;
        } else if *oid == group_type {
            groups.push(text(attribute, "O")?);
        } else if *oid == uid_type {
            let value = text(attribute, "UID")?;
            if value.is_empty() || uid.replace(value).is_some() {
                return Err(CertificateError::Subject { part: "UID" });
            }
        }
    }
    if name.is_empty() {
        return Err(CertificateError::Nameless);
    }
    let credential = format!("X509SHA256={}", fingerprint(certificate));
    let user = User {
        name: name.clone(),
        uid: uid.unwrap_or_default(),
        groups,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![credential])]),
    };
    Ok((user.authenticated(), name))
}

/// The text of an attribute; an error names it as `part`. Only string types with one unambiguous encoding are accepted. Go also accepts
/// two historic types (T.61 and BMP), which are rejected here.
fn text(
    attribute: &AttributeTypeAndValue<'_>,
    part: &'static str,
) -> Result<String, CertificateError> {
    let value = attribute.attr_value();
    let bytes = value.data;
    let is_legal = match value.header.tag() {
        Tag::Utf8String => true,
        Tag::PrintableString => bytes.iter().all(|&byte| is_printable(byte)),
        Tag::Ia5String => bytes.is_ascii(),
        Tag::NumericString => bytes
            .iter()
            .all(|&byte| byte == b' ' || byte.is_ascii_digit()),
        _ => false,
    };
    std::str::from_utf8(bytes)
        .ok()
        .filter(|_| is_legal)
        .map(str::to_owned)
        .ok_or(CertificateError::Subject { part })
}

/// The characters of `PrintableString`, and `*` and `&`, which Go accepts too.
const fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b' ' | b'\''
                | b'('
                | b')'
                | b'+'
                | b','
                | b'-'
                | b'.'
                | b'/'
                | b':'
                | b'='
                | b'?'
                | b'*'
                | b'&'
        )
}

/// The SHA-256 digest of the whole certificate, in hexadecimal digits.
fn fingerprint(certificate: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in digest(&SHA256, certificate).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The key of the extra attribute that identifies the credential of a request, as in the API server.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
