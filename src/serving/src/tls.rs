//! TLS towards clients: serving certificates, and the request for client certificates.
//!
//! [`ServerIdentity`] holds the rustls configuration and reloads it from files. A file that cannot be used leaves the previous
//! configuration in force, and open connections are not affected. `names` chooses the certificate by the server name (SNI), `possession`
//! checks client certificates in the handshake, and `read` parses files.

mod names;
mod possession;
mod read;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use names::{CertificateResolver, NamedCertificate};
use parking_lot::Mutex;
use possession::PossessionVerifier;
pub use read::TlsError;

use crate::config::{ListenTransport, ServeSettings, SniCertificate};

/// The files of a serving certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// Certificate chain, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
}

/// All files from which TLS towards clients is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate for clients that send no server name, or an unknown one.
    pub default: PairFiles,
    /// Certificates for certain server names.
    pub named: Vec<SniCertificate>,
    /// Bundles of authorities of client certificates. If there are none, the handshake requests no client certificate.
    pub client_authorities: Vec<PathBuf>,
}

impl TlsFiles {
    /// The files that the gateway's settings name; `None` if it serves plain HTTP.
    #[must_use]
    pub fn of(settings: &ServeSettings) -> Option<Self> {
        let ListenTransport::Tls { cert, key, sni } = &settings.transport else {
            return None;
        };
        let front_proxy = settings.auth.front_proxy.as_ref();
        let authorities = [
            settings.auth.client_ca.as_ref(),
            front_proxy.map(|proxy| &proxy.client_ca),
        ];
        Some(Self {
            default: PairFiles {
                cert: cert.clone(),
                key: key.clone(),
            },
            named: sni.clone(),
            client_authorities: authorities.into_iter().flatten().cloned().collect(),
        })
    }

    /// Pairs of certificate and key, the default pair first.
    fn pairs(&self) -> impl Iterator<Item = (&PathBuf, &PathBuf)> {
        let named = self.named.iter().map(|pair| (&pair.cert, &pair.key));
        std::iter::once((&self.default.cert, &self.default.key)).chain(named)
    }
}

/// The TLS configuration in force, and the files that it comes from.
pub struct ServerIdentity {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    parts: Mutex<TlsParts>,
    config: Arc<ArcSwap<ServerConfig>>,
}

/// The parts of the configuration, which are reloaded independently.
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
        let is_invalid = |name: &&String| !names::is_server_name(name);
        if let Some(name) = files
            .named
            .iter()
            .flat_map(|pair| &pair.names)
            .find(is_invalid)
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
        let config = server_config(&files, &parts, &provider)?;
        Ok(Self {
            provider,
            config: Arc::new(ArcSwap::from_pointee(config)),
            parts: Mutex::new(parts),
            files,
        })
    }

    /// The configuration for new connections. It is replaced when files change.
    #[must_use]
    pub fn config(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.config)
    }

    /// The files of serving certificates and their keys.
    #[must_use]
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let pairs = self.files.pairs();
        pairs
            .flat_map(|(cert, key)| [cert.clone(), key.clone()])
            .collect()
    }

    /// The bundles of authorities of client certificates.
    #[must_use]
    pub fn authority_files(&self) -> Vec<PathBuf> {
        self.files.client_authorities.clone()
    }

    /// The certificate, DER, for clients that connect to this host. Clients send names, but no addresses.
    #[must_use]
    pub fn certificate_for(&self, host: &str) -> Option<Vec<u8>> {
        let is_address = host.parse::<IpAddr>().is_ok();
        let name = Some(host.trim_end_matches('.')).filter(|_| !is_address);
        let resolver = resolver(&self.files, &self.parts());
        let der = resolver.certified(name).end_entity_cert().ok()?;
        Some(der.to_vec())
    }

    /// The earliest expiry of the serving certificates, in seconds since 1970.
    #[must_use]
    pub fn expires_at(&self) -> Option<i64> {
        let parts = self.parts();
        let all = std::iter::once(&parts.default).chain(&parts.named);
        all.filter_map(|certified| names::expiry_of(certified))
            .min()
    }

    /// Reloads certificates and keys. A pair that cannot be used stays as it was; the others are replaced.
    ///
    /// # Errors
    /// The first pair that cannot be used.
    pub fn reload_certificates(&self) -> Result<(), TlsError> {
        let mut parts = self.parts();
        let TlsParts { default, named, .. } = &mut *parts;
        let pairs = std::iter::once(default).chain(named);
        let pairs = pairs.zip(self.files.pairs());
        let (mut changed, mut failed) = (false, None);
        for (current, (cert, key)) in pairs {
            match read::certified_key(cert, key, &self.provider) {
                Ok(certified) => {
                    changed |= certified.cert != current.cert;
                    *current = certified;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if changed {
            self.apply(&parts)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// Reloads the authorities of client certificates, whose names the handshake sends to clients as hints.
    ///
    /// # Errors
    /// If a bundle cannot be used; all authorities stay as they were.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        let authorities = read::authorities(&self.files.client_authorities)?;
        let mut parts = self.parts();
        if authorities.roots != parts.authorities.roots {
            parts.authorities = authorities;
            self.apply(&parts)?;
        }
        Ok(())
    }

    /// Replaces the configuration. Sessions of the old one are not resumed, so every new connection gets the new certificate.
    fn apply(&self, parts: &TlsParts) -> Result<(), TlsError> {
        let config = server_config(&self.files, parts, &self.provider)?;
        self.config.store(Arc::new(config));
        Ok(())
    }

    fn parts(&self) -> parking_lot::MutexGuard<'_, TlsParts> {
        self.parts.lock()
    }
}

fn server_config(
    files: &TlsFiles,
    parts: &TlsParts,
    provider: &Arc<CryptoProvider>,
) -> Result<ServerConfig, TlsError> {
    let verifier: Arc<dyn ClientCertVerifier> = if files.client_authorities.is_empty() {
        Arc::new(NoClientAuth)
    } else {
        PossessionVerifier::of(&parts.authorities, provider)
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(resolver(files, parts)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A session is resumed with what its client keeps: however many clients come back at once, here is nothing to keep for them. The key
    // is this configuration's own.
    config.ticketer = Ticketer::new()?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(config)
}

fn resolver(files: &TlsFiles, parts: &TlsParts) -> CertificateResolver {
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
    CertificateResolver::new(Arc::clone(&parts.default), &named)
}

#[cfg(test)]
pub(crate) mod tests;
