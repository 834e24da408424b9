//! Where the API server is and how the gateway authenticates there: a kubeconfig file, a service account, or a plain
//! address.

use std::io;
use std::path::{Path, PathBuf};

use http::Uri;
use kube_client::Config;
use kube_client::config::{Cluster, InClusterError, Kubeconfig, KubeconfigError};
use thiserror::Error;

use super::endpoint_table::ENDPOINTS_MAX;

/// Where address and credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectSource {
    /// A kubeconfig file.
    Kubeconfig {
        /// The file. Relative paths in it are relative to its folder.
        path: PathBuf,
        /// The context to use instead of the file's current one.
        context: Option<String>,
    },
    /// The service account mounted into the pod.
    InCluster,
    /// An address without credentials: a plain API server, or another gateway.
    Url {
        /// `http` or `https`, with a host. Its path is put before all request paths.
        url: Uri,
        /// PEM bundle of the certificate authorities to trust instead of the system's. It is read again when it changes.
        ca_file: Option<PathBuf>,
    },
    /// Another gateway, from which caches are taken over.
    Peer {
        /// `http` or `https`, with the address of one gateway.
        url: Uri,
        /// PEM bundle of the certificate authorities to trust instead of the system's.
        ca_file: Option<PathBuf>,
        /// The name to verify the gateway's certificate against.
        server_name: String,
        /// File with a bearer token.
        token_file: Option<PathBuf>,
    },
}

impl ConnectSource {
    /// The current context of a kubeconfig file.
    #[must_use]
    pub fn kubeconfig(path: impl Into<PathBuf>) -> Self {
        Self::Kubeconfig {
            path: path.into(),
            context: None,
        }
    }

    /// An address. For `https`, the system's certificate authorities are trusted.
    ///
    /// # Errors
    /// The text is not a URL. Whether it can be the address of an API server is checked when connecting.
    pub fn url(text: &str) -> Result<Self, ConnectError> {
        let url = text.parse().map_err(|_| ConnectError::NoUrl {
            text: text.to_owned(),
        })?;
        Ok(Self::Url { url, ca_file: None })
    }

    /// Reads files and environment. Also returns which files were read. Blocks.
    pub(super) fn read(&self) -> Result<(Config, Vec<PathBuf>), ConnectError> {
        let mut files = Vec::new();
        let config = match self {
            Self::Kubeconfig { path, context } => {
                files.push(path.clone());
                let (config, authority) = read_kubeconfig(path, context.as_deref())?;
                files.extend(authority);
                config
            }
            Self::InCluster => Config::incluster().map_err(ConnectError::in_cluster)?,
            Self::Url { url, ca_file } => config_for(url, ca_file.as_deref())?,
            Self::Peer {
                url,
                ca_file,
                server_name,
                token_file,
            } => {
                let mut config = config_for(url, ca_file.as_deref())?;
                config.tls_server_name = Some(server_name.clone());
                config.auth_info.token_file = token_file
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned());
                config
            }
        };
        check_url(&config.cluster_url)?;
        files.extend(config.root_cert_file.clone());
        let auth = &config.auth_info;
        let named = [&auth.client_certificate, &auth.client_key, &auth.token_file];
        files.extend(named.into_iter().flatten().map(PathBuf::from));
        Ok((config, files))
    }
}

/// The URL without what may be secret: a user with a password, and the values of a query.
fn shown(url: &Uri) -> String {
    let scheme = url
        .scheme_str()
        .map_or_else(String::new, |scheme| format!("{scheme}://"));
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let query = url.query().map_or("", |_| "?…");
    format!("{scheme}{host}{}{query}", url.path())
}

fn check_url(url: &Uri) -> Result<(), ConnectError> {
    let is_known_scheme = matches!(url.scheme_str(), Some("http" | "https"));
    if !is_known_scheme || url.host().is_none_or(str::is_empty) || url.query().is_some() {
        return Err(ConnectError::BadUrl { url: url.clone() });
    }
    Ok(())
}

