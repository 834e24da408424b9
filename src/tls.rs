//! TLS towards clients: the certificates that are shown, and what is asked of clients' own.
//!
//! Files are read again when they change. What cannot be used leaves in force what was; connections that are open are not
//! touched.

mod names;
mod possession;
mod read;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::server::NoClientAuth;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use names::{CertificateResolver, NamedCertificate};
use possession::PossessionVerifier;
pub use read::TlsError;

use crate::config::SniCertificate;

/// The files of a certificate that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// All files that TLS towards clients is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Shown to clients that ask for no name, or for an unknown one.
    pub default: PairFiles,
    /// Shown to clients that ask for a name.
    pub named: Vec<SniCertificate>,
    /// Bundles of authorities that sign clients' certificates. Without any, clients are not asked for one.
    pub client_authorities: Vec<PathBuf>,
}

impl TlsFiles {
    /// Certificates and keys, the default's first.
    fn pairs(&self) -> impl Iterator<Item = (&PathBuf, &PathBuf)> {
        let named = self.named.iter().map(|pair| (&pair.cert, &pair.key));
        std::iter::once((&self.default.cert, &self.default.key)).chain(named)
    }
}

/// TLS settings in force, and the files that they come from.
pub struct ServerIdentity {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    parts: Mutex<TlsParts>,
    config: Arc<ArcSwap<ServerConfig>>,
}

/// What the settings are made of, each replaced apart from the others.
struct TlsParts {
    default: Arc<CertifiedKey>,
    named: Vec<Arc<CertifiedKey>>,
    authorities: RootCertStore,
}

impl ServerIdentity {
    /// Reads all files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let strange = |name: &&String| !names::is_server_name(name);
        if let Some(name) = files
            .named
            .iter()
            .flat_map(|pair| &pair.names)
            .find(strange)
        {
            return Err(TlsError::Name { name: name.clone() });
        }
        let certified = |cert, key| read::certified_key(cert, key, &provider);
        let named = files.named.iter();
        let named = named.map(|pair| certified(&pair.cert, &pair.key));
        let parts = TlsParts {
            default: certified(&files.default.cert, &files.default.key)?,
            named: named.collect::<Result<_, _>>()?,
            authorities: read::authorities(&files.client_authorities)?,
        };
        let config = settings(&files, &parts, &provider)?;
        Ok(Self {
            provider,
            config: Arc::new(ArcSwap::from_pointee(config)),
            parts: Mutex::new(parts),
            files,
        })
    }

    /// Settings for connections to come.
    #[must_use]
    pub fn config(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.config)
    }

    /// Files of certificates and keys that are shown.
    #[must_use]
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let pairs = self.files.pairs();
        pairs
            .flat_map(|(cert, key)| [cert.clone(), key.clone()])
            .collect()
    }

    /// Files of authorities that sign clients' certificates.
    #[must_use]
    pub fn authority_files(&self) -> Vec<PathBuf> {
        self.files.client_authorities.clone()
    }

    /// When the first of the certificates shown expires, in seconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<i64> {
        let parts = self.parts();
        let all = std::iter::once(&parts.default).chain(&parts.named);
        all.filter_map(|certified| names::expiry_of(certified))
            .min()
    }

    /// Reads certificates and keys again. Pairs that cannot be used leave in force what was, whatever the others are.
    ///
    /// # Errors
    /// The first pair that cannot be used.
    pub fn reload_certificates(&self) -> Result<(), TlsError> {
        let mut parts = self.parts();
        let TlsParts { default, named, .. } = &mut *parts;
        let pairs = std::iter::once(default).chain(named);
        let pairs = pairs.zip(self.files.pairs());
        let (mut changed, mut failed) = (false, None);
        for (in_force, (cert, key)) in pairs {
            match read::certified_key(cert, key, &self.provider) {
                Ok(certified) => {
                    changed |= certified.cert != in_force.cert;
                    *in_force = certified;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if changed {
            self.put_in_force(&parts)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reads the authorities of clients again, at whose names the handshake hints.
    ///
    /// # Errors
    /// A bundle cannot be used; all stay as they are.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        let authorities = read::authorities(&self.files.client_authorities)?;
        let mut parts = self.parts();
        if authorities.roots != parts.authorities.roots {
            parts.authorities = authorities;
            self.put_in_force(&parts)?;
        }
        Ok(())
    }

    /// Sessions of the old settings are not resumed: a client that connects from now on sees the new certificate.
    fn put_in_force(&self, parts: &TlsParts) -> Result<(), TlsError> {
        let config = settings(&self.files, parts, &self.provider)?;
        self.config.store(Arc::new(config));
        Ok(())
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, TlsParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settings(
    files: &TlsFiles,
    parts: &TlsParts,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerConfig, TlsError> {
    let pairs = parts.named.iter().zip(&files.named);
    let named: Vec<_> = pairs
        .map(|(certified, pair)| NamedCertificate {
            certified: Arc::clone(certified),
            names: pair
                .names
                .iter()
                .map(|name| name.to_ascii_lowercase())
                .collect(),
        })
        .collect();
    let verifier: Arc<dyn ClientCertVerifier> = if files.client_authorities.is_empty() {
        Arc::new(NoClientAuth)
    } else {
        PossessionVerifier::of(&parts.authorities, provider)
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(CertificateResolver::new(
            Arc::clone(&parts.default),
            &named,
        )));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
pub(crate) mod tests;
