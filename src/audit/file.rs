//! The log file. It is rotated by size, and rotated files are deleted by number and age, with the names and rules of kube-apiserver
//! (lumberjack).
//!
//! If another program, such as logrotate, moves the file away, a new file is created. Folders are created only at start: a folder that
//! disappears later is probably a volume that is no longer mounted.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::writer::Output;

/// How often to check that the path still names the open file.
const MOVE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Format of the time of rotation in a rotated file's name.
const BACKUP_TIME: &str = "%Y-%m-%dT%H-%M-%S%.3f";
/// Number of names that are tried for a rotated file, one millisecond apart, before an existing file is replaced.
const NAMES_MAX: i64 = 1000;

/// When the file is rotated, and which rotated files are kept. Zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogRetention {
    /// Length at which the file is rotated, in bytes.
    pub(super) len_max: u64,
    /// Number of rotated files that are kept.
    pub(super) backups_max: usize,
    /// Age at which rotated files are deleted, counted from their rotation.
    pub(super) age_max: Duration,
}

/// The log file, or standard output.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    retention: LogRetention,
    open: Option<OpenLog>,
    move_checked_at: Instant,
    /// Bytes of the current line that are already in the file.
    written: usize,
    /// The last failure to delete rotated files.
    cleanup_error: Option<io::Error>,
}

#[derive(Debug)]
struct OpenLog {
    file: File,
    len: u64,
    /// Files that are not regular, such as `/dev/stdout` or a pipe, are neither rotated nor checked for a move.
    is_regular: bool,
}

impl LogFile {
    /// Opens the file for appending, and creates its folder if necessary.
    pub(super) fn open(path: &Path, retention: LogRetention) -> io::Result<Self> {
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut file = Self {
            path: path.to_owned(),
            retention,
            open: Some(OpenLog::at(path)?),
            move_checked_at: Instant::now(),
            written: 0,
            cleanup_error: None,
        };
        file.delete_old_backups();
        Ok(file)
    }

    /// Standard output, which is not rotated.
    pub(super) fn stdout() -> io::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self {
            path: PathBuf::new(),
            retention: LogRetention::default(),
            open: Some(OpenLog {
                file,
                len: 0,
                is_regular: false,
            }),
            move_checked_at: Instant::now(),
            written: 0,
            cleanup_error: None,
        })
    }

    /// Closes the file if its path no longer names it. Otherwise updates its length, because another program may have truncated it.
    fn check_moved(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.move_checked_at) < MOVE_CHECK_INTERVAL {
            return;
        }
        self.move_checked_at = now;
        let Some(open) = self.open.as_mut().filter(|open| open.is_regular) else {
            return;
        };
        let at_path = fs::metadata(&self.path).ok();
        match (at_path, open.file.metadata()) {
            (Some(at_path), Ok(opened)) if is_same(&at_path, &opened) => open.len = opened.len(),
            _ => self.close(),
        }
    }

    fn close(&mut self) {
        self.open = None;
        // The next file gets the current line from its beginning.
        self.written = 0;
    }

    fn is_full_for(&self, line: &[u8]) -> bool {
        let max = self.retention.len_max;
        let open = self
            .open
            .as_ref()
            .filter(|open| open.is_regular && open.len > 0);
        max > 0 && open.is_some_and(|open| open.len + line.len() as u64 > max)
    }

    fn rotate(&mut self, now: Timestamp) -> io::Result<()> {
        let names = (0..NAMES_MAX).filter_map(|offset| {
            let at = now
                .checked_add(jiff::Span::new().milliseconds(offset))
                .ok()?;
            Some(self.backup_path(at))
        });
        let free = names
            .into_iter()
            .find(|name| fs::symlink_metadata(name).is_err());
        fs::rename(&self.path, free.unwrap_or_else(|| self.backup_path(now)))?;
        self.close();
        self.open = Some(OpenLog::at(&self.path)?);
        self.delete_old_backups();
        Ok(())
    }

    fn backup_path(&self, at: Timestamp) -> PathBuf {
        let (start, end) = self.backup_affixes();
        let time = at.strftime(BACKUP_TIME);
        self.path.with_file_name(format!("{start}{time}{end}"))
    }

    /// The parts of a rotated file's name before and after the time.
    fn backup_affixes(&self) -> (String, String) {
        let text = |part: Option<&std::ffi::OsStr>| {
            part.map(|part| part.to_string_lossy().into_owned())
                .unwrap_or_default()
        };
        let end = self
            .path
            .extension()
            .map(|_| format!(".{}", text(self.path.extension())));
        (
            format!("{}-", text(self.path.file_stem())),
            end.unwrap_or_default(),
        )
    }

    /// Deletes rotated files that exceed the number or the age, and keeps the error if that fails.
    fn delete_old_backups(&mut self) {
        if let Err(error) = self.try_delete_old_backups(Timestamp::now()) {
            self.cleanup_error = Some(error);
        }
    }

    fn try_delete_old_backups(&self, now: Timestamp) -> io::Result<()> {
        let LogRetention {
            backups_max,
            age_max,
            ..
        } = self.retention;
        if backups_max == 0 && age_max.is_zero() {
            return Ok(());
        }
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder.unwrap_or_else(|| Path::new(".")))? {
            let entry = entry?;
            if let Some(at) = self.rotated_at(&entry.file_name().to_string_lossy()) {
                backups.push((at, entry.path()));
            }
        }
        backups.sort();
        backups.reverse();
        let mut failed = None;
        for (number, (at, path)) in backups.iter().enumerate() {
            let age = Duration::try_from(now.duration_since(*at)).unwrap_or_default();
            let is_over = backups_max > 0 && number >= backups_max;
            if is_over || !age_max.is_zero() && age > age_max {
                failed = fs::remove_file(path).err().or(failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// When the file of this name was rotated; `None` if it is not one of this log's rotated files.
    fn rotated_at(&self, name: &str) -> Option<Timestamp> {
        let (start, end) = self.backup_affixes();
        let time = name
            .strip_prefix(start.as_str())?
            .strip_suffix(end.as_str())?;
        let time = DateTime::strptime(BACKUP_TIME, time).ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }
}

impl OpenLog {
    fn at(path: &Path) -> io::Result<Self> {
        // Readable by the gateway's user only: the log shows who requests what.
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let metadata = file.metadata()?;
        let is_regular = metadata.is_file();
        let mut len = metadata.len();
        if is_regular && len > 0 {
            // End a line that a process was writing when it was killed.
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                len += 1;
            }
        }
        Ok(Self {
            file,
            len,
            is_regular,
        })
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

impl Output for LogFile {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.check_moved();
        if self.written == 0 && self.is_full_for(line) {
            self.rotate(Timestamp::now())?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenLog::at(&self.path)?),
        };
        while self.written < line.len() {
            match open.file.write(&line[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count;
                    open.len += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        Ok(())
    }

    fn take_cleanup_error(&mut self) -> Option<io::Error> {
        self.cleanup_error.take()
    }
}

#[cfg(test)]
mod tests;
