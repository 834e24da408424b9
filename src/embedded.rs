//! The embedded API server: that of the test kit, with the options that settings ask for. `kube-fanout apiserver` runs it, and the demo.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube_fanout_testkit::apiserver::auth::{
    AuthOptions, AuthorizerKind, FrontProxy, TokenFileError, Tokens,
};
use kube_fanout_testkit::apiserver::churn::InvalidObjectCount;
use kube_fanout_testkit::apiserver::kinds::ServedKind;
use kube_fanout_testkit::apiserver::{Options, StartError, start_until};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::net::TcpListener;
use tracing::info;

use crate::config::{
    ApiserverAuth, ApiserverSettings, AuthorizationMode, ExtraKind, ListenTransport,
};
use crate::shutdown::Drain;
use crate::tls::{PairFiles, ServerIdentity, TlsError, TlsFiles};

/// Why `kube-fanout apiserver` did not start. Each message is one line for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum ApiserverError {
    /// The address cannot be bound.
    #[error("--listen {address}")]
    Listen {
        /// The value of `--listen`.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The settings cannot be turned into options.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The server did not start.
    #[error(transparent)]
    Start(#[from] StartError),
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

/// Runs an API server until its drain has ended.
///
/// # Errors
/// [`ApiserverError`] if the server does not start; a running server does not fail.
pub async fn run(settings: ApiserverSettings, drain: Drain) -> Result<(), ApiserverError> {
    let address = settings.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| ApiserverError::Listen { address, source })?;
    let server = start_until(listener, options(&settings)?, drain.begun())?;
    info!(address = %server.address(), "the embedded API server is serving");
    tokio::select! {
        () = server.ended() => {}
        // The server is dropped, which closes what is still open.
        () = drain.expired() => {}
    }
    Ok(())
}

/// The options for these settings. The files that they name are read.
///
/// # Errors
/// See [`OptionsError`].
pub fn options(settings: &ApiserverSettings) -> Result<Options, OptionsError> {
    let auth = settings.auth.as_ref();
    Ok(Options {
        extra_kinds: settings.extra_kinds.iter().map(served_kind).collect(),
        objects: settings
            .objects
            .iter()
            .map(|count| count.to_string().parse())
            .collect::<Result<_, _>>()?,
        object_len: settings.object_len,
        churn_per_second: settings.churn,
        seed: None,
        tls: tls(&settings.transport, auth)?,
        auth: auth.map(auth_options).transpose()?,
    })
}

fn served_kind(kind: &ExtraKind) -> ServedKind {
    let gvr = &kind.gvr;
    ServedKind {
        is_namespaced: kind.namespaced,
        ..ServedKind::custom(&gvr.group, &gvr.version, &gvr.resource, &kind.kind)
    }
}

fn tls(
    transport: &ListenTransport,
    auth: Option<&ApiserverAuth>,
) -> Result<Option<Arc<rustls::ServerConfig>>, OptionsError> {
    let ListenTransport::Tls { cert, key, sni } = transport else {
        return Ok(None);
    };
    let proxy_ca = auth.and_then(|auth| auth.front_proxy.as_ref().map(|(path, _)| path));
    let client_ca = auth.and_then(|auth| auth.client_ca.as_ref());
    let identity = ServerIdentity::read(TlsFiles {
        default: PairFiles {
            cert: cert.clone(),
            key: key.clone(),
        },
        named: sni.clone(),
        client_authorities: [client_ca, proxy_ca]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
    })?;
    Ok(Some(identity.config().load_full()))
}

fn auth_options(settings: &ApiserverAuth) -> Result<AuthOptions, OptionsError> {
    let tokens = match &settings.token_file {
        None => Tokens::default(),
        Some(path) => Tokens::from_file(&read(path)?).map_err(|fault| OptionsError::Tokens {
            path: path.clone(),
            fault,
        })?,
    };
    let front_proxy = match &settings.front_proxy {
        None => None,
        Some((path, allowed_names)) => Some(FrontProxy {
            client_ca: certificates(path)?,
            allowed_names: allowed_names.clone(),
        }),
    };
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
        front_proxy,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) | Err(_) => Err(OptionsError::Certificates { path: path.into() }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, OptionsError> {
    std::fs::read(path).map_err(|source| OptionsError::Read {
        path: path.into(),
        source,
    })
}
