//! Files that are read again when they change.
//!
//! Changes are noticed by inotify on the folders around the files, so that renames and the swaps of symbolic links by which
//! Kubernetes updates mounted Secrets and ConfigMaps are seen, and by comparing the files' contents every half minute where
//! inotify says nothing. What counts is that contents differ from those last put in force, so that a change that could not be
//! used is tried again until it can, or until the old contents are back.

mod folders;

use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::sync::watch::Receiver;
use tracing::{info, warn};

use crate::metrics::{FileKind, FileMetrics, Label, ReloadOutcome};
use folders::FolderWatch;
pub use folders::Folders;

/// How often contents are compared when nobody reports a change.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How often a source that is due is tried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// More than any bundle of certificates has.
const CONTENTS_LEN_MAX: u64 = 16 << 20;
/// A change comes in several steps: files are written, then renamed.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Why files cannot be used. Its message names the file, and never shows contents.
pub type FileFault = Box<dyn Error + Send + Sync>;

/// Something that is made of files.
pub trait FileSource: Send + Sync {
    /// The files as of now; not the same ones for ever if one of them names others.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files and puts in force what they say. If they cannot be used, what was stays in force.
    fn reload(&self) -> impl Future<Output = Result<(), FileFault>> + Send;

    /// How long until it is to be read again although no file changes; `None` for never.
    fn due_in(&self) -> Option<Duration> {
        None
    }
}

impl<S: FileSource> FileSource for Arc<S> {
    fn files(&self) -> Vec<PathBuf> {
        (**self).files()
    }

    fn reload(&self) -> impl Future<Output = Result<(), FileFault>> + Send {
        (**self).reload()
    }

    fn due_in(&self) -> Option<Duration> {
        (**self).due_in()
    }
}

/// Files that stay the same ones, and what reads them.
pub struct WatchedFiles<F> {
    paths: Vec<PathBuf>,
    read: F,
}

impl<F> WatchedFiles<F>
where
    F: Fn() -> Result<(), FileFault> + Clone + Send + Sync + 'static,
{
    /// `read` may block.
    pub const fn new(paths: Vec<PathBuf>, read: F) -> Self {
        Self { paths, read }
    }
}

impl<F> FileSource for WatchedFiles<F>
where
    F: Fn() -> Result<(), FileFault> + Clone + Send + Sync + 'static,
{
    fn files(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }

    async fn reload(&self) -> Result<(), FileFault> {
        tokio::task::spawn_blocking(self.read.clone()).await?
    }
}

/// Keeps one source up to date. It outlives its task, which may begin anew.
pub struct FileWatch<S> {
    kind: FileKind,
    source: S,
    metrics: FileMetrics,
    folders: Folders,
    state: Mutex<ReloadState>,
}

#[derive(Default)]
struct ReloadState {
    /// What was last put in force; `None` before anything was.
    applied: Option<FileHashes>,
    /// What was last found unusable: said once.
    refused: Option<FileHashes>,
}

impl<S: FileSource> FileWatch<S> {
    /// The source is read again once at first: files may have changed since it was made.
    pub fn new(kind: FileKind, source: S, folders: &Folders, metrics: &FileMetrics) -> Self {
        Self {
            kind,
            source,
            metrics: metrics.clone(),
            folders: folders.clone(),
            state: Mutex::default(),
        }
    }

    /// Takes `contents` for what is in force, so that nothing is read again as long as they are the same. To be taken before the
    /// source is made.
    #[must_use]
    pub fn with_applied(self, contents: FileHashes) -> Self {
        self.state().applied = Some(contents);
        self
    }

    /// Reads again whatever changes. Has no end.
    pub async fn run(&self) -> Infallible {
        let mut changes = self.folders.changes();
        let folders = self.folders.watch();
        loop {
            self.follow(&folders).await;
            self.wait(&mut changes).await;
        }
    }

    /// Waits until something may have changed, or the source is due.
    async fn wait(&self, changes: &mut Receiver<()>) {
        let due = self.source.due_in();
        let pause = match due {
            // It was just tried.
            Some(Duration::ZERO) => RETRY_INTERVAL,
            Some(due) => due.min(POLL_INTERVAL),
            None => POLL_INTERVAL,
        };
        tokio::select! {
            // Who sends lives as long as `self.folders`.
            _ = changes.changed() => tokio::time::sleep(DEBOUNCE).await,
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// Looks at the files, and reads them if they differ from what is in force.
    async fn follow(&self, folders: &FolderWatch) {
        let files = self.source.files();
        // Watched before they are read, so that no change falls between.
        let (watched, folders) = (files.clone(), folders.clone());
        let read = tokio::task::spawn_blocking(move || {
            folders.set(&watched);
            FileHashes::of(&watched)
        });
        let Ok(contents) = read.await else {
            return;
        };
        let is_due = self.source.due_in().is_some_and(|due| due.is_zero());
        if !is_due && self.state().applied.as_ref() == Some(&contents) {
            return;
        }
        match self.source.reload().await {
            Ok(()) => {
                self.metrics.count(self.kind, ReloadOutcome::Applied);
                info!(file = self.kind.as_str(), "read again");
                *self.state() = ReloadState {
                    applied: Some(contents),
                    refused: None,
                };
            }
            Err(error) => {
                self.metrics.count(self.kind, ReloadOutcome::Failed);
                let mut state = self.state();
                if state.refused.as_ref() != Some(&contents) {
                    let error = chain(&*error);
                    let file = self.kind.as_str();
                    warn!(
                        file,
                        error, "cannot be used; what was in force stays, tried again"
                    );
                }
                state.refused = Some(contents);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ReloadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands in some files, as hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHashes(Vec<(PathBuf, Option<[u8; 32]>)>);

impl FileHashes {
    /// Reads files; blocks. One that cannot be read counts as such.
    #[must_use]
    pub fn of(files: &[PathBuf]) -> Self {
        let hash = |path: &PathBuf| {
            let mut bytes = Vec::new();
            let file = File::open(path).ok()?;
            file.take(CONTENTS_LEN_MAX).read_to_end(&mut bytes).ok()?;
            digest(&SHA256, &bytes).as_ref().try_into().ok()
        };
        Self(
            files
                .iter()
                .map(|path| (path.clone(), hash(path)))
                .collect(),
        )
    }
}

/// An error and its causes, on one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
