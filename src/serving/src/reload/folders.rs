//! Watches the folders that contain files, with inotify, and reports that something in them has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::watch::{Receiver, Sender};
use tracing::{debug, warn};

/// Number of symbolic links that are followed in one path; Linux has the same limit.
const LINKS_MAX: usize = 40;

/// Reports changes in folders. Cheap to clone; all clones share one inotify instance, because the system allows a user only a
/// few.
#[derive(Clone)]
pub struct Folders(Arc<FolderState>);

struct FolderState {
    changed: Sender<()>,
    watched: Mutex<WatcherState>,
}

#[derive(Default)]
struct WatcherState {
    /// `None` if the system provides no inotify instance; changes are then found by polling only.
    watcher: Option<RecommendedWatcher>,
    /// The folders of each [`FolderWatch`], by its number.
    by_watch: BTreeMap<u64, BTreeSet<PathBuf>>,
    /// Number of the newest [`FolderWatch`].
    last: u64,
}

impl Default for Folders {
    fn default() -> Self {
        let (changed, _) = tokio::sync::watch::channel(());
        let sender = changed.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // After an error a change may have been missed.
            if event.map_or(true, |event| is_change(event.kind)) {
                sender.send_replace(());
            }
        });
        let watcher = watcher
            .inspect_err(|error| {
                warn!(%error, "cannot use inotify; changes of files are noticed by polling only");
            })
            .ok();
        Self::with_watcher(changed, watcher)
    }
}

impl Folders {
    fn with_watcher(changed: Sender<()>, watcher: Option<RecommendedWatcher>) -> Self {
        Self(Arc::new(FolderState {
            changed,
            watched: Mutex::new(WatcherState {
                watcher,
                ..WatcherState::default()
            }),
        }))
    }

    /// Without inotify.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::with_watcher(Sender::new(()), None)
    }

    /// Notifications of changes in any watched folder.
    pub(super) fn changes(&self) -> Receiver<()> {
        self.0.changed.subscribe()
    }

    /// A new watch, without folders at first.
    pub(super) fn watch(&self) -> FolderWatch {
        let mut watched = self.0.watched.lock();
        watched.last += 1;
        FolderWatch(Arc::new(FolderTicket {
            number: watched.last,
            folders: self.clone(),
        }))
    }
}

/// The folders that one source watches. Dropping the last clone stops watching them.
#[derive(Clone)]
pub(super) struct FolderWatch(Arc<FolderTicket>);

struct FolderTicket {
    number: u64,
    folders: Folders,
}

impl FolderWatch {
    /// Watches exactly the folders on which the contents of these files depend. Blocks briefly.
    pub(super) fn set(&self, files: &[PathBuf]) {
        let folders = files.iter().flat_map(|file| folders_of(file)).collect();
        self.0.set(folders);
    }
}

impl FolderTicket {
    fn set(&self, folders: BTreeSet<PathBuf>) {
        let shared = &self.folders.0;
        let mut watched = shared.watched.lock();
        let WatcherState {
            watcher, by_watch, ..
        } = &mut *watched;
        let before = by_watch.insert(self.number, folders).unwrap_or_default();
        let Some(watcher) = watcher else {
            return;
        };
        for folder in before {
            if !by_watch.values().any(|folders| folders.contains(&folder)) {
                // Fails if the folder no longer exists; then it is no longer watched anyway.
                let _ = watcher.unwatch(&folder);
            }
        }
        // Every time, because a folder may have been replaced by another one of the same name.
        for folder in by_watch.get(&self.number).into_iter().flatten() {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                debug!(%error, folder = %folder.display(), "cannot watch the folder");
            }
        }
    }
}

impl Drop for FolderTicket {
    fn drop(&mut self) {
        self.set(BTreeSet::new());
        let shared = &self.folders.0;
        let mut watched = shared.watched.lock();
        watched.by_watch.remove(&self.number);
    }
}

/// Whether an event can change contents. Reads are ignored, because the gateway itself reads the files.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

/// The folders in which a change can alter what `path` refers to: the file's own folder, and that of each symbolic link in the path.
fn folders_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut at = PathBuf::new();
    let mut links = 0;
    let mut rest: Vec<PathStep> = steps(path).collect();
    rest.reverse();
    while let Some(step) = rest.pop() {
        let name = match step {
            PathStep::Root => {
                at = PathBuf::from("/");
                continue;
            }
            PathStep::Up => {
                at.push("..");
                continue;
            }
            PathStep::Down(name) => name,
        };
        let next = at.join(name);
        let folder = if at.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            at.clone()
        };
        match std::fs::read_link(&next) {
            Ok(target) if links < LINKS_MAX => {
                links += 1;
                folders.insert(folder);
                let mut target_steps: Vec<PathStep> = steps(&target).collect();
                target_steps.reverse();
                rest.append(&mut target_steps);
            }
            Ok(_) | Err(_) => {
                if rest.is_empty() {
                    folders.insert(folder);
                }
                at = next;
            }
        }
    }
    folders
}

enum PathStep {
    Root,
    Up,
    Down(OsString),
}

fn steps(path: &Path) -> impl Iterator<Item = PathStep> {
    path.components().filter_map(|component| match component {
        Component::RootDir => Some(PathStep::Root),
        Component::ParentDir => Some(PathStep::Up),
        Component::Normal(name) => Some(PathStep::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tls::tests::samples::Folder;

    #[test]
    fn every_folder_on_the_way_is_found() {
        let folder = Folder::create();
        let root = folder.0.canonicalize().unwrap();
        for name in ["mounted/..one", "mounted/..two", "elsewhere"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("mounted/..one/tls.crt"), "one").unwrap();
        symlink("..one", root.join("mounted/..data")).unwrap();
        symlink("..data/tls.crt", root.join("mounted/tls.crt")).unwrap();
        symlink(root.join("mounted"), root.join("link")).unwrap();
        symlink("../link/tls.crt", root.join("elsewhere/out.crt")).unwrap();
        let found = |path: &str| -> Vec<String> {
            let shortened = |folder: PathBuf| {
                let folder = folder
                    .to_str()
                    .unwrap()
                    .replacen(root.to_str().unwrap(), "", 1);
                folder.trim_start_matches('/').to_owned()
            };
            let mut found: Vec<_> = folders_of(&root.join(path))
                .into_iter()
                .map(shortened)
                .collect();
            found.sort();
            found
        };
        assert_eq!(found("mounted/tls.crt"), ["mounted", "mounted/..one"]);
        assert_eq!(found("link/tls.crt"), ["", "mounted", "mounted/..one"]);
        let through = ["elsewhere", "elsewhere/..", "mounted", "mounted/..one"];
        assert_eq!(found("elsewhere/out.crt"), through);
        assert_eq!(found("mounted/none"), ["mounted"]);
        symlink("loop", root.join("loop")).unwrap();
        assert_eq!(found("loop"), [""]);
    }
}
