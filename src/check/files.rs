//! Checks of certificates and credentials: their names, and how long they are valid.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::catalogue as checks;
use super::certificates::{
    CertificateFacts, authorities_verdict, credentials_verdict, expiry_verdict, names_verdict,
};
use super::checklist::Checklist;
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use crate::blocking::spawn_blocking;
use crate::config::{CheckCategory, CheckSettings};
use crate::error_chain::one_line;
use crate::tls::{ServerIdentity, TlsFiles};
use crate::upstream::client::ConnectionParts;

/// A bundle of all public authorities has a few hundred kilobytes.
const FILE_LEN_MAX: u64 = 4 << 20;

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// The certificates that checks have found, with where they come from.
type Certificates = Vec<(String, CertificateFacts)>;

/// Checks certificates in files, and those that the API servers have shown.
pub(super) async fn check(
    list: &mut Checklist<'_>,
    settings: &CheckSettings,
    link: Option<&UpstreamLink>,
) {
    if !list.is_chosen(CheckCategory::Certificates) {
        return;
    }
    list.make(&checks::SERVING_NAMES, names(settings)).await;
    list.make(&checks::CERTIFICATE_EXPIRY, expiry(settings, link))
        .await;
}

/// Whether clients get certificates with the names that they use.
async fn names(settings: &CheckSettings) -> CheckVerdict {
    let Some(files) = TlsFiles::of(&settings.serve) else {
        return CheckVerdict::skipped("the gateway serves plain HTTP");
    };
    let certificates = serving(&files).await;
    // Authorities of clients are checked with `expiry`.
    let files = TlsFiles {
        client_authorities: Vec::new(),
        ..files
    };
    match spawn_blocking(move || ServerIdentity::read(files)).await {
        Ok(Ok(identity)) => {
            let served = settings.client_names.iter().filter_map(|name| {
                let der = identity.certificate_for(name)?;
                Some((name.clone(), CertificateFacts::read(&der)?))
            });
            names_verdict(&certificates, &served.collect::<Certificates>())
        }
        Ok(Err(error)) => CheckVerdict::skipped(format!(
            "certificate and key cannot be used: {}",
            one_line(&error)
        )),
        Err(error) => CheckVerdict::skipped(error.to_string()),
    }
}

/// The first certificate of each file. Files that cannot be read are left out: the check of the settings reports them.
async fn serving(files: &TlsFiles) -> Certificates {
    let mut certificates = Vec::new();
    let named = files.named.iter().map(|pair| &pair.cert);
    for path in std::iter::once(&files.default.cert).chain(named) {
        let read = read_certificates(path.clone()).await.unwrap_or_default();
        let first = read.into_iter().next();
        certificates.extend(first.map(|facts| (path.display().to_string(), facts)));
    }
    certificates
}

/// Whether everything that expires stays valid for a while.
async fn expiry(settings: &CheckSettings, link: Option<&UpstreamLink>) -> CheckVerdict {
    let mut verdicts = Vec::new();
    if let Some(files) = TlsFiles::of(&settings.serve) {
        let hint = "issue a new certificate; the gateway reads the files again when they change";
        verdicts.push(expiry_verdict(&serving(&files).await, now(), hint));
    }
    let auth = &settings.serve.auth;
    if let Some(path) = &auth.client_ca {
        verdicts.push(authorities("--client-ca-file", path).await);
    }
    if let Some(proxy) = &auth.front_proxy {
        verdicts.push(authorities("--requestheader-client-ca-file", &proxy.client_ca).await);
    }
    if let Some(link) = link {
        let hint = "renew the API server's certificate: kubeadm certs renew, or the provider's way";
        verdicts.push(expiry_verdict(&link.certificates, now(), hint));
        verdicts.push(own_credentials(&link.parts));
    }
    CheckVerdict::worst_of(verdicts)
}

/// A plugin issues a new certificate by itself; somebody must renew one in a file.
fn own_credentials(parts: &ConnectionParts) -> CheckVerdict {
    if !parts.has_credentials {
        return CheckVerdict::skipped("the gateway has no credentials");
    }
    let own = parts.certificate.as_deref();
    match own.and_then(CertificateFacts::read) {
        Some(facts) if !parts.is_by_plugin => {
            let hint =
                "renew the client certificate; the gateway reads the files again when they change";
            let own = [("the gateway's client certificate".to_owned(), facts)];
            expiry_verdict(&own, now(), hint)
        }
        Some(_) | None => credentials_verdict(parts.expires_at, now()),
    }
}

async fn authorities(flag: &str, path: &Path) -> CheckVerdict {
    match read_certificates(path.to_owned()).await {
        Ok(certificates) => authorities_verdict(&path.display().to_string(), &certificates, now()),
        Err(error) => CheckVerdict::failure(
            format!("{flag} {}: {error}", path.display()),
            "give a readable PEM file with the certificates of authorities",
        ),
    }
}

/// The certificates of a PEM file, at least one.
async fn read_certificates(path: PathBuf) -> io::Result<Vec<CertificateFacts>> {
    let read = spawn_blocking(move || {
        let metadata = std::fs::metadata(&path)?;
        // A pipe may stay silent for ever.
        if !metadata.is_file() {
            return Err(io::Error::other("not a file"));
        }
        if metadata.len() > FILE_LEN_MAX {
            return Err(io::Error::other("longer than any bundle of certificates"));
        }
        let pem = std::fs::read(&path)?;
        let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let ders = ders.map_err(io::Error::other)?;
        let facts: Vec<_> = ders
            .iter()
            .filter_map(|der| CertificateFacts::read(der))
            .collect();
        if facts.is_empty() || facts.len() < ders.len() {
            return Err(io::Error::other("no certificate in PEM format"));
        }
        Ok(facts)
    });
    read.await.map_err(io::Error::other)?
}