/// Checks the addresses of several API servers.
pub(super) fn check_servers(servers: &[Uri]) -> Result<(), ConnectError> {
    servers.iter().try_for_each(check_url)?;
    let Some(first) = servers.first() else {
        return Ok(());
    };
    let is_mixed = servers.iter().any(|url| url.scheme() != first.scheme());
    if is_mixed || servers.len() > ENDPOINTS_MAX {
        return Err(ConnectError::BadServers);
    }
    Ok(())
}

/// Why there is no usable configuration. Every message is a single line that is complete in itself.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig or a file it names cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not YAML, or not a kubeconfig.
    #[error("{} is not a kubeconfig: {reason}", path.display())]
    Malformed {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The kubeconfig has no context of this name.
    #[error("{} has no context {context:?}, only {known}", path.display())]
    UnknownContext {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The requested context.
        context: String,
        /// The existing contexts, separated by commas.
        known: String,
    },
    /// Neither the settings nor the file name a context.
    #[error("{} names no current context: choose one of {known}", path.display())]
    NoContext {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The existing contexts, separated by commas.
        known: String,
    },
    /// The context refers to something that is missing or unusable.
    #[error("{} is incomplete: {reason}", path.display())]
    Incomplete {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// What is missing, in one line.
        reason: String,
    },
    /// Proxies between gateway and API server are not supported.
    #[error("{} sets proxy-url for cluster {cluster:?}, which is not supported", path.display())]
    Proxied {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// Its name in the kubeconfig.
        cluster: String,
    },
    /// Not running in a pod, or its service account is not mounted.
    #[error("no in-cluster configuration: {reason}")]
    NotInCluster {
        /// What is missing, in one line.
        reason: String,
    },
    /// The address has no host, or a scheme other than http and https, or a query.
    #[error(
        "{} is not an API server address: expected http://host:port or https://host:port",
        shown(url)
    )]
    BadUrl {
        /// As configured; a password in it is not shown.
        url: Uri,
    },
    /// More API servers than are supported, or both `http` and `https`.
    #[error("expected at most {ENDPOINTS_MAX} API servers, all with http or all with https")]
    BadServers,
    /// The text is not a URL.
    #[error("{text:?} is not a URL: expected http://host:port or https://host:port")]
    NoUrl {
        /// As configured.
        text: String,
    },
    /// The bundle of certificate authorities is unusable.
    #[error("unusable certificate authority: {reason}")]
    BadAuthority {
        /// What is wrong with it.
        reason: String,
    },
    /// The client certificate or its key is unusable.
    #[error("unusable client certificate or key: {reason}")]
    BadClientCertificate {
        /// What is wrong with it.
        reason: String,
    },
    /// `tls-server-name` is not a DNS name or IP address.
    #[error("tls-server-name {name:?} is neither a DNS name nor an IP address")]
    BadServerName {
        /// As configured.
        name: String,
    },
    /// The token file cannot be read, or the exec plugin failed.
    #[error("cannot get credentials: {reason}")]
    Credentials {
        /// What failed, with the plugin's name if it was a plugin.
        reason: String,
    },
    /// The reading task ended early.
    #[error("reading the configuration was interrupted")]
    Interrupted,
}

impl ConnectError {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "shaped for map_err; the error ends here"
    )]
    fn in_cluster(error: InClusterError) -> Self {
        Self::NotInCluster {
            reason: one_line(&error),
        }
    }

    fn from_kubeconfig(path: &Path, error: KubeconfigError) -> Self {
        let path = path.to_owned();
        let reason = one_line(&error);
        match error {
            KubeconfigError::ReadConfig(source, path) => Self::Unreadable { path, source },
            KubeconfigError::Parse(_)
            | KubeconfigError::KindMismatch
            | KubeconfigError::ApiVersionMismatch => Self::Malformed { path, reason },
            KubeconfigError::LoadCertificateAuthority(_)
            | KubeconfigError::ParseCertificates(_) => Self::BadAuthority { reason },
            KubeconfigError::LoadClientCertificate(_) | KubeconfigError::LoadClientKey(_) => {
                Self::BadClientCertificate { reason }
            }
            KubeconfigError::CurrentContextNotSet
            | KubeconfigError::LoadContext(_)
            | KubeconfigError::LoadClusterOfContext(_)
            | KubeconfigError::FindPath
            | KubeconfigError::MissingClusterUrl
            | KubeconfigError::ParseClusterUrl(_)
            | KubeconfigError::ParseProxyUrl(_) => Self::Incomplete { path, reason },
        }
    }
}

