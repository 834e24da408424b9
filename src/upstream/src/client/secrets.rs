//! Resolves the credentials that a configuration refers to: token files and exec plugins become tokens and certificates.

use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use kube_client::Config;
use kube_client::config::AuthInfo;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use secrecy::ExposeSecret;

use super::{ConnectError, exec};

/// Credentials are renewed when a fifth of their lifetime is left, but at most this long before they expire.
const RENEWAL_MARGIN_MAX: Duration = Duration::from_secs(300);

/// When credentials expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expiry {
    read_at: Timestamp,
    at: Option<Timestamp>,
    /// Whether an exec plugin issued them. Only running it again yields newer ones, so a timer is needed; files are watched
    /// for changes.
    by_plugin: bool,
}

impl Expiry {
    /// In seconds since 1970.
    pub(super) fn at(self) -> Option<i64> {
        self.at.map(Timestamp::as_second)
    }

    pub(super) const fn is_by_plugin(self) -> bool {
        self.by_plugin
    }

    pub(super) fn renewal_in(self, now: Timestamp) -> Option<Duration> {
        let at = self.at.filter(|_| self.by_plugin)?;
        let margin = (time_until(at, self.read_at) / 5).min(RENEWAL_MARGIN_MAX);
        Some(time_until(at, now).saturating_sub(margin))
    }

    /// The earlier of the known expiry and the end of the certificate's validity.
    pub(super) fn with_certificate(self, certificate: Option<&[u8]>) -> Self {
        let not_after = certificate.and_then(not_after);
        let at = [self.at, not_after].into_iter().flatten().min();
        Self { at, ..self }
    }
}

fn time_until(at: Timestamp, from: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(from)).unwrap_or_default()
}

/// What is done with programs that issue credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PluginUse {
    /// They are run.
    Run,
    /// They are only looked for: they could ask the network, or a person.
    #[cfg(feature = "gateway")]
    Find,
}

/// Replaces references to credentials, such as a token file, by the credentials themselves.
pub(super) async fn resolve(
    config: &mut Config,
    plugins: PluginUse,
) -> Result<Expiry, ConnectError> {
    let auth = &mut config.auth_info;
    let mut expiry = Expiry {
        read_at: Timestamp::now(),
        at: None,
        by_plugin: false,
    };
    if auth.auth_provider.is_some() {
        return Err(ConnectError::Credentials {
            reason: "auth-provider is not supported, as in kubectl since 1.26: use an exec plugin"
                .to_owned(),
        });
    }
    let is_basic = auth.username.is_some() && auth.password.is_some();
    if is_basic {
        return Ok(expiry);
    }
    if let Some(path) = auth.token_file.take() {
        match tokio::fs::read_to_string(&path).await {
            // Editors and shells end files with a newline.
            Ok(token) if !token.trim().is_empty() => auth.token = Some(token.trim().into()),
            outcome => {
                let reason = match outcome {
                    Ok(_) => "it is empty".to_owned(),
                    Err(error) => error.to_string(),
                };
                let reason = format!("token file {path}: {reason}");
                return Err(ConnectError::Credentials { reason });
            }
        }
    }
    let plugin = auth.exec.take();
    if let (Some(plugin), None) = (plugin, &auth.token) {
        let issued = match plugins {
            PluginUse::Run => exec::run(&plugin).await?,
            #[cfg(feature = "gateway")]
            PluginUse::Find => {
                exec::find(&plugin)?;
                return Ok(expiry);
            }
        };
        if let Some((cert, key)) = issued.identity() {
            auth.client_certificate_data = Some(BASE64.encode(cert));
            auth.client_key_data = Some(BASE64.encode(key).into());
        }
        expiry.at = issued.expires_at();
        expiry.by_plugin = true;
        auth.token = issued.token.map(Into::into);
    }
    Ok(expiry)
}

/// Returns the configured client certificate, PEM. Blocks.
pub(super) fn certificate(auth: &AuthInfo) -> Result<Option<Vec<u8>>, ConnectError> {
    pem(
        auth.client_certificate_data.as_deref(),
        auth.client_certificate.as_deref(),
    )
}

/// Returns the key of the client certificate, PEM. Blocks.
pub(super) fn key(auth: &AuthInfo) -> Result<Option<Vec<u8>>, ConnectError> {
    let data = auth.client_key_data.as_ref();
    pem(
        data.map(ExposeSecret::expose_secret),
        auth.client_key.as_deref(),
    )
}

