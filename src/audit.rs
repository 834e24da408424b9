//! The audit log: who asked for what, and what came of it, as the API server records it (`audit.k8s.io/v1`).
//!
//! ```text
//! request ──▶ Policy ── Metadata ──▶ Trail ── a line a stage ──▶ Queue ──▶ the writer's thread ──▶ file or standard output
//! ```
//!
//! Recorded is what the gateway answers by itself: lists and watches from memory, shared watches of Tables, refusals. What is
//! forwarded is in upstream's audit log. Recording never holds up a request: what finds no room in the queue is lost and counted.

pub mod event;
mod file;
pub mod policy;
mod queue;
pub mod request;
mod trail;
mod writer;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::oneshot;
use tracing::warn;

use self::file::{LogFile, LogRetention};
use self::policy::{AuditAttributes, AuditLevel, AuditPolicy, PolicyError};
use self::queue::AuditQueue;
use self::request::Request;
pub use self::trail::AuditTrail;
use crate::auth::user::User;
use crate::config::{AuditOutput, AuditSettings};
use crate::metrics::{AuditEvents, AuditMetrics};

/// Policies have some hundred lines; a mistaken path to something huge must not fill the memory.
const POLICY_LEN_MAX: u64 = 1 << 20;

/// The audit log cannot be used. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Longer than any policy.
    #[error("{}: longer than 1 MiB", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Not a policy.
    #[error("{}:{mistake}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong where.
        mistake: PolicyError,
    },
}

/// The audit log. Cheap to clone; clones are the same log.
#[derive(Clone, Debug)]
pub struct Audit(Arc<AuditState>);

#[derive(Debug)]
struct AuditState {
    policy_path: PathBuf,
    policy: ArcSwap<AuditPolicy>,
    queue: AuditQueue,
    metrics: AuditMetrics,
    /// Told when the writer has written all.
    written: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Audit {
    /// Reads the policy, opens the log and starts its writer.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn start(settings: &AuditSettings, metrics: AuditMetrics) -> Result<Self, AuditError> {
        let policy = read_policy(&settings.policy)?;
        let (path, output) = match &settings.log {
            AuditOutput::Stdout => (Path::new("standard output"), LogFile::stdout()),
            AuditOutput::File {
                path,
                len_max,
                backups_max,
                backup_age_max,
            } => {
                let retention = LogRetention {
                    len_max: *len_max,
                    backups_max: *backups_max,
                    age_max: backup_age_max.unwrap_or_default(),
                };
                (path.as_path(), LogFile::open(path, retention))
            }
        };
        let io = |source| AuditError::Io {
            path: path.to_owned(),
            source,
        };
        let queue = AuditQueue::default();
        let written = writer::start(queue.clone(), output.map_err(io)?, metrics.clone());
        Ok(Self(Arc::new(AuditState {
            policy_path: settings.policy.clone(),
            policy: ArcSwap::from_pointee(policy),
            queue,
            metrics,
            written: Mutex::new(Some(written.map_err(io)?)),
        })))
    }

    /// The policy's file.
    #[must_use]
    pub fn policy_path(&self) -> &Path {
        &self.0.policy_path
    }

    /// Reads the policy again.
    ///
    /// # Errors
    /// It cannot be used; the old one stays in force.
    pub fn reload(&self) -> Result<(), AuditError> {
        self.0
            .policy
            .store(Arc::new(read_policy(&self.0.policy_path)?));
        Ok(())
    }

    /// Begins to record a request of this user, who is authenticated; `None` is nobody. `None` is returned if the policy wants
    /// nothing recorded.
    #[must_use]
    pub fn begin(&self, request: Request, user: Option<&Arc<User>>) -> Option<AuditTrail> {
        let verdict = self.0.policy.load().evaluate(AuditAttributes {
            user: user.map(AsRef::as_ref),
            verb: &request.verb,
            target: request.target(),
        });
        (verdict.level != AuditLevel::None)
            .then(|| AuditTrail::new(self.clone(), request, verdict.omitted, user.cloned()))
    }

    /// Records nothing more and waits until all is written, for so long at most.
    pub async fn finish(&self, within: Duration) {
        self.0.queue.close();
        let written = self
            .0
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(written) = written
            && tokio::time::timeout(within, written).await.is_err()
        {
            warn!("not all audit events were written before the end");
        }
    }

    fn put(&self, line: Vec<u8>) {
        if self.0.queue.put(line).is_err() {
            self.0.metrics.events.inc(AuditEvents::Dropped);
        }
    }
}

fn read_policy(path: &Path) -> Result<AuditPolicy, AuditError> {
    let io = |source| AuditError::Io {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(POLICY_LEN_MAX + 1)
        .read_to_string(&mut text)
        .map_err(io)?;
    if text.len() as u64 > POLICY_LEN_MAX {
        return Err(AuditError::TooLong {
            path: path.to_owned(),
        });
    }
    let policy = AuditPolicy::parse(&text).map_err(|mistake| AuditError::Policy {
        path: path.to_owned(),
        mistake,
    })?;
    if policy.exceeds_metadata() {
        warn!(
            policy = %path.display(),
            "audit levels Request and RequestResponse are recorded as Metadata: bodies are not written"
        );
    }
    Ok(policy)
}

#[cfg(test)]
mod tests;
