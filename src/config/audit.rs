//! Settings of the audit log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{SettingsError, in_range};
use crate::cli::ServeFlags;

/// A file of a terabyte is rotated never.
const SIZE_RANGE: (u64, u64) = (1, 1 << 20);
/// More files than anybody looks through.
const FILES_TOP: usize = 100_000;
/// Ten years.
const DAYS_TOP: u64 = 3_660;

/// What is audited, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// File with a policy of `audit.k8s.io/v1`.
    pub policy: PathBuf,
    /// Where events go.
    pub log: AuditOutput,
}

/// Where audit events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditOutput {
    /// Standard output.
    Stdout,
    /// A file that is rotated.
    File {
        /// The file that is written to.
        path: PathBuf,
        /// Length at which it is rotated, in bytes.
        len_max: u64,
        /// Most rotated files that are kept; 0 for all.
        backups_max: usize,
        /// Age at which rotated files are deleted; `None` for never.
        backup_age_max: Option<Duration>,
    },
}

/// What `--audit-log-maxsize` counts.
pub(super) const MEGABYTE: u64 = 1_000_000;
/// What `--audit-log-maxage` counts.
pub(super) const DAY_SECONDS: u64 = 86_400;

impl AuditSettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let (least, most) = SIZE_RANGE;
        let megabytes = in_range("audit-log-maxsize", flags.audit_log_maxsize, least, most)?;
        let backups_max = in_range(
            "audit-log-maxbackup",
            flags.audit_log_maxbackup,
            0,
            FILES_TOP,
        )?;
        let days = in_range("audit-log-maxage", flags.audit_log_maxage, 0, DAYS_TOP)?;
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
            AuditOutput::File {
                path,
                len_max: megabytes * MEGABYTE,
                backups_max,
                backup_age_max: (days > 0).then(|| Duration::from_secs(days * DAY_SECONDS)),
            }
        };
        Ok(Some(Self { policy, log }))
    }
}
