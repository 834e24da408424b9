//! The parts of a connection to an API server, for checks that make one step after the other and report each.

use std::sync::Arc;

use http::Uri;
use kube_client::Config;
use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::secrets::{self, PluginUse};
use super::source::{self, ConnectError, ConnectSource};
use super::{ClientStack, client_tls, transport};
use crate::blocking::spawn_blocking;

/// What a client connects to and with.
pub struct ConnectionParts {
    /// The API servers, at least one.
    pub servers: Vec<Uri>,
    /// Authorities that are trusted, and the client's certificate.
    pub tls: Arc<ClientConfig>,
    /// The name to verify certificates against, if it is not the server's host.
    pub server_name: Option<String>,
    /// Whether any certificate is accepted (`insecure-skip-tls-verify`).
    pub is_unverified: bool,
    /// The client's own certificate, DER.
    pub certificate: Option<Vec<u8>>,
    /// Whether requests carry a credential of any kind.
    pub has_credentials: bool,
    /// Whether a plugin issues the credentials, and new ones before they expire.
    pub is_by_plugin: bool,
    /// When the credentials expire, in seconds since 1970, if they say.
    pub expires_at: Option<i64>,
}

impl ConnectSource {
    /// Reads configuration and credentials as [`super::Client::connect_to`] does, which must be given the same servers.
    ///
    /// # Errors
    /// The configuration or the credentials cannot be used.
    pub async fn parts(&self, servers: Vec<Uri>) -> Result<ConnectionParts, ConnectError> {
        source::check_servers(&servers)?;
        parts_of(self.read_config().await?, servers).await
    }

    /// Does what [`super::Client::connect_to`] does, but runs no plugin.
    ///
    /// # Errors
    /// Those of [`super::Client::connect_to`].
    pub async fn check(&self, servers: Vec<Uri>) -> Result<(), ConnectError> {
        source::check_servers(&servers)?;
        let stack = ClientStack::load(self.clone(), servers, None, PluginUse::Find);
        stack.await.map(drop)
    }

    async fn read_config(&self) -> Result<Config, ConnectError> {
        let this = self.clone();
        let read = spawn_blocking(move || this.read());
        let (config, _) = read.await.map_err(|_| ConnectError::Interrupted)??;
        Ok(config)
    }
}

async fn parts_of(
    mut config: Config,
    mut servers: Vec<Uri>,
) -> Result<ConnectionParts, ConnectError> {
    let expiry = secrets::resolve(&mut config, PluginUse::Run).await?;
    let building = spawn_blocking(move || {
        transport::install_crypto_provider();
        let pem = secrets::certificate(&config.auth_info)?;
        let expiry = expiry.with_certificate(pem.as_deref());
        let certificate = pem.and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
        let auth = &config.auth_info;
        let has_credentials =
            certificate.is_some() || auth.token.is_some() || auth.username.is_some();
        if servers.is_empty() {
            servers.push(config.cluster_url.clone());
        }
        let tls = client_tls::client_config(&config, &servers[0])?;
        Ok(ConnectionParts {
            servers,
            tls: Arc::new(tls),
            server_name: config.tls_server_name.clone(),
            is_unverified: config.accept_invalid_certs,
            certificate: certificate.map(|der| der.to_vec()),
            has_credentials,
            is_by_plugin: expiry.is_by_plugin(),
            expires_at: expiry.at(),
        })
    });
    building.await.map_err(|_| ConnectError::Interrupted)?
}