/// Reads a kubeconfig file. Also returns the file with the certificate authorities of its cluster, if there is one.
fn read_kubeconfig(
    path: &Path,
    context: Option<&str>,
) -> Result<(Config, Option<PathBuf>), ConnectError> {
    let invalid = |error| ConnectError::from_kubeconfig(path, error);
    refuse_half_characters(path)?;
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
    if let Some(context) = context {
        kubeconfig.current_context = Some(context.to_owned());
    }
    let cluster = check_context(path, &kubeconfig)?;
    let authority = cluster
        .and_then(|cluster| cluster.certificate_authority.as_ref())
        .map(PathBuf::from);
    let config = Config::try_from(kubeconfig).map_err(invalid)?;
    Ok((config, authority))
}

/// Refuses a file that starts as UTF-16 and ends with half a character: kube-client would panic.
fn refuse_half_characters(path: &Path) -> Result<(), ConnectError> {
    let bytes = std::fs::read(path).map_err(|source| ConnectError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    if is_utf16 && !bytes.len().is_multiple_of(2) {
        return Err(ConnectError::Malformed {
            path: path.to_owned(),
            reason: "it starts as UTF-16 but has an odd number of bytes".to_owned(),
        });
    }
    Ok(())
}

fn context_names(kubeconfig: &Kubeconfig) -> String {
    kubeconfig
        .contexts
        .iter()
        .map(|known| known.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Refuses what kube-client would accept or would report less clearly. Returns the context's cluster.
fn check_context<'a>(
    path: &Path,
    kubeconfig: &'a Kubeconfig,
) -> Result<Option<&'a Cluster>, ConnectError> {
    let Some(requested) = kubeconfig
        .current_context
        .as_deref()
        .filter(|name| !name.is_empty())
    else {
        return Err(ConnectError::NoContext {
            path: path.to_owned(),
            known: context_names(kubeconfig),
        });
    };
    let Some(context) = kubeconfig
        .contexts
        .iter()
        .find(|known| known.name == requested)
    else {
        return Err(ConnectError::UnknownContext {
            path: path.to_owned(),
            context: requested.to_owned(),
            known: context_names(kubeconfig),
        });
    };
    let cluster_name = context
        .context
        .as_ref()
        .map_or("", |context| &context.cluster);
    let cluster = kubeconfig
        .clusters
        .iter()
        .find(|known| known.name == cluster_name)
        .and_then(|named| named.cluster.as_ref());
    let proxy = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
    // Connecting without the configured proxy would be worse than not starting.
    if proxy.is_some_and(|proxy| !proxy.is_empty()) {
        return Err(ConnectError::Proxied {
            path: path.to_owned(),
            cluster: cluster_name.to_owned(),
        });
    }
    Ok(cluster)
}

/// The configuration for a server at this URL, without credentials.
fn config_for(url: &Uri, ca_file: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = Config::new(url.clone());
    if let Some(path) = ca_file {
        config.root_cert = Some(read_authorities(path)?);
        config.root_cert_file = Some(path.to_owned());
    }
    Ok(config)
}

fn read_authorities(path: &Path) -> Result<Vec<Vec<u8>>, ConnectError> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    let pem = std::fs::read(path).map_err(|source| ConnectError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let bad = |reason: String| ConnectError::BadAuthority {
        reason: format!("{}: {reason}", path.display()),
    };
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(error.to_string()))?;
    if certificates.is_empty() {
        return Err(bad("no certificate in it".to_owned()));
    }
    Ok(certificates)
}

/// The first line of an error. YAML errors continue with an excerpt of the file, which may contain secrets.
fn one_line(error: &dyn std::error::Error) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}
