//! Checks of certificates, keys and credentials in files.

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
use super::clock::future_verdict;
use super::upstream::UpstreamLink;
use super::verdict::CheckVerdict;
use super::words::{CERTIFICATES, counted};
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

/// Checks the files of certificates; without a connection to the API servers, what depends on it is skipped.
pub(super) async fn check(
    list: &mut Checklist<'_>,
    settings: &CheckSettings,
    link: Option<&UpstreamLink>,
) {
    let is_clock_chosen = list.is_chosen(CheckCategory::Clock);
    if !list.is_chosen(CheckCategory::Certificates) && !is_clock_chosen {
        return;
    }
    let mut all = check_serving(list, settings).await;
    let auth = &settings.serve.auth;
    let client_ca = authorities("--client-ca-file", auth.client_ca.as_deref());
    list.make(&checks::CLIENT_CA, client_ca).await;
    let front_proxy = auth.front_proxy.as_ref().map(|proxy| &*proxy.client_ca);
    let front_proxy = authorities("--requestheader-client-ca-file", front_proxy);
    list.make(&checks::FRONT_PROXY_CA, front_proxy).await;
    match link {
        None => {
            let reason = "there is no connection to the API server";
            list.skip(&checks::UPSTREAM_CERTIFICATE, reason);
            list.skip(&checks::OWN_CREDENTIALS, reason);
        }
        Some(link) => {
            let hint =
                "renew the API server's certificate: kubeadm certs renew, or the provider's way";
            let verdict = expiry_verdict(&link.certificates, now(), hint);
            list.make(&checks::UPSTREAM_CERTIFICATE, async { verdict })
                .await;
            let own = own_certificate(&link.parts);
            let verdict = own_credentials(&link.parts, &own);
            list.make(&checks::OWN_CREDENTIALS, async { verdict }).await;
            all.extend(link.certificates.iter().cloned());
            all.extend(own);
        }
    }
    let verdict = future_verdict(&all, now());
    list.make(&checks::CLOCK_CERTIFICATES, async { verdict })
        .await;
}

fn own_certificate(parts: &ConnectionParts) -> Certificates {
    let own = parts.certificate.as_deref();
    let own = own.and_then(CertificateFacts::read);
    let own = own.map(|facts| ("the gateway's client certificate".to_owned(), facts));
    own.into_iter().collect()
}

/// A plugin issues a new certificate by itself; somebody must renew one in a file.
fn own_credentials(
    parts: &ConnectionParts,
    certificate: &[(String, CertificateFacts)],
) -> CheckVerdict {
    if !parts.has_credentials {
        return CheckVerdict::skipped("the gateway has no credentials");
    }
    if parts.is_by_plugin || certificate.is_empty() {
        return credentials_verdict(parts.expires_at, now());
    }
    let hint = "renew the client certificate; the gateway reads the files again when they change";
    expiry_verdict(certificate, now(), hint)
}

async fn check_serving(list: &mut Checklist<'_>, settings: &CheckSettings) -> Certificates {
    let Some(files) = TlsFiles::of(&settings.serve) else {
        for spec in [
            &checks::SERVING_CERTIFICATE,
            &checks::SERVING_NAMES,
            &checks::SERVING_EXPIRY,
        ] {
            list.skip(spec, "the gateway serves plain HTTP");
        }
        return Vec::new();
    };
    let mut certificates = Vec::new();
    let paths =
        std::iter::once(&files.default.cert).chain(files.named.iter().map(|pair| &pair.cert));
    for path in paths {
        // What cannot be read is said by the check of the pair.
        let read = read_certificates(path.clone()).await.unwrap_or_default();
        let first = read.into_iter().next();
        certificates.extend(first.map(|facts| (path.display().to_string(), facts)));
    }
    let mut identity = None;
    let usable = usable(files, &mut identity);
    if !list.make(&checks::SERVING_CERTIFICATE, usable).await {
        for spec in [&checks::SERVING_NAMES, &checks::SERVING_EXPIRY] {
            list.skip(spec, "serving-certificate failed");
        }
        return certificates;
    }
    let served = identity.map(|identity| served(&identity, &settings.client_names));
    let names = names_verdict(&certificates, &served.unwrap_or_default());
    list.make(&checks::SERVING_NAMES, async { names }).await;
    let hint = "issue a new certificate; the gateway reads the files again when they change";
    let expiry = expiry_verdict(&certificates, now(), hint);
    list.make(&checks::SERVING_EXPIRY, async { expiry }).await;
    certificates
}

/// Each of these names, with the certificate that its clients get.
fn served(identity: &ServerIdentity, names: &[String]) -> Certificates {
    let certificates = names.iter().filter_map(|name| {
        let der = identity.certificate_for(name)?;
        Some((name.clone(), CertificateFacts::read(&der)?))
    });
    certificates.collect()
}

/// Whether the gateway would start with these files. Its authorities have checks of their own.
async fn usable(files: TlsFiles, identity: &mut Option<ServerIdentity>) -> CheckVerdict {
    let files = TlsFiles {
        client_authorities: Vec::new(),
        ..files
    };
    let count = 1 + files.named.len();
    let read = spawn_blocking(move || ServerIdentity::read(files)).await;
    match read {
        Ok(Ok(read)) => {
            *identity = Some(read);
            CheckVerdict::ok(format!("{} with keys", counted(count, CERTIFICATES)))
        }
        Ok(Err(error)) => CheckVerdict::failure(
            one_line(&error),
            "give a certificate chain and its key, both PEM: --tls-cert, --tls-key, --tls-sni-cert-key",
        ),
        Err(error) => CheckVerdict::failure(
            error.to_string(),
            "check the files of --tls-cert and --tls-key",
        ),
    }
}

async fn authorities(flag: &'static str, path: Option<&Path>) -> CheckVerdict {
    let Some(path) = path else {
        return CheckVerdict::skipped(format!("there is no {flag}"));
    };
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
