//! Certificates and keys as they stand in files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate, its key or a bundle of authorities cannot be used. Names the file; never shows what it holds.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds nothing of the kind, or something broken.
    #[error("{} holds no usable {what} in PEM", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// They don't belong together, or the key is of an unknown kind.
    #[error("{} and {}: certificate and key cannot be used together", cert.display(), key.display())]
    Mismatch {
        /// The file with the certificate.
        cert: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
    /// A name that no client can ask for.
    #[error(
        "{name:?} is no name of a server: write a DNS name, with * for its first label if need be"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The TLS settings as a whole.
    #[error("TLS settings")]
    Setup(#[from] rustls::Error),
}

/// A serving certificate in force.
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

/// All authorities of some bundles.
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

/// The certificates of a file, at least one.
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
