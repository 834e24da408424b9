//! Tests with files that are written, renamed, replaced and removed, with and without inotify.

use std::os::unix::fs::symlink;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::metrics::Metrics;
use crate::tls::tests::samples::Folder;

/// Shorter than the polling interval, so a change that is noticed within it was reported by inotify.
const GUARD: Duration = Duration::from_secs(20);

/// Sends each text that it reads to the test; the text `bad` cannot be used.
#[derive(Clone)]
struct Reader {
    path: PathBuf,
    read: mpsc::Sender<String>,
    due: Option<Duration>,
}

impl FileSource for Reader {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    async fn reload(&self) -> Result<(), FileFault> {
        let text = std::fs::read_to_string(&self.path)?;
        let is_bad = text == "bad";
        self.read.send(text).await?;
        if is_bad { Err("bad".into()) } else { Ok(()) }
    }

    fn due_in(&self) -> Option<Duration> {
        self.due
    }
}

struct Stage {
    metrics: FileMetrics,
    read: mpsc::Receiver<String>,
    _running: JoinSet<Infallible>,
}

impl Stage {
    fn new(path: PathBuf, folders: &Folders) -> Self {
        Self::due(path, folders, None)
    }

    fn due(path: PathBuf, folders: &Folders, due: Option<Duration>) -> Self {
        let metrics = Metrics::new().unwrap().files();
        let (sender, read) = mpsc::channel(1_000);
        let source = Reader {
            path,
            read: sender,
            due,
        };
        let watch = FileWatch::new(FileKind::AuditPolicy, source, folders, &metrics);
        let mut running = JoinSet::new();
        running.spawn(async move { watch.run().await });
        Self {
            metrics,
            read,
            _running: running,
        }
    }

    /// Waits until `text` was read.
    async fn reads(&mut self, text: &str) {
        let read = async { while self.read.recv().await.unwrap() != text {} };
        tokio::time::timeout(GUARD, read)
            .await
            .unwrap_or_else(|_| panic!("{text} is not noticed"));
    }

    fn count(&self, outcome: ReloadOutcome) -> u64 {
        self.metrics.reloads(FileKind::AuditPolicy, outcome)
    }
}

#[tokio::test]
async fn a_change_is_noticed_however_it_is_made() {
    let folder = Folder::create();
    let path = folder.write("file", "written");
    let mut stage = Stage::new(path.clone(), &Folders::default());
    stage.reads("written").await;
    folder.write("file", "overwritten");
    stage.reads("overwritten").await;
    std::fs::rename(folder.write("next", "renamed"), &path).unwrap();
    stage.reads("renamed").await;
    std::fs::remove_file(&path).unwrap();
    folder.write("file", "created");
    stage.reads("created").await;
    assert_eq!(stage.count(ReloadOutcome::Applied), 4);
}

#[tokio::test]
async fn swapped_links_are_noticed() {
    let folder = Folder::create();
    let root = folder.0.canonicalize().unwrap();
    let version = |name: &str| {
        std::fs::create_dir(root.join(name)).unwrap();
        std::fs::write(root.join(name).join("file"), name).unwrap();
    };
    let swap = |name: &str| {
        symlink(name, root.join("..tmp")).unwrap();
        std::fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
    };
    version("..one");
    swap("..one");
    // As Kubernetes mounts a Secret: a path can lead through one link (`..data/file`) or through two (`file`).
    symlink("..data/file", root.join("file")).unwrap();
    let folders = Folders::default();
    let mut mounted = Stage::new(root.join("file"), &folders);
    let mut through = Stage::new(root.join("..data/file"), &folders);
    mounted.reads("..one").await;
    through.reads("..one").await;
    for (before, name) in [("..one", "..two"), ("..two", "..three")] {
        version(name);
        swap(name);
        std::fs::remove_dir_all(root.join(before)).unwrap();
        mounted.reads(name).await;
        through.reads(name).await;
    }
}

#[tokio::test]
async fn a_folder_that_is_replaced_goes_on_being_watched() {
    let folder = Folder::create();
    let inner = folder.0.join("inner");
    let make = |text: &str| {
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("file"), text).unwrap();
    };
    make("first");
    let mut stage = Stage::new(inner.join("file"), &Folders::default());
    stage.reads("first").await;
    std::fs::remove_dir_all(&inner).unwrap();
    make("second");
    // inotify reports the removal of the old folder. Whether the new file is noticed then or by polling depends on timing.
    let read = async { while stage.read.recv().await.unwrap() != "second" {} };
    let late = POLL_INTERVAL + GUARD;
    tokio::time::timeout(late, read).await.unwrap();
    std::fs::write(inner.join("file"), "third").unwrap();
    stage.reads("third").await;
}

