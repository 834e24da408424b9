//! The folders around files, and news of changes in them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch::{Receiver, Sender};
use tracing::{debug, warn};

/// As many links are followed on the way to a file as Linux follows.
const LINKS_MAX: usize = 40;

/// Tells when something changes in some folders. Cheap to clone; all clones share one inotify instance, of which a user may have
/// few.
#[derive(Clone)]
pub struct Folders(Arc<FolderState>);

struct FolderState {
    changed: Sender<()>,
    watched: Mutex<WatcherState>,
}

#[derive(Default)]
struct WatcherState {
    /// None where the system gives no more: then only polling is left.
    watcher: Option<RecommendedWatcher>,
    /// By who wants to know.
    wanted: BTreeMap<u64, BTreeSet<PathBuf>>,
    last: u64,
}

impl Default for Folders {
    fn default() -> Self {
        let (changed, _) = tokio::sync::watch::channel(());
        let told = changed.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error may hide a change.
            if event.map_or(true, |event| is_change(event.kind)) {
                told.send_replace(());
            }
        });
        let watcher = watcher
            .inspect_err(|error| {
                warn!(%error, "changes of files are noticed late: inotify cannot be used");
            })
            .ok();
        Self::telling(changed, watcher)
    }
}

impl Folders {
    fn telling(changed: Sender<()>, watcher: Option<RecommendedWatcher>) -> Self {
        Self(Arc::new(FolderState {
            changed,
            watched: Mutex::new(WatcherState {
                watcher,
                ..WatcherState::default()
            }),
        }))
    }

    /// As where inotify cannot be used.
    #[cfg(test)]
    pub(super) fn silent() -> Self {
        Self::telling(Sender::new(()), None)
    }

    /// News of changes in any folder.
    pub(super) fn changes(&self) -> Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Watches no folder yet.
    pub(super) fn watch(&self) -> FolderWatch {
        let mut watched = self
            .0
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watched.last += 1;
        FolderWatch(Arc::new(FolderTicket {
            number: watched.last,
            folders: self.clone(),
        }))
    }
}

/// What one source wants to be watched, as long as it lives.
#[derive(Clone)]
pub(super) struct FolderWatch(Arc<FolderTicket>);

struct FolderTicket {
    number: u64,
    folders: Folders,
}

impl FolderWatch {
    /// Watches the folders through which these files are reached, and no others. Blocks for a moment.
    pub(super) fn set(&self, files: &[PathBuf]) {
        let folders = files.iter().flat_map(|file| folders_of(file)).collect();
        self.0.set(folders);
    }
}

impl FolderTicket {
    fn set(&self, folders: BTreeSet<PathBuf>) {
        let shared = &self.folders.0;
        let mut watched = shared
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let WatcherState {
            watcher, wanted, ..
        } = &mut *watched;
        let before = wanted.insert(self.number, folders).unwrap_or_default();
        let Some(watcher) = watcher else {
            return;
        };
        for folder in before {
            if !wanted.values().any(|folders| folders.contains(&folder)) {
                // Gone folders are watched no more.
                let _ = watcher.unwatch(&folder);
            }
        }
        // Each time: a folder may have been replaced by one of the same name.
        for folder in wanted.get(&self.number).into_iter().flatten() {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                debug!(%error, folder = %folder.display(), "cannot be watched");
            }
        }
    }
}

impl Drop for FolderTicket {
    fn drop(&mut self) {
        self.set(BTreeSet::new());
        let shared = &self.folders.0;
        let mut watched = shared
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        watched.wanted.remove(&self.number);
    }
}

/// Reading, which is what we do ourselves, changes nothing.
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

/// The folders in which a change can give a path other contents: the file's own, and that of each symbolic link on the way.
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
                let mut further: Vec<PathStep> = steps(&target).collect();
                further.reverse();
                rest.append(&mut further);
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
        let folder = Folder::new();
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
