//! Reads certificates, keys and bundles of authorities from PEM files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate, its key or a bundle of authorities cannot be used. The message names the file, and never contains its contents.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file does not contain what it should, or contains invalid PEM.
    #[error("{} contains no usable {what} in PEM format", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// What the file should contain.
        what: &'static str,
    },
    /// Certificate and key do not belong together, or the key's algorithm is unknown.
    #[error("{} and {}: certificate and key cannot be used together", cert.display(), key.display())]
    Mismatch {
        /// Path of the certificate.
        cert: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// A server name that no client can send.
    #[error("{name:?} is not a server name: write a DNS name, whose first label may be *")]
    Name {
        /// The invalid name.
        name: String,
    },
    /// rustls refuses the configuration as a whole.
    #[error("invalid TLS settings")]
    Setup(#[from] rustls::Error),
}

/// Reads a serving certificate and its key.
pub(super) fn certified_key(
    cert: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(cert)?;
    let key_pem = read(key)?;
    let secret = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| TlsError::Content {
        path: key.into(),
        what: "private key",
    })?;
    let certified = CertifiedKey::from_der(chain, secret, provider);
    certified
        .map(Arc::new)
        .map_err(|source| TlsError::Mismatch {
            cert: cert.into(),
            key: key.into(),
            source,
        })
}

/// Reads the authorities of all bundles.
pub(super) fn authorities(bundles: &[PathBuf]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for path in bundles {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|_| TlsError::Content {
                path: path.clone(),
                what: "certificate authority",
            })?;
        }
    }
    Ok(store)
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| TlsError::Content {
            path: path.into(),
            what: "certificate",
        })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.into(),
        source,
    })
}
