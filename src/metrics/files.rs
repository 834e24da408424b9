//! What is counted of files that are read again when they change.

use prometheus::{IntGauge, Opts, Registry};

use super::MetricsError;
use super::families::{ByLabel, Register};
use super::labels::Label;

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// What is audited.
    AuditPolicy,
    /// Authorities of client certificates.
    ClientAuthority,
    /// Authorities of client certificates and of front proxies, as far as handshakes hint at them.
    ClientAuthorityHint,
    /// Authorities of front proxies.
    FrontProxyAuthority,
    /// Certificates and keys shown to clients.
    ServingCertificate,
    /// The gateway's credentials upstream: kubeconfig, the files that it names, tokens, plugins.
    UpstreamCredential,
}

impl Label for FileKind {
    const ALL: &'static [Self] = &[
        Self::AuditPolicy,
        Self::ClientAuthority,
        Self::ClientAuthorityHint,
        Self::FrontProxyAuthority,
        Self::ServingCertificate,
        Self::UpstreamCredential,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::AuditPolicy => "audit_policy",
            Self::ClientAuthority => "client_authority",
            Self::ClientAuthorityHint => "client_authority_hint",
            Self::FrontProxyAuthority => "front_proxy_authority",
            Self::ServingCertificate => "serving_certificate",
            Self::UpstreamCredential => "upstream_credential",
        }
    }
}

/// How reading a file again went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// What it says is in force.
    Applied,
    /// It cannot be used; what was stays in force.
    Failed,
}

impl Label for ReloadOutcome {
    const ALL: &'static [Self] = &[Self::Applied, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Failed => "failed",
        }
    }
}

/// Handles of files that are read again.
#[derive(Clone, Debug)]
pub struct FileMetrics {
    reloads: Vec<(FileKind, ByLabel<ReloadOutcome>)>,
    /// When the first of the certificates shown to clients expires, in seconds since 1970; 0 without TLS.
    pub serving_certificate_expiry: IntGauge,
    /// When the gateway's credentials upstream expire, in seconds since 1970; 0 if they do not say so.
    pub upstream_credential_expiry: IntGauge,
}

impl FileMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let family = Register(registry).counters(
            "file_reloads_total",
            "Times files were read again because they changed or are about to expire, by kind and outcome.",
            &["file", "outcome"],
        )?;
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::with_opts(Opts::new(name, help))?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, MetricsError>(gauge)
        };
        let of_kind = |kind: &FileKind| (*kind, ByLabel::resolve(&family, &[kind.as_str()]));
        Ok(Self {
            reloads: FileKind::ALL.iter().map(of_kind).collect(),
            serving_certificate_expiry: gauge(
                "serving_certificate_expiry_timestamp_seconds",
                "When the first of the certificates shown to clients expires, in seconds since 1970; 0 without TLS.",
            )?,
            upstream_credential_expiry: gauge(
                "upstream_credential_expiry_timestamp_seconds",
                "When the gateway's credentials for upstream expire, in seconds since 1970; 0 if they do not say.",
            )?,
        })
    }

    /// Counts one reading.
    pub fn count(&self, kind: FileKind, outcome: ReloadOutcome) {
        if let Some((_, counters)) = self.reloads.iter().find(|(known, _)| *known == kind) {
            counters.inc(outcome);
        }
    }

    /// How many readings had this outcome.
    #[must_use]
    pub fn reloads(&self, kind: FileKind, outcome: ReloadOutcome) -> u64 {
        let found = self.reloads.iter().find(|(known, _)| *known == kind);
        found.map_or(0, |(_, counters)| counters.count(outcome))
    }
}