#[tokio::test(start_paused = true)]
async fn without_inotify_a_change_is_found_by_looking() {
    let folder = Folder::create();
    let path = folder.write("file", "one");
    let mut stage = Stage::new(path, &Folders::silent());
    assert_eq!(stage.read.recv().await.unwrap(), "one");
    for text in ["two", "three"] {
        folder.write("file", text);
        assert_eq!(stage.read.recv().await.unwrap(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_used_is_tried_again_until_it_can() {
    let folder = Folder::create();
    let path = folder.write("file", "good");
    let mut stage = Stage::new(path.clone(), &Folders::silent());
    assert_eq!(stage.read.recv().await.unwrap(), "good");
    folder.write("file", "bad");
    for _ in 0..3 {
        assert_eq!(stage.read.recv().await.unwrap(), "bad");
    }
    folder.write("file", "better");
    while stage.read.recv().await.unwrap() == "bad" {}
    // The clock stands still until the file has been hashed again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::fs::remove_file(path).unwrap();
    while stage.count(ReloadOutcome::Failed) < 4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(stage.count(ReloadOutcome::Applied), 2);
    // Contents that are already applied are not read again.
    folder.write("file", "better");
    tokio::time::sleep(2 * POLL_INTERVAL).await;
    assert!(stage.read.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_read_again_and_not_in_a_storm() {
    let folder = Folder::create();
    let path = folder.write("file", "bad");
    let mut stage = Stage::due(path, &Folders::silent(), Some(Duration::ZERO));
    tokio::time::sleep(10 * RETRY_INTERVAL).await;
    let mut count = 0;
    while stage.read.try_recv().is_ok() {
        count += 1;
    }
    assert!((9..=11).contains(&count), "{count}");
    let path = folder.write("good", "good");
    let mut stage = Stage::due(path, &Folders::silent(), Some(Duration::from_secs(5)));
    stage.reads("good").await;
}

#[tokio::test(start_paused = true)]
async fn what_was_in_force_before_the_watch_is_not_read_twice() {
    let folder = Folder::create();
    let path = folder.write("file", "one");
    let metrics = Metrics::new().unwrap().files();
    let applied = FileHashes::of(std::slice::from_ref(&path));
    let (sender, mut read) = mpsc::channel(10);
    let source = Reader {
        path,
        read: sender,
        due: None,
    };
    let watch = FileWatch::new(FileKind::AuditPolicy, source, &Folders::silent(), &metrics);
    let watch = watch.with_applied(applied);
    let mut running = JoinSet::new();
    running.spawn(async move { watch.run().await });
    tokio::time::sleep(3 * POLL_INTERVAL).await;
    assert!(read.is_empty());
    folder.write("file", "two");
    assert_eq!(read.recv().await.unwrap(), "two");
}

/// Reads a file that changes just before it is read for the first time.
struct RaceSource {
    path: PathBuf,
    read: mpsc::Sender<String>,
    is_first: Mutex<bool>,
}

impl FileSource for RaceSource {
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    async fn reload(&self) -> Result<(), FileFault> {
        if std::mem::take(&mut *self.is_first.lock()) {
            std::fs::write(&self.path, "new")?;
        }
        let text = std::fs::read_to_string(&self.path)?;
        self.read.send(text).await?;
        Ok(())
    }
}

#[tokio::test]
async fn contents_that_come_back_are_read_again_although_they_were_never_applied() {
    let folder = Folder::create();
    let path = folder.write("file", "old");
    let (sender, mut read) = mpsc::channel(1_000);
    let source = RaceSource {
        path: path.clone(),
        read: sender,
        is_first: Mutex::new(true),
    };
    let folders = Folders::default();
    let metrics = Metrics::new().unwrap().files();
    let watch = FileWatch::new(FileKind::AuditPolicy, source, &folders, &metrics);
    let watched = folders.watch();
    watch.reload_if_changed(&watched, false).await;
    assert_eq!(read.try_recv().ok().as_deref(), Some("new"));
    std::fs::write(&path, "old").unwrap();
    watch.reload_if_changed(&watched, false).await;
    assert_eq!(read.try_recv().ok().as_deref(), Some("old"));
}
