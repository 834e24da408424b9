//! The directory of the checkpoints: one file for each cache, readable by its owner only, and a lock that keeps other gateways out.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};

use super::seal::{SealError, StateKey};
use crate::resource::CacheKey;

/// The ending of a checkpoint's name.
const ENDING: &str = ".checkpoint";
/// The ending of a file that is being written.
const ASIDE: &str = ".checkpoint.new";
/// The file that is locked.
const LOCK: &str = "lock";
/// The directory's mode: its owner only.
const DIRECTORY_MODE: u32 = 0o700;
/// A file's mode: its owner only.
const FILE_MODE: u32 = 0o600;
/// A key file is a line of base64; a longer file is something else.
const KEY_FILE_LEN_MAX: u64 = 1024;

/// Why a state directory cannot be used; each is printed as one line.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory, its lock or its key cannot be used.
    #[error("cannot use {path} ({flag})")]
    Io {
        /// The flag that names the path.
        flag: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Others may read or write the directory.
    #[error(
        "{path} (--state-dir) is open to other users (mode {mode:o}); its files hold objects of the cluster: chmod 700"
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another process has locked the directory.
    #[error("{path} (--state-dir) is in use by another gateway")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The key file does not hold a key.
    #[error("cannot use {path} (--state-key-file)")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SealError,
    },
}

/// What a directory of checkpoints is like before a gateway opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryCondition {
    /// It will be created.
    Missing,
    /// No process uses it.
    Free,
    /// A gateway uses it.
    InUse,
}

/// A directory of checkpoints that this process alone uses.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    key: Option<StateKey>,
    len_max: u64,
    /// The system releases the lock with the process, however it ends.
    _lock: File,
}