fn pem(data: Option<&str>, path: Option<&str>) -> Result<Option<Vec<u8>>, ConnectError> {
    match (data, path) {
        (Some(data), _) => match BASE64.decode(data) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) => Err(ConnectError::BadClientCertificate {
                reason: error.to_string(),
            }),
        },
        (None, Some(path)) => match std::fs::read(path) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) => Err(ConnectError::BadClientCertificate {
                reason: format!("cannot read {path}: {error}"),
            }),
        },
        (None, None) => Ok(None),
    }
}

fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Identifies the settings that connections depend on: connections with equal keys are interchangeable. The certificate
/// stands for its private key, because no other key fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransportKey([u8; 32]);

impl TransportKey {
    pub(super) fn of(config: &Config, certificate: Option<Vec<u8>>) -> Self {
        let mut hash = Context::new(&SHA256);
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(config.cluster_url.to_string().as_bytes());
        add(&[u8::from(config.accept_invalid_certs)]);
        add(config
            .tls_server_name
            .as_deref()
            .unwrap_or_default()
            .as_bytes());
        add(&certificate.unwrap_or_default());
        add(&[u8::from(config.root_cert.is_some())]);
        for authority in config.root_cert.iter().flatten() {
            add(authority);
        }
        let mut key = [0; 32];
        key.copy_from_slice(hash.finish().as_ref());
        Self(key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::credentials::Credentials;

    fn expiry(life: i64, by_plugin: bool) -> Expiry {
        let read_at = Timestamp::from_second(1_000_000).unwrap();
        Expiry {
            read_at,
            at: Some(Timestamp::from_second(1_000_000 + life).unwrap()),
            by_plugin,
        }
    }

    #[test]
    fn a_plugin_is_asked_again_before_its_credentials_expire() {
        let due = |life, passed: i64| {
            let now = Timestamp::from_second(1_000_000 + passed).unwrap();
            expiry(life, true).renewal_in(now).unwrap().as_secs()
        };
        assert_eq!(due(100, 0), 80);
        assert_eq!(due(100, 79), 1);
        assert_eq!(due(100, 80), 0);
        assert_eq!(due(100, 1_000), 0);
        assert_eq!(due(3_600, 0), 3_300);
        assert_eq!(due(-5, 0), 0, "expired already when it was read");
        let now = Timestamp::from_second(1_000_000).unwrap();
        assert_eq!(expiry(100, false).renewal_in(now), None);
        let endless = Expiry {
            at: None,
            ..expiry(0, true)
        };
        assert_eq!(endless.renewal_in(now), None);
    }

    #[tokio::test]
    async fn a_token_that_no_header_can_hold_is_refused_and_not_shown() {
        let plugin = r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"SECRET\\n"}}'"#;
        let rows = [
            json!({"token": "SECRET\n"}),
            json!({"token": "SECRET\u{7f}"}),
            json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh",
                "args": ["-c", plugin],
                "interactiveMode": "Never",
            }}),
        ];
        for row in rows {
            let mut config = Config::new("https://localhost".parse().unwrap());
            config.auth_info = serde_json::from_value(row.clone()).unwrap();
            resolve(&mut config, PluginUse::Run).await.unwrap();
            let credentials = Credentials::new(&config.auth_info);
            let error = credentials.err().unwrap().to_string();
            assert!(error.contains("such as a newline"), "{row}: {error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_auth_provider_is_refused_and_its_token_not_shown() {
        let mut config = Config::new("https://localhost".parse().unwrap());
        let provider = json!({"name": "oidc", "config": {"id-token": "SECRET"}});
        config.auth_info = serde_json::from_value(json!({"auth-provider": provider})).unwrap();
        let resolved = resolve(&mut config, PluginUse::Run).await;
        let error = resolved.unwrap_err().to_string();
        assert!(error.contains("auth-provider is not supported"), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
    }

    #[test]
    fn the_earlier_end_counts() {
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2001, 9, 9);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let end = 999_993_600;
        let far = expiry(2_000_000_000, true).with_certificate(Some(pem.as_bytes()));
        assert_eq!(far.at(), Some(end));
        let near = expiry(1, true).with_certificate(Some(pem.as_bytes()));
        assert_eq!(near.at(), Some(1_000_001));
        assert_eq!(
            expiry(1, true).with_certificate(Some(b"x")).at(),
            Some(1_000_001)
        );
    }
}
