//! The audit log: which user requested what, and with which result, as the API server records it (`audit.k8s.io/v1`).
//!
//! ```text
//! request ──▶ AuditPolicy ── Metadata ──▶ AuditTrail ── a line per stage ──▶ AuditQueue ──▶ writer thread ──▶ file or standard output
//! ```
//!
//! The gateway records the requests that it answers itself: lists and watches from memory, shared watches of Tables, the admin port's
//! status, log filter and profile, and refusals, those of forwarded requests included. Other forwarded requests are in upstream's audit
//! log; those that travel as impersonation are in both, because only the gateway knows who sent them. Recording never delays a request: an event that does not fit into the queue is
//! dropped and counted.
//!
//! Start with [`Audit::begin`] and [`AuditTrail`]. `policy` decides which requests are recorded, `event` has the format of a line,
//! `request` collects the facts of a request, and `queue`, `writer` and `file` write the lines.

pub mod event;
mod file;
pub mod policy;
mod queue;
pub mod request;
mod trail;
mod writer;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::warn;

use self::file::LogFile;
use self::policy::{AuditPolicy, PolicyError};
use self::queue::AuditQueue;
pub use self::trail::AuditTrail;
use crate::config::{AuditOutput, AuditSettings};
use crate::metrics::{AuditEvents, AuditMetrics};

/// Policies have a few hundred lines. The bound protects memory if the path names something huge by mistake.
const POLICY_LEN_MAX: u64 = 1 << 20;

/// The audit log cannot be used. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The policy is longer than 1 MiB.
    #[error("{}: longer than 1 MiB", path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not a valid policy.
    #[error("{}:{mistake}", path.display())]
    Policy {
        /// Path of the file.
        path: PathBuf,
        /// The first mistake, with its line.
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
    /// Completes when the writer has written everything after the queue was closed.
    written: Mutex<Option<oneshot::Receiver<()>>>,
}

/// Reads a policy.
///
/// # Errors
/// If the file cannot be used.
pub fn check_policy(path: &Path) -> Result<(), AuditError> {
    read_policy(path).map(drop)
}

impl Audit {
    /// Reads the policy, opens the log and starts its writer.
    ///
    /// # Errors
    /// If the policy or the log file cannot be used.
    pub fn start(settings: &AuditSettings, metrics: AuditMetrics) -> Result<Self, AuditError> {
        let policy = read_policy(&settings.policy)?;
        let (path, output) = match &settings.log {
            AuditOutput::Stdout => (Path::new("standard output"), LogFile::stdout()),
            AuditOutput::File(path) => (path.as_path(), LogFile::open(path)),
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

    /// Path of the policy's file.
    #[must_use]
    pub fn policy_path(&self) -> &Path {
        &self.0.policy_path
    }

    /// Reloads the policy.
    ///
    /// # Errors
    /// If the file cannot be used; the previous policy stays in force.
    pub fn reload(&self) -> Result<(), AuditError> {
        self.0
            .policy
            .store(Arc::new(read_policy(&self.0.policy_path)?));
        Ok(())
    }

    /// Stops recording, and waits at most `timeout` until all queued events are written.
    pub async fn finish(&self, timeout: Duration) {
        self.0.queue.close();
        let written = self.0.written.lock().take();
        if let Some(written) = written
            && tokio::time::timeout(timeout, written).await.is_err()
        {
            warn!("some audit events were not written before the process ended");
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
