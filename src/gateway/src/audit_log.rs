//! The gateway's audit log: started before the first request is served, and written out after the last one.

use tokio::task::JoinSet;

use super::reloads::Reloads;
use crate::audit::{Audit, AuditError};
use crate::config::AuditSettings;
use crate::metrics::{FileKind, Metrics};
use crate::reload::{FileHashes, WatchedFiles};

/// The log, and the policy file's content at start.
pub(super) struct AuditLog {
    pub(super) audit: Audit,
    policy: FileHashes,
}

impl AuditLog {
    /// Starts the audit log; `None` if the settings have none.
    pub(super) fn start(
        settings: Option<&AuditSettings>,
        metrics: &Metrics,
    ) -> Result<Option<Self>, AuditError> {
        let Some(settings) = settings else {
            return Ok(None);
        };
        let policy = FileHashes::of(std::slice::from_ref(&settings.policy));
        let audit = Audit::start(settings, metrics.audit())?;
        Ok(Some(Self { audit, policy }))
    }

    /// Starts the task that reads the policy again when its file changes.
    pub(super) fn follow(&self, reloads: &Reloads, tasks: &mut JoinSet<()>) {
        let audit = self.audit.clone();
        let paths = vec![audit.policy_path().to_owned()];
        let files = WatchedFiles::new(paths, move || Ok(audit.reload()?));
        reloads.follow(
            tasks,
            FileKind::AuditPolicy,
            files,
            Some(self.policy.clone()),
        );
    }
}