impl StateDirectory {
    /// Creates the directory if it is missing, locks it, and removes what an earlier process left unfinished. All files together get at
    /// most `len_max` bytes.
    ///
    /// # Errors
    /// See [`DirectoryError`].
    pub fn open(
        path: &Path,
        key_file: Option<&Path>,
        len_max: u64,
    ) -> Result<Self, DirectoryError> {
        let failed = |source| DirectoryError::Io {
            flag: "--state-dir",
            path: path.to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(DIRECTORY_MODE);
        builder.create(path).map_err(failed)?;
        let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(DirectoryError::Open {
                path: path.to_owned(),
                mode,
            });
        }
        let key = key_file.map(read_key).transpose()?;
        let lock = private_file(&path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DirectoryError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let directory = Self {
            path: path.to_owned(),
            key,
            len_max,
            _lock: lock,
        };
        directory.remove_unfinished().map_err(failed)?;
        Ok(directory)
    }

    /// Looks at a directory and its key, and changes nothing.
    ///
    /// # Errors
    /// See [`DirectoryError`]; that the directory is in use is not an error.
    pub fn inspect(
        path: &Path,
        key_file: Option<&Path>,
    ) -> Result<DirectoryCondition, DirectoryError> {
        let failed = |source: io::Error| DirectoryError::Io {
            flag: "--state-dir",
            path: path.to_owned(),
            source,
        };
        key_file.map(read_key).transpose()?;
        // The last ancestor of a relative path is empty.
        let ancestors = path
            .ancestors()
            .map(|path| match path.as_os_str().is_empty() {
                true => Path::new("."),
                false => path,
            });
        let existing = ancestors.into_iter().find(|path| path.exists());
        let existing = existing.unwrap_or(path);
        access(existing, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|error| failed(error.into()))?;
        let metadata = fs::metadata(existing).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if existing != path {
            return Ok(DirectoryCondition::Missing);
        }
        let mode = metadata.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(DirectoryError::Open {
                path: path.to_owned(),
                mode,
            });
        }
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(DirectoryCondition::Free);
            }
            Err(error) => return Err(failed(error)),
        };
        // Shared, and released at the end of this function: two checks at the same time do not take each other for a gateway.
        match lock.try_lock_shared() {
            Ok(()) => Ok(DirectoryCondition::Free),
            Err(TryLockError::WouldBlock) => Ok(DirectoryCondition::InUse),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// The key that checkpoints are encrypted with.
    #[must_use]
    pub const fn key(&self) -> Option<&StateKey> {
        self.key.as_ref()
    }

    /// The caches that have a checkpoint, by the names of the files. Other files are left alone.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn keys(&self) -> io::Result<Vec<CacheKey>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            keys.extend(name.to_str().and_then(key_of));
        }
        keys.sort();
        Ok(keys)
    }

    /// Opens the checkpoint of a cache, and returns its length; `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn read(&self, key: &CacheKey) -> io::Result<Option<(BufReader<File>, u64)>> {
        let Some(path) = self.path_of(key, ENDING) else {
            return Ok(None);
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        Ok(Some((BufReader::with_capacity(1 << 18, file), len)))
    }

    /// How long ago the checkpoint of a cache was written to; `None` if there is none, or if that is in the future.
    ///
    /// # Errors
    /// If the file's metadata cannot be read.
    pub fn age(&self, key: &CacheKey) -> io::Result<Option<Duration>> {
        let Some(path) = self.path_of(key, ENDING) else {
            return Ok(None);
        };
        match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.modified()?.elapsed().ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A new file for the checkpoint of a cache, beside the one that is there. It counts only after [`StateDirectory::replace`].
    ///
    /// # Errors
    /// If the file cannot be made, or if the resource's name cannot be a file's name.
    pub fn write_aside(&self, key: &CacheKey) -> io::Result<File> {
        let path = self.path_of(key, ASIDE);
        let path = path.ok_or_else(|| io::Error::other("the resource's name is no file name"))?;
        remove_if_there(&path)?;
        private_file(&path)
    }

    /// Makes the file that was written aside the checkpoint of the cache. Afterwards either the old one or the new one is there, even if
    /// the machine stops in between.
    ///
    /// # Errors
    /// If the file cannot be brought to the disk or renamed.
    pub fn replace(&self, key: &CacheKey, aside: &File) -> io::Result<()> {
        aside.sync_data()?;
        if let (Some(from), Some(to)) = (self.path_of(key, ASIDE), self.path_of(key, ENDING)) {
            fs::rename(from, to)?;
        }
        File::open(&self.path)?.sync_all()
    }

    /// Removes the checkpoint of a cache and what was written aside for it.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self, key: &CacheKey) -> io::Result<()> {
        for ending in [ENDING, ASIDE] {
            if let Some(path) = self.path_of(key, ending) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// Bytes that the checkpoint of this cache may have beside all others.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn room_for(&self, key: &CacheKey) -> io::Result<u64> {
        let own = self.path_of(key, ENDING);
        let mut others = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if own.as_deref() != Some(&entry.path()) {
                // A file that was just removed takes no room.
                others += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        Ok(self.len_max.saturating_sub(others))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.ends_with(ASIDE)) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// `None` if the resource's name would lead elsewhere. Upstream's discovery is not trusted with paths.
    fn path_of(&self, key: &CacheKey, ending: &str) -> Option<PathBuf> {
        let name = format!("{}{ending}", key.state_name());
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        let is_safe = name.bytes().all(is_name) && !name.starts_with('.') && name.len() <= 255;
        is_safe.then(|| self.path.join(name))
    }
}

/// The cache of a checkpoint's file name, such as `pods.v1.json.checkpoint`.
fn key_of(name: &str) -> Option<CacheKey> {
    CacheKey::of_state_name(name.strip_suffix(ENDING)?)
}

/// Opens a file for writing that only its owner can read, whatever the process's umask is.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE);
    let file = options.open(path)?;
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read_key(path: &Path) -> Result<StateKey, DirectoryError> {
    let failed = |source| DirectoryError::Io {
        flag: "--state-key-file",
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let read = file.take(KEY_FILE_LEN_MAX).read_to_string(&mut text);
    read.map_err(failed)?;
    StateKey::parse(&text).map_err(|source| DirectoryError::Key {
        path: path.to_owned(),
        source,
    })
}
