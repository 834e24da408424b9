//! Metrics of files that are reloaded when they change.

use prometheus::{IntGauge, Registry};
use strum::{IntoStaticStr, VariantArray};

use super::families::{ByLabel, MetricsError, Register};
use super::labels::Label;

/// The use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FileKind {
    /// The audit policy.
    AuditPolicy,
    /// Authorities of client certificates.
    ClientAuthority,
    /// Authorities of client certificates and of front proxies, as the TLS handshake names them to clients.
    ClientAuthorityHint,
    /// The configuration file of `serve`.
    Configuration,
    /// Authorities of front proxies.
    FrontProxyAuthority,
    /// Serving certificates and their keys.
    ServingCertificate,
    /// The gateway's credentials for upstream: kubeconfig, the files that it names, tokens, plugins.
    UpstreamCredential,
}

/// The outcome of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReloadOutcome {
    /// The new content is in force.
    Applied,
    /// The new content cannot be used; the previous content stays in force.
    Failed,
}

/// Handles of files that are reloaded when they change.
#[derive(Clone, Debug)]
pub struct FileMetrics {
    reloads: Vec<(FileKind, ByLabel<ReloadOutcome>)>,
    /// Earliest expiry of the serving certificates, in seconds since 1970; 0 without TLS.
    pub serving_certificate_expiry: IntGauge,
    /// Expiry of the gateway's credentials for upstream, in seconds since 1970; 0 if it is unknown.
    pub upstream_credential_expiry: IntGauge,
}

impl FileMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let add = Register(registry);
        let family = add.counters(
            "file_reloads_total",
            "Reloads of files that changed or are about to expire, by kind and outcome.",
            &["file", "outcome"],
        )?;
        let of_kind = |kind: &FileKind| (*kind, ByLabel::resolve(&family, &[kind.as_str()]));
        Ok(Self {
            reloads: FileKind::VARIANTS.iter().map(of_kind).collect(),
            serving_certificate_expiry: add.gauge(
                "serving_certificate_expiry_timestamp_seconds",
                "Earliest expiry of the serving certificates, in seconds since 1970; 0 without TLS.",
            )?,
            upstream_credential_expiry: add.gauge(
                "upstream_credential_expiry_timestamp_seconds",
                "Expiry of the gateway's credentials for upstream, in seconds since 1970; 0 if they have none.",
            )?,
        })
    }

    /// Counts one reload.
    pub fn count(&self, kind: FileKind, outcome: ReloadOutcome) {
        if let Some((_, counters)) = self.reloads.iter().find(|(known, _)| *known == kind) {
            counters.inc(outcome);
        }
    }

    /// Number of reloads with this outcome.
    #[must_use]
    pub fn reloads(&self, kind: FileKind, outcome: ReloadOutcome) -> u64 {
        let found = self.reloads.iter().find(|(known, _)| *known == kind);
        found.map_or(0, |(_, counters)| counters.count(outcome))
    }
}
