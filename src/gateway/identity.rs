//! The certificate that the gateway shows to its clients.

use std::io;
use std::path::{Path, PathBuf};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds nothing of the kind.
    #[error("{} holds no usable {what} in PEM", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// They don't belong together, or the key is of an unknown kind.
    #[error("certificate and key cannot be used together")]
    Unusable(#[from] rustls::Error),
}

/// TLS settings with this identity, for HTTP/2 and HTTP/1.1.
pub(super) fn server_config(cert: &Path, key: &Path) -> Result<ServerConfig, IdentityError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| IdentityError::Read {
            path: path.into(),
            source,
        })
    };
    let (cert_pem, key_pem) = (read(cert)?, read(key)?);
    let empty = |path: &Path, what| IdentityError::Empty {
        path: path.into(),
        what,
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert_pem).collect();
    let chain = chain
        .ok()
        .filter(|chain| !chain.is_empty())
        .ok_or_else(|| empty(cert, "certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| empty(key, "private key"))?;
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
