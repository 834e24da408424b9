//! The options of a server, and how settings become options: the files that the settings name are read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::auth::{AuthOptions, AuthorizerKind, FrontProxy, TokenFileError, Tokens};
use super::churn::{InitialCount, InvalidObjectCount};
use super::kinds::ServedKind;
use crate::config::{ApiserverAuth, ApiserverSettings, AuthorizationMode, ListenTransport};
use crate::tls::{PairFiles, ServerIdentity, TlsError, TlsFiles};

/// The options of an embedded API server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds that are served in addition to the built-in ones.
    pub extra_kinds: Vec<ServedKind>,
    /// How many objects of each kind the server creates at start; churn changes these objects.
    pub objects: Vec<InitialCount>,
    /// Approximate length of each of these objects, in bytes.
    pub object_len: usize,
    /// Changes per second to these objects; 0 for none.
    pub churn_per_second: u32,
    /// Seed of the objects and changes; random if absent.
    pub seed: Option<u64>,
    /// TLS configuration; plain HTTP if absent.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Authentication and authorization; every request is allowed if absent.
    pub auth: Option<AuthOptions>,
}

/// Why settings cannot be converted to options. Each message is one line for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A count of objects is too large.
    #[error("--objects")]
    Count(#[from] InvalidObjectCount),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A token file cannot be parsed.
    #[error("{}: {fault}", path.display())]
    Tokens {
        /// Path of the file.
        path: PathBuf,
        /// The parser's error; it names the line but does not quote it.
        fault: TokenFileError,
    },
    /// A file contains no certificate, or one that is malformed.
    #[error("{} does not contain PEM certificates", path.display())]
    Certificates {
        /// Path of the file.
        path: PathBuf,
    },
    /// The serving certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl TryFrom<&ApiserverSettings> for Options {
    type Error = OptionsError;

    fn try_from(settings: &ApiserverSettings) -> Result<Self, OptionsError> {
        let objects = settings
            .objects
            .iter()
            .map(|count| count.to_string().parse());
        let auth = settings.auth.as_ref();
        Ok(Self {
            extra_kinds: settings.extra_kinds.iter().map(ServedKind::from).collect(),
            objects: objects.collect::<Result<_, _>>()?,
            object_len: settings.object_len,
            churn_per_second: settings.churn,
            seed: None,
            tls: tls(&settings.transport, auth)?,
            auth: auth.map(auth_options).transpose()?,
        })
    }
}

fn tls(
    transport: &ListenTransport,
    auth: Option<&ApiserverAuth>,
) -> Result<Option<Arc<rustls::ServerConfig>>, OptionsError> {
    let ListenTransport::Tls { cert, key, sni } = transport else {
        return Ok(None);
    };
    let (client, proxy) = auth.map_or((None, None), |auth| {
        let proxy = auth.front_proxy.as_ref().map(|(path, _)| path);
        (auth.client_ca.as_ref(), proxy)
    });
    let identity = ServerIdentity::read(TlsFiles {
        default: PairFiles {
            cert: cert.clone(),
            key: key.clone(),
        },
        named: sni.clone(),
        client_authorities: [client, proxy].into_iter().flatten().cloned().collect(),
    })?;
    Ok(Some(identity.config().load_full()))
}

fn auth_options(settings: &ApiserverAuth) -> Result<AuthOptions, OptionsError> {
    let tokens = match &settings.token_file {
        None => Tokens::default(),
        Some(path) => {
            let text = read(path)?;
            Tokens::from_file(&text).map_err(|fault| OptionsError::Tokens {
                path: path.clone(),
                fault,
            })?
        }
    };
    let front_proxy = settings.front_proxy.as_ref();
    let front_proxy = front_proxy.map(|(path, allowed_names)| {
        Ok::<_, OptionsError>(FrontProxy {
            client_ca: certificates(path)?,
            allowed_names: allowed_names.clone(),
        })
    });
    Ok(AuthOptions {
        tokens,
        anonymous: settings.anonymous,
        authorization: match settings.authorization {
            AuthorizationMode::AlwaysAllow => AuthorizerKind::AlwaysAllow,
            AuthorizationMode::Rbac => AuthorizerKind::Rbac,
        },
        audiences: settings.audiences.clone(),
        client_ca: match &settings.client_ca {
            None => Vec::new(),
            Some(path) => certificates(path)?,
        },
        front_proxy: front_proxy.transpose()?,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.unwrap_or_default();
    if certificates.is_empty() {
        return Err(OptionsError::Certificates { path: path.into() });
    }
    Ok(certificates)
}

fn read(path: &Path) -> Result<Vec<u8>, OptionsError> {
    std::fs::read(path).map_err(|source| OptionsError::Read {
        path: path.into(),
        source,
    })
}
