//! Settings of the audit log, and their validation.

use std::path::{Path, PathBuf};

use super::settings_error::SettingsError;
use crate::cli::ServeFlags;

/// Which requests are audited, and where events are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// Path of a policy of `audit.k8s.io/v1`.
    pub policy: PathBuf,
    /// Where events are written to.
    pub log: AuditOutput,
}

/// Where audit events are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// The file at this path.
    File(PathBuf),
}

impl AuditSettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let (policy, path) = match (&flags.audit_policy_file, &flags.audit_log_path) {
            (Some(policy), Some(path)) => (policy.clone(), path.clone()),
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err(SettingsError::Needs {
                    flag: "audit-policy-file",
                    needed: "--audit-log-path",
                });
            }
            (None, Some(_)) => {
                return Err(SettingsError::Needs {
                    flag: "audit-log-path",
                    needed: "--audit-policy-file: without a policy nothing is audited",
                });
            }
        };
        let log = if path == Path::new("-") {
            AuditOutput::Stdout
        } else {
            AuditOutput::File(path)
        };
        Ok(Some(Self { policy, log }))
    }
}
