//! Reloads files when they change.
//!
//! inotify watches the folders that contain the files, so renames and the symbolic links that Kubernetes swaps when it updates a mounted
//! Secret or ConfigMap are noticed. In case inotify reports nothing, contents are compared every 30 seconds, too. A source is reloaded
//! while the files' contents differ from those that were last applied: contents that cannot be used are tried again until they can be used,
//! or until the applied contents are back.
//!
//! Start with [`FileWatch`], which keeps one [`FileSource`] up to date; [`Folders`] is the inotify side.

mod folders;

use std::convert::Infallible;
use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::sync::watch::Receiver;
use tracing::{info, warn};

use crate::blocking::spawn_blocking;
use crate::error_chain::one_line;
use crate::metrics::{FileKind, FileMetrics, Label, ReloadOutcome};
use folders::FolderWatch;
pub use folders::Folders;
use parking_lot::{Mutex, MutexGuard};

/// How often contents are compared if inotify reports no change.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How often a source that is due is reloaded.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Only this many bytes of a file are compared: more than any bundle of certificates has.
const CONTENTS_LEN_MAX: u64 = 16 << 20;
/// Wait after a notification, because a change has several steps: files are written, then renamed.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Why files cannot be used. The message names the file, and never contains its contents.
pub type FileFault = Box<dyn Error + Send + Sync>;

/// Something whose state comes from files, such as a certificate or a policy.
pub trait FileSource: Send + Sync {
    /// The files to watch. They can change between calls, because one file can name others.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the files and applies their contents. If they cannot be used, the previous state stays in force.
    fn reload(&self) -> impl Future<Output = Result<(), FileFault>> + Send;

    /// Completes when the source is to be reloaded now, although no file has changed. Must be cancel-safe.
    fn requested(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Time until the source must be reloaded although no file changes; `None` for never.
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

    fn requested(&self) -> impl Future<Output = ()> + Send {
        (**self).requested()
    }

    fn due_in(&self) -> Option<Duration> {
        (**self).due_in()
    }
}

/// A source with fixed paths and a function that reads them.
pub struct WatchedFiles<F> {
    paths: Vec<PathBuf>,
    read: F,
}

impl<F> WatchedFiles<F>
where
    F: Fn() -> Result<(), FileFault> + Clone + Send + Sync + 'static,
{
    /// `read` reloads the files; it may block.
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
        spawn_blocking(self.read.clone()).await?
    }
}

/// Keeps one source up to date. Its state is kept outside [`FileWatch::run`], so the task that runs it can be restarted.
pub struct FileWatch<S> {
    kind: FileKind,
    source: S,
    metrics: FileMetrics,
    folders: Folders,
    state: Mutex<ReloadState>,
}

#[derive(Default)]
struct ReloadState {
    /// The contents that were last applied; `None` before the first reload, and if they are not known.
    applied: Option<FileHashes>,
    /// The contents that last failed, so that the same failure is logged only once.
    rejected: Option<FileHashes>,
}

impl<S: FileSource> FileWatch<S> {
    /// The source is reloaded once at first, because files may have changed since it was created; see [`FileWatch::with_applied`].
    pub fn new(kind: FileKind, source: S, folders: &Folders, metrics: &FileMetrics) -> Self {
        Self {
            kind,
            source,
            metrics: metrics.clone(),
            folders: folders.clone(),
            state: Mutex::default(),
        }
    }

    /// Declares `contents` as applied, so that the source is not reloaded as long as they stay the same. They must have been hashed
    /// before the source was created.
    #[must_use]
    pub fn with_applied(self, contents: FileHashes) -> Self {
        self.state().applied = Some(contents);
        self
    }

    /// Reloads the source whenever its files change. Never returns.
    pub async fn run(&self) -> Infallible {
        let mut changes = self.folders.changes();
        let folders = self.folders.watch();
        let mut is_requested = false;
        loop {
            self.reload_if_changed(&folders, is_requested).await;
            is_requested = self.wait(&mut changes).await;
        }
    }

    /// Waits until a file may have changed, or until the source is due. Returns whether somebody requests a reload in any case.
    async fn wait(&self, changes: &mut Receiver<()>) -> bool {
        let due = self.source.due_in();
        let pause = match due {
            // The reload that was due has just been tried.
            Some(Duration::ZERO) => RETRY_INTERVAL,
            Some(due) => due.min(POLL_INTERVAL),
            None => POLL_INTERVAL,
        };
        tokio::select! {
            // `self.folders` holds the sender, so the channel is never closed.
            _ = changes.changed() => tokio::time::sleep(DEBOUNCE).await,
            () = tokio::time::sleep(pause) => {}
            () = self.source.requested() => return true,
        }
        false
    }

    /// Compares the files' contents with those that were applied, and reloads the source if they differ, if it is due, or
    /// if somebody requests it.
    async fn reload_if_changed(&self, folders: &FolderWatch, is_requested: bool) {
        let files = self.source.files();
        // Watch the folders before reading the files, so that no change is missed in between.
        let (watched, folders) = (files.clone(), folders.clone());
        let read = spawn_blocking(move || {
            folders.set(&watched);
            FileHashes::of(&watched)
        });
        let Ok(contents) = read.await else {
            return;
        };
        let is_due = self.source.due_in().is_some_and(|due| due.is_zero());
        if !is_due && !is_requested && self.state().applied.as_ref() == Some(&contents) {
            return;
        }
        match self.source.reload().await {
            Ok(()) => {
                self.metrics.count(self.kind, ReloadOutcome::Applied);
                // If the files have changed since they were hashed, nobody knows which contents were read: the next look reloads.
                let after = spawn_blocking(move || FileHashes::of(&files)).await.ok();
                let mut state = self.state();
                // The first time, nothing need have changed.
                if state.applied.is_some() || state.rejected.is_some() {
                    info!(file = self.kind.as_str(), "reloaded");
                }
                *state = ReloadState {
                    applied: after.filter(|after| *after == contents),
                    rejected: None,
                };
            }
            Err(error) => {
                self.metrics.count(self.kind, ReloadOutcome::Failed);
                let mut state = self.state();
                if is_requested || state.rejected.as_ref() != Some(&contents) {
                    let error = one_line(&*error);
                    let file = self.kind.as_str();
                    warn!(
                        file,
                        error, "cannot reload; keeping the previous contents and retrying"
                    );
                }
                state.rejected = Some(contents);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ReloadState> {
        self.state.lock()
    }
}

/// The contents of files, as hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHashes(Vec<(PathBuf, Option<[u8; 32]>)>);

impl FileHashes {
    /// Reads and hashes files; blocks. A file that cannot be read is different from any content.
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

#[cfg(test)]
mod tests;
