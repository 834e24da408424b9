//! Settings of a port for clients.

use std::path::PathBuf;

/// The protocol below HTTP on a port for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenTransport {
    /// HTTP without TLS.
    PlainHttp,
    /// TLS with these certificates.
    Tls {
        /// Certificate chain, PEM.
        cert: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
        /// Further certificates, chosen by the server name that a client sends (SNI).
        sni: Vec<SniCertificate>,
    },
}

/// A certificate for certain server names (SNI).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniCertificate {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Server names; the first label may be `*`. Empty for the names in the certificate.
    pub names: Vec<String>,
}

impl std::fmt::Display for SniCertificate {
    /// Writes the syntax of `--tls-sni-cert-key`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{}", self.cert.display(), self.key.display())?;
        if self.names.is_empty() {
            return Ok(());
        }
        write!(f, ":{}", self.names.join(","))
    }
}
