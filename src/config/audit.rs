//! Settings of the audit log, and their validation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::settings_error::{SettingsError, in_range};
use crate::cli::ServeFlags;

/// In megabytes. A file of more than a terabyte would never be rotated.
const SIZE_RANGE: (u64, u64) = (1, 1 << 20);
/// More rotated files than anyone would search.
const BACKUPS_MAX: usize = 100_000;
/// Ten years.
const DAYS_MAX: u64 = 3_660;

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
    /// A file that is rotated.
    File {
        /// Path of the log file.
        path: PathBuf,
        /// Length at which the file is rotated, in bytes.
        len_max: u64,
        /// Maximum number of rotated files that are kept; 0 for all.
        backups_max: usize,
        /// Age at which rotated files are deleted; `None` for never.
        backup_age_max: Option<Duration>,
    },
}

/// Bytes per unit of `--audit-log-maxsize`.
pub(super) const MEGABYTE: u64 = 1_000_000;
/// Seconds per unit of `--audit-log-maxage`.
pub(super) const DAY_SECONDS: u64 = 86_400;

impl AuditSettings {
    pub(super) fn resolve(flags: &ServeFlags) -> Result<Option<Self>, SettingsError> {
        let (min, max) = SIZE_RANGE;
        let megabytes = in_range("audit-log-maxsize", flags.audit_log_maxsize, min, max)?;
        let backups_max = in_range(
            "audit-log-maxbackup",
            flags.audit_log_maxbackup,
            0,
            BACKUPS_MAX,
        )?;
        let days = in_range("audit-log-maxage", flags.audit_log_maxage, 0, DAYS_MAX)?;
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
