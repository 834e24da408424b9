//! Why a client certificate is refused.

/// Why a certificate is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The chain has more certificates, or more bytes, than the bounds allow.
    #[error("the certificate chain is too long")]
    TooLong,
    /// It, or another certificate of its chain, cannot be parsed.
    #[error("not an X.509 certificate")]
    Malformed,
    /// It does not chain to an authority, has expired, is not yet valid, or is not for client authentication.
    #[error("the certificate cannot be verified: {reason}")]
    Untrusted {
        /// The verifier's message.
        reason: String,
    },
    /// Its subject has an attribute that cannot be decoded, or is ambiguous.
    #[error("the certificate's subject has no usable {part}")]
    Subject {
        /// `CN`, `O` or `UID`.
        part: &'static str,
    },
    /// Its subject has no common name.
    #[error("the certificate's subject has no common name")]
    Nameless,
}
