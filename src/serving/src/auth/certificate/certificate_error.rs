//! Why a client certificate is refused.

/// Why a certificate is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The chain has more certificates, more bytes, or more intermediate certificates that could be part of a path than the bounds allow.
    #[error("the certificate chain is too long")]
    TooLong,
    /// It, or another certificate of its chain, cannot be parsed.
    #[error("not an X.509 certificate")]
    Malformed,
    /// No valid path leads from it to an authority, or it has expired, is not yet valid, or is not for client authentication.
    #[error("the certificate is not valid now for clients, or no authority has signed it")]
    Untrusted,
    /// Too many other chains wait to be verified.
    #[error("the certificate could not be verified: too many others wait")]
    Busy,
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
